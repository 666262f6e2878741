"""Whether what tasks have read is the batch: any way to cut it passes, and any other set of parts is refused."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.coverage import Part, check_coverage
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey


def batch(ranges: dict[PartitionKey, OffsetRange]) -> Batch:
    return Batch(BatchRecord("app", "query", 3, "attempt", ranges), stateful=False)


@dataclass(frozen=True)
class Cut:
    """A batch, and parts that are all of it."""

    batch: Batch
    parts: list[Part]


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    names = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["t", "u"]), st.integers(0, 3))
    keys: list[PartitionKey] = [
        (source, TopicPartition(topic, f"id-{topic}", number))
        for source, topic, number in draw(st.lists(names, unique=True, max_size=5))
    ]
    ranges, parts = {}, []
    for key in keys:
        start, size = draw(st.integers(0, 100)), draw(st.integers(0, 40))
        ranges[key] = OffsetRange(start, start + size)
        inner = draw(st.sets(st.integers(start + 1, start + size - 1), max_size=5)) if size > 1 else set()
        bounds = [start, *sorted(inner), start + size]
        parts += [Part(*key, begin, end) for begin, end in itertools.pairwise(bounds) if end > begin]
    return Cut(batch(ranges), draw(st.permutations(parts)))


@given(cuts())
def test_every_way_to_cut_a_batch_passes(cut: Cut) -> None:
    check_coverage(cut.batch, cut.parts)


def refuse(cut: Cut, parts: list[Part]) -> None:
    with pytest.raises(DeliveryError, match="its tasks were told to read"):
        check_coverage(cut.batch, parts)


cuts_with_parts = cuts().filter(lambda cut: bool(cut.parts))


@given(cuts_with_parts, st.data())
def test_a_part_that_is_missing_is_seen(cut: Cut, data: st.DataObject) -> None:
    dropped = data.draw(st.sampled_from(cut.parts))
    refuse(cut, [part for part in cut.parts if part != dropped])


@given(cuts_with_parts, st.data())
def test_a_part_that_comes_twice_is_seen(cut: Cut, data: st.DataObject) -> None:
    refuse(cut, [*cut.parts, data.draw(st.sampled_from(cut.parts))])


@given(cuts_with_parts, st.data())
def test_a_part_that_is_moved_is_seen(cut: Cut, data: st.DataObject) -> None:
    """Either end, or both: also where the number of records stays the same."""
    part = data.draw(st.sampled_from(cut.parts))
    by = data.draw(st.tuples(st.integers(-5, 5), st.integers(-5, 5)).filter(any))
    moved = part._replace(start=part.start + by[0], end=part.end + by[1])
    refuse(cut, [moved if each == part else each for each in cut.parts])


@given(cuts(), st.integers(0, 100), st.integers(-5, 5), st.sampled_from(["topic", "partition", "source"]))
def test_a_part_of_something_else_is_seen(cut: Cut, start: int, size: int, kind: str) -> None:
    """A part without records, or with fewer than none, too."""
    tp = TopicPartition("v" if kind == "topic" else "t", "id-t", 9 if kind == "partition" else 0)
    foreign = Part("c" if kind == "source" else "a", tp, start, start + size)
    refuse(cut, [*cut.parts, foreign])


@given(cuts_with_parts, st.data())
def test_an_empty_part_between_others_is_seen(cut: Cut, data: st.DataObject) -> None:
    """No source plans one, so its row was changed on the way."""
    part = data.draw(st.sampled_from(cut.parts))
    refuse(cut, [*cut.parts, part._replace(end=part.start)])


def test_the_message_names_the_partition_and_both_ranges() -> None:
    key: PartitionKey = ("a", TopicPartition("t", "id", 1))
    cut = Cut(batch({key: OffsetRange(3, 9)}), [Part(*key, 3, 5)])
    with pytest.raises(DeliveryError, match=r"planned \[3, 9\) of t-1 \(source 'a'\), and .* read \[3, 5\)"):
        check_coverage(cut.batch, cut.parts)
