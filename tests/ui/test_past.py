from __future__ import annotations

import pytest

from sparkonce.jobs.ui.kafka import past
from sparkonce.jobs.ui.kafka.past import UNKNOWN, EndOffsetHistory, slope
from sparkonce.jobs.ui.kafka.topics import _rate

SLOT = ("orders", 0)


def test_nothing_is_known_at_first() -> None:
    empty = EndOffsetHistory()
    assert empty.before(10.0, 5.0) == (0.0, {})
    assert empty.written_at(SLOT, 0) is None


def test_an_offset_was_written_between_the_looks_that_it_lies_between() -> None:
    known = EndOffsetHistory()
    for at, end in ((100.0, 10), (102.0, 10), (104.0, 30), (106.0, 30)):
        known.note(at, {SLOT: end})
    assert known.written_at(SLOT, 9) is None  # before the first look
    assert known.written_at(SLOT, 10) == pytest.approx(102.1)
    assert known.written_at(SLOT, 29) == 104.0
    assert known.written_at(SLOT, 30) is None  # to come


def test_a_topic_that_appears_began_at_0() -> None:
    known = EndOffsetHistory()
    known.note(100.0, {})
    known.note(102.0, {SLOT: 4})
    assert known.written_at(SLOT, 1) == 101.0


def test_a_partition_whose_leader_did_not_answer_did_not_begin_at_0() -> None:
    known = EndOffsetHistory()
    known.note(100.0, {SLOT: UNKNOWN})
    known.note(102.0, {SLOT: 4000})
    assert known.written_at(SLOT, 1) is None
    known.note(104.0, {SLOT: 4010})
    assert known.written_at(SLOT, 4009) == 104.0
    assert _rate({SLOT: UNKNOWN}, {SLOT: 4000}, SLOT, 2.0) is None
    assert _rate({SLOT: 4000}, {SLOT: 4010}, SLOT, 2.0) == 5.0


def test_the_ends_a_while_ago_are_those_of_the_last_look_before() -> None:
    known = EndOffsetHistory()
    for at in range(100, 130):
        known.note(float(at), {SLOT: at})
    assert known.before(129.5, 10.0) == (10.5, {SLOT: 119})
    assert known.before(129.5, 1000.0) == (29.5, {SLOT: 100})
    assert known.before(129.5, 0.0) == (0.5, {SLOT: 129})


def test_looks_that_are_close_to_each_other_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MAX_MOMENTS", 20)
    monkeypatch.setattr(past, "MIN_MOMENTS", 5)
    known = EndOffsetHistory()
    for tenth in range(10_000):
        known.note(tenth / 10, {SLOT: tenth})
    assert len(known._moments) == 20
    assert known._moments[-1] == (999.9, {SLOT: 9999})
    monkeypatch.setattr(past, "MAX_ENTRIES", 1000)
    for second in range(1000, 1100):
        known.note(float(second), {("orders", partition): second for partition in range(1000)})
    assert len(known._moments) == 5


def test_the_slope_of_what_grows_evenly() -> None:
    assert slope([]) == slope([(1.0, 5.0)]) == slope([(1.0, 5.0), (1.0, 6.0)]) == 0.0
    assert slope([(0.0, 10.0), (1.0, 13.0), (2.0, 16.0)]) == 0.0  # too short a time to tell
    assert slope([(0.0, 10.0), (10.0, 40.0), (20.0, 70.0)]) == pytest.approx(3.0)


@pytest.mark.parametrize("begin", range(10))
def test_a_lag_that_falls_with_each_batch_is_steady(begin: int) -> None:
    """It was said to grow, in red, whenever the last batch was some seconds ago."""
    lag = [(float(at), 6.0 * (at % 10)) for at in range(begin, begin + 61, 2)]
    assert slope(lag) == 0.0
    assert slope([(at, value + 5 * at) for at, value in lag]) == pytest.approx(5.0, abs=2)


def test_a_burst_is_no_growth() -> None:
    lag = [(float(at), 0.0 if at < 60 else 20_000.0 if at < 420 else 100.0) for at in range(0, 460, 2)]
    assert slope(lag[:35]) == slope(lag[:60]) == slope(lag) == 0.0
    stopped = [(float(at), 100.0 * max(at - 60, 0)) for at in range(0, 100, 2)]  # its reader has, at 60 s
    assert slope(stopped[:40]) > 1
    assert slope(stopped) == pytest.approx(100.0)
