"""Random types with NOT NULL inside, rows of them, and whether Delta takes a row.

As delta-spark has it, a struct that is null has fields that are null. It declares nothing NOT NULL inside arrays and
maps unless it is told not to enforce that; `breaks` has such a null break the row.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import types as t

ABSENT = 0.3
"""How often a value is null, whatever its type says."""


def random_struct(rng: random.Random, depth: int, *, structs_only: bool = False) -> t.StructType:
    """Return a struct of up to three fields, about half of which are NOT NULL."""
    fields = [
        t.StructField(name, random_type(rng, depth - 1, structs_only=structs_only), rng.random() < 0.5)
        for name in ("a", "B", "c")[: rng.randint(1, 3)]
    ]
    return t.StructType(fields)


def random_type(rng: random.Random, depth: int, *, structs_only: bool = False) -> t.DataType:
    """Return a type that is at most so many levels deep."""
    form = (
        rng.choice(["scalar", "struct"] if structs_only else ["scalar", "struct", "array", "map"])
        if depth
        else "scalar"
    )
    if form == "struct":
        return random_struct(rng, depth, structs_only=structs_only)
    if form == "array":
        return t.ArrayType(random_type(rng, depth - 1), rng.random() < 0.5)
    if form == "map":
        return t.MapType(t.StringType(), random_type(rng, depth - 1), rng.random() < 0.5)
    return t.IntegerType()


def random_value(rng: random.Random, kind: t.DataType) -> Any:
    """Return a value of a type, with nulls anywhere but in the keys of maps."""
    if rng.random() < ABSENT:
        return None
    if isinstance(kind, t.StructType):
        return {field.name: random_value(rng, field.dataType) for field in kind}
    if isinstance(kind, t.ArrayType):
        return [random_value(rng, kind.elementType) for _ in range(rng.randint(0, 2))]
    if isinstance(kind, t.MapType):
        return {f"k{number}": random_value(rng, kind.valueType) for number in range(rng.randint(0, 2))}
    return rng.randint(0, 9)


def nullable(kind: t.DataType) -> t.DataType:
    """Return a type without NOT NULL, as a query has it."""
    if isinstance(kind, t.StructType):
        return t.StructType([t.StructField(field.name, nullable(field.dataType)) for field in kind])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(nullable(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(kind.keyType, nullable(kind.valueType))
    return kind


def breaks(value: Any, kind: t.DataType, *, may_be_null: bool) -> bool:
    """Whether a value has a null where there must be none."""
    if isinstance(kind, t.StructType):
        if value is None and not may_be_null:
            return True
        return any(breaks(value and value[each.name], each.dataType, may_be_null=each.nullable) for each in kind)
    if value is None:
        return not may_be_null
    if isinstance(kind, t.ArrayType):
        return any(breaks(each, kind.elementType, may_be_null=kind.containsNull) for each in value)
    if isinstance(kind, t.MapType):
        return any(breaks(each, kind.valueType, may_be_null=kind.valueContainsNull) for each in value.values())
    return False


def random_rows(seed: int, count: int) -> Iterator[tuple[t.StructType, dict[str, Any]]]:
    """Yield a table of structs only, as delta-spark makes them, with some rows, of which no column is NOT NULL."""
    rng = random.Random(seed)
    table = random_struct(rng, 3, structs_only=True)
    for _ in range(count):
        yield table, {field.name: random_value(rng, field.dataType) for field in table}


def delta_takes(spark: SparkSession, path: Path, table: t.StructType, row: dict[str, Any]) -> bool:
    """Whether delta-spark writes a row into a new table."""
    columns = ", ".join(f"{field.name} {_ddl(field)}" for field in table)
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
    query = nullable(table)
    assert isinstance(query, t.StructType)
    try:
        spark.createDataFrame([row], query).coalesce(1).write.format("delta").mode("append").save(str(path))
    except Py4JJavaError as error:
        if "DELTA_NOT_NULL_CONSTRAINT_VIOLATED" not in str(error):
            raise
        return False
    return True


def _ddl(field: t.StructField) -> str:
    kind = field.dataType
    inner = (
        f"STRUCT<{', '.join(f'{each.name}: {_ddl(each)}' for each in kind)}>"
        if isinstance(kind, t.StructType)
        else "INT"
    )
    return inner if field.nullable else f"{inner} NOT NULL"
