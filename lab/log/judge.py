"""An independent judge of a log: it knows the protocol and what exactly-once means, and no code of the product.

It sees each file as it lands or goes, folds the commits by itself, and keeps what writers were told. Data files do not
exist: what an ``add`` would have is in its statistics (application, partition, offsets, generation of the schema).

1. Versions have no holes, and none is written twice.
2. In-commit timestamps rise. Row ids are given once, below the high-water mark, which never falls, with the version of
   their commit.
3. Rows are of the schema, and the protocol, that the table has when they land.
4. A batch begins where its application's offset is stored, which only manual changes move back. With exactly-once its
   rows are in the same commit, and no offset is in two files. With at-least-once the attempt's rows are there before
   its offsets, with at-most-once after them, without a manual change in between, or a RESTORE that takes them out.
5. Who was told that a commit landed, or did not, was told the truth.
6. A replacement leaves its own files, a restore by hand those of its version. Nobody claims a table that another run
   has claimed.
7. A checkpoint says what the commits up to it say; the newest version can always be read from what is there.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
ROW_IDS = "delta.rowTracking"
Json = dict[str, Any]


@dataclass(slots=True)
class Table:
    """A table at one version, folded from its commits."""

    version: int = -1
    protocol: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    adds: dict[str, Json] = field(default_factory=dict)
    high_water_mark: int = -1
    timestamp_ms: int = 0

    @property
    def features(self) -> list[str]:
        """Those that writers must know."""
        return list(self.protocol.get("writerFeatures", ()))

    @property
    def properties(self) -> Json:
        """Its configuration."""
        return dict(self.metadata["configuration"])

    @property
    def generation(self) -> int:
        """How often its schema was changed."""
        return int(json.loads(self.metadata["schemaString"])["generation"])

    def fold(self, actions: list[tuple[str, Json]]) -> None:
        """Move it on by one commit."""
        self.version += 1
        for kind, action in actions:
            if kind == "protocol":
                self.protocol = action
            elif kind == "metaData":
                self.metadata = action
            elif kind == "txn":
                self.txns[action["appId"]] = action["version"]
            elif kind == "domainMetadata":
                self.domains[action["domain"]] = action["configuration"]
                if action.get("removed"):
                    del self.domains[action["domain"]]
            elif kind == "remove":
                self.adds.pop(action["path"], None)
        self.adds |= {action["path"]: action for kind, action in actions if kind == "add"}
        if ROW_IDS in self.domains:
            self.high_water_mark = json.loads(self.domains[ROW_IDS])["rowIdHighWaterMark"]
        self.timestamp_ms = actions[0][1].get("inCommitTimestamp", self.timestamp_ms)


@dataclass(slots=True)
class Rows:
    """What one attempt has committed so far, for guarantees with two commits."""

    version: int
    offsets: set[tuple[str, int, int]]
    """Application, partition, offset."""


@dataclass(slots=True)
class Judge:
    """Judges one run."""

    guarantee: str = "exactly-once"
    violations: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    """What happened, for the tally."""
    table: Table = field(default_factory=Table)
    past: dict[int, Table] = field(default_factory=dict)
    """Each version."""
    stored: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next offset of each application's partition."""
    covered: set[tuple[str, int, int]] = field(default_factory=set)
    """The offsets whose rows are in added files, or were skipped by a manual change."""
    attempts: dict[tuple[str, str], Rows] = field(default_factory=dict)
    """The rows, or offsets, that each attempt has committed."""
    undone: dict[str, int] = field(default_factory=dict)
    """The version of the last manual change of an application's offsets; of the last RESTORE under ""."""
    paths: dict[str, Json] = field(default_factory=dict)
    claimed: tuple[str, int] = ("", 0)
    was_dropped: bool = False
    begun: set[str] = field(default_factory=set)
    """The queries whose first batch is in this table."""
    told: dict[str, bool] = field(default_factory=dict)
    """Whether writers were told that an attempt landed."""
    landed: set[str] = field(default_factory=set)
    events: list[str] = field(default_factory=list)
    """What happened, in order."""

    def fail(self, rule: str, what: str) -> None:
        """Record a violation."""
        self.violations.append(f"{rule}: {what}")

    def note(self, what: str, of: str) -> None:
        """Record an event in the trace."""
        self.seen[what] += 1
        self.events.append(f"{what} {of}")

    @property
    def trace_hash(self) -> str:
        """The hash of all events."""
        return hashlib.sha256("\n".join(self.events).encode()).hexdigest()[:16]

    def tell(self, attempt_id: str, *, landed: bool) -> None:
        """Record what a writer was told."""
        self.note("told-landed" if landed else "told-not-landed", attempt_id)
        self.told[attempt_id] = landed
        if landed and attempt_id not in self.landed:
            self.fail("told", f"{attempt_id} was told that it landed, and is not in the log")
        if not landed and attempt_id in self.landed:
            self.fail("told", f"{attempt_id} was told that it did not land, and is in the log")

    def drop(self) -> None:
        """Forget a table that was dropped."""
        self.note("drop", "")
        self.table, self.claimed, self.was_dropped = Table(), ("", 0), True
        for kept in (self.past, self.stored, self.covered, self.attempts, self.undone, self.paths, self.begun):
            kept.clear()

    def put(self, name: str, data: bytes, now_ms: int, *, is_new: bool) -> None:
        """Judge a file that landed."""
        commit, checkpoint = COMMIT.fullmatch(name), CHECKPOINT.fullmatch(name)
        if commit is not None and is_new and int(commit[1]) <= self.table.version:
            self.note("put-into-the-past", name)  # its version was cleaned up: it is not in force, and nobody reads it
        elif commit is not None:
            self.note("commit", data.decode())
            self._commit(int(commit[1]), [next(iter(json.loads(line).items())) for line in data.splitlines()], now_ms)
        elif checkpoint is not None:
            self.note("checkpoint", name)
            self._checkpoint(int(checkpoint[1]), data)

    def delete(self, name: str, left: Collection[str]) -> None:
        """Judge a file's deletion, after which these are left."""
        self.note("delete", name)
        commits = {int(found[1]) for found in map(COMMIT.fullmatch, left) if found}
        bases = [-1, *(int(found[1]) for found in map(CHECKPOINT.fullmatch, left) if found)]
        if not any(commits.issuperset(range(max(base, 0), self.table.version + 1)) for base in bases):
            self.fail("unreadable", f"after {name} was deleted, version {self.table.version} cannot be read")

    def _commit(self, version: int, actions: list[tuple[str, Json]], now_ms: int) -> None:
        before = self.table
        if version != before.version + 1:
            rule = "written-twice" if version <= before.version else "hole"
            self.fail(rule, f"version {version} landed after {before.version}")
            return
        after = copy.copy(before)
        after.txns, after.domains, after.adds = dict(before.txns), dict(before.domains), dict(before.adds)
        after.fold(actions)
        self._protocol(before, after, actions)
        info = actions[0][1]
        ours = info.get("sparkonce") or {}
        if "attemptId" in ours:
            self._attempt(ours["attemptId"])
        if info.get("engineInfo", "").startswith("sparkonce/") and info["operation"] != "RESTORE":
            self._ours(before, after, actions)
        if "batchId" in ours:
            self._batch(before, after, ours, actions)
        elif "kind" in ours:
            self._manual(version, ours)
            if ours["kind"] == "restore" and after.adds.keys() != self.past[ours["toVersion"]].adds.keys():
                self.fail("restored", f"version {version} has other files than version {ours['toVersion']}")
        if info["operation"] == "RESTORE":
            self.undone[""] = version
        if "sparkonceCompaction" in info:
            self._claim(info["sparkonceCompaction"], now_ms)
        self.table = after
        self.past[version] = after

    def _protocol(self, before: Table, after: Table, actions: list[tuple[str, Json]]) -> None:
        where, info = f"version {after.version}", actions[0][1]
        if actions[0][0] != "commitInfo":
            self.fail("commit-info", f"{where} does not begin with it")
        if after.properties.get("delta.enableInCommitTimestamps") == "true" and (
            info.get("inCommitTimestamp", -1) <= before.timestamp_ms
        ):
            self.fail("timestamps", f"{where} has {info.get('inCommitTimestamp')}, after {before.timestamp_ms}")
        if after.high_water_mark < before.high_water_mark:
            self.fail("high-water-mark", f"{where}: it falls from {before.high_water_mark} to {after.high_water_mark}")
        used = before.high_water_mark
        for add in (action for kind, action in actions if kind == "add"):
            known = self.paths.setdefault(add["path"], add)
            if "rowTracking" not in after.features or (
                known is not add and known.get("baseRowId") == add.get("baseRowId", -1)
            ):
                continue
            base, rows = add.get("baseRowId", -1), json.loads(add["stats"])["numRecords"]
            if known is not add or base <= used or base + rows - 1 > after.high_water_mark:
                self.fail("row-ids", f"{where}: {base} to {base + rows - 1}, after {used}, to {after.high_water_mark}")
            if add.get("defaultRowCommitVersion") != after.version:
                self.fail("row-ids", f"{where} has rows of version {add.get('defaultRowCommitVersion')}")
            used = base + rows - 1

    def _ours(self, before: Table, after: Table, actions: list[tuple[str, Json]]) -> None:
        adds = {action["path"]: json.loads(action["stats"]) for kind, action in actions if kind == "add"}
        where = f"version {after.version}"
        for stats in adds.values():
            if stats["generation"] != before.generation:
                self.fail("schema", f"{where} has rows of generation {stats['generation']}, not {before.generation}")
        if adds and "future" in before.features:
            self.fail("protocol", f"{where} has rows in a table with an unknown feature")
        if any(kind == "remove" for kind, _ in actions) and after.adds.keys() != adds.keys():
            self.fail("replaced", f"{where} leaves {sorted(after.adds.keys() - adds.keys())}")
        if adds.keys() & before.adds.keys():
            self.fail("rows", f"{where} adds files that are there")

    def _batch(self, before: Table, after: Table, ours: Json, actions: list[tuple[str, Json]]) -> None:
        app_id, attempt_id, writes = ours["appId"], ours["attemptId"], set(ours["writes"])
        where = f"version {after.version} ({attempt_id})"
        moved = {
            int(partition): tuple(extent)
            for topics in ours["ranges"].values()
            for topic in topics.values()
            for partition, extent in topic["partitions"].items()
        }
        offsets = {(app_id, partition, at) for partition, (start, end) in moved.items() for at in range(start, end)}
        if "rows" in writes:
            self._rows(where, [json.loads(action["stats"]) for kind, action in actions if kind == "add"], offsets)
        if ours["batchId"] == 0:
            self.begun.add(ours["queryId"])
        if "offsets" in writes:
            for partition, (start, end) in moved.items():
                stored = self.stored.get((app_id, partition), 0)
                begins = self.was_dropped and ours["queryId"] in self.begun and (app_id, partition) not in self.stored
                if begins:  # a query that had read its start from the table that was dropped
                    self.covered |= {(app_id, partition, at) for at in range(start)}
                elif start != stored:
                    self.fail("offsets", f"{where}: partition {partition} begins at {start}, and {stored} is stored")
                self.stored[app_id, partition] = end
            written = {action["appId"]: action["version"] for kind, action in actions if kind == "txn"}
            ends = [at for txn_id, at in sorted(written.items()) if "/offset/" in txn_id]
            if ends != [end for _, (_, end) in sorted(moved.items())]:
                self.fail("offsets", f"{where} stores {ends} for {moved}")
            back = [each for each in written if "/query/" in each and written[each] <= before.txns.get(each, -1)]
            if back:
                self.fail("txn", f"{where}: {back} did not rise")
        for part in writes:
            if (attempt_id, part) in self.attempts:
                self.fail("twice", f"{where}: its {part} were committed before")
            self.attempts[attempt_id, part] = Rows(after.version, offsets)
        if len(writes) == 1:
            self._half(where, app_id, attempt_id, next(iter(writes)))
        if self.guarantee == "exactly-once" and len(writes) != 2:
            self.fail("rows", f"{where} has {writes} alone")

    def _rows(self, where: str, files: list[Json], offsets: set[tuple[str, int, int]]) -> None:
        found = [(each["app"], each["partition"], at) for each in files for at in range(each["from"], each["to"])]
        if len(found) != len(set(found)) or set(found) != offsets:
            self.fail("rows", f"{where} has {sorted(found)}, and its record says {sorted(offsets)}")
        if self.guarantee != "at-least-once" and offsets & self.covered:
            self.fail("duplicates", f"{where} has rows that are there: {sorted(offsets & self.covered)}")
        self.covered |= offsets

    def _half(self, where: str, app_id: str, attempt_id: str, part: str) -> None:
        first = "rows" if self.guarantee == "at-least-once" else "offsets"
        if part == first:
            return
        before = self.attempts.get((attempt_id, first))
        if before is None or before.offsets != self.attempts[attempt_id, part].offsets:
            self.fail("halves", f"{where} has {part}, and no {first} are there")
            return
        undone = max(self.undone.get(app_id, -1), self.undone.get("", -1) if first == "rows" else -1)
        if undone > before.version:
            self.fail("halves", f"{where} has {part}; version {undone} has undone the {first} of {before.version}")

    def _manual(self, version: int, ours: Json) -> None:
        for move in ours["moves"]:
            app_id, partition, to = move["appId"], move["partition"], move["to"]
            stored = self.stored.get((app_id, partition))
            if stored != move["from"]:
                self.fail("manual", f"version {version} was decided from {move['from']}, and {stored} is stored")
            self.stored[app_id, partition] = to
            self.undone[app_id] = version
            others = {each for each in self.covered if each[:2] != (app_id, partition)}
            self.covered = others | {(app_id, partition, at) for at in range(to)}

    def _claim(self, claim: Mapping[str, Any], now_ms: int) -> None:
        run, until_ms = self.claimed
        if claim["run"] != run and until_ms > now_ms + 20_000:  # clocks differ
            self.fail("claim", f"{claim['run']} claims the table that {run} has until {until_ms}")
        self.claimed = claim["run"], claim["claimedUntil"]

    def _attempt(self, attempt_id: str) -> None:
        self.landed.add(attempt_id)
        if self.told.get(attempt_id) is False:
            self.fail("told", f"{attempt_id} landed, and was told before that it did not")

    def _checkpoint(self, version: int, data: bytes) -> None:
        rows = pq.read_table(io.BytesIO(data), use_threads=False).to_pylist(maps_as_pydicts="strict")
        found: dict[str, list[Json]] = {}
        for row in rows:
            for kind, action in row.items():
                if action is not None:
                    found.setdefault(kind, []).append(action)
        table = self.past[version]
        metadata = found["metaData"][0]
        differs = {
            "txn": {each["appId"]: each["version"] for each in found.get("txn", ())} != table.txns,
            "domains": {each["domain"]: each["configuration"] for each in found.get("domainMetadata", ())}
            != table.domains,
            "adds": {(each["path"], each.get("baseRowId")) for each in found.get("add", ())}
            != {(path, add.get("baseRowId")) for path, add in table.adds.items()},
            "protocol": sorted(found["protocol"][0].get("writerFeatures") or ()) != sorted(table.features),
            "metadata": any(metadata[each] != table.metadata[each] for each in ("id", "schemaString", "configuration")),
        }
        for what in (what for what, is_so in differs.items() if is_so):
            self.fail("checkpoint", f"the checkpoint of version {version} has other {what} than its commits")
