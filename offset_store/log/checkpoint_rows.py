"""The columns of a checkpoint, and actions as rows of them (PROTOCOL.md, "Checkpoint Schema").

Fields of ``add`` and ``remove`` that this module does not know are kept, with the type that a checkpoint has for them,
or that their values in commits have. ``stats_parsed`` and ``partitionValues_parsed`` are not: they say again, typed,
what ``stats`` and ``partitionValues`` say, which every reader takes. Where an older checkpoint has typed statistics
only (`delta.checkpoint.writeStatsAsJson` is false), they become JSON: deletion vectors and row ids need their count of
rows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from functools import reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.offset_store.log.actions import Action

FileKey = tuple[str, str]
"""What names a logical file: its path, decoded, and the unique id of its deletion vector, or ""."""

_TEXTS = pa.list_(pa.string())
_MAP = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)
_ROW_IDS = [("deletionVector", _VECTOR), ("baseRowId", pa.int64()), ("defaultRowCommitVersion", pa.int64())]
KNOWN: Mapping[str, pa.StructType] = {
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _TEXTS),
            ("writerFeatures", _TEXTS),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _TEXTS),
            ("configuration", _MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
    "add": pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", _MAP),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            ("tags", _MAP),
            *_ROW_IDS,
            ("clusteringProvider", pa.string()),
        ]
    ),
    "remove": pa.struct(
        [
            ("path", pa.string()),
            ("deletionTimestamp", pa.int64()),
            ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()),
            ("partitionValues", _MAP),
            ("size", pa.int64()),
            *_ROW_IDS,
        ]
    ),
}
"""The kinds of actions that a checkpoint keeps, in the order of its rows, with the fields that are known."""
FILE_KINDS = ("add", "remove")
_BOUNDS = ("minValues", "maxValues")
_PLAIN = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string)
"""Types whose every value has JSON; floats and dates are checked by value."""
DROPPED = {"add": {"stats_parsed", "partitionValues_parsed"}, "remove": {"stats", "tags", "stats_parsed"}}
"""Fields of files that are not copied."""


def file_key(action: Action) -> FileKey:
    """Return what names the logical file of an ``add`` or ``remove``."""
    return unquote(action["path"]), vector_id(action.get("deletionVector"))


def vector_id(vector: Action | None) -> str:
    """Return a deletion vector's unique id (PROTOCOL.md, "Derived Fields"); "" for none."""
    if vector is None:
        return ""
    offset = vector.get("offset")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}" + ("" if offset is None else f"@{offset}")


def to_rows(kind: str, actions: Sequence[Action]) -> pa.StructArray:
    """Return actions from JSON as rows, files with the fields that any of them has besides those that are known."""
    fields = {field.name: field.type for field in KNOWN[kind]}
    if kind in FILE_KINDS:
        skipped = DROPPED[kind] | fields.keys()
        names = dict.fromkeys(name for action in actions for name in action if name not in skipped)
        fields |= {name: _type_of([action.get(name) for action in actions]) for name in names}
    columns = [pa.array([action.get(name) for action in actions], kind_type) for name, kind_type in fields.items()]
    return pa.StructArray.from_arrays(columns, fields=[pa.field(name, kind_type) for name, kind_type in fields.items()])


def _type_of(values: Sequence[Any]) -> pa.DataType:
    found = [value for value in values if value is not None]
    texts = all(isinstance(value, dict) and all(isinstance(each, str) for each in value.values()) for value in found)
    return _MAP if found and texts else pa.infer_type(found)


def row_type(kind: str, found: Iterable[pa.StructType]) -> pa.StructType:
    """Return the type of a kind's column: what is known, and the other fields of the types that were found."""
    fields = {field.name: field.type for field in KNOWN[kind]}
    for each in found:
        for field in each:
            if field.name not in DROPPED.get(kind, set()) and pa.types.is_null(fields.get(field.name, pa.null())):
                fields[field.name] = field.type
    return pa.struct([(name, kind_type) for name, kind_type in fields.items() if not pa.types.is_null(kind_type)])


def conform(rows: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return rows with exactly the fields of a type: missing ones are null, others left out, numbers widened."""
    if rows.type == wanted:
        return rows
    if not pa.types.is_struct(wanted) or not pa.types.is_struct(rows.type):
        return rows.cast(wanted)
    have = {field.name: index for index, field in enumerate(rows.type)}
    children = rows.flatten()
    columns = [
        conform(children[have[field.name]], field.type) if field.name in have else pa.nulls(len(rows), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=rows.is_null())


def without(rows: pa.StructArray, replaced: AbstractSet[FileKey], paths: pa.Array) -> pa.StructArray:
    """Return the rows whose logical files are not among ``replaced``, the paths of which are ``paths``."""
    if not len(rows) or not replaced:
        return rows
    names = _decoded(rows.field("path"))
    hits = pc.indices_nonzero(pc.is_in(names, value_set=paths))
    if not len(hits):
        return rows
    found = rows.take(hits)
    keys = zip(names.take(hits).to_pylist(), _vectors(found), strict=True)
    gone = [index for index, key in zip(hits.to_pylist(), keys, strict=True) if key in replaced]
    kept = pc.invert(pc.is_in(pa.array(range(len(rows)), pa.uint64()), value_set=pa.array(gone, pa.uint64())))
    return rows.filter(kept)


def _decoded(paths: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(paths, "%")).as_py():
        return paths
    return pa.array(map(unquote, paths.to_pylist()), pa.string())


def _vectors(rows: pa.StructArray) -> list[str]:
    if rows.type.get_field_index("deletionVector") < 0:
        return [""] * len(rows)
    return [vector_id(each) for each in rows.field("deletionVector").to_pylist()]


def with_json_statistics(adds: pa.StructArray) -> pa.StructArray:
    """Return ``add`` rows whose typed statistics, where they are alone, have become JSON."""
    if adds.type.get_field_index("stats_parsed") < 0:
        return adds
    has_json = adds.type.get_field_index("stats") >= 0
    given = adds.field("stats").to_pylist() if has_json else [None] * len(adds)
    texts = given
    if None in given:
        parsed = without_odd_bounds(adds.field("stats_parsed")).to_pylist()
        texts = [_json(typed) if text is None and typed else text for text, typed in zip(given, parsed, strict=True)]
    fields = {field.name: column for field, column in zip(adds.type, adds.flatten(), strict=True)}
    fields["stats"] = pa.array(texts, pa.string())
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))


def without_odd_bounds(typed: pa.StructArray) -> pa.StructArray:
    """Return typed statistics with bounds only where each of them can be written as JSON.

    It cannot be of timestamps (Parquet does not always say whether one has a time zone), binaries, NaN and infinities,
    and years that Python does not have. A wrong bound hides rows. So does a bound that is missing beside others:
    delta-rs's ``to_pyarrow_dataset`` (1.6) skips the file for every filter on its column. Without any it skips nothing.
    """
    names = [field.name for field in typed.type]
    bounds = [name for name in _BOUNDS if name in names]
    odd = reduce(pc.or_, (_is_odd(pc.struct_field(typed, name)) for name in bounds), _all_false(len(typed)))
    columns = {name: typed.field(name) for name in names}
    for name in bounds:
        dropped = pc.or_(odd, columns[name].is_null())
        columns[name] = pa.StructArray.from_arrays(
            _children(columns[name]), fields=list(columns[name].type), mask=dropped
        )
    return pa.StructArray.from_arrays(list(columns.values()), fields=list(typed.type), mask=typed.is_null())


def _children(rows: pa.StructArray) -> list[pa.Array]:
    return [rows.field(index) for index in range(rows.type.num_fields)]


def _all_false(count: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value=False), count)


def _is_odd(bounds: pa.Array) -> pa.BooleanArray:
    """Whether a bound, or one of a struct's, has no JSON that all readers take for its value."""
    kind = bounds.type
    if pa.types.is_struct(kind):
        return reduce(pc.or_, map(_is_odd, bounds.flatten()), _all_false(len(bounds)))
    if pa.types.is_floating(kind):
        return pc.fill_null(pc.invert(pc.is_finite(bounds)), fill_value=False)
    if pa.types.is_date(kind):
        outside = pc.or_(
            pc.less(bounds, pa.scalar(dt.date.min, kind)), pc.greater(bounds, pa.scalar(dt.date.max, kind))
        )
        return pc.fill_null(outside, fill_value=False)
    has_json = any(is_plain(kind) for is_plain in _PLAIN)
    return _all_false(len(bounds)) if has_json else bounds.is_valid()


def _json(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = ((json.dumps(name, ensure_ascii=False), each) for name, each in value.items() if each is not None)
        return "{" + ",".join(f"{name}:{_json(each)}" for name, each in fields) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value.isoformat() if isinstance(value, dt.date) else value, ensure_ascii=False)
