"""Column mapping: the names and ids under which a table's columns stand in its files and in its log.

With ``delta.columnMapping.mode`` name or id each field, at any depth, has a physical name and an id in its metadata.
Files, partition values and statistics use the physical name; Parquet fields carry the id, by which readers in mode id
find them. (PROTOCOL.md of delta-io/delta, "Column Mapping".)
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as t

MODE = "delta.columnMapping.mode"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
FIELD_ID = "delta.columnMapping.id"
_PARQUET_ID = b"PARQUET:field_id"


def physical_name(field: t.StructField) -> str:
    """Return the name of a field of a mapped table in files and in the log."""
    name: str = field.metadata[PHYSICAL_NAME]
    return name


def physical_schema(table: t.StructType, named: pa.Schema) -> pa.Schema:
    """Return ``named``, the Arrow schema of some of a mapped table's columns, with physical names and ids."""
    columns = {field.name: field for field in table.fields}
    return pa.schema([_field(columns[field.name], field) for field in named])


def unmapped(table: t.StructType) -> str | None:
    """Return the path of a field that has no physical name or no id; None if all have."""
    return _unmapped(table, "")


def _unmapped(data_type: t.DataType, path: str) -> str | None:
    if isinstance(data_type, t.ArrayType):
        return _unmapped(data_type.elementType, f"{path}element.")
    if isinstance(data_type, t.MapType):
        return _unmapped(data_type.keyType, f"{path}key.") or _unmapped(data_type.valueType, f"{path}value.")
    if not isinstance(data_type, t.StructType):
        return None
    for field in data_type.fields:
        metadata = field.metadata or {}
        if PHYSICAL_NAME not in metadata or FIELD_ID not in metadata:
            return f"{path}{field.name}"
        inner = _unmapped(field.dataType, f"{path}{field.name}.")
        if inner is not None:
            return inner
    return None


def _field(column: t.StructField, named: pa.Field) -> pa.Field:
    kind = _kind(column.dataType, named.type)
    metadata = {_PARQUET_ID: str(column.metadata[FIELD_ID]).encode()}
    return pa.field(physical_name(column), kind, named.nullable, metadata)


def _kind(data_type: t.DataType, named: pa.DataType) -> pa.DataType:
    if isinstance(data_type, t.StructType):
        return pa.struct([_field(field, named.field(index)) for index, field in enumerate(data_type.fields)])
    if isinstance(data_type, t.ArrayType):
        return pa.list_(named.value_field.with_type(_kind(data_type.elementType, named.value_type)))
    if isinstance(data_type, t.MapType):
        key = named.key_field.with_type(_kind(data_type.keyType, named.key_type))
        return pa.map_(key, named.item_field.with_type(_kind(data_type.valueType, named.item_type)))
    return named
