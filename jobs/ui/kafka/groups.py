"""Reads consumer groups: their lag, in offsets and in seconds.

The lag in seconds is the age of the record that a group reads next. If that record was written since the start, its
age follows from earlier end offsets; for an older one, its timestamp is read, once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache

from sparkonce.jobs.cli.peek.reading import TopicReader
from sparkonce.jobs.ui.kafka.past import UNKNOWN, EndOffsetHistory, Trends
from sparkonce.jobs.ui.kafka.readers import ISOLATION
from sparkonce.jobs.ui.kafka.state import UNSEEN_PAUSE_S, GroupPartition, GroupState
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.groups import GroupListing, list_groups
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.group import Committed, Note, Slot
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.offsets import total_lag

MAX_GROUPS = 500
"""Further groups are listed without their offsets."""
MAX_TIMESTAMPS = 10
"""The number of records read for their timestamps in one round."""
MAX_KNOWN_TIMESTAMPS = 10_000
DOUBTFUL_S, DOUBTFUL_OFFSETS = 2.0, 10
"""A group with a lag this old and this small may have only transaction markers to read."""
MAX_NOTES = 50_000
"""Notes beside offsets that are kept as they were read: most are the same at the next look."""


@dataclass(frozen=True, slots=True)
class _NextRecord:
    """The next record of a group."""

    end: int
    """The end offset at that time."""
    offset: int | None
    """None if there was no record: transaction markers, and what compaction has removed, have offsets too."""
    written_ms: int | None
    """The record's timestamp, in milliseconds since 1970."""


@dataclass(slots=True)
class _Moves:
    """When a group's offsets moved, by the monotonic clock."""

    committed: int
    """Their sum."""
    last_s: float | None = None
    pause_s: float = UNSEEN_PAUSE_S

    def note(self, committed: int, now_s: float) -> None:
        """Note the sum of its offsets now."""
        if committed != self.committed:
            if self.last_s is not None:  # a longer time is one without records
                self.pause_s = min(now_s - self.last_s, UNSEEN_PAUSE_S)
            self.committed, self.last_s = committed, now_s


class GroupsLook:
    """Reads the groups; belongs to one thread."""

    def __init__(self, settings: ClientSettings, options: Mapping[str, str], past: EndOffsetHistory) -> None:
        self._client = Client(settings)
        self._options = options
        self._past = past
        self._offsets: dict[str, KafkaGroupOffsets] = {}
        self._trends = Trends()
        self._timestamps: OrderedDict[tuple[Slot, int], _NextRecord] = OrderedDict()
        """The next record of each group, by its offset."""
        self._reads_left = 0
        self._ends_at_s = 0.0
        """When the end offsets were read, by the monotonic clock."""
        self._last: dict[tuple[str, Slot], tuple[int, float]] = {}
        """Committed offsets beyond the log's end in the last round, and when they were fetched."""
        self._moves: dict[str, _Moves] = {}

    def __call__(self) -> Mapping[str, GroupState]:
        """Read once."""
        listed = list_groups(self._client)
        self._reads_left = MAX_TIMESTAMPS
        names = {each.group_id for each in listed}
        for gone in self._offsets.keys() - names:
            del self._offsets[gone]
        self._trends.keep(names)
        self._last = {key: last for key, last in self._last.items() if key[0] in names}
        self._moves = {name: moves for name, moves in self._moves.items() if name in names}
        now_s = time.monotonic()
        ago_s, noted = self._past.before(now_s, 0.0)
        self._ends_at_s = now_s - ago_s
        ends = {slot: end for slot, end in noted.items() if end != UNKNOWN}
        return {each.group_id: self._state(each, ends, at < MAX_GROUPS) for at, each in enumerate(listed)}

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _state(self, group: GroupListing, ends: Mapping[Slot, int], with_offsets: bool) -> GroupState:
        if not with_offsets:
            problem = f"there are more than {MAX_GROUPS} groups"
            return GroupState(group.group_id, group.kind, group.state, problem=problem)
        try:
            committed = self._committed(group.group_id)
        except (OffsetStoreError, KafkaError) as error:
            return GroupState(group.group_id, group.kind, group.state, problem=str(error))
        partitions = tuple(
            replace(
                self._partition(slot, each.offset, ends.get(slot)),
                is_beyond=self._is_beyond((group.group_id, slot), each.offset, ends.get(slot)),
                note=_note(each.metadata),
            )
            for slot, each in sorted(committed.items())
        )
        past = self._trends.note(group.group_id, total_lag(each.lag for each in partitions) or 0)
        total = sum(each.committed for each in partitions)
        moves = self._moves.setdefault(group.group_id, _Moves(total))
        moves.note(total, time.monotonic())
        return GroupState(group.group_id, group.kind, group.state, partitions, past, pause_s=moves.pause_s)

    def _committed(self, group_id: str) -> Committed:
        if group_id not in self._offsets:
            self._offsets[group_id] = KafkaGroupOffsets(self._client, group_id, require_stable=False)
        return self._offsets[group_id].fetch()

    def _partition(self, slot: Slot, committed: int, end: int | None) -> GroupPartition:
        if end is None or committed >= end:
            return GroupPartition(*slot, committed, end, None if end is None else 0.0)
        written_s = self._past.written_at(slot, committed)
        if written_s is None:
            return self._by_timestamp(slot, committed, end)
        seconds = max(time.monotonic() - written_s, 0.0)
        if seconds > DOUBTFUL_S and end - committed <= DOUBTFUL_OFFSETS:
            found = self._next(slot, committed, end)
            if found is not None and found.offset is None:
                return GroupPartition(*slot, committed, end, 0.0)
            written_s = None if found is None else self._past.written_at(slot, found.offset or 0)
            seconds = seconds if written_s is None else max(time.monotonic() - written_s, 0.0)
        return GroupPartition(*slot, committed, end, seconds)

    def _is_beyond(self, key: tuple[str, Slot], committed: int, end: int | None) -> bool:
        """Whether the log ends before a committed offset, by an end offset read after the commit."""
        last = self._last.pop(key, None)
        if end is None or committed <= end:
            return False
        if last is not None and last[0] == committed:
            self._last[key] = last
            return last[1] < self._ends_at_s
        self._last[key] = committed, time.monotonic()
        return False

    def _by_timestamp(self, slot: Slot, committed: int, end: int) -> GroupPartition:
        found = self._next(slot, committed, end)
        if found is not None and found.offset is None:
            return GroupPartition(*slot, committed, end, 0.0)
        if found is None or found.written_ms is None:
            return GroupPartition(*slot, committed, end, None)
        return GroupPartition(*slot, committed, end, max(now_ms() - found.written_ms, 0) / 1000, by_timestamp=True)

    def _next(self, slot: Slot, offset: int, end: int) -> _NextRecord | None:
        """Return the next record from an offset on; None if unknown now."""
        key = slot, offset
        known = self._timestamps.get(key)
        if known is None or (known.offset is None and known.end < end):
            if not self._reads_left:
                return None
            self._reads_left -= 1
            try:
                known = self._read_next(slot, offset, end)
            except (OSError, LookupError, ValueError, KafkaError):  # only a figure; the next round may have it
                self._reads_left = 0
                return None
            self._timestamps[key] = known
            if len(self._timestamps) > MAX_KNOWN_TIMESTAMPS:
                self._timestamps.popitem(last=False)
        return known

    def _read_next(self, slot: Slot, offset: int, end: int) -> _NextRecord:
        topic, partition = slot
        with (
            closing(TopicReader({**self._options, ISOLATION: "read_uncommitted"}, topic)) as reader,
            closing(reader.read(partition, offset, end)) as records,
        ):
            record = next(records, None)
        if record is None:
            return _NextRecord(end, None, None)
        return _NextRecord(end, record.offset, None if record.timestamp_ms < 0 else record.timestamp_ms)


@lru_cache(maxsize=MAX_NOTES)
def _note(metadata: str) -> Note | None:
    return Note.from_text(metadata) if metadata.startswith("{") else None
