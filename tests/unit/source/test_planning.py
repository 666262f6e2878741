"""Sharing a limit out, cutting ranges into tasks, and the lines of the checkpoint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.connectors.kafka_source.checkpoint import Line, ranges_between, read_line
from sparkonce.connectors.kafka_source.planning import SMALL_BATCH_RECORDS, bundle, share_out, split
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.kafka.client.metadata import TopicMetadata
from sparkonce.kafka.client.topic_ids import topic_id_from_text, topic_id_text
from sparkonce.offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition

TOPICS = {"t": TopicMetadata("t", "id-1", {0: None, 1: None})}


def line_of(given: SourceOffset | dict[str, object]) -> Line:
    document = given.to_document() if isinstance(given, SourceOffset) else given
    return read_line(document, "kafka").with_topic_ids(TOPICS)


def between(
    start: SourceOffset | dict[str, object], end: SourceOffset | dict[str, object]
) -> dict[TopicPartition, OffsetRange]:
    return ranges_between(line_of(start), line_of(end))


def tp(partition: int, topic_id: str = "id-1") -> TopicPartition:
    return TopicPartition("t", topic_id, partition)


backlogs = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=8)


@given(backlogs, st.integers(1, 20_000))
def test_a_limit_is_kept_and_nothing_starves(backlog: list[tuple[int, int]], limit: int) -> None:
    start = {tp(index): at for index, (at, _) in enumerate(backlog)}
    latest = {tp(index): at + size for index, (at, size) in enumerate(backlog)}
    ends = share_out(limit, start, latest)
    taken = {each: ends[each] - start[each] for each in start}
    assert sum(taken.values()) <= limit + len(backlog)
    for each in start:
        assert 0 <= taken[each] <= latest[each] - start[each]
        assert taken[each] > 0 or latest[each] == start[each]


def test_shares_follow_the_backlog_as_in_spark() -> None:
    """KafkaMicroBatchStream's rule: floor of the share, but at least one; 10 of 100, 10 and 1 are 9, 1 and 1."""
    start = {tp(0): 0, tp(1): 50, tp(2): 7}
    ends = share_out(10, start, {tp(0): 100, tp(1): 60, tp(2): 8})
    assert ends == {tp(0): 9, tp(1): 51, tp(2): 8}


@given(backlogs, st.none() | st.integers(1, 50), st.none() | st.integers(1, 5_000))
def test_pieces_cover_their_ranges_and_none_is_empty_or_too_large(
    backlog: list[tuple[int, int]], least: int | None, most: int | None
) -> None:
    ranges = {tp(index): OffsetRange(at, at + size) for index, (at, size) in enumerate(backlog)}
    pieces = split(ranges, least, most)
    for each, extent in ranges.items():
        mine = [piece for owner, piece in pieces if owner == each]
        borders = [(piece.start, piece.end) for piece in mine]
        assert [start for start, _ in borders[1:]] == [end for _, end in borders[:-1]]
        assert all(0 < end - start <= (most or end) for start, end in borders)
        assert (borders[0][0], borders[-1][1]) == (extent.start, extent.end) if borders else extent.start == extent.end


def test_more_pieces_are_made_by_records_first_and_by_tasks_then() -> None:
    """KafkaOffsetRangeCalculator: where maxRecordsPerPartition makes pieces enough, minPartitions makes no more."""
    ranges = {tp(0): OffsetRange(0, 10), tp(1): OffsetRange(100, 110)}
    assert sizes(split(ranges, None, 10)) == {0: [10], 1: [10]}
    assert sizes(split(ranges, None, 4)) == {0: [3, 3, 4], 1: [3, 3, 4]}
    assert sizes(split(ranges, 6, 4)) == {0: [3, 3, 4], 1: [3, 3, 4]}
    assert sizes(split(ranges, 8, 10)) == {0: [2, 2, 3, 3], 1: [2, 2, 3, 3]}


def test_a_small_range_is_left_out_of_the_proportion() -> None:
    """KafkaOffsetRangeCalculator: of four tasks for 100 and 1 records, three are for the large range."""
    ranges = {tp(0): OffsetRange(0, 100), tp(1): OffsetRange(0, 1)}
    assert sizes(split(ranges, 4)) == {0: [33, 33, 34], 1: [1]}


def sizes(pieces: list[tuple[TopicPartition, OffsetRange]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each, extent in pieces:
        found.setdefault(each.partition, []).append(extent.end - extent.start)
    return found


def test_a_single_large_range_is_cut_for_every_task() -> None:
    pieces = split({tp(0): OffsetRange(0, 100)}, 4)
    assert [(piece.start, piece.end) for _, piece in pieces] == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_a_small_batch_is_one_task_unless_more_are_asked_for() -> None:
    small = [(tp(0), OffsetRange(0, SMALL_BATCH_RECORDS - 5)), (tp(1), OffsetRange(5, 10))]
    assert bundle(small, asked_for=False) == [small]
    assert bundle(small, asked_for=True) == [[small[0]], [small[1]]]
    large = [(tp(0), OffsetRange(0, SMALL_BATCH_RECORDS)), (tp(1), OffsetRange(5, 6))]
    assert bundle(large, asked_for=False) == [[large[0]], [large[1]]]
    assert bundle([], asked_for=False) == []


def test_our_line_comes_back_as_it_was() -> None:
    offset = SourceOffset("kafka", {tp(0): Position(3, 9), tp(1): Position(0, 0)})
    assert line_of(offset) == Line(offset, ours=True)


def test_batch_0_is_replayed_from_its_origin_whatever_the_start_says_now() -> None:
    end = SourceOffset("kafka", {tp(0): Position(3, 9)})
    start = SourceOffset("kafka", {tp(0): Position(7, 7)})
    assert between(start, end) == {tp(0): OffsetRange(3, 9)}


def test_a_partition_that_went_back_begins_where_it_went() -> None:
    """Its log was cut to nothing, which is where the checkpoint began too; nothing is read until new records come."""
    before, cut = SourceOffset("kafka", {tp(0): Position(0, 5)}), SourceOffset("kafka", {tp(0): Position(0, 0)})
    assert between(before, cut) == {tp(0): OffsetRange(0, 0)}
    assert between(cut, SourceOffset("kafka", {tp(0): Position(0, 3)})) == {tp(0): OffsetRange(0, 3)}


def test_lines_of_spark_s_own_connector_are_carried_on() -> None:
    line: dict[str, object] = {"t": {"0": 5, "1": 2}}
    assert line_of(line).offset.positions == {tp(0): Position(5, 5), tp(1): Position(2, 2)}
    ours = SourceOffset("kafka", {tp(0): Position(5, 8), tp(1): Position(2, 2)})
    assert between(line, ours) == {tp(0): OffsetRange(5, 8)}
    assert between({"t": {"0": 5}}, line) == {tp(0): OffsetRange(5, 5), tp(1): OffsetRange(0, 2)}


def test_batch_0_planned_by_spark_s_connector_cannot_be_replayed() -> None:
    start = SourceOffset("kafka", {tp(0): Position(0, 0)})
    with pytest.raises(CheckpointError, match=r'option checkpointLocation.*once with format\("kafka"\)'):
        between(start, {"t": {"0": 5}})


@pytest.mark.parametrize("line", [{"t": 5}, {"t": {"x": 1}}, {"t": {"0": "a"}}, {"sparkonce": 99}, {"t": {"0": -1}}])
def test_lines_that_are_nobody_s(line: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="offsets in the checkpoint"):
        line_of(line)


def test_a_line_of_another_kind_of_source() -> None:
    with pytest.raises(CheckpointError, match=r"offset 5 is of another kind of source: .* new checkpointLocation"):
        line_of(5)  # type: ignore[arg-type]


def test_a_line_of_another_source() -> None:
    with pytest.raises(CheckpointError, match="belongs to source 'other'"):
        line_of(SourceOffset("other", {tp(0): Position(0, 4)}))


@given(st.uuids())
def test_topic_ids_as_kafka_writes_them(topic_id: object) -> None:
    text = topic_id_text(topic_id)  # type: ignore[arg-type]
    assert topic_id_from_text(text) == topic_id
    assert len(text) == 22
