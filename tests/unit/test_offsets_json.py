"""The text of an offset is canonical, and ranges follow the origin."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.offset_store.offsets import (
    OffsetFormatError,
    OffsetRange,
    Position,
    SourceOffset,
    TopicPartition,
    batch_ranges,
    is_ours,
)
from tests.cases import each_case

topic_ids = st.dictionaries(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8), max_size=3)
numbers = st.integers(0, 2**62)


@st.composite
def source_offsets(draw: st.DrawFn) -> SourceOffset:
    positions = {}
    for topic, topic_id in draw(topic_ids).items():
        for partition in draw(st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=4)):
            origin, following = sorted((draw(numbers), draw(numbers)))
            positions[TopicPartition(topic, topic_id, partition)] = Position(origin, following)
    return SourceOffset(draw(st.text(max_size=8)), positions)


@given(source_offsets())
def test_reading_gives_back_what_was_written(offset: SourceOffset) -> None:
    text = offset.to_json()
    assert SourceOffset.from_json(text) == offset
    assert is_ours(text)
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


@given(source_offsets())
def test_equal_positions_give_equal_text(offset: SourceOffset) -> None:
    turned = SourceOffset(offset.source, dict(reversed(list(offset.positions.items()))))
    assert turned.to_json() == offset.to_json()


@given(source_offsets(), st.data())
def test_an_offset_written_by_what_moved_since_another(before: SourceOffset, data: st.DataObject) -> None:
    moved = data.draw(st.sets(st.sampled_from(sorted(before.positions)))) if before.positions else set()
    changed = {tp: replace(before.positions[tp], epoch=data.draw(st.integers(0, 9)), cut_from=1) for tp in moved}
    after = SourceOffset(before.source, {**before.positions, **changed})
    document = before.to_document()
    assert after.moved_since(before) == changed
    assert json.dumps(after.to_document_after(before, document)) == json.dumps(after.to_document())
    assert document == before.to_document(), "the given one is left as it was"
    fewer = SourceOffset(before.source, changed)
    assert fewer.to_document_after(before, document) == fewer.to_document()
    assert before.to_document_after(fewer, fewer.to_document()) == document


@each_case(
    "text",
    ["", "{}", "[]", '{"flights":{"0":3}}', '{"sparkonce":2}', '{"sparkonce":1,"source":"a","topics":[]}'],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(OffsetFormatError):
        SourceOffset.from_json(text)


def test_ranges_follow_the_previous_batch_but_an_earlier_life_is_not_trusted() -> None:
    one, two, new = (TopicPartition("flights", "id", number) for number in range(3))
    start = SourceOffset("kafka", {one: Position(0, 5), two: Position(7, 7)})
    end = SourceOffset("kafka", {one: Position(0, 9), two: Position(3, 8), new: Position(0, 4)})
    assert batch_ranges(start, end) == {
        one: OffsetRange(5, 9),
        two: OffsetRange(3, 8),
        new: OffsetRange(0, 4),
    }
    assert batch_ranges(None, end)[one] == OffsetRange(0, 9)
