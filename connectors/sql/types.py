"""Types of the engine's columns, as Arrow shows them, and Spark's."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from sparkonce.connectors.sql.kinds import kind_of
from sparkonce.options import OptionError


def check_type(name: str, kind: DataType) -> None:
    """Check that a column can have a type. Raises OptionError if it cannot."""
    if kind_of(kind) == "void":
        raise OptionError(f"sql: column {name} has no type: cast NULL, as in CAST(NULL AS STRING)")
    if kind_of(kind) == "interval":
        raise OptionError(f"sql: column {name}: an interval is added to a date or a time, and is no column")


def same_kinds(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether two types are the same, but for what may be null in them and how lists are named."""
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return same_kinds(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return same_kinds(found.key_type, wanted.key_type) and same_kinds(found.item_type, wanted.item_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        names = [field.name for field in found] == [field.name for field in wanted]
        return names and all(same_kinds(one.type, two.type) for one, two in zip(found, wanted, strict=True))
    return bool(found == wanted)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of batches as Spark expects them."""
    return to_arrow_schema(schema, timezone="UTC")
