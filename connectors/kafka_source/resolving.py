"""From a rule for the start or the end of a query to an offset for each partition.

Requests go through ``ask``, which returns the offset at LATEST, EARLIEST or a timestamp, and -1 where no record has
that timestamp or a later one (ListOffsets).

In a batch query the tasks resolve ``earliest`` and ``latest``, not only the planner. PySpark plans the tasks of a
Python source once for each ``load()``, and a DataFrame may be used again much later. As with Spark's own connector,
``latest`` and ``earliest`` mean what they mean when the rows are read, so the first piece of a partition may begin at
EARLIEST and its last one end at LATEST. Offsets planned by numbers or timestamps do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from sparkonce.connectors.kafka_source.data_loss import RETENTION, report_loss
from sparkonce.connectors.kafka_source.offset_rules import EachPartition, OffsetRule, names
from sparkonce.connectors.kafka_source.ranges import FetchRange, KafkaInputPartition
from sparkonce.kafka.client.client import EARLIEST, LATEST
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.options import OptionError

Offsets = dict[TopicPartition, int]
Ask = Callable[[Mapping[TopicPartition, int]], Offsets]

NO_MATCH = -1
"""What ListOffsets returns for a timestamp after all records."""

Slot = tuple[str, int]
"""A topic's name, and a partition."""


def resolve(
    rule: OffsetRule,
    partitions: list[TopicPartition],
    ask: Ask,
    *,
    fail_on_data_loss: bool,
    latest_if_no_match: bool,
    wanted: Collection[TopicPartition] | None = None,
) -> Offsets:
    """Return the offset of each partition, or of those that are ``wanted``; the rule is one for all.

    Raises:
        OptionError: if the rule names only some partitions, or others, or a timestamp has no match and needs one.
        DataLossError: if it names an offset that the log does not have and failOnDataLoss is true.
    """
    left = partitions if wanted is None else [tp for tp in partitions if tp in wanted]
    if rule.everywhere is not None:
        return ask(dict.fromkeys(left, rule.everywhere))
    if rule.timestamp_ms is not None:
        return _by_timestamps(rule.option, dict.fromkeys(left, rule.timestamp_ms), ask, latest_if_no_match)
    if rule.each_timestamp_ms:
        times = _of_all(rule.option, rule.each_timestamp_ms, partitions, "")
        return _by_timestamps(rule.option, {tp: times[tp] for tp in left}, ask, latest_if_no_match)
    by_topic = {(tp.topic, tp.partition): rule.each_topic[tp.topic] for tp in partitions if tp.topic in rule.each_topic}
    _check_topics(rule, partitions)
    each = _of_all(rule.option, {**rule.each, **by_topic}, partitions, " Use -1 for latest, -2 for earliest.")
    return _by_offsets(rule.option, {tp: each[tp] for tp in left}, ask, fail_on_data_loss=fail_on_data_loss)


def _check_topics(rule: OffsetRule, partitions: list[TopicPartition]) -> None:
    others = set(rule.each_topic) - {tp.topic for tp in partitions}
    if others:
        raise OptionError(
            f"kafka_once: {rule.option} names topics that this query does not read: {', '.join(sorted(others))}"
        )


def _of_all(option: str, each: EachPartition, partitions: list[TopicPartition], hint: str) -> Offsets:
    assigned = {(tp.topic, tp.partition) for tp in partitions}
    if assigned != set(each):
        raise OptionError(
            f"kafka_once: the partitions that {option} specifies do not match the assigned ones: it must name all "
            f"partitions, and only those.{hint} Specified: {names(each)}. Assigned: {names(assigned)}"
        )
    return {tp: each[tp.topic, tp.partition] for tp in partitions}


def _by_timestamps(option: str, wanted: Mapping[TopicPartition, int], ask: Ask, latest_if_no_match: bool) -> Offsets:
    offsets = ask(wanted)
    unmatched = [tp for tp, offset in offsets.items() if offset == NO_MATCH]
    if unmatched and not latest_if_no_match:
        tp = min(unmatched)
        raise OptionError(
            f"kafka_once: no offset matched from option {option} for partition {tp} and timestamp {wanted[tp]}: it "
            "has no record of that time or later. Use an earlier timestamp, or start at the latest offset of such "
            "partitions with startingOffsetsByTimestampStrategy=latest"
        )
    return offsets | ask(dict.fromkeys(unmatched, LATEST))


def _by_offsets(option: str, wanted: Mapping[TopicPartition, int], ask: Ask, *, fail_on_data_loss: bool) -> Offsets:
    offsets = dict(wanted)
    offsets |= ask({tp: offset for tp, offset in wanted.items() if offset < 0})
    given = [tp for tp, offset in wanted.items() if offset >= 0]
    earliest, latest = ask(dict.fromkeys(given, EARLIEST)), ask(dict.fromkeys(given, LATEST))
    for tp in given:
        if not earliest[tp] <= offsets[tp] <= latest[tp]:
            report_loss(
                f"{option} for {tp} was {offsets[tp]}, but its log holds offsets {earliest[tp]} to {latest[tp]}",
                fail=fail_on_data_loss,
                instead=f"or correct {option}",
                prevention=RETENTION if offsets[tp] < earliest[tp] else "",
            )
            offsets[tp] = min(max(offsets[tp], earliest[tp]), latest[tp])
    return offsets


def leave_open(
    tasks: Sequence[KafkaInputPartition],
    ranges: Mapping[TopicPartition, OffsetRange],
    starting: OffsetRule,
    ending: OffsetRule,
) -> list[KafkaInputPartition]:
    """Set the ends of planned tasks to words where the rules use words.

    Partitions that are empty now and end at the latest offset are read too, by the last task: a task for each
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
    """Resolve the words in the ranges of one task to offsets, without empty ranges.

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
