"""Sharing a limit out, cutting ranges into tasks, and the lines of the checkpoint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka_once.checkpoint import ranges_between, read_offset, to_document
from connectors.kafka_once.client import TopicMetadata, topic_id_from_text, topic_id_text
from connectors.kafka_once.planning import SMALL_BATCH_RECORDS, bundle, share_out, split
from connectors.kafka_once.ranges import RecreatedTopicError
from exactly_once.errors import CheckpointError
from offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition

TOPICS = {"t": TopicMetadata("t", "id-1", {0: None, 1: None})}


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


@given(backlogs, st.none() | st.integers(1, 50))
def test_pieces_cover_their_ranges_and_none_is_empty(backlog: list[tuple[int, int]], least: int | None) -> None:
    ranges = {tp(index): OffsetRange(at, at + size) for index, (at, size) in enumerate(backlog)}
    pieces = split(ranges, least)
    for each, extent in ranges.items():
        mine = [piece for owner, piece in pieces if owner == each]
        offsets = [offset for piece in mine for offset in range(piece.start, piece.end)]
        assert offsets == list(range(extent.start, extent.end))
        assert all(piece.end > piece.start for piece in mine)


def test_a_single_large_range_is_cut_for_every_task() -> None:
    pieces = split({tp(0): OffsetRange(0, 100)}, 4)
    assert [(piece.start, piece.end) for _, piece in pieces] == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_a_small_batch_is_one_task_unless_more_are_asked_for() -> None:
    small = [(tp(0), OffsetRange(0, SMALL_BATCH_RECORDS - 5)), (tp(1), OffsetRange(5, 10))]
    assert bundle(small, None) == [small]
    assert bundle(small, 1) == [[small[0]], [small[1]]]
    large = [(tp(0), OffsetRange(0, SMALL_BATCH_RECORDS)), (tp(1), OffsetRange(5, 6))]
    assert bundle(large, None) == [[large[0]], [large[1]]]
    assert bundle([], None) == []


def test_our_line_comes_back_as_it_was() -> None:
    offset = SourceOffset("kafka", {tp(0): Position(3, 9), tp(1): Position(0, 0)})
    assert read_offset(to_document(offset), "kafka", TOPICS) == offset


def test_batch_0_is_replayed_from_its_origin_whatever_the_start_says_now() -> None:
    end = to_document(SourceOffset("kafka", {tp(0): Position(3, 9)}))
    start = to_document(SourceOffset("kafka", {tp(0): Position(7, 7)}))
    assert ranges_between(start, end, "kafka", TOPICS) == {tp(0): OffsetRange(3, 9)}


def test_lines_of_spark_s_own_connector_are_carried_on() -> None:
    line = {"t": {"0": 5, "1": 2}}
    assert read_offset(line, "kafka", TOPICS).positions == {tp(0): Position(5, 5), tp(1): Position(2, 2)}
    ours = to_document(SourceOffset("kafka", {tp(0): Position(5, 8), tp(1): Position(2, 2)}))
    assert ranges_between(line, ours, "kafka", TOPICS) == {tp(0): OffsetRange(5, 8), tp(1): OffsetRange(2, 2)}
    assert ranges_between({"t": {"0": 5}}, line, "kafka", TOPICS) == {
        tp(0): OffsetRange(5, 5),
        tp(1): OffsetRange(0, 2),
    }


def test_batch_0_planned_by_spark_s_connector_cannot_be_replayed() -> None:
    start = to_document(SourceOffset("kafka", {tp(0): Position(0, 0)}))
    with pytest.raises(CheckpointError, match=r'once with format\("kafka"\)'):
        ranges_between(start, {"t": {"0": 5}}, "kafka", TOPICS)


def test_a_recreated_topic_is_an_error_that_says_what_to_do() -> None:
    line = to_document(SourceOffset("kafka", {tp(0, "id-0"): Position(0, 4)}))
    with pytest.raises(RecreatedTopicError, match=r"t was deleted and created again.*id-0.*id-1.*checkpointLocation"):
        read_offset(line, "kafka", TOPICS)


@pytest.mark.parametrize("line", [{"t": 5}, {"t": {"x": 1}}, {"t": {"0": "a"}}, {"sparkonce": 99}, {"t": {"0": -1}}])
def test_lines_that_are_nobody_s(line: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="offsets in the checkpoint"):
        read_offset(line, "kafka", TOPICS)


def test_a_line_of_another_kind_of_source() -> None:
    with pytest.raises(CheckpointError, match=r"offset 5 is of another kind of source: .* new checkpointLocation"):
        read_offset(5, "kafka", TOPICS)  # type: ignore[arg-type]


def test_a_line_of_another_source() -> None:
    line = to_document(SourceOffset("other", {tp(0): Position(0, 4)}))
    with pytest.raises(CheckpointError, match="belongs to source 'other'"):
        read_offset(line, "kafka", TOPICS)


@given(st.uuids())
def test_topic_ids_as_kafka_writes_them(topic_id: object) -> None:
    text = topic_id_text(topic_id)  # type: ignore[arg-type]
    assert topic_id_from_text(text) == topic_id
    assert len(text) == 22
