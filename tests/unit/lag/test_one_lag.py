"""Everything that shows a lag computes it in one way: the listener, the pages of groups and queries, the reports."""

from __future__ import annotations

from itertools import product

from sparkonce.connectors.lag.state import PartitionLag
from sparkonce.jobs.ui.delta.pipelines import PartitionRow
from sparkonce.jobs.ui.kafka.state import GroupPartition, GroupState
from sparkonce.offset_store.offsets import lag, total_lag
from tests.cases import each_case

KNOWN = [0, 1, 7]


@each_case("at, end", list(product([None, *KNOWN], repeat=2)))
def test_of_one_partition(at: int | None, end: int | None) -> None:
    expected = None if at is None or end is None else end - at
    assert lag(at, end) == expected
    assert PartitionRow("source", "t", 0, 99, at, None, end).lag == (lag(99, end) if at is None else expected)
    assert PartitionRow("source", "t", 0, at, None, None, end).lag == expected
    if at is not None:
        shown = None if expected is None else max(expected, 0)
        assert PartitionLag("t", 0, at, end).records == (shown or 0)
        assert GroupPartition("t", 0, at, end).lag == shown


@each_case("lags, expected", [([], None), ([None], None), ([None, 0], 0), ([3, -5, None, 4], 7), ([-1], 0)])
def test_of_several(lags: list[int | None], expected: int | None) -> None:
    assert total_lag(lags) == expected
    group = GroupState(
        "g", "", "", tuple(GroupPartition("t", 0, 10, None if each is None else 10 + each) for each in lags)
    )
    assert group.lag.offsets == (expected or 0)
