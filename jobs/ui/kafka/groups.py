"""Looks at consumer groups: how far they are, in offsets and in seconds.

The lag in seconds is the age of the record that a group reads next. Where that record was written while we looked, it
is known from where the log ended when; for an older one, its timestamp is read, once.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from contextlib import closing

from sparkonce.broker_lite.protocol.errors import KafkaError
from sparkonce.connectors.kafka_client.client import Client
from sparkonce.connectors.kafka_client.group_offsets import KafkaGroupOffsets
from sparkonce.connectors.kafka_client.groups import GroupListing, list_groups
from sparkonce.connectors.kafka_client.settings import ClientSettings
from sparkonce.jobs.cli.peek.reading import TopicReader
from sparkonce.jobs.ui.kafka.past import Past
from sparkonce.jobs.ui.kafka.state import GroupPartition, GroupState
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.group import Committed, Slot

MAX_GROUPS = 500
"""More are listed without their offsets."""
MAX_TIMESTAMPS = 10
"""How many records are read for their timestamps at one look."""
MAX_KNOWN_TIMESTAMPS = 10_000
PAST_S = 2.0
"""The pause between two points of a group's trend."""
MAX_POINTS = 150


class GroupsLook:
    """Makes looks; belongs to one thread."""

    def __init__(self, settings: ClientSettings, options: Mapping[str, str], past: Past) -> None:
        self._client = Client(settings)
        self._options = options
        self._past = past
        self._offsets: dict[str, KafkaGroupOffsets] = {}
        self._trends: dict[str, deque[tuple[float, int]]] = {}
        self._timestamps: OrderedDict[tuple[Slot, int], int | None] = OrderedDict()
        """Of records that groups read next, in milliseconds since 1970."""
        self._reads_left = 0

    def __call__(self) -> Mapping[str, GroupState]:
        """Look once."""
        listed = list_groups(self._client)
        self._reads_left = MAX_TIMESTAMPS
        names = {each.group_id for each in listed}
        for known in (self._offsets, self._trends):
            for gone in known.keys() - names:
                del known[gone]
        _, ends = self._past.before(time.monotonic(), 0.0)
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
            self._partition(slot, each.offset, ends.get(slot)) for slot, each in sorted(committed.items())
        )
        past = self._past_of(group.group_id, sum(each.lag or 0 for each in partitions))
        return GroupState(group.group_id, group.kind, group.state, partitions, past)

    def _committed(self, group_id: str) -> Committed:
        if group_id not in self._offsets:
            self._offsets[group_id] = KafkaGroupOffsets(self._client, group_id, require_stable=False)
        return self._offsets[group_id].fetch()

    def _partition(self, slot: Slot, committed: int, end: int | None) -> GroupPartition:
        if end is None or committed >= end:
            return GroupPartition(*slot, committed, end, None if end is None else 0.0)
        written_s = self._past.written_at(slot, committed)
        if written_s is not None:
            return GroupPartition(*slot, committed, end, max(time.monotonic() - written_s, 0.0))
        written_ms = self._timestamp(slot, committed, end)
        seconds = None if written_ms is None else max(now_ms() - written_ms, 0) / 1000
        return GroupPartition(*slot, committed, end, seconds, written_ms is not None)

    def _timestamp(self, slot: Slot, offset: int, end: int) -> int | None:
        """Return the timestamp of the first record from an offset on; None if there is none, or not now."""
        key = slot, offset
        if key not in self._timestamps:
            if not self._reads_left:
                return None
            self._reads_left -= 1
            self._timestamps[key] = self._read_timestamp(slot, offset, end)
            if len(self._timestamps) > MAX_KNOWN_TIMESTAMPS:
                self._timestamps.popitem(last=False)
        return self._timestamps[key]

    def _read_timestamp(self, slot: Slot, offset: int, end: int) -> int | None:
        topic, partition = slot
        try:
            with (
                closing(TopicReader(self._options, topic)) as reader,
                closing(reader.read(partition, offset, end)) as records,
            ):
                record = next(records, None)
        except (OSError, LookupError, ValueError, KafkaError):  # it is only a figure; the next look may have it
            return None
        return None if record is None or record.timestamp_us < 0 else record.timestamp_us // 1000

    def _past_of(self, group_id: str, lag: int) -> tuple[tuple[float, int], ...]:
        points = self._trends.setdefault(group_id, deque(maxlen=MAX_POINTS))
        now_s = time.monotonic()
        if points and now_s - points[-1][0] < PAST_S:
            return (*points, (now_s, lag))
        points.append((now_s, lag))
        return tuple(points)
