"""Many cases of one rule in one test: what `pytest.mark.parametrize` does, without a test for each case.

Pytest spends more on a test, in the process that runs it and in the one that reports it, than such a case takes. All
cases run, and a failure names those that failed. For cases that need a new `tmp_path` each, or another set-up that
belongs to one test, use `pytest.mark.parametrize`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

MOST_CHARACTERS = 200
"""Of a case in a failure's message."""

Test = Callable[..., None]


def each_case(
    names: str | Sequence[str], values: Iterable[Any], ids: Iterable[str] | Callable[[Any], str] | None = None
) -> Callable[[Test], Test]:
    """Call the test with each of ``values``, as `pytest.mark.parametrize` would with the same arguments.

    Raises:
        AssertionError: some cases failed; it names them, and its cause is the first one's error.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = list(values)
    assert cases, "no test without cases"
    labels = _labels(cases, ids)

    def decorate(test: Test) -> Test:
        @wraps(test)
        def all_cases(**fixtures: Any) -> None:
            failures: list[tuple[str, BaseException]] = []
            for number, case in enumerate(cases):
                given = [case] if len(arguments) == 1 else list(case)
                try:
                    test(**fixtures, **dict(zip(arguments, given, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failures.append((labels[number], error))
                except pytest.skip.Exception:
                    if failures:
                        break  # what has failed is not skipped
                    raise
            if failures:
                told = [f"{label}: {type(error).__name__}: {error}" for label, error in failures]
                summary = f"{len(failures)} of {len(cases)} cases failed:\n" + "\n".join(told)
                raise AssertionError(summary) from failures[0][1]

        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in arguments]
        assert len(others) == len(signature.parameters) - len(arguments), "each name is a parameter of the test"
        all_cases.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return all_cases

    return decorate


def _labels(cases: Sequence[Any], ids: Iterable[str] | Callable[[Any], str] | None) -> list[str]:
    if ids is None:
        return [repr(case)[:MOST_CHARACTERS] for case in cases]
    labels = [str(ids(case)) for case in cases] if callable(ids) else [str(name) for name in ids]
    assert len(labels) == len(cases), "each case has a name"
    return labels
