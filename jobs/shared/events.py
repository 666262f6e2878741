"""What a supervisor did to a pipeline, kills above all, noted in its folder for the pages of `sparkonce ui`.

Processes that are killed note nothing. Whoever kills them can: a line of JSON in ``events.jsonl`` of the folder.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "events.jsonl"
MAX_BYTES = 64 << 10
"""Of the file's end that is read."""


@dataclass(frozen=True, slots=True)
class NotedEvent:
    """One moment."""

    at_ms: int
    """In ms since 1970."""
    kind: str
    """``kill``, ``start``, ``checkpoint`` (it was deleted) or another word."""
    text: str


def note(folder: Path, event: NotedEvent) -> None:
    """Append an event to the file of a folder."""
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(asdict(event)) + "\n")


def noted(folder: Path) -> list[NotedEvent]:
    """Return the newest events of a folder; lines that are none are skipped, as the one that is being written."""
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
