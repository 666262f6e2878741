"""Output while cells run: a progress bar on a terminal, a line for each cell otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from lab.verify.cells import AnyCell, Outcome


class Show(Protocol):
    """Receives outcomes."""

    def outcome(self, outcome: Outcome[AnyCell]) -> None:
        """Show an outcome."""

    def say(self, text: str) -> None:
        """Show another line."""


class Lines:
    """A line for each cell."""

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._number = 0

    def outcome(self, outcome: Outcome[AnyCell]) -> None:
        """Print one."""
        self._number += 1
        self.say(f"[{self._number}/{self._cells}] {line(outcome)}")

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)


def line(outcome: Outcome[AnyCell]) -> str:
    """Return an outcome as a line."""
    if outcome.to_compare:
        return f"beside {outcome.cell.name}: {outcome.remark}"
    sign = "ok   " if outcome.wrong is None else "WRONG"
    counts = f"lost={outcome.lost} duplicated={outcome.duplicated} of {outcome.records}"
    text = f"{sign} {outcome.cell.name}: must show {outcome.must_show.value}; {counts}"
    told = outcome.remark if outcome.wrong is None else outcome.wrong
    return text if told is None else f"{text}: {told}"


@contextmanager
def open_show(cells: int) -> Iterator[Show]:
    """Show this many cells; the bar needs a terminal, and rich."""
    if not sys.stdout.isatty():
        yield Lines(cells)
        return
    try:
        from rich.progress import Progress
    except ImportError:
        yield Lines(cells)
        return
    with Progress() as progress:
        yield _Bar(progress, cells)


class _Bar:
    """A progress bar, with the wrong cells above it."""

    def __init__(self, progress: object, cells: int) -> None:
        from rich.progress import Progress

        assert isinstance(progress, Progress)
        self._progress = progress
        self._task = progress.add_task("crashing", total=cells)
        self._wrong = 0

    def outcome(self, outcome: Outcome[AnyCell]) -> None:
        """Advance."""
        if outcome.wrong is not None:
            self._wrong += 1
            self.say(line(outcome))
        self._progress.update(self._task, advance=1, description=f"{outcome.cell.name}, {self._wrong} wrong")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)
