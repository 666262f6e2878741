"""Converts columns of an older reader's schema to those of a newer one.

A batch that was begun with a reader's schema is completed with it, whatever the registry has then, while the query
has the columns of the newer one: fields that are new are null, and numbers get their wider type.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def common(own: DataType, wanted: DataType) -> DataType:
    """Return a type with those fields of ``own`` that ``wanted`` also has."""
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        known = {field.name: field.dataType for field in wanted}
        return StructType(
            [StructField(each.name, common(each.dataType, known[each.name])) for each in own if each.name in known]
        )
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(common(own.elementType, wanted.elementType))
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        return MapType(own.keyType, common(own.valueType, wanted.valueType))
    return own


def conformed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with another type. Raises pa.ArrowInvalid or ArrowNotImplementedError if one does not fit."""
    if array.type == kind:
        return array
    bits = array.is_valid().buffers()[1] if array.null_count else None
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        names = set(array.type.names)
        children = [
            conformed(array.field(array.type.get_field_index(each.name)), each.type)
            if each.name in names
            else pa.nulls(len(array), each.type)
            for each in kind
        ]
        return pa.Array.from_buffers(kind, len(array), [bits], array.null_count, children=children)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        children = [conformed(array.values, kind.value_type)]
        return pa.Array.from_buffers(kind, len(array), [bits, _offsets(array)], array.null_count, children=children)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        items = conformed(array.items, kind.item_type)
        entries = pa.StructArray.from_arrays([array.keys, items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), [bits, _offsets(array)], array.null_count, children=[entries])
    return array.cast(kind)


def _offsets(array: pa.ListArray | pa.MapArray) -> pa.Buffer:
    """Return the offsets of lists, of which there may be more before those of the array."""
    return pa.py_buffer(array.offsets.to_numpy())
