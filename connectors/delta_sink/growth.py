"""The commit that adds columns, or fields within them, to a table (``mergeSchema``). Pure but for new names.

The table's schema text is kept as it is, and added to: what Spark's types do not hold of it stays. In a table with
mapped columns each new field, at any depth, gets a physical name that no other has had and the next id.
(PROTOCOL.md, "Column Mapping".)
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.features import FIELD_ID, MODE, PHYSICAL_NAME
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.protocol_changes import features_of, raised, to_action
from sparkonce.offset_store.log.state import MAX_COLUMN_ID, TableState

ADD_COLUMN = "ADD COLUMN"
_PARTS = ("elementType", "keyType", "valueType")

Kind = Any
"""A type as the text of a schema has it: a name, or an object."""


def added_columns(state: TableState, grown: Sequence[t.StructField]) -> Proposal:
    """Return the commit after which a table has these columns; each that it has already gets the fields it lacks."""
    metadata = state.metadata
    configuration, mapping = dict(metadata.configuration), None
    before = json.loads(metadata.schema_json)
    if configuration.get(MODE, "none").lower() != "none":
        mapping = _Mapping(max([int(configuration.get(MAX_COLUMN_ID, 0)), *_ids(before)]))
    wanted = json.loads(t.StructType(list(grown)).json())
    schema_json = json.dumps(_with(before, wanted, mapping), separators=(",", ":"))
    if mapping is not None:
        configuration[MAX_COLUMN_ID] = str(mapping.last_id)
    protocol = raised(state.protocol, features_of(schema_json))
    kept = {name: value for name, value in metadata.action.items() if value is not None}
    return Proposal(
        metadata={**kept, "schemaString": schema_json, "configuration": configuration},
        protocol=None if protocol == state.protocol else to_action(protocol),
        operation=ADD_COLUMN,
        parameters={"fields": json.dumps(wanted["fields"], separators=(",", ":"))},
    )


class _Mapping:
    """Names and ids of new fields."""

    def __init__(self, last_id: int) -> None:
        self.last_id = last_id

    def next(self) -> dict[str, Any]:
        """Return the metadata of one more field."""
        self.last_id += 1
        return {FIELD_ID: self.last_id, PHYSICAL_NAME: f"col-{uuid.uuid4()}"}


def _with(table: Kind, wanted: Kind, mapping: _Mapping | None) -> Kind:
    """Return a type of the table with the fields that it lacks, and nothing else changed."""
    if not isinstance(table, Mapping) or not isinstance(wanted, Mapping):
        return table
    found = {**table, **{part: _with(table[part], wanted[part], mapping) for part in _PARTS if part in table}}
    if "fields" in table:
        ours = {field["name"]: field for field in wanted["fields"]}
        there = [
            {**field, "type": _with(field["type"], ours[field["name"]]["type"], mapping)}
            if field["name"] in ours
            else field
            for field in table["fields"]
        ]
        names = {field["name"] for field in there}
        found["fields"] = there + [_new(field, mapping) for name, field in ours.items() if name not in names]
    return found


def _new(field: Mapping[str, Any], mapping: _Mapping | None) -> Mapping[str, Any]:
    if mapping is None:
        return field
    named = mapping.next()
    return {**field, "type": _mapped(field["type"], mapping), "metadata": {**field["metadata"], **named}}


def _mapped(kind: Kind, mapping: _Mapping) -> Kind:
    if not isinstance(kind, Mapping):
        return kind
    found = {**kind, **{part: _mapped(kind[part], mapping) for part in _PARTS if part in kind}}
    if "fields" in kind:
        found["fields"] = [_new(field, mapping) for field in kind["fields"]]
    return found


def _ids(kind: Kind) -> Iterator[int]:
    """Yield the ids of all fields."""
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield int((field.get("metadata") or {}).get(FIELD_ID, 0))
            yield from _ids(field["type"])
        for part in _PARTS:
            yield from _ids(kind.get(part))
