"""Ends that stay words until rows are read: which pieces have them, and what they come to."""

from __future__ import annotations

from connectors.kafka_once.client import EARLIEST, LATEST
from connectors.kafka_once.offset_rules import OffsetRule
from connectors.kafka_once.open_ends import close, is_open, leave_open
from connectors.kafka_once.ranges import FetchRange, KafkaInputPartition
from offset_store.offsets import OffsetRange, TopicPartition

WORDS = OffsetRule(EARLIEST), OffsetRule(LATEST)


def task(*pieces: tuple[int, int, int]) -> KafkaInputPartition:
    return KafkaInputPartition(tuple(FetchRange("t", "id", *piece) for piece in pieces))


def opened(
    tasks: list[KafkaInputPartition], starting: OffsetRule, ending: OffsetRule, *bounds: tuple[int, int]
) -> list[list[tuple[int, int, int]]]:
    ranges = {TopicPartition("t", "id", number): OffsetRange(*extent) for number, extent in enumerate(bounds)}
    found = leave_open(tasks, ranges, starting, ending)
    return [[(piece.partition, piece.start, piece.end) for piece in each.wanted] for each in found]


def test_only_the_outermost_ends_are_words() -> None:
    tasks = [task((0, 5, 7)), task((0, 7, 9)), task((0, 9, 12)), task((1, 0, 3))]
    assert opened(tasks, *WORDS, (5, 12), (0, 3)) == [
        [(0, EARLIEST, 7)],
        [(0, 7, 9)],
        [(0, 9, LATEST)],
        [(1, EARLIEST, LATEST)],
    ]


def test_numbers_and_timestamps_stay() -> None:
    tasks = [task((0, 5, 7), (1, 0, 3))]
    each = OffsetRule(each={("t", 0): 5, ("t", 1): EARLIEST}), OffsetRule(each={("t", 0): LATEST, ("t", 1): 3})
    assert opened(tasks, *each, (5, 7), (0, 3)) == [[(0, 5, LATEST), (1, EARLIEST, 3)]]
    by_topic = OffsetRule(each_topic={"t": EARLIEST}), OffsetRule(timestamp_ms=1)
    assert opened(tasks, *by_topic, (5, 7), (0, 3)) == [[(0, EARLIEST, 7), (1, EARLIEST, 3)]]


def test_what_is_empty_now_is_read_by_the_last_task_if_it_may_grow() -> None:
    tasks = [task((0, 0, 3)), task((1, 0, 3))]
    assert opened(tasks, *WORDS, (0, 3), (0, 3), (4, 4)) == [
        [(0, EARLIEST, LATEST)],
        [(1, EARLIEST, LATEST), (2, EARLIEST, LATEST)],
    ]
    assert opened([], *WORDS, (0, 0)) == [[(0, EARLIEST, LATEST)]]
    assert opened([], OffsetRule(EARLIEST), OffsetRule(each={("t", 0): 0}), (0, 0)) == []


def test_words_come_to_offsets() -> None:
    answers = {EARLIEST: 4, LATEST: 9}
    for wanted, expected in (((EARLIEST, LATEST), (4, 9)), ((EARLIEST, 6), (4, 6)), ((6, LATEST), (6, 9))):
        piece = FetchRange("t", "id", 0, *wanted)
        assert is_open(piece)
        closed = close(piece, answers.__getitem__)
        assert (closed.start, closed.end) == expected
    assert not is_open(FetchRange("t", "id", 0, 0, 9))


def test_a_piece_that_has_aged_out_is_empty() -> None:
    closed = close(FetchRange("t", "id", 0, EARLIEST, 6), {EARLIEST: 8}.__getitem__)
    assert (closed.start, closed.end) == (8, 8)
