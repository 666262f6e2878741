"""Names of the transaction identifiers under which a Delta table stores offsets and batch ids.

A Delta ``txn`` action is a pair (application id, version), and a table keeps the last version of each id forever.
Three kinds of ids are ours: the next offset of a partition of a source, the last batch of a query, and the fingerprints
of its last batches (`offset_store.fingerprint`: a ring of ids, one for each batch id modulo the ring's size). The first
is accompanied by the leader epoch of the record before that offset, written only when it changes.
Writes by delta-spark (the first were MERGEs, so that is the name) have two more: the last sequence number that was
recorded, and the last that landed or is confirmed.
Ids cannot collide: ``appId`` and the source's name are percent-encoded, so a slash only ever separates parts, and a
topic is named by its id, so a recreated topic has ids of its own. Brokers before Kafka 2.8 have no topic ids: there the
topic is named by its name, after a character that neither ids nor names have.

Once brokers have topic ids, offsets are still found under the name, and the first commit under the id marks the name as
moved. So they are taken over once: by the topic that was there, not by a later one of the same name. And a driver that
still has no id conflicts with that commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.fingerprint import RING, Fingerprint
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, FileT, PartitionKey, Writes

PREFIX = "sparkonce"
WRITE_PREFIX = "sparkonce-write"

MOVED_TO_ID = -1
"""Stored under a topic's name once its offset is stored under its id."""

UNKNOWN_EPOCH = -1
"""Stored for an epoch once a commit moves the offset without knowing the epoch."""

UNKNOWN_FINGERPRINT = -1
"""Stored for a fingerprint that a restore removed, if its place was empty before."""

NOTHING_DUE = -1
"""Stored for a query under `due_txn_id` when any batch may come next again."""

LookUp = Callable[[str], int | None]
"""Returns the stored version of a transaction id, or None."""


FIRST_TXN_ID = f"{PREFIX}/first"
"""The id that an application's first commit of a partition into a table of rows writes, so that two first commits
conflict. Its version has no meaning."""
COVERED_TWICE, BEGINS_LATE = "covered-twice", "begins-late"
"""Exceptions that an application may be allowed, as audits name them: see `meant_txn_id`."""


def meant_txn_id(app_id: str, what: str) -> str:
    """Return the id that is stored once an option allows `COVERED_TWICE` or `BEGINS_LATE`."""
    return f"{PREFIX}/{_encode(app_id)}/meant/{what}"


def offset_txn_id(app_id: str, source: str, partition: TopicPartition) -> str:
    """Return the id whose version is the next offset of ``partition``."""
    topic = partition.topic_id or f"name={partition.topic}"
    return f"{PREFIX}/{_encode(app_id)}/offset/{_encode(source)}/{topic}/{partition.partition}"


def epoch_txn_id(app_id: str, source: str, partition: TopicPartition) -> str:
    """Return the id whose version is the leader epoch of the record before the next offset of ``partition``."""
    topic = partition.topic_id or f"name={partition.topic}"
    return f"{PREFIX}/{_encode(app_id)}/epoch/{_encode(source)}/{topic}/{partition.partition}"


def query_txn_id(app_id: str, query_id: str) -> str:
    """Return the id whose version is the last batch id written by Spark's query ``query_id``."""
    return f"{PREFIX}/{_encode(app_id)}/query/{query_id}"


def batch_txn_id(app_id: str, query_id: str, batch_id: int) -> str:
    """Return the id whose version is the fingerprint of a batch, or of one a multiple of `RING` before."""
    return f"{PREFIX}/{_encode(app_id)}/batch/{query_id}/{batch_id % RING}"


def merge_txn_id(app_id: str) -> str:
    """Return the id whose version is a sequence number: the last that landed (result), or is confirmed (offsets)."""
    return f"{PREFIX}/{_encode(app_id)}/merge"


def intent_txn_id(app_id: str) -> str:
    """Return the id whose version is the last sequence number that was recorded."""
    return f"{PREFIX}/{_encode(app_id)}/intent"


def manual_txn_id(app_id: str) -> str:
    """Return the id that manual changes and the second of a batch's two commits both write, so that they conflict."""
    return f"{PREFIX}/{_encode(app_id)}/manual"


def due_txn_id(app_id: str, query_id: str) -> str:
    """Return the id whose version is the batch that must come next, after a restore removed batches of the query.

    Only for queries whose offsets show no gap: those with state, or with sources that are not ours.
    """
    return f"{PREFIX}/{_encode(app_id)}/due/{query_id}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetTxn:
    """The parts of an id of an offset; the topic's name is empty where the topic is named by its id."""

    app_id: str
    source: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class QueryTxn:
    """The parts of an id of a query."""

    app_id: str
    query_id: str


@dataclass(frozen=True, slots=True, order=True)
class BatchTxn:
    """The parts of an id of `batch_txn_id`."""

    app_id: str
    query_id: str
    place: int
    """The batch id modulo `RING`."""


@dataclass(frozen=True, slots=True, order=True)
class MergeTxn:
    """The parts of an id of `merge_txn_id`."""

    app_id: str


@dataclass(frozen=True, slots=True, order=True)
class IntentTxn:
    """The parts of an id of `intent_txn_id`."""

    app_id: str


def parse_txn_id(text: str) -> OffsetTxn | QueryTxn | BatchTxn | MergeTxn | IntentTxn | None:
    """Return the parts of an id of the functions above; None for ids that are not ours."""
    match text.split("/"):
        case [str(prefix), app_id, "offset", source, topic, partition] if prefix == PREFIX and partition.isdecimal():
            name = topic.removeprefix("name=") if topic.startswith("name=") else ""
            tp = TopicPartition(name, "" if name else topic, int(partition))
            return OffsetTxn(unquote(app_id), unquote(source), tp)
        case [str(prefix), app_id, "query", query_id] if prefix == PREFIX:
            return QueryTxn(unquote(app_id), query_id)
        case [str(prefix), app_id, "batch", query_id, place] if prefix == PREFIX and place.isdecimal():
            return BatchTxn(unquote(app_id), query_id, int(place))
        case [str(prefix), app_id, "merge"] if prefix == PREFIX:
            return MergeTxn(unquote(app_id))
        case [str(prefix), app_id, "intent"] if prefix == PREFIX:
            return IntentTxn(unquote(app_id))
    return None


def write_txn_id(key: str) -> str:
    """Return the id of a batch write with an idempotency key, whose version is the number of its rows.

    Without `PREFIX`: it belongs to no application, and has nothing to do with offsets.
    """
    return f"{WRITE_PREFIX}/{_encode(key)}"


def is_of_application(txn_id: str, app_id: str) -> bool:
    """Whether an id is ours, of any kind, and of this application."""
    return txn_id.startswith(f"{PREFIX}/{_encode(app_id)}/")


@lru_cache(maxsize=1024)
def _encode(text: str) -> str:
    return quote(text, safe="")


def transactions_of(commit: Commit[FileT]) -> dict[str, int]:
    """Return the transaction ids that a commit moves, with their new versions; none for a commit of rows only."""
    if Writes.OFFSETS not in commit.writes:
        return {}
    record = commit.record
    txns = {offset_txn_id(record.app_id, *key): extent.end for key, extent in record.stored.items()}
    txns[query_txn_id(record.app_id, record.query_id)] = record.batch_id
    if record.fingerprint is not None:
        txns[batch_txn_id(record.app_id, record.query_id, record.batch_id)] = record.fingerprint.to_int()
    return txns


def stored_fingerprint(look_up: LookUp, app_id: str, query_id: str, batch_id: int) -> Fingerprint | None:
    """Return the fingerprint at a batch's place in the ring."""
    number = look_up(batch_txn_id(app_id, query_id, batch_id))
    return None if number is None or number == UNKNOWN_FINGERPRINT else Fingerprint.from_int(number)


def stored_offset(look_up: LookUp, app_id: str, key: PartitionKey) -> int | None:
    """Return the next offset of a partition, by its topic id or, if that has none, by its name.

    Raises:
        OffsetStoreError: if the topic has no id here, and offsets moved to its id before.
    """
    source, tp = key
    offset = look_up(offset_txn_id(app_id, source, tp))
    if tp.topic_id:
        by_name = look_up(offset_txn_id(app_id, source, tp.by_name)) if offset is None else None
        return offset if by_name in (None, MOVED_TO_ID) else by_name
    if offset == MOVED_TO_ID:
        raise OffsetStoreError(
            f"the offset of {tp} (appId {app_id}, source {source}) is stored under the topic's id, which these brokers "
            "do not return (they did before: Kafka has topic ids since 2.8). Read the topic from brokers that do"
        )
    return offset


def stored_epochs(look_up: LookUp, app_id: str, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """Return the leader epoch that belongs to `stored_offset` of each partition, where it is known."""
    looked_up = {key: look_up(epoch_txn_id(app_id, *key)) for key in keys}
    return {key: epoch for key, epoch in looked_up.items() if epoch not in (None, UNKNOWN_EPOCH)}


def batch_due(look_up: LookUp, app_id: str, query_id: str) -> int | None:
    """Return the version of `due_txn_id`; None if any batch may come next."""
    number = look_up(due_txn_id(app_id, query_id))
    return None if number == NOTHING_DUE else number


def transactions_onto(look_up: LookUp, commit: Commit[FileT]) -> dict[str, int]:
    """Return the transaction ids that a commit moves in a store: `transactions_of`, names moved to ids, and epochs."""
    moved = transactions_of(commit)
    if moved:
        moved |= _epochs_onto(look_up, commit.record)
    if moved and commit.in_sequence:
        moved[due_txn_id(commit.record.app_id, commit.record.query_id)] = commit.record.batch_id + 1
    for own, by_name in named_txn_ids(commit).items():
        if look_up(own) is None and look_up(by_name) not in (None, MOVED_TO_ID):
            moved[by_name] = MOVED_TO_ID
    return moved


def _epochs_onto(look_up: LookUp, record: BatchRecord) -> dict[str, int]:
    """Return the leader epochs that a batch writes: those that differ from the previous batch.

    A stored epoch is looked up only where that is unknown.
    """
    written = {}
    for key, extent in record.stored.items():
        txn_id = epoch_txn_id(record.app_id, *key)
        if extent.epoch is None:
            if look_up(txn_id) not in (None, UNKNOWN_EPOCH):
                written[txn_id] = UNKNOWN_EPOCH
        elif extent.epoch != extent.epoch_before or look_up(offset_txn_id(record.app_id, *key)) is None:
            written[txn_id] = extent.epoch
    return written


def named_txn_ids(commit: Commit[FileT]) -> dict[str, str]:
    """Return, for each id that a commit moves of a topic with an id, the corresponding id by the topic's name."""
    if Writes.OFFSETS not in commit.writes:
        return {}
    app_id, moved = commit.record.app_id, commit.record.moved
    return {
        offset_txn_id(app_id, source, tp): offset_txn_id(app_id, source, tp.by_name)
        for source, tp in moved
        if tp.topic_id
    }
