"""Judges a table that two programs write: each commit as soon as it is there, by rules and by the rows it must leave.

The rules are those of `lab.log.files`, which knows the protocol and no code of the product. The rows are computed: ours
from what the batch was given, those of delta-spark from what its statement does to the rows of the version that it
read. Commits in between that the statement has not read keep theirs.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.log.files import FilesJudge
from lab.log.judge import CHECKPOINT, Json
from sparkonce.offset_store.clock import now_ms
from tests.lab.log.beside.statements import Changes, Rows, Statement

KEPT_STATES = 100
OLD_AFTER = 60
"""Commits this far behind the newest are given old times, so that there is something to clean up."""
OLD_S = 40 * 24 * 3600


@dataclass(slots=True)
class LogJudge:
    """Reads the log of one table as it grows."""

    table: Path
    rules: FilesJudge = field(default_factory=FilesJudge)
    statements: dict[int, Statement] = field(default_factory=dict)
    batches: dict[int, Changes] = field(default_factory=dict)
    landed: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each batch, and each statement that changes rows, is in the log."""
    rows: dict[int, Rows] = field(default_factory=lambda: {-1: {}})
    """At each of the newest versions."""
    commits: dict[int, bytes] = field(default_factory=dict)
    deleted: int = 0
    """Commits that were cleaned up."""
    _checkpoints: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def version(self) -> int:
        """The newest that was judged."""
        return self.rules.table.version

    def catch_up(self) -> None:
        """Judge the files that are new."""
        with self._lock:
            while (path := self._commit(self.version + 1)).exists():
                self._judge(self.version + 1, path.read_bytes())
            for name in sorted(set(os.listdir(self.table / "_delta_log")) - self._checkpoints):
                found = CHECKPOINT.fullmatch(name)
                if found is not None and int(found[1]) in self.rules.past:
                    self._checkpoints.add(name)
                    self.rules.put(name, (self.table / "_delta_log" / name).read_bytes(), now_ms(), is_new=True)

    def make_old(self) -> None:
        """Set the times of old commits back, unless the table has times in them."""
        if self.rules.table.properties.get("delta.enableInCommitTimestamps") == "true":
            return
        with self._lock:
            for version in range(max(0, self.version - 2 * OLD_AFTER), self.version - OLD_AFTER):
                path = self._commit(version)
                if path.exists() and path.stat().st_mtime > now_ms() / 1000 - OLD_S:
                    old_s = now_ms() / 1000 - 2 * OLD_S + version
                    os.utime(path, (old_s, old_s))

    def end(self) -> None:
        """Judge what is there at last."""
        self.catch_up()
        there = {version for version in self.commits if self._commit(version).exists()}
        self.deleted = len(self.commits) - len(there)
        if there != set(range(min(there), self.version + 1)):
            self.rules.fail("hole", f"these versions are left: {sorted(there)}")
        for version in there:
            if self._commit(version).read_bytes() != self.commits[version]:
                self.rules.fail("replaced", f"version {version} is not what it was")
        self._files("the newest version", self.rules.table.adds.values())

    def lost(self, acknowledged: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return what is not in the log of what was acknowledged."""
        return [each for each in acknowledged if not self.landed[each]]

    def _commit(self, version: int) -> Path:
        return self.table / "_delta_log" / f"{version:020d}.json"

    def _judge(self, version: int, data: bytes) -> None:
        self.rules.put(f"{version:020d}.json", data, now_ms(), is_new=True)
        if self.version != version:
            raise AssertionError("; ".join(self.rules.violations))
        self.commits[version] = data
        actions = [next(iter(json.loads(line).items())) for line in data.splitlines()]
        self._files(f"version {version}", (action for kind, action in actions if kind == "add"))
        self.rows[version] = self._rows_after(version, actions)
        self.rows.pop(version - KEPT_STATES, None)

    def _rows_after(self, version: int, actions: list[tuple[str, Json]]) -> Rows:
        info, before = actions[0][1], self.rows[version - 1]
        batch, number = (info.get("sparkonce") or {}).get("batchId"), info.get("userMetadata")
        if batch is not None:
            self._landed(version, ("batch", batch))
            return _changed(before, self.batches[batch])
        if number is None:
            if any(kind in ("add", "remove") and action["dataChange"] for kind, action in actions):
                self.rules.fail("unknown", f"nobody has made version {version}")
            return before
        statement = self.statements[int(number)]
        if statement.restores is not None:
            self._landed(version, ("statement", int(number)))
            return self.rows[statement.restores]
        changes = statement.changes(self.rows[info["readVersion"]])
        if changes:
            self._landed(version, ("statement", int(number)))
        return _changed(before, changes)

    def _landed(self, version: int, what: tuple[str, int]) -> None:
        self.landed[what] += 1
        if self.landed[what] > 1:
            self.rules.fail("doubled", f"version {version} has {what[0]} {what[1]} again")

    def _files(self, where: str, adds: Iterable[Mapping[str, Any]]) -> None:
        self.rules.files(where, adds, self._size_of)

    def _size_of(self, path: str) -> int | None:
        file = self.table / path
        return file.stat().st_size if file.exists() else None


def _changed(rows: Rows, changes: Changes) -> Rows:
    if not changes:
        return rows
    new: dict[int, int | None] = {**rows, **changes}
    return {key: value for key, value in new.items() if value is not None}
