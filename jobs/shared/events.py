"""A supervisor's actions on a pipeline, above all kills, noted in its folder for the pages of `sparkonce ui`.

A killed process cannot note it, but its supervisor can: a line of JSON in ``events.jsonl`` of the folder.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "events.jsonl"
MAX_BYTES = 64 << 10
"""The number of bytes read from the file's end."""


@dataclass(frozen=True, slots=True)
class NotedEvent:
    """One event."""

    at_ms: int
    """In ms since 1970."""
    kind: str
    """``kill``, ``start``, ``checkpoint`` (it was deleted) or another word."""
    text: str


def note(folder: Path, event: NotedEvent) -> None:
    """Append an event to a folder's file."""
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(asdict(event)) + "\n")


def noted(folder: Path) -> list[NotedEvent]:
    """Return the newest events of a folder; incomplete lines, such as one being written, are skipped."""
    try:
        with (folder / FILE).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - MAX_BYTES, 0))
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            event = NotedEvent(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue
        if type(event.at_ms) is int and isinstance(event.text, str) and isinstance(event.kind, str):
            found.append(event)
    return found
