"""Pairs of commits: one of ours, decided at version 0 of a table, and others that landed meanwhile.

A `Pair` consists of names, from which its actions follow, so that a table of pairs can be kept as text. The words
are those of Delta's protocol; the files exist in the log only.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkonce.offset_store.log.actions import Actions
from sparkonce.offset_store.log.state import NEWS_KINDS
from sparkonce.offset_store.log.verdict import Conflict, Touched, judge

Line = dict[str, dict[str, Any]]
"""One line of a commit's file."""

OURS, ALSO_READ, FOREIGN = "sparkonce:ours", "sparkonce:read", "another"
"""Transaction identifiers: which our commits move, which some of them read, and of others."""
OUR_DOMAIN, USER_DOMAIN = "sparkonce.domain", "user.domain"
ROW_TRACKING, CLUSTERING = "delta.rowTracking", "delta.clustering"
RECORDED = Path(__file__).parent / "unit" / "delta_log" / "verdicts.tsv"
TIME_MS = 1_700_000_000_000
FILE_ROWS = 10
TABLE_ID = "6a1cfa0e-5c1b-4a53-8c5d-0d8f4b1c7a10"
_SUPPORTED = ("appendOnly", "invariants", "domainMetadata", "rowTracking", "deletionVectors", "columnMapping")
_READER_FEATURES = ("deletionVectors", "columnMapping", "v2Checkpoint", "typeWidening", "aFeatureOfTheFuture")
_MATERIALIZED = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}
_MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table at version 0: two files, transaction identifiers, perhaps domains."""

    features: tuple[str, ...] = ()
    """Of the writer's version 7; without, the versions are 1 and 2."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    partitioned: bool = False

    def has(self, feature: str) -> bool:
        """Whether the feature is supported."""
        return feature in self.features

    @property
    def timed(self) -> bool:
        """Whether commits have in-commit timestamps."""
        return self.configuration.get("delta.enableInCommitTimestamps") == "true"

    def protocol(self, *more: str, without: str = "") -> Line:
        """Return its protocol, with more features, or without one."""
        features = sorted({*self.features, *more} - {without})
        if not features:
            return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        reader = [each for each in features if each in _READER_FEATURES]
        return {
            "protocol": {
                "minReaderVersion": 3 if reader else 1,
                "minWriterVersion": 7,
                **({"readerFeatures": reader} if reader else {}),
                "writerFeatures": features,
            }
        }

    def metadata(self, *, columns: int = 2, having: Mapping[str, str] | None = None, **changes: Any) -> Line:
        """Return its metadata, changed."""
        configuration = {**self.configuration, **(having or {})}
        action = {
            "id": TABLE_ID,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_string(columns, mapped="delta.columnMapping.mode" in configuration),
            "partitionColumns": ["p"] if self.partitioned else [],
            "configuration": configuration,
            "createdTime": TIME_MS,
        }
        return {"metaData": action | changes}

    def add(self, name: str, row_id: int, **changes: Any) -> Line:
        """Return a file's add, with row ids where the table has them."""
        number = int(name.rsplit("-", 1)[1])
        tracked = {"baseRowId": row_id, "defaultRowCommitVersion": 0} if self.has("rowTracking") else {}
        action = {
            "path": f"{name}.parquet",
            "partitionValues": {"p": str(number % 2)} if self.partitioned else {},
            "size": 1000,
            "modificationTime": TIME_MS,
            "dataChange": True,
            "stats": json.dumps({"numRecords": FILE_ROWS}),
        }
        return {"add": action | tracked | changes}

    def high_water_mark(self, row_id: int) -> list[Line]:
        """Return the domain of row ids, where the table has it."""
        return [domain(ROW_TRACKING, json.dumps({"rowIdHighWaterMark": row_id}))] if self.has("rowTracking") else []

    def first_commit(self) -> list[Line]:
        """Return the lines of version 0."""
        lines = [commit_info(self, 0, "CREATE TABLE"), self.protocol(), self.metadata()]
        lines += [{"txn": {"appId": each, "version": 3}} for each in (OURS, ALSO_READ, FOREIGN)]
        lines += [self.add(f"base-{number}", number * FILE_ROWS) for number in range(2)]
        lines += self.high_water_mark(2 * FILE_ROWS - 1)
        return lines + ([domain(CLUSTERING, '{"clusteringColumns":[["a"]]}')] if self.has("clustering") else [])


TABLES = {
    "plain": Table(),
    "partitioned": Table(partitioned=True),
    "append-only": Table(configuration={"delta.appendOnly": "true"}),
    "serializable": Table(configuration={"delta.isolationLevel": "Serializable"}),
    "write-serializable": Table(configuration={"delta.isolationLevel": "WriteSerializable"}),
    "supported": Table((*_SUPPORTED, "inCommitTimestamp")),
    "row-tracking": Table(_SUPPORTED, {"delta.enableRowTracking": "true", **_MATERIALIZED}),
    "timed": Table(("inCommitTimestamp", "domainMetadata"), {"delta.enableInCommitTimestamps": "true"}),
    "clustered": Table(("clustering", "domainMetadata")),
    "mapped": Table(("columnMapping", "deletionVectors"), _MAPPED),
    "all": Table(
        (*_SUPPORTED, "inCommitTimestamp"),
        {
            "delta.enableRowTracking": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.enableDeletionVectors": "true",
            "delta.isolationLevel": "WriteSerializable",
            **_MATERIALIZED,
            **_MAPPED,
        },
        partitioned=True,
    ),
}


def schema_string(columns: int, *, mapped: bool = False, comment: str = "") -> str:
    """Return the schema of ``a``, ``p``, and more columns."""
    fields = []
    for number, name in enumerate(("a", "p", "b", "c")[:columns], 1):
        about: dict[str, Any] = {"comment": comment} if comment else {}
        if mapped:
            about |= {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
        fields.append({"name": name, "type": "long", "nullable": True, "metadata": about})
    return json.dumps({"type": "struct", "fields": fields})


def commit_info(table: Table, version: int, operation: str, blind: bool | None = None, **more: Any) -> Line:
    """Return a ``commitInfo``."""
    timed = {"inCommitTimestamp": TIME_MS + version} if table.timed else {}
    marked = {} if blind is None else {"isBlindAppend": blind}
    action = {"timestamp": TIME_MS + version, "operation": operation, "operationParameters": {}}
    return {"commitInfo": {**timed, **action, **marked, **more}}


def domain(name: str, configuration: str = "{}", removed: bool = False) -> Line:
    """Return the metadata of a domain."""
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


def txn(app_id: str, version: int = 4) -> Line:
    """Return a transaction identifier."""
    return {"txn": {"appId": app_id, "version": version}}


def remove(add: Line, *, data_change: bool = True) -> Line:
    """Return the remove of an added file."""
    kept = ("path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    action = {name: add["add"][name] for name in kept if name in add["add"]}
    return {"remove": {**action, "deletionTimestamp": TIME_MS, "dataChange": data_change, "extendedFileMetadata": True}}


@dataclass(frozen=True, slots=True)
class Ours:
    """A commit of ours."""

    lines: Callable[[Table], list[Line]]
    """Without ``commitInfo`` and row ids, which the judge adds."""
    read: tuple[str, ...] = ()
    """The transaction identifiers that it was decided from."""
    replaces: bool = False
    needs: str = ""
    """The feature without which a table cannot have it."""

    def touched(self, table: Table) -> Touched:
        """What it depends on, for `judge`."""
        lines = self.lines(table)
        domains = {line["domainMetadata"]["domain"] for line in lines if "domainMetadata" in line}
        if any("add" in line for line in lines):  # as `Proposal.touched`
            domains.add(CLUSTERING)
        return Touched(frozenset(self.read), domains, self.replaces)


def _our_add(table: Table) -> Line:
    line = table.add("ours-0", 0)
    return {"add": {name: value for name, value in line["add"].items() if name not in _TRACKED}}


_TRACKED = ("baseRowId", "defaultRowCommitVersion")


def _removes(table: Table) -> list[Line]:
    return [remove(line) for line in table.first_commit() if "add" in line]


OUR_COMMITS = {
    "append": Ours(lambda table: [txn(OURS), _our_add(table)], (OURS,)),
    "append-reads": Ours(lambda table: [txn(OURS), _our_add(table)], (OURS, ALSO_READ)),
    "append-without-id": Ours(lambda table: [_our_add(table)]),
    "ids": Ours(lambda _: [txn(OURS), txn(ALSO_READ)], (OURS, ALSO_READ)),
    "replace": Ours(lambda table: [txn(OURS), *_removes(table), _our_add(table)], (OURS,), replaces=True),
    "replace-with-none": Ours(lambda table: [txn(OURS), *_removes(table)], (OURS,), replaces=True),
    "add-columns": Ours(lambda table: [table.metadata(columns=3, having=_more_ids(table))]),
    "append-with-columns": Ours(
        lambda table: [table.metadata(columns=3, having=_more_ids(table)), txn(OURS), _our_add(table)], (OURS,)
    ),
    "replace-with-columns": Ours(
        lambda table: [table.metadata(columns=3, having=_more_ids(table)), txn(OURS), *_removes(table)],
        (OURS,),
        replaces=True,
    ),
    "domain": Ours(lambda table: [txn(OURS), domain(OUR_DOMAIN), _our_add(table)], (OURS,), needs="domainMetadata"),
}


def _more_ids(table: Table) -> dict[str, str]:
    return {"delta.columnMapping.maxColumnId": "3"} if "delta.columnMapping.mode" in table.configuration else {}


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit of another writer; `lines` is called with the table and the version."""

    lines: Callable[[Table, int], list[Line]]
    needs: str = ""
    """The feature without which a table cannot have it."""
    lacks: str = ""
    """The feature or property with which a table cannot have it."""


def _write(
    operation: str,
    *kinds: str,
    blind: bool | None = False,
    data_change: bool = True,
    more: Callable[[Table], list[Line]] = lambda _: [],
    info: Mapping[str, Any] | None = None,
) -> Callable[[Table, int], list[Line]]:
    """Return what makes a commit of files: ``add`` a new one, ``remove`` one, ``remove-all``, ``again``, ``vector``."""

    def lines(table: Table, version: int) -> list[Line]:
        base = [table.add(f"base-{number}", number * FILE_ROWS) for number in range(2)]
        one = base[(version - 1) % 2]
        found = [commit_info(table, version, operation, blind, **(info or {})), *more(table)]
        for kind in kinds:
            if kind == "add":
                row_id = (version + 1) * FILE_ROWS
                found.append(table.add(f"won-{version}", row_id, dataChange=data_change))
                found += table.high_water_mark(row_id + FILE_ROWS - 1)
            elif kind == "again":
                found += [{"add": {**each["add"], "dataChange": False}} for each in base]
            elif kind == "vector":
                vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1}
                found.append({"add": one["add"] | {"deletionVector": {**vector, "sizeInBytes": 34, "cardinality": 1}}})
            else:
                found += [remove(each, data_change=data_change) for each in (base if kind == "remove-all" else [one])]
        return found

    return lines


def _change(
    operation: str, *makes: Callable[[Table], Line], blind: bool | None = True
) -> Callable[[Table, int], list[Line]]:
    """Return what makes a commit without files."""
    return lambda table, version: [commit_info(table, version, operation, blind), *(make(table) for make in makes)]


def _set(**properties: str) -> Callable[[Table], Line]:
    return lambda table: table.metadata(having={f"delta.{name}": value for name, value in properties.items()})


def _commented(table: Table) -> Line:
    mapped = "delta.columnMapping.mode" in table.configuration
    return table.metadata(schemaString=schema_string(2, mapped=mapped, comment="said of a column"))


def _unset(table: Table) -> Line:
    return table.metadata(configuration=dict(list(table.configuration.items())[1:]))


def _untimed(table: Table, version: int) -> list[Line]:
    """Break the protocol: an append without the in-commit timestamp."""
    found = _write("WRITE", "add", blind=True)(table, version)
    del found[0]["commitInfo"]["inCommitTimestamp"]
    return found


def _replaced(table: Table) -> Line:
    return table.metadata(id="0d7f7c53-6b5c-49b0-9c6e-5a1c1b6c2f11", columns=3)


_ENABLE_ROW_TRACKING = {"delta.enableRowTracking": "true", **_MATERIALIZED}
WINNERS = {
    "nothing": Winner(_write("MANUAL UPDATE", blind=True)),
    "vacuum": Winner(_write("VACUUM START", blind=True)),
    "append": Winner(_write("WRITE", "add", blind=True)),
    "append-unmarked": Winner(_write("WRITE", "add", blind=None)),
    "append-that-read": Winner(_write("WRITE", "add")),
    "append-without-info": Winner(lambda table, version: _write("WRITE", "add")(table, version)[1:], lacks="timed"),
    "append-untimed": Winner(_untimed, needs="timed"),
    "append-our-id": Winner(_write("WRITE", "add", blind=True, more=lambda _: [txn(OURS, 5)])),
    "append-read-id": Winner(_write("WRITE", "add", blind=True, more=lambda _: [txn(ALSO_READ, 5)])),
    "append-other-id": Winner(_write("STREAMING UPDATE", "add", blind=True, more=lambda _: [txn(FOREIGN, 5)])),
    "append-same-id-same-version": Winner(_write("WRITE", "add", blind=None, more=lambda _: [txn(OURS, 3)])),
    "our-id": Winner(_change("WRITE", lambda _: txn(OURS, 5))),
    "all-ids": Winner(_change("WRITE", lambda _: txn(FOREIGN), lambda _: txn(ALSO_READ), lambda _: txn(OURS))),
    "other-id": Winner(_change("WRITE", lambda _: txn(FOREIGN))),
    "append-with-columns": Winner(_write("WRITE", "add", more=lambda table: [table.metadata(columns=4)])),
    "delete": Winner(_write("DELETE", "remove"), lacks="append-only"),
    "delete-by-vector": Winner(_write("DELETE", "remove", "vector"), needs="deletionVectors"),
    "truncate": Winner(_write("TRUNCATE", "remove-all"), lacks="append-only"),
    "update": Winner(_write("UPDATE", "remove", "add"), lacks="append-only"),
    "merge": Winner(_write("MERGE", "remove", "add"), lacks="append-only"),
    "merge-that-inserts": Winner(_write("MERGE", "add")),
    "overwrite": Winner(_write("WRITE", "remove-all", "add"), lacks="append-only"),
    "overwrite-schema": Winner(
        _write("WRITE", "remove-all", "add", more=lambda table: [table.metadata(columns=4)]), lacks="append-only"
    ),
    "optimize": Winner(_write("OPTIMIZE", "remove-all", "add", data_change=False)),
    "reorg": Winner(_write("REORG", "remove", "add", data_change=False)),
    "statistics": Winner(_write("COMPUTE STATS", "again")),
    "property": Winner(_change("SET TBLPROPERTIES", _set(logRetentionDuration="interval 3 days"))),
    "no-property": Winner(_change("UNSET TBLPROPERTIES", _unset), needs="configured"),
    "constraint": Winner(_change("ADD CONSTRAINT", _set(**{"constraints.positive": "a > 0"}))),
    "change-data-feed": Winner(_change("SET TBLPROPERTIES", _set(enableChangeDataFeed="true"))),
    "isolation": Winner(_change("SET TBLPROPERTIES", _set(isolationLevel="WriteSerializable"))),
    "append-only": Winner(_change("SET TBLPROPERTIES", _set(appendOnly="true"))),
    "description": Winner(_change("CHANGE TABLE", lambda table: table.metadata(description="of a table"))),
    "name": Winner(_change("RENAME", lambda table: table.metadata(name="another"))),
    "comment": Winner(_change("CHANGE COLUMN", _commented)),
    "add-columns": Winner(_change("ADD COLUMNS", lambda table: table.metadata(columns=3, having=_more_ids(table)))),
    "same-metadata": Winner(_change("SET TBLPROPERTIES", lambda table: table.metadata())),
    "enable-row-tracking": Winner(
        _change("SET TBLPROPERTIES", lambda table: table.metadata(having=_ENABLE_ROW_TRACKING)), needs="rowTracking"
    ),
    "disable-row-tracking": Winner(_change("SET TBLPROPERTIES", _set(enableRowTracking="false")), needs="rowTracking"),
    "enable-vectors": Winner(_change("SET TBLPROPERTIES", _set(enableDeletionVectors="true")), needs="deletionVectors"),
    "enable-mapping": Winner(
        _change("SET TBLPROPERTIES", lambda table: table.metadata(having=_MAPPED)), needs="columnMapping"
    ),
    "same-protocol": Winner(_change("UPGRADE PROTOCOL", lambda table: table.protocol())),
    "support-checkpoints": Winner(
        _change("UPGRADE PROTOCOL", lambda table: table.protocol("appendOnly", "invariants", "v2Checkpoint"))
    ),
    "support-vacuum-check": Winner(
        _change("UPGRADE PROTOCOL", lambda table: table.protocol("appendOnly", "invariants", "vacuumProtocolCheck"))
    ),
    "support-row-tracking": Winner(
        _change("UPGRADE PROTOCOL", lambda table: table.protocol("appendOnly", "invariants", *_SUPPORTED))
    ),
    "drop-feature": Winner(
        _change("DROP FEATURE", lambda table: table.protocol(without="domainMetadata")), needs="domainMetadata"
    ),
    "protocol-of-the-future": Winner(
        _change("UPGRADE PROTOCOL", lambda table: table.protocol("appendOnly", "aFeatureOfTheFuture"))
    ),
    "backfill": Winner(
        _write(
            "ROW TRACKING BACKFILL",
            "again",
            data_change=False,
            more=lambda table: table.high_water_mark(2 * FILE_ROWS - 1),
        ),
        needs="rowTracking",
    ),
    "unbackfill": Winner(_write("ROW TRACKING UNBACKFILL", "again", data_change=False), needs="rowTracking"),
    "restore": Winner(_write("RESTORE", "remove", "add", info={"readVersion": 0})),
    "restore-of-nothing": Winner(_write("RESTORE", info={"readVersion": 0})),
    "restore-metadata": Winner(_write("RESTORE", "remove", more=lambda table: [table.metadata(columns=3)])),
    "replace-table": Winner(
        _write("CREATE OR REPLACE TABLE AS SELECT", "remove-all", "add", more=lambda table: [_replaced(table)])
    ),
    "clone": Winner(
        _write("CLONE", "remove-all", "add", more=lambda table: [table.protocol(), table.metadata(id=TABLE_ID[::-1])])
    ),
    "our-domain": Winner(_change("MANUAL UPDATE", lambda _: domain(OUR_DOMAIN)), needs="domainMetadata"),
    "our-domain-removed": Winner(
        _change("MANUAL UPDATE", lambda _: domain(OUR_DOMAIN, removed=True)), needs="domainMetadata"
    ),
    "user-domain": Winner(_change("MANUAL UPDATE", lambda _: domain(USER_DOMAIN)), needs="domainMetadata"),
    "cluster-by": Winner(
        _change("CLUSTER BY", lambda _: domain(CLUSTERING, '{"clusteringColumns":[["p"]]}')), needs="clustering"
    ),
    "change-data": Winner(
        _write(
            "UPDATE",
            "remove",
            "add",
            more=lambda table: [
                {
                    "cdc": {
                        "path": "_change_data/cdc-0.parquet",
                        "partitionValues": {"p": "0"} if table.partitioned else {},
                        "size": 10,
                        "dataChange": False,
                    }
                }
            ],
        ),
        lacks="append-only",
    ),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A commit of ours, and the commits that landed at versions 1, 2, … since it was decided."""

    table: str
    ours: str
    winners: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table}\t{self.ours}\t{' '.join(self.winners)}"

    @classmethod
    def parse(cls, text: str) -> Pair:
        """Read what `str` gives."""
        table, ours, winners = text.split("\t")
        return cls(table, ours, tuple(winners.split()))

    def landed(self) -> Iterator[list[Line]]:
        """Yield the lines of versions 1, 2, …"""
        for version, name in enumerate(self.winners, 1):
            yield WINNERS[name].lines(TABLES[self.table], version)


def _fits(name: str, needs: str, lacks: str = "") -> bool:
    table = TABLES[name]
    have = {*table.features, *(("timed",) if table.timed else ()), *(("configured",) if table.configuration else ())}
    have |= {"append-only"} if "delta.appendOnly" in table.configuration else set()
    return (not needs or needs in have) and lacks not in have


def ours_of(table: str) -> list[str]:
    """Return which commits of ours a table can have."""
    only = _fits(table, "append-only")
    return [name for name, ours in OUR_COMMITS.items() if _fits(table, ours.needs) and not (only and ours.replaces)]


def winners_of(table: str) -> list[str]:
    """Return which commits of others a table can have."""
    return [name for name, winner in WINNERS.items() if _fits(table, winner.needs, winner.lacks)]


def pairs(seed: int, count: int) -> list[Pair]:
    """Return all pairs with one winner, in a random order, then random ones with two or three; ``count`` in all."""
    chance = random.Random(seed)
    found = [Pair(table, ours, (won,)) for table in TABLES for ours in ours_of(table) for won in winners_of(table)]
    chance.shuffle(found)
    del found[count * 3 // 4 :]
    while len(found) < count:
        table = chance.choice(list(TABLES))
        harmless = ("append", "append-unmarked", "nothing", "append-other-id", "update", "optimize", "user-domain")
        known = winners_of(table)
        first = [each for each in harmless if each in known]
        before = tuple(chance.choice(first) for _ in range(chance.randint(1, 2)))
        found.append(Pair(table, chance.choice(ours_of(table)), (*before, chance.choice(known))))
    return found


def grouped(lines: list[Line]) -> Actions:
    """Return the actions of a commit by kind."""
    found: dict[str, list[Any]] = {kind: [] for kind in NEWS_KINDS}
    for line in lines:
        for kind, action in line.items():
            found.setdefault(kind, []).append(action)
    return found


Judge = Callable[[Touched, int, Actions], Conflict | None]


def conflict_of(pair: Pair, judging: Judge = judge) -> Conflict | None:
    """Return what stops our commit, as `TableLog.commit` finds it; None if nothing does."""
    table = TABLES[pair.table]
    touched = OUR_COMMITS[pair.ours].touched(table)
    found = (judging(touched, version, grouped(lines)) for version, lines in enumerate(pair.landed(), 1))
    return next((conflict for conflict in found if conflict is not None), None)


def recorded() -> Iterator[tuple[Pair, str | None, str | None]]:
    """Yield pairs with the answers that delta-spark gave, and ours: the class of an exception and of a conflict."""
    for line in RECORDED.read_text().splitlines():
        pair, theirs, ours = line.rsplit("\t", 2)
        yield Pair.parse(pair), theirs if theirs != "-" else None, ours if ours != "-" else None
