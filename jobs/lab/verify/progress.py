"""A run of `sparkonce verify` while it goes on: a file in its folder with a line of JSON for each cell that was judged.

The first line names the cells that were chosen, the last one holds the result. `sparkonce ui` shows it as it grows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkonce.jobs.lab.verify.cells import AnyCell
from sparkonce.jobs.lab.verify.results import AnyOutcome, from_json, to_json

FILE = "verify.jsonl"


class ProgressFile:
    """The file of one run, for writing; without a folder nothing is written."""

    def __init__(self, folder: Path | None, cells: Iterable[AnyCell]) -> None:
        self._path = None if folder is None else folder / FILE
        self._append({"cells": [cell.name for cell in cells]})

    def outcome(self, outcome: AnyOutcome) -> None:
        """Append what was judged."""
        self._append({"outcome": to_json(outcome)})

    def result(self, line: str) -> None:
        """Append the last line of the run."""
        self._append({"result": line})

    def _append(self, document: Mapping[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(document) + "\n")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    chosen: tuple[str, ...]
    """The names of its cells."""
    outcomes: tuple[AnyOutcome, ...]
    result: str | None
    """Its last line; None while it runs, or after it was killed."""
    unknown: int
    """Lines that this version cannot read."""

    @property
    def unjudged(self) -> int:
        """How many of its cells have no outcome here."""
        return len(set(self.chosen) - {each.cell.name for each in self.outcomes})


def read_progress(folder: Path) -> Progress | None:
    """Read the newest run in the file of a folder; None if there is none."""
    try:
        lines = (folder / FILE).read_bytes().splitlines()
    except OSError:
        return None
    chosen: tuple[str, ...] = ()
    outcomes, unknown, result = list[AnyOutcome](), 0, None
    for line in lines:
        try:
            ((kind, content),) = json.loads(line).items()
            if kind == "cells":  # a run begins: what is before is of one that was here before
                chosen, outcomes, unknown, result = tuple(content), [], 0, None
            elif kind == "outcome":
                outcomes.append(from_json(content))
            else:
                result = str(content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # of another version, or half written
            unknown += 1
    return Progress(chosen, tuple(outcomes), result, unknown)
