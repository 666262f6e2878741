"""How the ranges of a batch are cut into tasks: the cases of Spark's KafkaOffsetRangeCalculatorSuite."""

from __future__ import annotations

import pytest

from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition

Cut = tuple[str, int, int]


def cut(*ranges: Cut, **options: int) -> list[Cut]:
    """Return the pieces of ranges, each a topic of one partition, in order."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t1,t2,t3"}
    planner = Planner(SourceOptions.read({**given, **{name: str(value) for name, value in options.items()}}))
    tasks = planner.tasks({TopicPartition(topic, "", 1): OffsetRange(start, end) for topic, start, end in ranges})
    planner.close()
    return sorted((piece.topic, piece.start, piece.end) for task in tasks for piece in task.wanted)


def test_a_range_of_each_partition() -> None:
    """Without minPartitions a range stays whole. Ours reads small ones in one task; there are no preferred executors.

    Spark: KafkaOffsetRangeCalculatorSuite "with no minPartition: N TopicPartitions to N offset ranges"
    """
    assert cut(("t1", 1, 2)) == [("t1", 1, 2)]
    assert cut(("t1", 1, 2), ("t2", 3, 9)) == [("t1", 1, 2), ("t2", 3, 9)]


def test_empty_ranges_are_left_out() -> None:
    """Nothing is planned where nothing is to be read.

    Spark: KafkaOffsetRangeCalculatorSuite "with no minPartition: empty ranges ignored"
    """
    assert cut(("t1", 1, 2), ("t2", 1, 1)) == [("t1", 1, 2)]


def test_as_many_ranges_as_wanted() -> None:
    """Three are wanted, and there are three.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartition = 3: N TopicPartitions to N offset ranges"
    """
    ranges = [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)]
    assert cut(*ranges, minPartitions=3) == ranges


def test_one_range_into_many() -> None:
    """A range is cut into pieces of one record.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartition = 4: 1 TopicPartition to N offset ranges"
    """
    assert cut(("t1", 1, 5), minPartitions=4) == [("t1", n, n + 1) for n in range(1, 5)]


def test_the_larger_range_is_cut() -> None:
    """One of 4 and one of 20 records make four pieces.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartition = 4: N skewed TopicPartitions to M offset ranges"
    """
    assert cut(("t1", 1, 5), ("t2", 1, 21), minPartitions=4) == [
        ("t1", 1, 5),
        ("t2", 1, 7),
        ("t2", 7, 14),
        ("t2", 14, 21),
    ]


def test_empty_ranges_take_no_share() -> None:
    """All four pieces come from the range that has records.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartition = 4: SPARK-30656: ignore empty ranges and split the rest"
    """
    pieces = [("t2", start, start + 5) for start in range(1, 21, 5)]
    assert cut(("t1", 1, 1), ("t2", 1, 21), minPartitions=4) == pieces


def test_a_very_small_range_counts_as_one() -> None:
    """One of 1 and one of 1,000 records make four pieces.

    Spark: KafkaOffsetRangeCalculatorSuite
        "with minPartition = 4: SPARK-30656: N very skewed TopicPartitions to M offset ranges"
    """
    assert cut(("t1", 1, 2), ("t2", 1, 1001), minPartitions=4) == [
        ("t1", 1, 2),
        ("t2", 1, 334),
        ("t2", 334, 667),
        ("t2", 667, 1001),
    ]


def test_fewer_wanted_than_there_are() -> None:
    """Ranges are never joined.

    Spark: KafkaOffsetRangeCalculatorSuite
        "with minPartition = 1: SPARK-30656: minPartitions less than the length of topic partitions"
    """
    ranges = [("t1", 1, 5), ("t2", 1, 21)]
    assert cut(*ranges, minPartitions=1) == ranges


def test_a_range_that_does_not_divide_evenly() -> None:
    """The last piece takes what is over.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartition = 3: range inexact multiple of minPartitions"
    """
    assert cut(("t1", 1, 11), minPartitions=3) == [("t1", 1, 4), ("t1", 4, 7), ("t1", 7, 11)]


def test_empty_ranges_beside_skewed_ones() -> None:
    """The empty one is left out, the others are cut as without it.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartition = 4: empty ranges ignored"
    """
    assert cut(("t1", 1, 5), ("t2", 1, 21), ("t3", 1, 1), minPartitions=4) == [
        ("t1", 1, 5),
        ("t2", 1, 7),
        ("t2", 7, 14),
        ("t2", 14, 21),
    ]


def test_no_offset_is_dropped() -> None:
    """Ten records in three pieces: all ten are in them.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartition = 6: SPARK-28489: never drop offsets"
    """
    assert cut(("t1", 0, 10), ("t2", 0, 10), ("t3", 0, 1), minPartitions=6) == [
        ("t1", 0, 3),
        ("t1", 3, 6),
        ("t1", 6, 10),
        ("t2", 0, 3),
        ("t2", 3, 6),
        ("t2", 6, 10),
        ("t3", 0, 1),
    ]


def test_three_large_ranges() -> None:
    """Every range is large, so each is cut by its share.

    Spark: KafkaOffsetRangeCalculatorSuite
        "with minPartition = 9: SPARK-36576: 0 small unsplit ranges and 3 large split ranges"
    """
    sizes = {"t1": 10_000, "t2": 15_000, "t3": 20_000}
    assert cut(*((topic, 0, size) for topic, size in sizes.items()), minPartitions=9) == [
        (topic, start, start + 5_000) for topic, size in sizes.items() for start in range(0, size, 5_000)
    ]


def test_one_small_range_and_two_large_ones() -> None:
    """The small one stays whole, and the large ones share the rest of the pieces.

    Spark: KafkaOffsetRangeCalculatorSuite
        "with minPartition = 6: SPARK-36576: 1 small unsplit range and 2 large split ranges"
    """
    assert cut(("t1", 0, 500), ("t2", 0, 12_000), ("t3", 0, 15_001), minPartitions=6) == [
        ("t1", 0, 500),
        ("t2", 0, 6_000),
        ("t2", 6_000, 12_000),
        ("t3", 0, 5_000),
        ("t3", 5_000, 10_000),
        ("t3", 10_000, 15_001),
    ]


def test_two_small_ranges_and_one_large_one() -> None:
    """The two small ones take a piece each, the large one the other four.

    Spark: KafkaOffsetRangeCalculatorSuite
        "with minPartition = 6: SPARK-36576: 2 small unsplit ranges and 1 large split range"
    """
    large = [("t3", start, start + 2_500) for start in range(0, 10_000, 2_500)]
    small = [("t1", 0, 1), ("t2", 0, 1)]
    assert cut(*small, ("t3", 0, 10_000), minPartitions=6) == [*small, *large]


@pytest.mark.parametrize(
    ("end", "expected"),
    [(2, [("t1", 1, 2)]), (5, [("t1", 1, 5)]), (6, [("t1", 1, 3), ("t1", 3, 6)])],
)
def test_at_most_so_many_records(end: int, expected: list[Cut]) -> None:
    """A range that is too large is cut into as few pieces of like size as will do.

    Spark: KafkaOffsetRangeCalculatorSuite
        "with maxRecordsPerPartition = 4: SPARK-49259: 1 TopicPartition to N offset ranges"
    """
    assert cut(("t1", 1, end), maxRecordsPerPartition=4) == expected


def test_at_most_so_many_records_of_several_ranges() -> None:
    """Each range is cut for itself.

    Spark: KafkaOffsetRangeCalculatorSuite
        "with maxRecordsPerPartition = 20: SPARK-49259: N TopicPartition to N offset ranges"
    """
    assert cut(("t1", 1, 40), ("t2", 1, 50), ("t3", 1, 60), maxRecordsPerPartition=20) == [
        ("t1", 1, 20),
        ("t1", 20, 40),
        ("t2", 1, 17),
        ("t2", 17, 33),
        ("t2", 33, 50),
        ("t3", 1, 20),
        ("t3", 20, 40),
        ("t3", 40, 60),
    ]


def test_a_low_minimum_changes_nothing() -> None:
    """Cut by records, there are more pieces than minPartitions wants.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartitions = 1 and maxRecordsPerPartition = 20: SPARK-49259:
        1 TopicPartition with low minPartitions value"
    """
    assert cut(("t1", 1, 40), minPartitions=1, maxRecordsPerPartition=20) == [("t1", 1, 20), ("t1", 20, 40)]


def test_a_high_minimum_cuts_on() -> None:
    """Cut by records there are two pieces, and minPartitions wants four.

    Spark: KafkaOffsetRangeCalculatorSuite "with minPartitions = 4 and maxRecordsPerPartition = 20: SPARK-49259:
        1 TopicPartition with high minPartitions value"
    """
    pieces = [("t1", 1, 10), ("t1", 10, 20), ("t1", 20, 30), ("t1", 30, 40)]
    assert cut(("t1", 1, 40), minPartitions=4, maxRecordsPerPartition=20) == pieces
