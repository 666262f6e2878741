"""What a table of rows has of the records that an application is about to write for the first time.

An application is known by its `appId` alone. So the same query under another name, or the checkpoint of one table with
another table, looks like a new application, and would duplicate or skip rows. The transaction ids of the other
applications show that: they have topics by id, and survive every clean-up of the log. The same holds for a new name of
a source, and for a topic that an application adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey
from sparkonce.offset_store.txn_ids import (
    COVERED_TWICE,
    MOVED_TO_ID,
    OffsetTxn,
    QueryTxn,
    meant_txn_id,
    parse_txn_id,
)

Reader = tuple[str, str]
"""An application's id, and the name of one of its sources."""


@dataclass(frozen=True, slots=True)
class OtherApps:
    """The stored offsets and batches of all others that write into a table."""

    next_offsets: Mapping[PartitionKey, Mapping[Reader, int]] = field(default_factory=dict)
    """For each partition that is new to the application, the next offset of each other reader: another application,
    or a source of this one that the query does not read."""
    last_batch: int | None = None
    """The last batch of the same query under another name; also of Delta's own sink."""
    may_cover_twice: bool = False
    """Whether the user allows rows of records that others have written."""
    may_begin_late: bool = False
    """Whether the user allows skipping records that the query's checkpoint had read before."""
    keeps_offsets: bool = True
    """Whether the application's offsets are in this table: if not, it may already have rows of the application."""
    is_first: bool = True
    """Whether the application has nothing at all in the table."""
    own_sources: frozenset[str] = frozenset()
    """The sources of which the application has offsets in the table."""
    owner: str | None = None
    """An application that has the table, beside which this one must not begin."""


def other_apps(
    transactions: Mapping[str, int],
    record: BatchRecord,
    keys: Iterable[PartitionKey],
    *,
    keeps_offsets: bool = True,
    not_beside: re.Pattern[str] | None = None,
) -> OtherApps:
    """Read the transaction ids of a table for partitions of a batch of which its application has stored nothing.

    If the application has written other partitions of a topic, what was allowed to be written twice remains allowed.
    ``not_beside``: the ids of applications that each have a table of their own.
    """
    app_id, sources = record.app_id, {source for source, _ in record.ranges}
    offsets: dict[tuple[str, int], list[tuple[OffsetTxn, int]]] = {}
    own_topics: set[tuple[str, str]] = set()
    is_first, last_batch = True, transactions.get(record.query_id)  # as Delta's own sink names its queries
    apart: set[str] = set()
    for txn_id, stored in transactions.items():
        parsed = parse_txn_id(txn_id)
        if not isinstance(parsed, OffsetTxn | QueryTxn):
            continue
        is_own = parsed.app_id == app_id
        is_first = is_first and not is_own
        if not_beside is not None and not is_own and not_beside.fullmatch(parsed.app_id):
            apart.add(parsed.app_id)
        if isinstance(parsed, OffsetTxn) and stored != MOVED_TO_ID:
            if is_own and parsed.source in sources:
                own_topics.add((parsed.source, _place(parsed.partition)[0]))
            else:
                offsets.setdefault(_place(parsed.partition), []).append((parsed, stored))
        elif isinstance(parsed, QueryTxn) and not is_own and parsed.query_id == record.query_id:
            last_batch = max(stored, -1 if last_batch is None else last_batch)
    found: dict[PartitionKey, dict[Reader, int]] = {}
    for source, tp in keys:
        goes_on = (source, _place(tp)[0]) in own_topics
        of_id = [*offsets.get(_place(tp), ())] if tp.topic_id else []
        of_name = [each for each in offsets.get(_place(tp.by_name), ()) if each[0].source == source]
        for parsed, stored in (*of_id, *of_name):
            is_meant = (goes_on or not keeps_offsets) and meant_txn_id(app_id, COVERED_TWICE) in transactions
            if is_meant or (goes_on and meant_txn_id(parsed.app_id, COVERED_TWICE) in transactions):
                continue
            ends, reader = found.setdefault((source, tp), {}), (parsed.app_id, parsed.source)
            ends[reader] = max(stored, ends.get(reader, 0))
    owner = min(apart, default=None) if is_first else None
    own = frozenset(source for source, _ in own_topics)
    return OtherApps(found, last_batch, keeps_offsets=keeps_offsets, is_first=is_first, own_sources=own, owner=owner)


def _place(tp: TopicPartition) -> tuple[str, int]:
    """Return a partition's key by its topic id, which is unique among clusters; without one, by the topic's name."""
    return tp.topic_id or f"name={tp.topic}", tp.partition
