"""Rows counted by their coordinates: exactly, whatever the number of passes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.exactly_once.audit_findings import Chain
from sparkonce.exactly_once.audit_rows import PassCounter, RowCount, TopicPartitionName, plan_passes
from sparkonce.offset_store.offsets import OffsetRange

Row = tuple[str, int, int]


def chain(topic: str, partition: int, *ranges: tuple[int, int], app_id: str = "app") -> Chain:
    found = Chain(app_id, "default", topic, f"id of {topic}", partition)
    for version, (start, end) in enumerate(ranges):
        found.extend(OffsetRange(start, end), version)
    return found


def count(
    chains: list[Chain], rows: list[Row], most: int = 1000, piece: int = 100
) -> dict[TopicPartitionName, RowCount]:
    counts: dict[TopicPartitionName, RowCount] = {}
    for planned in plan_passes(chains, by_topic=True, most=most, piece_offsets=piece):
        counter = PassCounter(planned)
        for topic in {row[0] for row in rows}:
            some = [row for row in rows if row[0] == topic]
            half = len(some) // 2
            for part in (some[:half], some[half:]):
                partitions = np.array([row[1] for row in part], np.int64)
                counter.add(topic, partitions, np.array([row[2] for row in part], np.int64))
        counter.collect(counts)
    return counts


chains = st.lists(
    st.builds(
        lambda topic, partition, edges: chain(topic, partition, *pairwise(sorted(edges))),
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.sets(st.integers(0, 60), min_size=2, max_size=5),
    ),
    min_size=1,
    max_size=4,
)
rows = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3), st.integers(0, 70)), max_size=150)


@settings(deadline=None)
@given(chains, rows, st.integers(1, 40), st.integers(1, 40))
def test_counts_are_those_of_counting_by_hand(chains: list[Chain], rows: list[Row], most: int, piece: int) -> None:
    counted = count(chains, rows, most, piece)
    wanted: Counter[Row] = Counter()
    for each in chains:
        for extent in each.covered():
            wanted.update((each.topic, each.partition, offset) for offset in range(extent.start, extent.end))
    seen = Counter(row for row in rows if row in wanted)
    for (topic, partition), found in counted.items():
        ours = {row: number for row, number in wanted.items() if row[:2] == (topic, partition)}
        assert found.total == sum(seen[row] for row in ours)
        assert found.distinct == sum(seen[row] > 0 for row in ours)
        assert found.duplicated == sum(max(0, seen[row] - number) for row, number in ours.items())
        assert found.missing == sum(max(0, number - seen[row]) for row, number in ours.items())
    assert counted.keys() == {row[:2] for row in wanted}


@settings(deadline=None)
@given(chains, st.integers(1, 40), st.integers(1, 40))
def test_no_pass_holds_more_than_it_may(chains: list[Chain], most: int, piece: int) -> None:
    for planned in plan_passes(chains, by_topic=True, most=most, piece_offsets=piece):
        sizes = [each.end - each.start for each in planned.pieces]
        assert sum(sizes) <= most or len(sizes) == 1
        assert max(sizes) <= piece


def test_wrong_offsets_are_named_in_stretches_across_pieces() -> None:
    rows = [("a", 0, offset) for offset in [*range(95), *range(130, 300), 7, 8, 8, 250]]
    counted = count([chain("a", 0, (0, 300))], rows)["a", 0]
    assert (counted.total, counted.distinct, counted.duplicated, counted.missing) == (269, 265, 4, 35)
    assert counted.missing_at == [OffsetRange(95, 130)]
    assert counted.duplicated_at == [OffsetRange(7, 9), OffsetRange(250, 251)]


def test_an_offset_that_came_a_thousand_times_is_counted_as_often() -> None:
    counted = count([chain("a", 0, (0, 2))], [("a", 0, 1)] * 1000)["a", 0]
    assert (counted.total, counted.duplicated, counted.missing) == (1000, 999, 1)


def test_two_chains_of_one_offset_are_due_two_rows() -> None:
    both = [chain("a", 0, (0, 10)), chain("a", 0, (5, 15), app_id="other")]
    rows = [("a", 0, offset) for offset in [*range(10), *range(5, 15)]]
    counted = count(both, rows)["a", 0]
    assert (counted.total, counted.duplicated, counted.missing) == (20, 0, 0)
    assert count(both, rows[:-1])["a", 0].missing == 1
    assert count(both, [*rows, ("a", 0, 7)])["a", 0].duplicated == 1


def test_records_read_twice_by_one_chain_are_due_once() -> None:
    rewound = chain("a", 0, (0, 10), (5, 15))
    assert count([rewound], [("a", 0, offset) for offset in range(15)])["a", 0].duplicated == 0
    rows = [("a", 0, offset) for offset in [*range(10), *range(5, 15)]]
    assert count([rewound], rows)["a", 0].duplicated == 5
