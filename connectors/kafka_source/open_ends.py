"""Ends of a batch query that are ``earliest`` or ``latest``: the tasks resolve them, not only the planner.

PySpark plans the tasks of a Python source once for each ``load()``, and a DataFrame may be used again much later. As
with Spark's own connector, ``latest`` and ``earliest`` mean what they mean when the rows are read, so the first piece
of a partition may begin at EARLIEST and its last one end at LATEST. Offsets planned by numbers or timestamps do not
change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from sparkonce.connectors.kafka_client.client import EARLIEST, LATEST
from sparkonce.connectors.kafka_source.offset_rules import OffsetRule
from sparkonce.connectors.kafka_source.ranges import FetchRange, KafkaInputPartition
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition

Slot = tuple[str, int]
"""A topic's name, and a partition."""


def leave_open(
    tasks: Sequence[KafkaInputPartition],
    ranges: Mapping[TopicPartition, OffsetRange],
    starting: OffsetRule,
    ending: OffsetRule,
) -> list[KafkaInputPartition]:
    """Open the ends of planned tasks where the rules use words.

    Partitions that are empty now and end at the latest offset are read too, by the last task: starting one for each
    would cost more than reading them.
    """
    bounds = {(tp.topic, tp.partition): extent for tp, extent in ranges.items()}

    def opened(piece: FetchRange) -> FetchRange:
        key = (piece.topic, piece.partition)
        at_start, at_end = piece.start == bounds[key].start, piece.end == bounds[key].end
        return replace(
            piece,
            start=EARLIEST if at_start and _said(starting, *key) == EARLIEST else piece.start,
            end=LATEST if at_end and _said(ending, *key) == LATEST else piece.end,
        )

    empty = [
        FetchRange(tp.topic, tp.topic_id, tp.partition, extent.start, extent.end)
        for tp, extent in sorted(ranges.items())
        if extent.start == extent.end and _said(ending, tp.topic, tp.partition) == LATEST
    ]
    pieces = [list(task.wanted) for task in tasks] or ([[]] if empty else [])
    if empty:
        pieces[-1] += empty
    return [KafkaInputPartition(tuple(map(opened, each))) for each in pieces]


def close(wanted: Sequence[FetchRange], ask: Callable[[int, Collection[Slot]], Mapping[Slot, int]]) -> list[FetchRange]:
    """Turn the words in the ranges of one task into offsets, and leave out what is empty.

    ``ask`` returns the offsets at EARLIEST or LATEST of several partitions at once. A piece before the current log
    start offset is empty.
    """
    earliest = ask(EARLIEST, {_slot(each) for each in wanted if each.start == EARLIEST})
    latest = ask(LATEST, {_slot(each) for each in wanted if each.end == LATEST})
    closed = [
        replace(
            each,
            start=earliest[_slot(each)] if each.start == EARLIEST else each.start,
            end=latest[_slot(each)] if each.end == LATEST else each.end,
        )
        for each in wanted
    ]
    return [each for each in closed if each.start < each.end]


def is_open(wanted: FetchRange) -> bool:
    """Whether an end is a word."""
    return wanted.start == EARLIEST or wanted.end == LATEST


def _slot(wanted: FetchRange) -> Slot:
    return wanted.topic, wanted.partition


def _said(rule: OffsetRule, topic: str, partition: int) -> int | None:
    """Return a rule's offset or word for a partition; None if the rule has timestamps."""
    if rule.everywhere is not None:
        return rule.everywhere
    return rule.each_topic.get(topic, rule.each.get((topic, partition)))
