"""Where a query begins and ends, by its options: the same for all, for each partition, or by timestamps.

Of several options for one end the first of ``…Timestamp``, ``…OffsetsByTimestamp`` and ``…Offsets`` counts, as in
Spark's connector (KafkaSourceProvider.getKafkaOffsetRangeLimit).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkonce.kafka.client.client import EARLIEST, LATEST
from sparkonce.options import OptionError

EachPartition = Mapping[tuple[str, int], int]
_Check = Callable[[Any], bool]

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class OffsetRule:
    """Where to begin or end: by ``everywhere``, by ``each`` and ``each_topic``, or by one of the two timestamps.

    ``everywhere`` is LATEST or EARLIEST; ``each`` holds an offset, LATEST or EARLIEST for each partition,
    ``each_topic`` LATEST or EARLIEST for all partitions of a topic; timestamps are milliseconds since 1970, and mean
    the first record at or after them.
    """

    everywhere: int | None = None
    each: EachPartition = field(default_factory=dict)
    each_topic: Mapping[str, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    each_timestamp_ms: EachPartition = field(default_factory=dict)
    option: str = field(default="", compare=False)
    """The name of the option that set it, for messages."""


def offset_rule(option: str) -> Callable[[str], OffsetRule]:
    """Return the reader of ``startingOffsets`` or ``endingOffsets``."""
    expected = (
        'expected earliest, latest, or JSON such as {"topicA":{"0":23,"1":-1},"topicB":"earliest"}, -1 latest, '
        "-2 earliest"
    )

    def parse(text: str) -> OffsetRule:
        word = text.strip().lower()
        if word in _WORDS:
            return OffsetRule(_WORDS[word], option=option)
        found = _topics(text, expected)
        each_topic = {topic: _WORDS.get(value.lower(), 0) for topic, value in found if isinstance(value, str)}
        numbered = [(topic, value) for topic, value in found if not isinstance(value, str)]
        for topic, _ in numbered:
            if topic in each_topic:
                raise ValueError(f"topic {topic} has both a word and offsets: use one of them")
        if not all(each_topic.values()):
            raise ValueError(expected)
        each = _each_partition(numbered, expected, lambda offset: type(offset) is int and EARLIEST <= offset < 1 << 63)
        if not each and not each_topic:
            raise ValueError(expected)
        return OffsetRule(None, each, each_topic, option=option)

    return parse


def timestamp_rule(option: str) -> Callable[[str], OffsetRule]:
    """Return the reader of ``startingTimestamp`` or ``endingTimestamp``."""

    def parse(text: str) -> OffsetRule:
        digits = text.strip()
        if not re.fullmatch(r"\+?[0-9]{1,19}", digits) or int(digits) >= 1 << 63:
            raise ValueError("expected a single long value, milliseconds since 1970 such as 1700000000000")
        return OffsetRule(timestamp_ms=int(digits), option=option)

    return parse


def each_timestamp_rule(option: str) -> Callable[[str], OffsetRule]:
    """Return the reader of ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``."""
    expected = 'expected JSON such as {"topicA":{"0":1700000000000,"1":1700000000000}}, milliseconds since 1970'

    def parse(text: str) -> OffsetRule:
        each = _each_partition(_topics(text, expected), expected, lambda at: type(at) is int and 0 <= at < 1 << 63)
        if not each:
            raise ValueError(expected)
        return OffsetRule(each_timestamp_ms=each, option=option)

    return parse


def _topics(text: str, expected: str) -> list[tuple[str, Any]]:
    """Read a JSON object whose keys are topics; objects are lists of pairs, so that duplicate keys are detected."""
    try:
        found = json.loads(text, object_pairs_hook=list)
    except ValueError as error:
        raise ValueError(expected) from error
    if not isinstance(found, list) or not all(isinstance(each, tuple) for each in found):
        raise ValueError(expected)
    return found


def _each_partition(topics: list[tuple[str, Any]], expected: str, holds: _Check) -> EachPartition:
    try:
        each = {(topic, int(partition)): value for topic, partitions in topics for partition, value in partitions}
    except (ValueError, TypeError) as error:
        raise ValueError(expected) from error
    if not all(holds(value) for value in each.values()):
        raise ValueError(expected)
    return each


def check_rules_of_batch(starting: OffsetRule, ending: OffsetRule, format_name: str) -> None:
    """Check what can be checked of a batch query's rules without a broker.

    Raises:
        OptionError: if the start is latest, the end earliest, or the start is after the end.
    """
    if starting.everywhere == LATEST:
        raise OptionError(
            f"{format_name}: option startingOffsets: starting offset can't be latest for batch queries on Kafka; use "
            "earliest, offsets or a timestamp"
        )
    if ending.everywhere == EARLIEST:
        raise OptionError(
            f"{format_name}: option endingOffsets: ending offset can't be earliest for batch queries on Kafka; use "
            "latest, offsets or a timestamp"
        )
    for option, word, rule in (("startingOffsets", "latest", starting), ("endingOffsets", "earliest", ending)):
        named = {f"{topic}-{partition}": offset for (topic, partition), offset in rule.each.items()}
        for where, offset in {**rule.each_topic, **named}.items():
            if offset == _WORDS[word]:
                raise OptionError(
                    f"{format_name}: {option} for {where} can't be {word} for batch queries on Kafka; use an offset"
                )
    if not starting.each_topic and not ending.each_topic:
        _check_order("offset", starting.option, starting.each, ending.option, ending.each, format_name)
    _check_order(
        "timestamp", starting.option, starting.each_timestamp_ms, ending.option, ending.each_timestamp_ms, format_name
    )


def _check_order(
    what: str, first: str, starts: EachPartition, last: str, ends: EachPartition, format_name: str
) -> None:
    if not starts or not ends:
        return
    if set(starts) != set(ends):
        raise OptionError(
            f"{format_name}: {first} and {last} should name the same topic-partitions. Topic-partitions for start "
            f"offset: {names(starts)}, topic-partitions for end offset: {names(ends)}"
        )
    for (topic, partition), start in starts.items():
        end = ends[topic, partition]
        if start > end and min(start, end) >= 0:
            raise OptionError(
                f"{format_name}: the specified start {what} {start} is greater than the end {what} {end} for topic "
                f"{topic} partition {partition}: correct {first} or {last}"
            )


def names(partitions: EachPartition | set[tuple[str, int]]) -> str:
    """Format partitions for a message, in order."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
