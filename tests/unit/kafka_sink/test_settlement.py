"""What is made of the log of decisions, and of the fates of transactions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.exactly_once.transactions import (
    KEPT_DECISIONS,
    Decision,
    DecisionFormatError,
    Decisions,
    Fate,
    Settlement,
    finished_note,
    following,
    settle,
)
from sparkonce.offset_store.record import BatchRecord
from tests.cases import each_case


def decision(number: int, **changes: object) -> Decision:
    made = following(None, BatchRecord("app", "q", number, f"attempt-{number}", {}), (), "g", 0)
    return replace(made, number=number, **changes)  # type: ignore[arg-type]


def take(*steps: Decision | int) -> Decisions:
    """Read decisions, and notes of these numbers."""
    found = Decisions()
    for step in steps:
        if isinstance(step, int):
            found.take(True, finished_note(step).encode())
        else:
            found.take(False, step.to_json().encode())
    return found


def test_an_empty_log() -> None:
    found = Decisions()
    assert (found.last, found.number, found.unfinished, found.finished, found.standing) == (None, 0, None, 0, [])


def test_the_last_one_is_unfinished_until_it_is_noted() -> None:
    assert take(decision(1), decision(2)).unfinished == decision(2)
    assert take(decision(1), 1, decision(2)).unfinished == decision(2)
    assert take(decision(1), decision(2), 2).unfinished is None
    assert take(decision(2), 5).unfinished is None, "compaction may put a note before what it is about"
    assert take(5, decision(2)).unfinished is None


def test_notes_never_go_back() -> None:
    """A driver that was held up notes what others have gone past."""
    assert take(decision(3), 3, 1).finished == 3
    assert take(decision(3), 3, 1).unfinished is None


def test_older_copies_are_passed_over() -> None:
    found = take(decision(1), decision(2), decision(1), decision(2, at_ms=9))
    assert [each.number for each in found.recent] == [1, 2]
    assert found.last == decision(2)


def test_what_was_taken_back_needs_no_finishing_and_does_not_stand() -> None:
    undone = decision(2).undoing(1)
    found = take(decision(1), decision(2), undone)
    assert (found.last, found.unfinished, found.number) == (undone, None, 3)
    assert found.standing == [decision(1)]
    again = decision(4, record=replace(decision(2).record, attempt_id="another"))
    assert take(decision(1), decision(2), undone, again).standing == [decision(1), again]


def test_only_the_newest_are_remembered() -> None:
    found = take(*(decision(number) for number in range(1, 3 * KEPT_DECISIONS)))
    assert [each.number for each in found.recent] == list(range(2 * KEPT_DECISIONS, 3 * KEPT_DECISIONS))


@each_case("value", [b"", b"x", b"[]", b"{}", b'{"number":null}', None, b"\xff"])
@each_case("is_note", [True, False])
def test_what_cannot_be_read_is_told(is_note: bool, value: bytes | None) -> None:
    with pytest.raises(DecisionFormatError, match="not a"):
        Decisions().take(is_note, value)


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=30))
def test_order_does_not_matter_for_the_newest(steps: list[tuple[int, bool]]) -> None:
    found = take(*(number if is_note else decision(number) for number, is_note in steps))
    made = [number for number, is_note in steps if not is_note]
    assert found.number == max(made, default=0)
    assert found.finished == max((number for number, is_note in steps if is_note), default=0)


@each_case("fates", [fates for size in range(4) for fates in product(Fate, repeat=size)])
def test_every_combination_of_fates(fates: tuple[Fate, ...]) -> None:
    found = set(fates)
    if Fate.UNKNOWN in found:
        expected = Settlement.UNKNOWN
    elif Fate.GONE not in found:
        expected = Settlement.FINISH
    else:
        expected = Settlement.LOST if Fate.COMMITTED in found else Settlement.UNDO
    assert settle(fates) is expected
