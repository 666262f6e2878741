"""What a table requires of its writers, and what this sink supports.

A table names its features in its protocol, and most are only in use if a property or a column's metadata enables them.
The log's commits do part of the work (`offset_store.log.proposal`): row ids, in-commit timestamps, domains. The table's
SQL is evaluated by `connectors.delta_sink.rules`. What nothing here does is rejected by name, before the first batch
writes anything, and the alternative is always the same: delta-spark supports them all.
(PROTOCOL.md of delta-io/delta, "Table Features" and "Valid Feature Names in Table Features".)

With ``delta.columnMapping.mode`` name or id each field, at any depth, has a physical name and an id in its metadata.
Files, partition values and statistics use the physical name; Parquet fields carry the id, by which readers in mode id
find them. ("Column Mapping" there.)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.lengths import DECLARED, length_of
from sparkonce.connectors.delta_sink.rules import INVARIANT, Rules, rules_of
from sparkonce.connectors.delta_sink.statistics import DEFAULT_INDEXED_COLUMNS, Path, parse_paths
from sparkonce.connectors.delta_sink.types import has_type
from sparkonce.offset_store.log.state import CLUSTERING_DOMAIN, TableState

MODE = "delta.columnMapping.mode"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
FIELD_ID = "delta.columnMapping.id"
_PARQUET_ID = b"PARQUET:field_id"
APPEND_ONLY = "delta.appendOnly"
CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
_CHANGE_COLUMNS = {"_change_type", "_commit_version", "_commit_timestamp"}
"""What a change data feed has beside a table's columns (PROTOCOL.md, "Change Data Files")."""
_STATISTICS_LIMIT = "delta.dataSkippingNumIndexedCols"
_STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"

DELTA_RS_WRITES = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "columnMapping",
        "timestampNtz",
        "v2Checkpoint",
        "deletionVectors",
    }
)
"""The features of tables whose files delta-rs rewrites."""
SAFE = DELTA_RS_WRITES | {
    "allowColumnDefaults",
    "checkpointProtection",
    "clustering",
    "domainMetadata",
    "inCommitTimestamp",
    "rowTracking",
    "typeWidening",
    "typeWidening-preview",
    "vacuumProtocolCheck",
}
"""Writer features that an append need not respect, or that the log's commits, this module or those below handle."""
_WHAT = {
    "catalogManaged": "catalog-managed commits",
    "icebergCompatV1": "Iceberg compatibility",
    "icebergCompatV2": "Iceberg compatibility",
    "identityColumns": "identity columns",
    "variantType": "variant columns",
}
_ICEBERG_WITH_IDS = ("delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")
_WITH_IDENTITY = 6
"""The writer version of tables from before table features that includes identity columns."""
_BY_FEATURE = {"delta.enableRowTracking": "rowTracking", "delta.enableInCommitTimestamps": "inCommitTimestamp"}
"""Properties that mean something only with their feature."""
_USED_BY_PROPERTY = {
    "delta.enableIcebergCompatV1": "Iceberg compatibility",
    "delta.enableIcebergCompatV2": "Iceberg compatibility",
}
_IDENTITY = "delta.identity.start"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The properties of a table that a writer must respect."""

    table_id: str
    """Assigned to a table when it is created; it never changes."""
    schema_json: str
    partition_columns: tuple[str, ...]
    configuration: tuple[tuple[str, str], ...]
    writer_features: tuple[str, ...]
    writer_version: int = 2
    clustering_json: str | None = None
    """The configuration of the domain that names the clustering columns."""

    @classmethod
    def of(cls, state: TableState) -> TableFacts:
        """Read them from a state of the log."""
        metadata, protocol = state.metadata, state.protocol
        return cls(
            metadata.id,
            metadata.schema_json,
            metadata.partition_columns,
            tuple(sorted(metadata.configuration.items())),
            tuple(sorted(protocol.writer_features)),
            protocol.min_writer_version,
            state.domains.get(CLUSTERING_DOMAIN),
        )

    @property
    def schema(self) -> t.StructType:
        """The table's columns, with all their metadata."""
        return t.StructType.fromJson(json.loads(self.schema_json))

    @property
    def rules(self) -> Rules:
        """Its conditions and generated columns."""
        return rules_of(self.schema_json, self.configuration)

    @property
    def is_mapped(self) -> bool:
        """Whether columns have physical names."""
        return self._property(MODE, "none") != "none"

    @property
    def is_append_only(self) -> bool:
        """Whether rows may never be removed."""
        return self.is_on(APPEND_ONLY)

    @property
    def indexed_columns(self) -> int:
        """How many leading columns get statistics; all if negative."""
        text = self._property(_STATISTICS_LIMIT, "")
        return int(text) if text else DEFAULT_INDEXED_COLUMNS

    @property
    def statistics_columns(self) -> tuple[Path, ...] | None:
        """Which columns get statistics, under the names that files have, if the table sets them; else None."""
        text = dict(self.configuration).get(_STATISTICS_COLUMNS)
        if text is None:
            return None
        paths = (_in_files(path, self.schema, mapped=self.is_mapped) for path in parse_paths(text))
        return tuple(path for path in paths if path is not None)

    @property
    def clustering_columns(self) -> tuple[Path, ...]:
        """Which columns the table is clustered by, under the names that files have ("Clustered Table").

        Raises:
            KeyError, TypeError, ValueError: if the domain is not as it must be.
        """
        if self.clustering_json is None:
            return ()
        return tuple(tuple(map(str, names)) for names in json.loads(self.clustering_json)["clusteringColumns"])

    def _property(self, name: str, default: str) -> str:
        return dict(self.configuration).get(name, default).lower()

    def is_on(self, name: str) -> bool:
        """Whether a property is true."""
        return self._property(name, "false") == "true"


def are_for_spark(facts: TableFacts, problems: Collection[str]) -> bool:
    """Whether `refusals` are all of rules that Spark can check before it passes rows (`BySpark`)."""
    return {*problems} <= {each.problem for each in facts.rules.by_spark}


def refusals(facts: TableFacts, *, replace: bool = False, checked: Collection[str] = ()) -> list[str]:
    """Name every feature in use that an append, or a ``replace``, with files of our own would not honour.

    ``checked`` are the rules (`BySpark.what`) that Spark has checked.
    """
    configuration = dict(facts.configuration)
    problems = [
        f"it has the feature {name}" + (f" ({_WHAT[name]})" if name in _WHAT else "")
        for name in facts.writer_features
        if name not in SAFE
    ]
    try:
        _ = facts.clustering_columns
    except (KeyError, TypeError, ValueError):
        problems.append(f"its domain {CLUSTERING_DOMAIN} cannot be read ({facts.clustering_json})")
    if facts.writer_version == _WITH_IDENTITY:
        problems.append(f"it requires writer version {_WITH_IDENTITY} (identity columns)")
    flags = (flag for flag in _USED_BY_PROPERTY if configuration.get(flag, "false").lower() == "true")
    problems += [f"it has {flag}=true ({_USED_BY_PROPERTY[flag]})" for flag in flags]
    bare = (flag for flag in _BY_FEATURE if facts.is_on(flag) and _BY_FEATURE[flag] not in facts.writer_features)
    problems += [f"it has {flag}=true without the feature {_BY_FEATURE[flag]}" for flag in bare]
    problems += facts.rules.problems
    problems += [each.problem for each in facts.rules.by_spark if each.what not in checked]
    for field in _fields(facts.schema_json):
        problems += [f"column {field.path} {reason}" for reason in field.problems]
    if facts.is_mapped:
        mode = configuration[MODE]
        unmapped = _unmapped(facts.schema, "")
        if mode.lower() not in ("name", "id"):
            problems.append(f"its column mapping mode is unknown ({MODE}={mode})")
        elif unmapped is not None:
            problems.append(f"its columns are mapped ({MODE}={mode}), and column {unmapped} has no physical name or id")
    if replace and facts.is_append_only:
        problems.append(
            f"it has {APPEND_ONLY}=true, and outputMode complete (of a batch: mode overwrite) replaces its rows"
        )
    return problems


def growth_refusals(facts: TableFacts, grown: tuple[t.StructField, ...]) -> list[str]:
    """Return why ``mergeSchema`` cannot add these columns to the table."""
    problems = []
    iceberg = next((name for name in _ICEBERG_WITH_IDS if facts.is_on(name)), None)
    nested = [column.name for column in grown if has_type(column.dataType, (t.ArrayType, t.MapType))]
    if iceberg is not None and nested:
        problems.append(
            f"it has {iceberg}=true, with which elements of arrays and maps have ids, so only delta-spark can add or "
            f"change {', '.join(nested)}: ALTER TABLE … ADD COLUMNS"
        )
    reserved = [column.name for column in grown if column.name.lower() in _CHANGE_COLUMNS]
    if facts.is_on(CHANGE_DATA_FEED) and reserved:
        problems.append(
            f"it has {CHANGE_DATA_FEED}=true, whose readers add columns of their own named {', '.join(reserved)}: "
            "rename the query's"
        )
    return problems


@dataclass(frozen=True, slots=True)
class _Field:
    """A column, or a field at any depth within one."""

    path: str
    metadata: Mapping[str, object]
    is_column: bool

    @property
    def problems(self) -> list[str]:
        """What its metadata asks for that is not done here; `rules_of` judges what columns are computed by."""
        found = ["is an identity column"] if _IDENTITY in self.metadata else []
        if INVARIANT in self.metadata and not self.is_column:
            found.append("has an invariant, which delta_once checks for whole columns only")
        length = length_of("", "", self.metadata) if self.is_column else None
        if DECLARED in self.metadata and length is None:
            found.append("has a CHAR or VARCHAR inside another type, whose length delta_once does not check")
        return found


def _fields(schema_json: str) -> list[_Field]:
    """Return every field, at any depth; from the text, since types may be unknown to Spark."""

    def walk(kind: object, path: str) -> list[_Field]:
        if not isinstance(kind, Mapping):
            return []
        found: list[_Field] = []
        for field in kind.get("fields", ()):
            name = f"{path}{field['name']}"
            found.append(_Field(name, field.get("metadata") or {}, not path))
            found += walk(field["type"], f"{name}.")
        for part in ("elementType", "keyType", "valueType"):
            found += walk(kind.get(part), path)
        return found

    return walk(json.loads(schema_json), "")


def _in_files(path: Path, schema: t.StructType, *, mapped: bool) -> Path | None:
    """Return a path by name as the path in files; None if that column no longer exists."""
    found: list[str] = []
    struct: t.DataType = schema
    for name in path:
        fields = struct.fields if isinstance(struct, t.StructType) else []
        field = next((each for each in fields if each.name.lower() == name.lower()), None)
        if field is None:
            return None
        found.append(str(field.metadata[PHYSICAL_NAME]) if mapped else field.name)
        struct = field.dataType
    return tuple(found)


def physical_name(field: t.StructField) -> str:
    """Return the name of a field of a mapped table in files and in the log."""
    name: str = field.metadata[PHYSICAL_NAME]
    return name


def physical_schema(table: t.StructType, named: pa.Schema) -> pa.Schema:
    """Return ``named``, the Arrow schema of some of a mapped table's columns, with physical names and ids."""
    columns = {field.name: field for field in table.fields}
    return pa.schema([_field(columns[field.name], field) for field in named])


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
