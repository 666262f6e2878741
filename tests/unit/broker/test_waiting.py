"""Coroutines without tasks: the first step is run at once, promises resume them, and a client's end ends its waits."""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.waiting import Execution, Promise, Waiting, begin, begin_in_background


class Stage:
    """Notes what coroutines do, and how they end."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.ends: list[tuple[object, Exception | None]] = []

    def on_end(self, result: object, error: Exception | None) -> None:
        self.ends.append((result, error))

    def wait(self, coroutine: Waiting[object]) -> Execution:
        """Take over a coroutine that waits."""
        return Execution(coroutine, coroutine.send(None), self.on_end)

    async def awaiting(self, *promises: Promise[str]) -> list[str]:
        values = []
        try:
            for each in promises:
                self.done.append("waits")
                values.append(await each)
        finally:
            self.done.append("is over")
        return values


def test_a_coroutine_that_never_waits_has_ended_when_it_has_begun() -> None:
    stage, complete = Stage(), Promise[str]()
    complete.complete("at once")
    begin(stage.awaiting(complete), stage.on_end)
    assert stage.ends == [(["at once"], None)]


def test_who_completes_a_promise_runs_the_next_step() -> None:
    stage, first, second = Stage(), Promise[str](), Promise[str]()
    begin(stage.awaiting(first, second), stage.on_end)
    second.complete("b")
    assert stage.done == ["waits"]
    first.complete("a")
    first.complete("again")
    assert stage.ends == [(["a", "b"], None)]


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_goes_to_who_has_begun_and_not_to_who_completes(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    stage, promise = Stage(), Promise[str]()

    async def fails() -> None:
        await stage.awaiting(*[promise] * waits)
        raise OSError("disk")

    begin(fails(), stage.on_end)
    promise.complete("")
    ((result, error),) = stage.ends
    assert (result, str(error)) == (None, "disk")
    begin_in_background(fails(), "nothing is written")
    assert "nothing is written" in caplog.text
    assert "OSError: disk" in caplog.text


def test_a_client_that_goes_ends_what_waits_for_its_sake_now_or_later() -> None:
    stage, poll, change = Stage(), Promise[str](ends_with_client=True), Promise[str]()
    stage.wait(stage.awaiting(poll)).abandon()
    assert (stage.done, stage.ends) == (["waits", "is over"], [(None, None)])
    stage = Stage()
    stage.wait(stage.awaiting(change, Promise(ends_with_client=True), change)).abandon()
    assert stage.done == ["waits"], "a change is not interrupted"
    change.complete("done")
    assert stage.done == ["waits", "waits", "is over"]
    assert stage.ends == [(None, None)]
    poll.complete("nobody hears")


def test_what_is_ended_early_does_not_go_on() -> None:
    stage, promise = Stage(), Promise[str]()
    stage.wait(stage.awaiting(promise))
    promise.end_waiting()
    promise.end_waiting()
    promise.complete("late")
    assert (stage.done, stage.ends) == (["waits", "is over"], [(None, None)])
