"""Which protocol a table needs, and how one is raised without losing what the older one had implicitly. Pure.

Versions before table features name no feature: each includes all that came up to it. When the first feature is named
all of those must be named too (PROTOCOL.md, "Table Features"; "Valid Feature Names in Table Features").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from typing import Any

from sparkonce.offset_store.log.actions import Action, Protocol
from sparkonce.offset_store.log.protocol import READER_FEATURES

TIMESTAMP_NTZ = "timestampNtz"
_NTZ_TYPE = "timestamp_ntz"
_FEATURES_READER, _FEATURES_WRITER = 3, 7
"""The versions that name their features."""
_IMPLICIT = {
    "appendOnly": (1, 2),
    "invariants": (1, 2),
    "checkConstraints": (1, 3),
    "changeDataFeed": (1, 4),
    "generatedColumns": (1, 4),
    "columnMapping": (2, 5),
    "identityColumns": (1, 6),
}
"""The versions of reader and writer from which a feature is included without being named."""
OLDEST = Protocol(1, 2)


def lowest_protocol(schema_json: str) -> Protocol:
    """Return the lowest protocol of a new table with these columns."""
    return raised(OLDEST, features_of(schema_json))


def features_of(schema_json: str) -> set[str]:
    """Return the features that the types of columns need."""
    return {TIMESTAMP_NTZ} if _NTZ_TYPE in _simple_types(json.loads(schema_json)) else set()


def raised(protocol: Protocol, features: Set[str]) -> Protocol:
    """Return the protocol with these features too; itself if it has them."""
    before = features_in(protocol)
    if features <= before:
        return protocol
    of_readers = features & READER_FEATURES
    reader = _FEATURES_READER if of_readers else protocol.min_reader_version
    return _named(reader, before | features, protocol.reader_features | of_readers)


def merged(one: Protocol, other: Protocol) -> Protocol:
    """Return the lowest protocol with all that either has."""
    if one == other:
        return one
    reader = max(one.min_reader_version, other.min_reader_version)
    writer = max(one.min_writer_version, other.min_writer_version)
    if writer < _FEATURES_WRITER:
        return Protocol(reader, writer)
    return _named(reader, features_in(one) | features_in(other), one.reader_features | other.reader_features)


def features_in(protocol: Protocol) -> frozenset[str]:
    """Return the features that a protocol includes, named or not."""
    if protocol.min_writer_version >= _FEATURES_WRITER:
        return protocol.writer_features
    versions = protocol.min_reader_version, protocol.min_writer_version
    return frozenset(
        name for name, (reader, writer) in _IMPLICIT.items() if reader <= versions[0] and writer <= versions[1]
    )


def to_action(protocol: Protocol) -> Action:
    """Return the action that sets a protocol."""
    action: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    if protocol.min_reader_version >= _FEATURES_READER:
        action["readerFeatures"] = sorted(protocol.reader_features)
    if protocol.min_writer_version >= _FEATURES_WRITER:
        action["writerFeatures"] = sorted(protocol.writer_features)
    return action


def _named(reader: int, writer_features: Set[str], reader_features: Set[str]) -> Protocol:
    """Return a protocol that names its features; readers that name theirs must name all of them that concern them."""
    if reader < _FEATURES_READER:
        return Protocol(reader, _FEATURES_WRITER, frozenset(), frozenset(writer_features))
    named = reader_features | writer_features & READER_FEATURES
    return Protocol(_FEATURES_READER, _FEATURES_WRITER, frozenset(named), frozenset(writer_features))


def _simple_types(kind: Any) -> Iterator[str]:
    """Yield the types at any depth that have no parts."""
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield from _simple_types(field["type"])
        for part in ("elementType", "keyType", "valueType"):
            yield from _simple_types(kind.get(part))
