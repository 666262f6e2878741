"""Where a topic's replicas go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.controller.placement import place
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


def test_leaders_go_round_and_followers_come_after_them() -> None:
    assert place([1, 2, 3], [], 4, 2, 0) == [(1, 2), (2, 3), (3, 1), (1, 3)]


def test_the_round_begins_where_it_is_told() -> None:
    assert [each[0] for each in place([1, 2, 3], [], 3, 1, 7)] == [2, 3, 1]


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_more_replicas_than_brokers_are_refused(factor: int) -> None:
    with pytest.raises(KafkaError) as refused:
        place([1, 2], [3], 1, factor, 0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_brokers_that_are_away_come_last_and_only_where_they_are_needed() -> None:
    assert place([1, 3], [2], 3, 3, 0) == [(1, 3, 2), (3, 1, 2), (1, 3, 2)]
    assert place([1, 3], [2], 2, 2, 0) == [(1, 3), (3, 1)]
    assert place([4], [1, 2], 2, 2, 0) == [(4, 1), (4, 2)]


def test_nothing_is_placed_where_nobody_could_lead() -> None:
    with pytest.raises(KafkaError) as refused:
        place([], [1, 2], 1, 1, 0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 50), st.data())
def test_leaders_and_replicas_are_spread_evenly(brokers: int, partitions: int, first: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    away = data.draw(st.integers(0, brokers - 1))
    there, gone = list(range(away, brokers)), list(range(away))
    placed = place(there, gone, partitions, factor, first)
    assert len(placed) == partitions
    assert all(len(set(each)) == factor for each in placed)
    leaders = Counter(each[0] for each in placed)
    assert max(leaders.values()) - min(leaders[each] for each in there) <= 1
    assert not leaders.keys() & set(gone)
    assert all(set(there) <= set(each) for each in placed if set(each) & set(gone))
