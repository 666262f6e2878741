"""The actions of one commit of ours, made from the state that it follows. No I/O.

What depends on the commit before is made anew each time a version was lost to another writer: row ids, the version in
``defaultRowCommitVersion``, and the in-commit timestamp.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from sparkonce.offset_store.log.actions import Action, AddFile
from sparkonce.offset_store.log.state import (
    CLUSTERING_DOMAIN,
    IN_COMMIT_TIMESTAMPS,
    ROW_TRACKING_DOMAIN,
    TableState,
)
from sparkonce.offset_store.log.verdict import Touched

ROW_TRACKING = "rowTracking"
_SUSPENDED = "delta.rowTrackingSuspended"
"""While it is true, new files get no row ids: delta-spark is about to drop the feature."""
WRITE = "WRITE"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit that has been decided on."""

    transactions: Mapping[str, int] = field(default_factory=dict)
    """The transaction identifiers that it moves; it was decided from their versions before."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ours in the ``commitInfo``."""
    files: Sequence[AddFile] = ()
    removed: Sequence[Action] | None = None
    """The add actions of all files of the table, if it replaces them; of some, if it is `alone`."""
    restored: Sequence[Action] = ()
    """Add actions of files that the table had before, and gets again with the row ids that they had."""
    domains: Sequence[Action] = ()
    metadata: Action | None = None
    protocol: Action | None = None
    operation: str = WRITE
    parameters: Mapping[str, Any] | None = None
    """``operationParameters``; by default those of a write."""
    metrics: Mapping[str, str] | None = None
    """``operationMetrics``; by default those of a write."""
    alone: bool = False
    """Whether no other commit may land before it."""
    read: Set[str] = frozenset()
    """Other transaction identifiers that it was decided from, and does not move."""

    @property
    def touched(self) -> Touched:
        """What it depends on, for `verdict.judge`."""
        domains = {str(each["domain"]) for each in self.domains}
        if self.files:  # they have statistics of the clustering columns that there were
            domains.add(CLUSTERING_DOMAIN)
        return Touched(self.transactions.keys() | self.read, domains, replaces=self.removed is not None)

    def actions(self, state: TableState, attempt_id: str, now_ms: int, engine: str) -> list[tuple[str, Action]]:
        """Return its actions as the version after ``state``."""
        found: list[tuple[str, Action]] = [("commitInfo", self._info(state, attempt_id, now_ms, engine))]
        if self.protocol is not None:
            found.append(("protocol", self.protocol))
        if self.metadata is not None:
            found.append(("metaData", self.metadata))
        found += [("txn", {"appId": txn_id, "version": to}) for txn_id, to in self.transactions.items()]
        found += [("remove", _remove(each, now_ms)) for each in self.removed or ()]
        found += self._adds(state)
        found += [("domainMetadata", each) for each in self.domains]
        return found

    def _info(self, state: TableState, attempt_id: str, now_ms: int, engine: str) -> dict[str, Any]:
        timed: dict[str, Any] = {}
        if state.metadata.is_on(IN_COMMIT_TIMESTAMPS):
            now_ms = now_ms if state.timestamp_ms is None else max(now_ms, state.timestamp_ms + 1)
            timed = {"inCommitTimestamp": now_ms}
        metrics = self.metrics or (self._metrics() if self.files else None)
        return {
            **timed,
            "timestamp": now_ms,
            "operation": self.operation,
            "operationParameters": self.parameters or self._of_a_write(state),
            "isBlindAppend": self.removed is None and self.metadata is None,
            **({"operationMetrics": metrics} if metrics else {}),
            "engineInfo": engine,
            "txnId": attempt_id,
            **self.info,
        }

    def _metrics(self) -> dict[str, str]:
        written, rows = sum(file.size for file in self.files), sum(file.rows for file in self.files)
        return {"numFiles": str(len(self.files)), "numOutputRows": str(rows), "numOutputBytes": str(written)}

    def _of_a_write(self, state: TableState) -> dict[str, str]:
        columns = json.dumps(list(state.metadata.partition_columns), separators=(",", ":"))
        return {"mode": "Append" if self.removed is None else "Overwrite", "partitionBy": columns}

    def _adds(self, state: TableState) -> list[tuple[str, Action]]:
        adds: list[tuple[Action, int]] = [(file.to_action(), file.rows) for file in self.files]
        adds += [(add, 0 if "baseRowId" in add else rows_of(add) or 0) for add in self.restored]
        if ROW_TRACKING not in state.protocol.writer_features or state.metadata.is_on(_SUSPENDED):
            return [("add", add) for add, _ in adds]
        found: list[tuple[str, Action]] = []
        row_id = state.next_row_id
        for add, rows in adds:
            ids = {"baseRowId": row_id, "defaultRowCommitVersion": state.version + 1}
            found.append(("add", {**ids, **add}))
            row_id += rows
        if row_id > state.next_row_id:
            configuration = json.dumps({"rowIdHighWaterMark": row_id - 1}, separators=(",", ":"))
            domain = {"domain": ROW_TRACKING_DOMAIN, "configuration": configuration, "removed": False}
            found.append(("domainMetadata", domain))
        return found


def rows_of(add: Action) -> int | None:
    """Return how many rows a file has, deleted ones too; None if its statistics do not say."""
    found = json.loads(add.get("stats") or "{}").get("numRecords")
    return int(found) if found is not None else None


def _remove(add: Action, now_ms: int) -> dict[str, Any]:
    """Return the action that removes a file; it keeps what a reader of the change data needs."""
    kept = ("partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    return {
        "path": add["path"],
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        **{name: add[name] for name in kept if add.get(name) is not None},
    }
