"""The offsets of one source, as Spark's checkpoint stores them.

Spark stores a streaming source's position as one line of JSON and compares positions as text, so the text is
canonical: sorted keys, no spaces. Each partition has two numbers. ``next`` is the next offset to read. ``origin`` is
where this checkpoint began: Spark does not persist the initial offset, so only the origin inside every end offset lets
batch 0 be replayed with the same start after a crash. The topic id distinguishes a recreated topic from the one it
replaced.

``epoch`` is the leader epoch of the record before ``next``, where brokers return it (KIP-320): it shows a reader that
the log was truncated and rewritten below ``next``, however long it has grown since. It follows from the position, so it
is ignored when positions are compared. If a log was truncated, the position goes back to where the log diverges from
what was read: that is the new ``origin``. ``cutFrom`` is how far had been read before; ``cutEpoch``, the epoch there,
distinguishes the records that are gone from as many new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FORMAT_VERSION = 1
MARK = "sparkonce"
HAND_OVER, RANGES = "handOver", "ranges"
"""The field of a line whose batch consists of ranges, and its value."""


class OffsetFormatError(ValueError):
    """A text is not one of our offsets; the message says what was found and what was expected."""


class TopicPartition(NamedTuple):
    """One partition of one topic, by id and name. A tuple, since planning looks up thousands for every batch."""

    topic: str
    topic_id: str
    partition: int

    @property
    def by_name(self) -> TopicPartition:
        """The same partition without a topic id, as for brokers before Kafka 2.8."""
        return TopicPartition(self.topic, "", self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Position:
    """The start of a checkpoint on a partition, and its next offset."""

    origin: int
    next: int
    epoch: int | None = field(default=None, compare=False)
    """The leader epoch of the record before ``next``; None if unknown."""
    cut_from: int | None = None
    """How far records had been read when the log was truncated to ``origin``; None if it was not."""
    cut_epoch: int | None = field(default=None, compare=False)
    """The leader epoch of the record before ``cut_from``; None if unknown."""

    def __post_init__(self) -> None:
        if not 0 <= self.origin <= self.next:
            raise OffsetFormatError(f"offsets must satisfy 0 <= origin <= next, got {self.origin}, {self.next}")

    def to_document(self) -> dict[str, int]:
        """Return the JSON object; unknown values are omitted, as in the lines of earlier versions."""
        document = {"next": self.next, "origin": self.origin}
        if self.epoch is not None:
            document = {"epoch": self.epoch, **document}
        if self.cut_from is None:
            return document
        cut = {"cutFrom": self.cut_from, **document}
        return cut if self.cut_epoch is None else {"cutEpoch": self.cut_epoch, **cut}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Position:
        """Parse what a `to_document` has written. Raises KeyError, TypeError or ValueError if it is invalid."""
        cut = document.get("cutFrom"), document.get("cutEpoch")
        return cls(document["origin"], document["next"], document.get("epoch"), *cut)

    def back_to(self, origin: int) -> Position:
        """Return the position after the log was truncated to ``origin``."""
        return Position(origin, origin, None, self.next, self.epoch)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The half-open range ``[start, end)`` of one partition that one batch covers."""

    start: int
    end: int
    epoch: int | None = field(default=None, compare=False)
    """The leader epoch of the record before ``end``; None if unknown."""
    cut_from: int | None = field(default=None, compare=False)
    """How far records had been read before, if the log was truncated to ``start`` since; else None."""
    epoch_before: int | None = field(default=None, compare=False)
    """The leader epoch that the previous batch stored for ``start``; None if unknown."""
    cut_epoch: int | None = field(default=None, compare=False)
    """The leader epoch of the record before ``cut_from``, in the log that was truncated; None if unknown."""

    @property
    def follows(self) -> int:
        """Return the offset that is stored before this range is written."""
        return self.start if self.cut_from is None else self.cut_from


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The position of one source: a source name (option ``source``) and a position for each partition."""

    source: str
    positions: Mapping[TopicPartition, Position]
    hands_over_ranges: bool = field(default=False, compare=False)
    """Whether the batch that ends here consists of ranges to read instead of records (option ``handOver``)."""

    def to_document(self) -> dict[str, Any]:
        """Return the offset as a JSON object whose keys are in order, so that equal positions give equal text."""
        topics: dict[str, Any] = {}
        for tp, position in sorted(self.positions.items(), key=lambda each: (each[0].topic, str(each[0].partition))):
            topic = topics.get(tp.topic)
            if topic is None:
                topic = topics[tp.topic] = {"id": tp.topic_id, "partitions": {}}
            topic["partitions"][str(tp.partition)] = position.to_document()
        document = {"source": self.source, MARK: FORMAT_VERSION, "topics": topics}
        return {HAND_OVER: RANGES, **document} if self.hands_over_ranges else document

    def moved_since(self, before: SourceOffset) -> dict[TopicPartition, Position]:
        """Return the positions that differ from those of ``before``; the others are often the same objects."""
        known = before.positions
        return {tp: at for tp, at in self.positions.items() if (old := known.get(tp)) is not at and old != at}

    def to_document_after(self, before: SourceOffset, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same as `to_document`, by changing what moved since ``before``, whose JSON object is given.

        A batch moves few of a topic's thousands of partitions; those share their objects with ``before``.
        """
        if self.positions.keys() != before.positions.keys() or self.hands_over_ranges != (HAND_OVER in document):
            return self.to_document()
        topics: dict[str, Any] = dict(document["topics"])
        for tp, position in self.positions.items():
            if position is before.positions[tp]:
                continue
            topic = topics[tp.topic]
            if topic is document["topics"][tp.topic]:
                topic = topics[tp.topic] = {"id": tp.topic_id, "partitions": dict(topic["partitions"])}
            topic["partitions"][str(tp.partition)] = position.to_document()
        return {**document, "topics": topics}

    def to_json(self) -> str:
        """Return the canonical text, equal for equal positions."""
        return json.dumps(self.to_document(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SourceOffset:
        """Parse the result of ``to_json``. Raises OffsetFormatError if the text is invalid."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OffsetFormatError(f"not an offset of kafka_once: {text[:200]!r} ({error!r})") from error
        return cls.from_document(document)

    @classmethod
    def from_document(cls, document: Any) -> SourceOffset:
        """Parse the result of ``to_document``, also after JSON. Raises OffsetFormatError if it is invalid."""
        try:
            if document[MARK] != FORMAT_VERSION:
                raise OffsetFormatError(
                    f"this offset has format {document[MARK]!r}; this version of sparkonce reads {FORMAT_VERSION}"
                )
            positions = {
                TopicPartition(name, topic["id"], int(partition)): Position.from_document(value)
                for name, topic in document["topics"].items()
                for partition, value in topic["partitions"].items()
            }
            return cls(document["source"], positions, document.get(HAND_OVER) == RANGES)
        except OffsetFormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = json.dumps(document)
            raise OffsetFormatError(f"not an offset of kafka_once: {text[:200]!r} ({error!r})") from error


def is_ours(text: str) -> bool:
    """Whether a line of Spark's offset log was written by ``kafka_once``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and MARK in document


def batch_ranges(start: SourceOffset | None, end: SourceOffset) -> dict[TopicPartition, OffsetRange]:
    """Return the range of each partition of the batch that leads from ``start`` to ``end``.

    ``start`` is None for batch 0, and is not trusted for a partition whose origin it does not share with ``end``:
    the initial offset is requested again after a restart and may have changed. Nor for one that went back: its log was
    truncated, and the query continued where it diverges, which is then the origin. A topic with an id in ``end`` and
    none in ``start`` got it between the two: its broker was upgraded from before Kafka 2.8.
    """
    ranges = {}
    for tp, position in end.positions.items():
        before = (start.positions.get(tp) or start.positions.get(tp.by_name)) if start else None
        begin, epoch_before = position.origin, None
        if before is not None and _life(before) == _life(position) and before.next <= position.next:
            begin, epoch_before = before.next, before.epoch
        cut_from, cut_epoch = (position.cut_from, position.cut_epoch) if begin == position.origin else (None, None)
        ranges[tp] = OffsetRange(begin, position.next, position.epoch, cut_from, epoch_before, cut_epoch)
    return ranges


def lag(at: int | None, log_end: int | None) -> int | None:
    """Return how many offsets are not read yet; negative if the log ends before ``at``, None if either is unknown."""
    return None if at is None or log_end is None else log_end - at


def total_lag(lags: Iterable[int | None]) -> int | None:
    """Return the lag of several partitions, without those beyond their log; None if no lag is known."""
    known = [max(each, 0) for each in lags if each is not None]
    return sum(known) if known else None


def _life(position: Position) -> tuple[int, int | None]:
    """Return a key that is equal for positions of one unbroken log; a truncation changes it."""
    return position.origin, position.cut_from
