"""Which tables this version can read, and to which it can commit (PROTOCOL.md, "Table Features").

A reader or writer that does not know a feature of a table must leave the table alone. The features here are those that
a commit without data files respects, whatever the table is used for; what files must be like is decided by those who
write them (`connectors.delta_sink.features`).
"""

from __future__ import annotations

from sparkonce.offset_store.log.actions import Protocol

NEWEST_READER_VERSION, NEWEST_WRITER_VERSION = 3, 7
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""Those that do not change how a log is read, or are supported in it."""
WRITER_FEATURES = READER_FEATURES | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "domainMetadata",
    "generatedColumns",
    "icebergCompatV1",
    "icebergCompatV2",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
}
"""Those that ask nothing of a commit without files, or are supported in `proposal` and `checkpoints`."""
_BY_A_CATALOG = ("catalogManaged", "catalogOwned-preview")


def unreadable(protocol: Protocol) -> str | None:
    """Return what of a table's protocol prevents reading its log here; None if nothing does."""
    if protocol.min_reader_version > NEWEST_READER_VERSION:
        return f"reader version {protocol.min_reader_version}"
    return _unknown("reader", protocol.reader_features - READER_FEATURES)


def unwritable(protocol: Protocol) -> str | None:
    """Return what of a table's protocol prevents commits of ours; None if nothing does."""
    if protocol.min_writer_version > NEWEST_WRITER_VERSION:
        return f"writer version {protocol.min_writer_version}"
    return _unknown("writer", protocol.writer_features - WRITER_FEATURES)


def catalog_feature(protocol: Protocol) -> str | None:
    """Return the feature by which a catalog makes the table's commits; None if none does."""
    features = protocol.reader_features | protocol.writer_features
    return next((name for name in _BY_A_CATALOG if name in features), None)


def _unknown(kind: str, features: frozenset[str]) -> str | None:
    return f"the {kind} feature {min(features)}" if features else None
