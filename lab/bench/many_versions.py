"""A Delta table of thousands of versions that a query goes on with, made in seconds.

A query has made the first few. The others are copies of its newest commit, in its writer's format, with one file of a
new name and later transaction ids. So the log is what it would be if the query had run that long, for any reader and
writer of it; the files of data that only copies name do not exist. As writers make checkpoints of the table's state,
there is one, half a hundred versions before the newest.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.bench.long_log import commit_file, extend
from lab.bench.spark_side import count

Action = dict[str, dict[str, Any]]
_OVERWRITTEN = "_last_checkpoint"
"""The only file of a table that writers change; Hadoop's file system does so in place."""


@dataclass(frozen=True, slots=True)
class Template:
    """A table to make copies of."""

    path: Path
    versions: int
    rows: int


def template(table: Path, versions: int) -> Template:
    """Extend a table's log to the given number of versions."""
    newest = max(int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())
    actions = [json.loads(line) for line in commit_file(table, newest).read_text().splitlines() if line]
    adds = [action for action in actions if "add" in action]
    actions = [action for action in actions if action not in adds[1:]]

    def text(version: int) -> str:
        moved_on = (_moved_on(action, version - newest) for action in actions)
        return "\n".join(json.dumps(action, separators=(",", ":")) for action in moved_on) + "\n"

    extend(table, newest + 1, versions, text)
    return Template(table, versions, count(str(table)).rows)


@contextmanager
def copy_of(table: Template, path: Path) -> Iterator[Path]:
    """Yield a copy of a table, with links to all files that no writer changes; deleted after use."""
    shutil.copytree(table.path, path, copy_function=_link_or_copy)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _link_or_copy(source: str, target: str) -> None:
    (shutil.copy2 if _OVERWRITTEN in source else os.link)(source, target)


def _moved_on(action: Action, by: int) -> Action:
    """Return an action as it is in a later commit."""
    ((kind, fields),) = action.items()
    moved = dict(fields)
    if kind == "add":
        directory, _, name = moved["path"].rpartition("/")
        suffix = "".join(Path(name).suffixes)
        moved["path"] = f"{directory}/" * bool(directory) + f"part-{by:05d}-{uuid.uuid4()}{suffix}"
        moved["modificationTime"] += by
    elif kind == "txn":
        moved["version"] += by
    elif kind == "commitInfo":
        moved["timestamp"] += by
    return {kind: moved}
