"""How a batch is divided into tasks that read and write: by bytes and records, each offset once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkonce.connectors.kafka_source.planning import LEAST_SHARE, TASK_BYTES, TASK_RECORDS, Density, divide
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition

BYTES_100 = Density(100, 1)


def ranges(*counts: int) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition("t", "id", number): OffsetRange(7, 7 + count) for number, count in enumerate(counts)}


def sizes(counts: list[int], density: Density = BYTES_100, *, may_cut: bool = True) -> list[list[int]]:
    tasks = divide(ranges(*counts), {"t": density}, may_cut=may_cut)
    return [[extent.end - extent.start for _, extent in pieces] for pieces in tasks]


def test_small_ranges_share_a_task() -> None:
    least = int(TASK_BYTES * LEAST_SHARE / 100) + 1
    assert sizes([10] * 5) == [[10] * 5]
    assert sizes([least] * 3) == [[least]] * 3
    assert sizes([least // 2 + 1] * 4) == [[least // 2 + 1] * 2] * 2


def test_a_large_range_is_cut_by_bytes_or_by_records() -> None:
    assert len(sizes([3 * TASK_BYTES // 1000], Density(1000, 1))) == 3
    assert len(sizes([3 * TASK_RECORDS], Density(1, 1))) == 3
    assert len(sizes([3 * TASK_RECORDS], Density(1, 0.5))) == 2


def test_a_range_whose_order_counts_is_not_cut() -> None:
    assert sizes([10 * TASK_RECORDS], may_cut=False) == [[10 * TASK_RECORDS]]


@given(
    st.lists(st.integers(0, 5 * TASK_RECORDS), max_size=8),
    st.floats(0, 1e4),
    st.floats(0, 1),
    st.booleans(),
)
def test_each_offset_is_in_one_task(counts: list[int], size: float, records: float, may_cut: bool) -> None:
    wanted = ranges(*counts)
    tasks = divide(wanted, {"t": Density(size, records)}, may_cut=may_cut)
    assert all(tasks)
    position = {tp: extent.start for tp, extent in wanted.items()}
    for pieces in tasks:
        for tp, extent in pieces:
            assert extent.start == position[tp] < extent.end
            position[tp] = extent.end
    assert position == {tp: extent.end for tp, extent in wanted.items()}
