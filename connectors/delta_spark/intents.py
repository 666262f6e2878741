"""The table of offsets of a result that delta-spark writes: without rows, its commits are intents and confirmations.

Two transaction ids more than in a table of `delta_once`: ``sparkonce/<appId>/intent``, the newest sequence number that
was recorded, and ``sparkonce/<appId>/merge``, the newest that is confirmed. Every commit here moves the first, so of
two drivers that checked the same version only one gets to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from sparkonce.connectors.delta_spark.sequence import Intent, Landed
from sparkonce.offset_store.delta import DeltaOffsetStore, DeltaSnapshot
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.own_commits import INTENT_INFO_KEY, SEQUENCE_KEY
from sparkonce.offset_store.record import (
    COMMIT_INFO_KEY,
    BatchRecord,
    Commit,
    CommittedBatch,
    PartitionKey,
    Writes,
    read_history,
)
from sparkonce.offset_store.txn_ids import FIRST_TXN_ID, intent_txn_id, merge_txn_id

OFFSETS_FOLDER = "_sparkonce"
"""The table of offsets, within the result's folder. A name with an underscore is hidden from readers and VACUUM."""
RESULT_VERSION_KEY = "resultVersion"


def intent_to_info(intent: Intent, writes: Writes) -> dict[str, Any]:
    """Return the JSON object of a commit that belongs to an intent."""
    return {**intent.record.to_commit_info(writes), SEQUENCE_KEY: intent.sequence}


def intent_from_info(info: object, app_id: str) -> Intent | None:
    """Read what `intent_to_info` returned; None for anything else, and for other applications."""
    if not isinstance(info, Mapping):
        return None
    try:
        intent = Intent(int(info[SEQUENCE_KEY]), BatchRecord.from_commit_info(info))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return intent if intent.record.app_id == app_id else None


@dataclass(frozen=True, slots=True)
class DeltaIntents:
    """The table of offsets of one result."""

    store: DeltaOffsetStore

    def snapshot(self) -> DeltaIntentSnapshot:
        """See `IntentLog.snapshot`."""
        snapshot = self.store.snapshot()
        confirmed = snapshot.look_up(merge_txn_id(self.store.app_id))
        return DeltaIntentSnapshot(snapshot, confirmed or 0)

    def __str__(self) -> str:
        return f"delta:{self.store.location}"


@dataclass(frozen=True, slots=True)
class DeltaIntentSnapshot:
    """See `IntentSnapshot`."""

    inner: DeltaSnapshot
    confirmed: int

    @property
    def version(self) -> int:
        """See `IntentSnapshot.version`."""
        return self.inner.version

    def last_batch(self, query_id: str) -> int | None:
        """See `IntentSnapshot.last_batch`."""
        return self.inner.last_batch(query_id)

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `IntentSnapshot.fingerprint`."""
        return self.inner.fingerprint(query_id, batch_id)

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `IntentSnapshot.next_offsets`."""
        return self.inner.next_offsets(keys)

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `IntentSnapshot.epochs`."""
        return self.inner.epochs(keys)

    def intents(self, sequence: int) -> list[Intent]:
        """See `IntentSnapshot.intents`."""
        read = (intent_from_info(entry.get(INTENT_INFO_KEY), self.inner.app_id) for entry in self.inner.commit_infos())
        intents = (intent for intent in read if intent is not None)
        # Numbers never decrease: at the first lower one all of this number have been seen.
        reached = takewhile(lambda intent: intent.sequence >= sequence, intents)
        return [intent for intent in reached if intent.sequence == sequence]

    def record(self, intent: Intent) -> None:
        """See `IntentSnapshot.record`."""
        app_id = self.inner.app_id
        info = {INTENT_INFO_KEY: intent_to_info(intent, Writes(0))}
        against_first_commits = {FIRST_TXN_ID: self.version} if intent.is_first else {}
        self.inner.write(Proposal({intent_txn_id(app_id): intent.sequence, **against_first_commits}, info))

    def confirm(self, landed: Landed, move_offsets: bool) -> None:
        """See `IntentSnapshot.confirm`."""
        app_id, intent = self.inner.app_id, landed.intent
        numbers = {intent_txn_id(app_id): intent.sequence, merge_txn_id(app_id): intent.sequence}
        if not move_offsets:
            self.inner.write(Proposal(numbers, {}))
            return
        info = {**intent_to_info(intent, Writes.OFFSETS), RESULT_VERSION_KEY: landed.version}
        offsets: Commit[Any] = Commit(intent.record, Writes.OFFSETS)
        self.inner.write(Proposal({**numbers, **self.inner.transactions(offsets)}, {COMMIT_INFO_KEY: info}))

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `IntentSnapshot.history`."""
        entries = self.inner.commit_infos(limit)
        return [_as_one(batch, entry[COMMIT_INFO_KEY]) for entry in entries for batch in read_history([entry])]


def _as_one(batch: CommittedBatch, info: Mapping[str, Any]) -> CommittedBatch:
    """Return a confirmation as the one commit of rows and offsets that it completes; other commits as they are."""
    if SEQUENCE_KEY not in info:
        return batch
    version = info.get(RESULT_VERSION_KEY)
    version = batch.version if version is None else int(version)
    return CommittedBatch(version, batch.timestamp_ms, Writes.ROWS | Writes.OFFSETS, batch.record)
