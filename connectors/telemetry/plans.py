"""When a batch was planned, passed from the process that plans to the one that begins the batch.

The planner knows neither the query nor the number of the batch, so it identifies it by its end offset, which
Spark logs before the batch begins. Both processes are beside the driver: a small file of this user for each
planner is enough. No decision depends on it: if it is missing, only the span is.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparkonce.connectors.telemetry.spans import Interval
from sparkonce.private_folder import private_folder

KEPT_S = 86_400
"""Files of planners that have ended are removed after this time, when another one writes its first."""


class PlanNotes:
    """The notes of all planners of this user on this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use ``folder``, by default one of this user below the machine's folder for temporary files."""
        self._folder = folder or private_folder("sparkonce-plans")
        self._is_swept = False

    def write(self, end: Mapping[str, Any], interval: Interval) -> None:
        """Note when the batch with this end was planned, replacing the last note; never raises."""
        if self._folder is None:
            return
        with suppress(OSError):
            self._sweep(self._folder)
            file = self._folder / f"{os.getpid()}.json"
            written = file.with_suffix(".new")
            written.write_text(json.dumps({"end": _digest(end), "planned": [interval.start_ns, interval.end_ns]}))
            written.replace(file)

    def find(self, lines: Iterable[str]) -> list[Interval]:
        """Return when a batch was planned, for each of its sources that has a note; ``lines`` are their end offsets."""
        if self._folder is None:
            return []
        wanted = {digest for line in lines if (digest := _digest_of_line(line)) is not None}
        found: dict[str, Interval] = {}
        for path in self._folder.glob("*.json"):
            note = _read(path)
            # Another query may have planned a batch with the same end: this one has been planned just now.
            if note is not None and note[0] in wanted:
                end, planned = note
                found[end] = max(planned, found.get(end, planned), key=lambda each: each.start_ns)
        return list(found.values())

    def _sweep(self, folder: Path) -> None:
        if self._is_swept:
            return
        self._is_swept = True
        oldest = time.time() - KEPT_S
        for path in folder.iterdir():
            with suppress(OSError):
                if path.lstat().st_mtime < oldest:
                    path.unlink()


def _digest(end: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()


def _digest_of_line(line: str) -> str | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return _digest(document) if isinstance(document, dict) else None


def _read(path: Path) -> tuple[str, Interval] | None:
    """Return a note; None if it is damaged, or gone by now."""
    try:
        document = json.loads(path.read_text())
        start_ns, end_ns = document["planned"]
        return str(document["end"]), Interval(int(start_ns), int(end_ns))
    except (OSError, ValueError, KeyError, TypeError):
        return None
