"""Names of the transaction identifiers under which offsets and batch ids stand in a Delta table.

A Delta ``txn`` action is a pair (application id, version), and a table keeps the last version of each id for ever.
Two kinds of ids are ours: where a partition of a source is read next, and which batch of a query was written last.
MERGEs have two more: the last sequence number that was recorded, and the last that landed or is confirmed.
Ids cannot collide: ``appId`` and the source's name are percent-encoded, so a slash only ever separates parts, and a
topic stands by its id, so a topic that was deleted and made again has a life of its own. Brokers before Kafka 2.8 give
no ids: there it stands by its name, behind a sign that neither ids nor names have.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from offset_store.offsets import TopicPartition
from offset_store.record import Writes
from offset_store.store import Commit, FileT

PREFIX = "sparkonce"


def offset_txn_id(app_id: str, source: str, partition: TopicPartition) -> str:
    """Name the id whose version is the next offset of ``partition``."""
    topic = partition.topic_id or f"name={partition.topic}"
    return f"{PREFIX}/{_encode(app_id)}/offset/{_encode(source)}/{topic}/{partition.partition}"


def query_txn_id(app_id: str, query_id: str) -> str:
    """Name the id whose version is the last batch id written by Spark's query ``query_id``."""
    return f"{PREFIX}/{_encode(app_id)}/query/{query_id}"


def merge_txn_id(app_id: str) -> str:
    """Name the id whose version is a sequence number: the last that landed (result), or is confirmed (offsets)."""
    return f"{PREFIX}/{_encode(app_id)}/merge"


def intent_txn_id(app_id: str) -> str:
    """Name the id whose version is the last sequence number that was recorded."""
    return f"{PREFIX}/{_encode(app_id)}/intent"


@dataclass(frozen=True, slots=True, order=True)
class OffsetTxn:
    """What an id of an offset says; the topic's name is empty where the topic stands by its id."""

    app_id: str
    source: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class QueryTxn:
    """What an id of a query says."""
def hand_txn_id(app_id: str) -> str:
    """Name the id that changes by hand and the second of a batch's two commits both write, so that they conflict."""
    return f"{PREFIX}/{_encode(app_id)}/hand"



    app_id: str
    query_id: str


@dataclass(frozen=True, slots=True, order=True)
class MergeTxn:
    """What an id of `merge_txn_id` says."""

    app_id: str


@dataclass(frozen=True, slots=True, order=True)
class IntentTxn:
    """What an id of `intent_txn_id` says."""

    app_id: str


def parse_txn_id(text: str) -> OffsetTxn | QueryTxn | MergeTxn | IntentTxn | None:
    """Read what the functions above gave; None for ids that are not ours."""
    match text.split("/"):
        case [str(prefix), app_id, "offset", source, topic, partition] if prefix == PREFIX and partition.isdecimal():
            name = topic.removeprefix("name=") if topic.startswith("name=") else ""
            tp = TopicPartition(name, "" if name else topic, int(partition))
            return OffsetTxn(unquote(app_id), unquote(source), tp)
        case [str(prefix), app_id, "query", query_id] if prefix == PREFIX:
            return QueryTxn(unquote(app_id), query_id)
        case [str(prefix), app_id, "merge"] if prefix == PREFIX:
            return MergeTxn(unquote(app_id))
        case [str(prefix), app_id, "intent"] if prefix == PREFIX:
            return IntentTxn(unquote(app_id))
    return None


@lru_cache(maxsize=1024)
def _encode(text: str) -> str:
    return quote(text, safe="")


def transactions_of(commit: Commit[FileT]) -> dict[str, int]:
    """Give the transaction ids that a commit moves, with their new versions; none for a commit of rows only."""
    if Writes.OFFSETS not in commit.writes:
        return {}
    record = commit.record
    txns = {offset_txn_id(record.app_id, *key): extent.end for key, extent in record.moved.items()}
    txns[query_txn_id(record.app_id, record.query_id)] = record.batch_id
    return txns
