"""Answers to writes that wait for followers: whatever the order in which they come, they go out in the requests'."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.node.request import NO_ANSWER
from sparkonce.broker_lite.server.output import UnansweredWrites


def requests(count: int) -> list[Any]:
    return [SimpleNamespace(number=number, abandon=lambda _: None) for number in range(count)]


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_answers_keep_the_order_of_their_requests(order: list[int], at_once: set[int]) -> None:
    waiting, asked = UnansweredWrites(), requests(6)
    for each in asked:
        waiting.add(each, [b"%d" % each.number] if each.number in at_once else None)
    sent = [body[0] for _, body in waiting.take()]
    for number in order:
        if number not in at_once:
            assert waiting.answer(asked[number], [b"%d" % number])
            sent += [body[0] for _, body in waiting.take()]
    assert sent == [b"%d" % number for number in range(6)]
    assert len(waiting) == 0


def test_an_answer_may_be_empty_and_others_are_not_ours() -> None:
    waiting, (first, other) = UnansweredWrites(), requests(2)
    waiting.add(first)
    assert not waiting.answer(other, [b"x"])
    assert waiting.answer(first, NO_ANSWER)
    assert [body for _, body in waiting.take()] == [NO_ANSWER]


def test_all_are_abandoned_with_their_connection() -> None:
    waiting, abandoned = UnansweredWrites(), []
    for number in range(3):
        waiting.add(SimpleNamespace(abandon=lambda _, number=number: abandoned.append(number)))  # type: ignore[arg-type]
    waiting.abandon(bytearray())
    assert (abandoned, len(waiting)) == ([0, 1, 2], 0)
