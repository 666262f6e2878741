"""What the offsets in a progress say about lag, in the form of our source and of Spark's own."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from sparkonce.connectors.lag.state import PartitionLag, offsets_moved, read_batch, read_offsets, source_lag
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from sparkonce.offset_store.record import BatchCounts
from tests.cases import each_case


def ours(source: str = "kafka", **next_offsets: int) -> str:
    positions = {TopicPartition("flights", "id", int(name[1:])): Position(0, at) for name, at in next_offsets.items()}
    return SourceOffset(source, positions).to_json()


def entry(end: str | None, latest: str | None, rows: int | None = 5) -> SimpleNamespace:
    return SimpleNamespace(description="d", startOffset=None, endOffset=end, latestOffset=latest, numInputRows=rows)


def test_lag_is_what_lies_between_the_end_of_the_batch_and_the_latest_offset() -> None:
    lag = source_lag(1, entry(ours("orders", p0=10, p1=7), ours("orders", p0=25, p1=7)))
    assert (lag.name, lag.position, lag.rows) == ("orders", 1, 5)
    assert lag.partitions == (PartitionLag("flights", 0, 10, 25), PartitionLag("flights", 1, 7, 7))
    assert [each.records for each in lag.partitions] == [15, 0]
    assert lag.offsets_behind_latest == 15
    assert lag.metrics == {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 15, "avgOffsetsBehindLatest": 7.5}


def test_the_same_of_sparks_own_connector() -> None:
    lag = source_lag(0, entry('{"flights":{"0":10,"1":7}}', '{"flights":{"1":8,"0":10}}'))
    assert lag.name == "kafka"
    assert [(each.partition, each.records) for each in lag.partitions] == [(0, 0), (1, 1)]
    assert lag.metrics["avgOffsetsBehindLatest"] == 0.5


def test_a_log_that_was_cut_is_no_negative_lag() -> None:
    assert source_lag(0, entry(ours(p0=10), ours(p0=3))).partitions[0].records == 0


@pytest.mark.parametrize("latest", [None, "", "null", "None"])
def test_without_a_latest_offset_there_is_no_lag_and_no_figure(latest: str | None) -> None:
    lag = source_lag(0, entry(ours(p0=10), latest))
    assert lag.partitions == (PartitionLag("flights", 0, 10, None),)
    assert lag.metrics == {}
    assert lag.partition_count == 0


def test_a_partition_that_only_the_end_has_is_left_out_of_the_figures() -> None:
    lag = source_lag(0, entry(ours(p0=1, p1=1), ours(p0=4)))
    assert lag.metrics == {"minOffsetsBehindLatest": 3, "maxOffsetsBehindLatest": 3, "avgOffsetsBehindLatest": 3}


@each_case(
    "text",
    [
        None,
        "null",
        "7",
        '"x"',
        "[1]",
        '{"logOffset":3}',
        '{"topic":{"zero":1}}',
        '{"topic":{"0":"1"}}',
        '{"topic":{"0":null}}',
        json.dumps({"sparkonce": 99, "source": "kafka", "topics": {}}),
        "{",
        "{}",
    ],
)
def test_offsets_of_other_kinds_are_none(text: str | None) -> None:
    assert read_offsets(text) == ("", {})
    lag = source_lag(0, entry(text, text, rows=None))
    assert (lag.name, lag.rows, lag.partitions) == ("d", 0, ())


def handed_over(origin: int, **next_offsets: int) -> str:
    positions = {
        TopicPartition("flights", "id", int(name[1:])): Position(origin, at) for name, at in next_offsets.items()
    }
    return SourceOffset("kafka", positions, hands_over_ranges=True).to_json()


@each_case(
    ("start", "end", "moved"),
    [
        (None, handed_over(4, p0=10, p1=7), 6 + 3),
        ("None", handed_over(4, p0=10, p1=7), 6 + 3),
        (handed_over(4, p0=10, p1=7), handed_over(4, p0=12, p1=7), 2),
        (ours(p0=10), handed_over(0, p0=12), 2),
        (handed_over(0, p0=10), ours(p0=12), None),
        ('{"flights":{"0":10}}', '{"flights":{"0":12}}', None),
        (None, '{"handOver":"ranges"}', None),
        (None, None, None),
    ],
)
def test_how_far_the_offsets_of_ranges_moved(start: str | None, end: str | None, moved: int | None) -> None:
    assert offsets_moved(start, end) == moved


def progress(*sources: SimpleNamespace) -> SimpleNamespace:
    rows = sum(source.numInputRows for source in sources)
    return SimpleNamespace(
        id="q", runId="r", name=None, batchId=3, batchDuration=500, numInputRows=rows, sources=list(sources)
    )


def test_a_batch_of_ranges_has_the_records_that_its_sink_counted_or_else_its_offsets() -> None:
    ranges = progress(entry(handed_over(0, p0=90, p1=10), None, rows=2))
    assert (read_batch(ranges, None).rows, read_batch(ranges, None).sources[0].rows) == (100, 100)
    counted = read_batch(ranges, BatchCounts(records=77, rows=70))
    assert (counted.rows, counted.sources[0].rows, counted.name) == (77, 77, "q")


def test_a_batch_of_records_has_as_many_as_spark_counts() -> None:
    records = progress(entry(ours(p0=90), None, rows=60), entry('{"logOffset":3}', None, rows=7))
    batch = read_batch(records, BatchCounts(rows=50))
    assert (batch.rows, [source.rows for source in batch.sources]) == (67, [60, 7])
    assert batch.counts == BatchCounts(rows=50)
