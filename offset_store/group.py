"""Offsets as the committed offsets of a Kafka consumer group, visible to lag tools and to consumers that join later.

A group stores one number for each partition, and a text with it (the commit's metadata, 4096 bytes at most by default:
``offset.metadata.max.bytes``). The text has what a Delta commit has in its commit info: application, source, query,
batch, attempt, the start of the range, the topic id, and the fingerprint of the batch. So the newest commit of each
partition is enough; older ones are gone, and with them their history: for batches before the last one only the offsets
are known.

Kafka's OffsetCommit compares nothing. This store fetches again right before it commits, which detects another driver
unless both commit at the same moment: a group does *not* fence drivers. Exactly-once therefore never relies on one.

A partition whose text is not ours (a consumer committed, or ``kafka-consumer-groups --reset-offsets``) counts as
stored, as for any member of the group. One that belongs to another application or source is an error: a group keeps
one position only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.notebook import store_table
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, CommittedBatch, FileT, PartitionKey, Writes
from sparkonce.offset_store.store import OffsetStore, Snapshot, read_offsets

MARK = "sparkonce"
REFRESH_MS = 24 * 60 * 60 * 1000
"""The interval at which an unchanged offset is committed again, if that costs nothing extra."""

Slot = tuple[str, int]
"""The key of a group's offset: a topic's name, and a partition."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's entry for one partition: the offset to read next, a text, and the leader epoch before the offset."""

    offset: int
    metadata: str = ""
    epoch: int | None = None


Committed = Mapping[Slot, CommittedOffset]


class GroupOffsets(Protocol):
    """The committed offsets of one consumer group of one cluster."""

    def fetch(self) -> Committed:
        """Return all offsets that the group committed. Raises OffsetStoreError or ConnectionError if unreadable."""

    def update(self, build: Callable[[Committed], Committed]) -> None:
        """Fetch, and commit what ``build`` returns for it; retry from the fetch after a retriable error.

        Raises:
            CommitConflictError: if ``build`` does.
            OffsetStoreError, ConnectionError: if the group or a partition rejects it, or no broker answers.
        """

    def check_vacant(self) -> None:
        """Check that the group has no members: only they could commit then. Raises OffsetStoreError if it has."""

    def __str__(self) -> str:
        """Name the group, for messages."""


@dataclass(frozen=True, slots=True)
class Note:
    """The metadata of a committed offset."""

    app_id: str
    source: str
    query_id: str
    batch_id: int
    attempt_id: str
    start: int
    topic_id: str
    number: int
    """The number of the commit: one more than the highest number in the group before it."""
    at_ms: int
    fingerprint: int | None = None
    """`Fingerprint.to_int`; None in notes of earlier versions of sparkonce."""
    cut_from: int | None = None
    """As `OffsetRange.cut_from`."""

    @property
    def follows(self) -> int:
        """Return the offset that was stored before this commit: as `OffsetRange.follows`."""
        return self.start if self.cut_from is None else self.cut_from

    def to_text(self) -> str:
        """Return the JSON text, in ASCII."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        if self.cut_from is None:
            del fields["cut_from"]
        return json.dumps({MARK: fields}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Note | None:
        """Parse the result of ``to_text``; None for metadata of others."""
        try:
            fields = json.loads(text)[MARK]
            return cls(
                app_id=str(fields["app_id"]),
                source=str(fields["source"]),
                query_id=str(fields["query_id"]),
                batch_id=int(fields["batch_id"]),
                attempt_id=str(fields["attempt_id"]),
                start=int(fields["start"]),
                topic_id=str(fields["topic_id"]),
                number=int(fields["number"]),
                at_ms=int(fields["at_ms"]),
                fingerprint=None if fields.get("fingerprint") is None else int(fields["fingerprint"]),
                cut_from=fields.get("cut_from"),
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # any consumer may have written it
            return None


@dataclass(frozen=True, slots=True)
class GroupOffsetStore(OffsetStore):
    """The offsets of one application in one consumer group."""

    group: GroupOffsets
    app_id: str
    now_ms: Callable[[], int] = now_ms

    def read(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.read`. A group with active members may be read."""
        return read_offsets(self._picture(), source, partitions)

    def epochs(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.epochs`."""
        return {tp: epoch for (_, tp), epoch in self._picture().epochs((source, tp) for tp in partitions).items()}

    def snapshot(self) -> GroupSnapshot:
        """See `OffsetStore.snapshot`. A group with active members is rejected here, before anything is written."""
        self.group.check_vacant()
        return self._picture()

    def _picture(self) -> GroupSnapshot:
        return GroupSnapshot(self.group, self.app_id, self.group.fetch(), self.now_ms)

    def __str__(self) -> str:
        return str(self.group)

    def _repr_html_(self) -> str:
        return store_table(self)


@dataclass(frozen=True, slots=True)
class GroupSnapshot(Snapshot):
    """A group's committed offsets at one moment."""

    group: GroupOffsets
    app_id: str
    committed: Committed
    now_ms: Callable[[], int]

    @property
    def version(self) -> int:
        """The number of the newest commit of this application; 0 if it has none here."""
        return max((note.number for note in self._notes().values()), default=0)

    def last_batch(self, query_id: str) -> int | None:
        """See `Snapshot.last_batch`."""
        return max((note.batch_id for note in self._notes().values() if note.query_id == query_id), default=None)

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `Snapshot.fingerprint`; known as long as no later batch has moved all partitions of this one."""
        for note in self._notes().values():
            if (note.query_id, note.batch_id) == (query_id, batch_id) and note.fingerprint is not None:
                return Fingerprint.from_int(note.fingerprint)
        return None

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.next_offsets`.

        Raises:
            OffsetStoreError: for a partition whose offset is another application's or another source's, or that two
                sources read.
        """
        stored = {}
        seen: dict[Slot, PartitionKey] = {}
        for key in keys:
            source, tp = key
            other = seen.setdefault((tp.topic, tp.partition), key)
            if other != key:
                raise OffsetStoreError(
                    f"{self.group} cannot keep the offsets of {tp} for both sources, {other[0]!r} and {source!r}: a "
                    "group keeps one offset for each partition. Use offsetStore=delta:<path>"
                )
            entry = self.committed.get((tp.topic, tp.partition))
            if entry is None:
                continue
            note = Note.from_text(entry.metadata)
            if note is not None and note.topic_id and tp.topic_id and note.topic_id != tp.topic_id:
                continue  # a deleted topic of that name; without an id, from before Kafka 2.8
            if note is not None and (note.app_id, note.source) != (self.app_id, source):
                raise OffsetStoreError(
                    f"{self.group} keeps the offset of {tp} for appId {note.app_id!r}, source {note.source!r}; this is "
                    f"appId {self.app_id!r}, source {source!r}. A group keeps one offset for each partition: choose "
                    "another group id"
                )
            stored[key] = entry.offset
        return stored

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.epochs`: a group keeps it beside each offset."""
        entries = ((key, self.committed.get((key[1].topic, key[1].partition))) for key in keys)
        return {key: entry.epoch for key, entry in entries if entry is not None and entry.epoch is not None}

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`; the comparison and the commit are two requests, one right after the other.

        A batch that moves no partition is recorded with the offsets of those that are at its position.

        Raises:
            CommitConflictError: if an offset that it moves was moved after this snapshot.
            OffsetStoreError: if the group or a partition rejects it.
        """
        assert not commit.files, "a group holds no rows"
        if Writes.OFFSETS in commit.writes:
            self.group.update(lambda current: self._changes(current, commit.record))

    def can_record(self, record: BatchRecord) -> bool:
        """See `Snapshot.can_record`: a batch is recorded with the offset of a partition that it reads."""
        return bool(_slots_of(self, record))

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`; of each batch, only the partitions that no later batch has moved."""
        ranges: dict[tuple[str, int, str, int, int], dict[PartitionKey, OffsetRange]] = defaultdict(dict)
        for (topic, partition), note in self._notes().items():
            key = note.source, TopicPartition(topic, note.topic_id, partition)
            entry = self.committed[topic, partition]
            extent = OffsetRange(note.start, entry.offset, entry.epoch, note.cut_from)
            ranges[note.query_id, note.batch_id, note.attempt_id, note.number, note.at_ms][key] = extent
        found = [
            CommittedBatch(
                number, at_ms, Writes.OFFSETS, BatchRecord(self.app_id, query_id, batch_id, attempt_id, kept)
            )
            for (query_id, batch_id, attempt_id, number, at_ms), kept in ranges.items()
        ]
        return sorted(found, key=lambda entry: entry.version, reverse=True)[:limit]

    def is_noted(self, tp: TopicPartition) -> bool:
        """Whether this application was the last to commit the partition's offset."""
        return (tp.topic, tp.partition) in self._notes()

    def entries(self, record: BatchRecord) -> dict[Slot, CommittedOffset]:
        """Return the entries that a commit of a batch writes into the group, if none of them is there yet.

        Unchanged partitions are written again once a day: a group without members forgets an offset that was not
        committed for ``offsets.retention.minutes``, a week by default.
        """
        return {**self._refreshed(record), **self._entries(record, self.version + 1)}

    def _refreshed(self, record: BatchRecord) -> dict[Slot, CommittedOffset]:
        old, notes = self.now_ms() - REFRESH_MS, self._notes()
        slots = {(tp.topic, tp.partition) for _, tp in record.ranges}
        return {
            slot: replace(self.committed[slot], metadata=replace(note, at_ms=self.now_ms()).to_text())
            for slot, note in notes.items()
            if slot in slots and note.at_ms < old
        }

    def _entries(self, record: BatchRecord, number: int) -> dict[Slot, CommittedOffset]:
        at_ms = self.now_ms()
        return {
            slot: CommittedOffset(
                record.ranges[key].end, _note(record, key, number, at_ms).to_text(), record.ranges[key].epoch
            )
            for slot, key in _slots_of(self, record).items()
        }

    def _notes(self) -> dict[Slot, Note]:
        read = ((slot, Note.from_text(entry.metadata)) for slot, entry in self.committed.items())
        return {slot: note for slot, note in read if note is not None and note.app_id == self.app_id}

    def _changes(self, committed: Committed, record: BatchRecord) -> dict[Slot, CommittedOffset]:
        """Return the entries to commit now that the group holds ``committed``; empty if this attempt's has landed.

        Kafka accepts each partition of a commit separately. So a part of it may be there already, and the rest is sent.
        """
        current = GroupSnapshot(self.group, self.app_id, committed, self.now_ms)
        notes = current._notes()
        slots = _slots_of(self, record)
        ours = {slot for slot in slots if slot in notes and notes[slot].attempt_id == record.attempt_id}
        if len(ours) == len(slots):
            return {}
        if not ours and current.last_batch(record.query_id) != self.last_batch(record.query_id):
            raise CommitConflictError(f"{self.group}: another driver wrote batches of query {record.query_id}")
        changed = sorted(slot for slot in slots.keys() - ours if committed.get(slot) != self.committed.get(slot))
        if changed:
            topic, partition = changed[0]
            raise CommitConflictError(f"{self.group}: another client moved the offset of {topic}-{partition}")
        return self._entries(record, max((notes[slot].number for slot in ours), default=current.version + 1))

    def __str__(self) -> str:
        return str(self.group)


def _slots_of(snapshot: GroupSnapshot, record: BatchRecord) -> dict[Slot, PartitionKey]:
    """Return the partitions that a batch moves; if there are none, those at its position, or never moved."""
    stored = snapshot.next_offsets(record.ranges)
    still = (key for key, extent in record.ranges.items() if stored.get(key, extent.start) == extent.end)
    keys: list[PartitionKey] = sorted(record.moved) or sorted(still)
    return {(tp.topic, tp.partition): (source, tp) for source, tp in keys}


def _note(record: BatchRecord, key: PartitionKey, number: int, at_ms: int) -> Note:
    source, tp = key
    return Note(
        app_id=record.app_id,
        source=source,
        query_id=record.query_id,
        batch_id=record.batch_id,
        attempt_id=record.attempt_id,
        start=record.ranges[key].start,
        topic_id=tp.topic_id,
        number=number,
        at_ms=at_ms,
        fingerprint=None if record.fingerprint is None else record.fingerprint.to_int(),
        cut_from=record.ranges[key].cut_from,
    )
