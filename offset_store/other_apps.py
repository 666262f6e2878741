"""What a table of rows holds of other applications, for one that has nothing there yet.

An application is known by its `appId` alone. So the same query under another name, or the checkpoint of one table with
another table, looks like a new application, and would write rows again, or leave rows out. The transaction ids of
the others show that: they name topics by their ids, and outlive every clean-up of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import PartitionKey
from sparkonce.offset_store.txn_ids import MOVED_TO_ID, OffsetTxn, QueryTxn, parse_txn_id


@dataclass(frozen=True, slots=True)
class OtherApps:
    """The stored offsets and batches of all other applications of a table."""

    next_offsets: Mapping[PartitionKey, Mapping[str, int]] = field(default_factory=dict)
    """For each partition that the application reads, the next offset of each other one that has read it."""
    last_batch: int | None = None
    """The last batch of the same query under another name; of Delta's own sink, too."""
    may_cover_twice: bool = False
    """Whether the user means to write rows of the records that others have written."""
    may_begin_late: bool = False
    """Whether the user means to leave out what the query's checkpoint had read before."""
    keeps_offsets: bool = True
    """Whether the application's offsets are in this table: if not, it may have rows of the application already."""


def other_apps(
    transactions: Mapping[str, int], app_id: str, query_id: str, keys: Iterable[PartitionKey]
) -> OtherApps | None:
    """Read the transaction ids of a table; None if the application itself has offsets or batches among them."""
    offsets: dict[tuple[str, int], list[tuple[OffsetTxn, int]]] = {}
    last_batch = transactions.get(query_id)  # as Delta's own sink names its queries
    for txn_id, stored in transactions.items():
        parsed = parse_txn_id(txn_id)
        if isinstance(parsed, OffsetTxn | QueryTxn) and parsed.app_id == app_id:
            return None
        if isinstance(parsed, QueryTxn) and parsed.query_id == query_id:
            last_batch = max(stored, -1 if last_batch is None else last_batch)
        elif isinstance(parsed, OffsetTxn) and stored != MOVED_TO_ID:
            offsets.setdefault(_place(parsed.partition), []).append((parsed, stored))
    found: dict[PartitionKey, dict[str, int]] = {}
    for source, tp in keys:
        of_id = [*offsets.get(_place(tp), ())] if tp.topic_id else []
        of_name = [each for each in offsets.get(_place(tp.by_name), ()) if each[0].source == source]
        for parsed, stored in (*of_id, *of_name):
            ends = found.setdefault((source, tp), {})
            ends[parsed.app_id] = max(stored, ends.get(parsed.app_id, 0))
    return OtherApps(found, last_batch)


def _place(tp: TopicPartition) -> tuple[str, int]:
    """Name a partition by its topic's id, which is unique among clusters; where there is none, by the topic's name."""
    return tp.topic_id or f"name={tp.topic}", tp.partition
