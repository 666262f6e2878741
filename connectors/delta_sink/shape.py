"""Arrow columns brought into another shape of the same data: fields by name, narrower types cast, names replaced.

Spark hands rows over as the query names them; a file has the table's order and spelling, and where the table's columns
are mapped, its physical names. Fields that the data lacks are null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def reshape(column: pa.Array, named: pa.DataType, written: pa.DataType) -> pa.Array:
    """Return ``column`` as the type ``written``, which is ``named`` but for the names of its fields.

    Raises:
        pa.ArrowInvalid: if a value does not fit.
    """
    if column.type.equals(written):
        return column
    if pa.types.is_struct(written) and pa.types.is_struct(column.type):
        return _struct(column, named, written)
    if pa.types.is_map(written) and pa.types.is_map(column.type):
        offsets, entries = _entries(column)
        keys = reshape(entries.field(0), named.key_type, written.key_type)
        items = reshape(entries.field(1), named.item_type, written.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=written, mask=column.is_null())
    if pa.types.is_list(written) and pa.types.is_list(column.type):
        values = reshape(column.flatten(), named.value_type, written.value_type)
        return pa.ListArray.from_arrays(_offsets(column), values, type=written, mask=column.is_null())
    return column.cast(written)


def _struct(column: pa.Array, named: pa.DataType, written: pa.DataType) -> pa.Array:
    positions = {column.type.field(index).name.lower(): index for index in range(column.type.num_fields)}
    children = []
    fields = [written.field(index) for index in range(written.num_fields)]
    for index, field in enumerate(fields):
        position = positions.get(named.field(index).name.lower())
        if position is None:
            children.append(pa.nulls(len(column), field.type))
        else:
            child = pc.struct_field(column, [position])
            children.append(reshape(child, named.field(index).type, field.type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())


def _offsets(column: pa.Array) -> pa.Array:
    """Return offsets into the flattened values: the column may be a slice, and null lists may hide values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def _entries(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    entries = column.view(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    return _offsets(entries), entries.flatten()


def is_part_of(older: pa.DataType, newer: pa.DataType) -> bool:
    """Whether data of one type reads back as the other with nothing but nulls for what it lacks."""
    if pa.types.is_struct(older) and pa.types.is_struct(newer):
        fields = {newer.field(index).name: newer.field(index).type for index in range(newer.num_fields)}
        mine = (older.field(index) for index in range(older.num_fields))
        return all(field.name in fields and is_part_of(field.type, fields[field.name]) for field in mine)
    if pa.types.is_map(older) and pa.types.is_map(newer):
        return is_part_of(older.key_type, newer.key_type) and is_part_of(older.item_type, newer.item_type)
    if pa.types.is_list(older) and pa.types.is_list(newer):
        return is_part_of(older.value_type, newer.value_type)
    return bool(older.equals(newer))
