"""The loop that all clients use to try again."""

from __future__ import annotations

import time
from itertools import islice, repeat

import pytest

from sparkonce.kafka.client.retry import growing, retry
from tests.cases import each_case


class Failing:
    """Fails with these errors, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    def __call__(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "done"


@each_case(
    "first, most, expected",
    [
        (0.1, 1.0, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (0.0, 1.0, [0.0, 0.02, 0.04, 0.08, 0.16, 0.32]),
        (5.0, 1.0, [1.0] * 6),
    ],
)
def test_pauses_grow_from_any_first_to_the_longest(first: float, most: float, expected: list[float]) -> None:
    assert list(islice(growing(first, most, spread=(1, 1)), 6)) == pytest.approx(expected)


def test_it_ends_with_success_or_the_error_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    noted: list[Exception] = []
    passing, fatal, other = OSError("passes"), OSError("lasts"), ValueError("is of another kind")

    def run(*errors: Exception, times: int = 2, left_s: float = 60.0) -> str:
        slept.clear()
        noted.clear()
        try:
            return retry(
                Failing(*errors),
                OSError,
                repeat(3.0, times),
                deadline_s=time.monotonic() + left_s,
                may_pass=lambda error: error is not fatal,
                note=noted.append,
            )
        except (OSError, ValueError) as error:
            return str(error)

    assert (run(), slept) == ("done", [])
    assert (run(passing, passing), slept, noted) == ("done", [3.0, 3.0], [passing, passing])
    assert (run(passing, passing, passing), slept) == ("passes", [3.0, 3.0])
    assert (run(passing, fatal), slept, noted) == ("lasts", [3.0], [passing])
    assert (run(other), slept) == ("is of another kind", [])
    assert (run(passing, left_s=2.0), slept, noted) == ("passes", [], [])
    assert (run(times=0), run(passing, times=0)) == ("done", "passes")
