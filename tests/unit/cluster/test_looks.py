"""How often a member looks at its cluster: often where it would not hear of changes, seldom where it would."""

from __future__ import annotations

from sparkonce.broker_lite.cluster.looks import LIVELY_MS, LOOK_MS, REST_MS, Looks
from tests.unit.cluster.scheduling import HandLoop
from tests.unit.cluster.shared import SharedClock


class Setup:
    """Looks, and when they were."""

    def __init__(self, *, rests: bool) -> None:
        self.clock = SharedClock()
        self.loop = HandLoop(self.clock)
        self.rests = rests
        self.seen: list[int] = []
        self.looks = Looks(lambda: self.seen.append(self.clock.ms), lambda: self.rests, self.loop, self.clock)
        self.looks.begin()

    def run(self, duration_ms: int) -> list[int]:
        """Let time pass; returns after how many milliseconds there were looks."""
        self.seen.clear()
        began_ms = self.clock.ms
        self.loop.run(duration_ms)
        return [each - began_ms for each in self.seen]


def test_without_reports_it_looks_many_times_a_second() -> None:
    setup = Setup(rests=False)
    assert setup.seen == [setup.clock.ms]
    assert setup.run(10 * LOOK_MS) == [LOOK_MS * each for each in range(1, 11)]
    setup.looks.soon()  # comes soon enough anyway
    assert setup.run(2 * LOOK_MS) == [LOOK_MS, 2 * LOOK_MS]


def test_at_rest_it_looks_seldom_and_after_a_report_at_once_and_often_for_a_while() -> None:
    setup = Setup(rests=True)
    assert setup.run(3 * REST_MS) == [REST_MS, 2 * REST_MS, 3 * REST_MS]
    setup.run(LOOK_MS)
    setup.looks.soon()
    often = list(range(0, LIVELY_MS + 1, LOOK_MS))
    assert setup.run(LIVELY_MS + 2 * REST_MS) == [*often, often[-1] + REST_MS, often[-1] + 2 * REST_MS]


def test_reports_in_a_row_do_not_make_it_look_more_often_than_without() -> None:
    setup = Setup(rests=True)
    setup.looks.soon()
    seen = []
    for at in range(5 * LOOK_MS):
        setup.looks.soon()
        seen += [at + each for each in setup.run(1)]
    assert seen == [LOOK_MS * each for each in range(1, 6)][: len(seen)]
    assert len(seen) >= 4


def test_it_does_not_rest_while_something_is_awaited() -> None:
    setup = Setup(rests=True)
    setup.rests = False
    assert setup.run(REST_MS) == [REST_MS]
    assert setup.run(2 * LOOK_MS) == [LOOK_MS, 2 * LOOK_MS]


def test_after_the_end_there_is_none() -> None:
    setup = Setup(rests=True)
    setup.looks.end()
    setup.looks.soon()
    assert setup.run(2 * REST_MS) == []
