"""Which outcomes are put down to a busy machine, so that the cell is run again."""

from __future__ import annotations

import pytest

from lab.verify.cells import Cell, Kind, Outcome, Result, Shows
from lab.verify.outcomes import START_UP_TROUBLE, trouble_of_a_busy_machine
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.guarantee import Guarantee

SLOW = f"PySparkRuntimeError: {START_UP_TROUBLE[0]} in a timely manner"


def outcome(guarantee: Guarantee, error: str, duplicated: int = 0) -> Outcome[Cell]:
    cell = Cell(SinkPoint.WRITING, Kind.EXCEPTION, guarantee, Result.APPEND, delete_checkpoint=False)
    return Outcome(cell, Shows.NEITHER, 20, 12, duplicated, True, "it did not recover", (), (error,), 1.0)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_process_that_spark_did_not_start_in_time_says_nothing_of_the_pipeline(guarantee: Guarantee) -> None:
    assert trouble_of_a_busy_machine(outcome(guarantee, SLOW)) == SLOW
    assert trouble_of_a_busy_machine(outcome(guarantee, "ValueError: wrong")) is None
    assert trouble_of_a_busy_machine(outcome(guarantee, "TimeoutError: early"), "early") == "TimeoutError: early"


def test_rows_that_come_twice_are_found_whatever_else_happened() -> None:
    again = {each: trouble_of_a_busy_machine(outcome(each, SLOW, duplicated=1)) for each in Guarantee}
    assert again == {Guarantee.EXACTLY_ONCE: None, Guarantee.AT_MOST_ONCE: None, Guarantee.AT_LEAST_ONCE: SLOW}
