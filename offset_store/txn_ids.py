"""Names of the transaction identifiers under which offsets and batch ids stand in a Delta table.

A Delta ``txn`` action is a pair (application id, version), and a table keeps the last version of each id for ever.
Two kinds of ids are ours: where a partition of a source is read next, and which batch of a query was written last.
Ids cannot collide: ``appId`` and the source's name are percent-encoded, so a slash only ever separates parts, and a
topic stands by its id, so a topic that was deleted and made again has a life of its own. Brokers before Kafka 2.8 give
no ids: there it stands by its name, behind a sign that neither ids nor names have.
"""

from __future__ import annotations

from urllib.parse import quote

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
