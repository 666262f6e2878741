"""A Delta table with thousands of versions, made in seconds.

A query has made the first few. The others are copies of its newest commit, in its writer's format, with new
file names, which are links to the existing files, and later transaction ids. So the log is
what it would be if the query had run that long, for any reader, and every row in the log
exists. As writers make checkpoints of the table's state, delta-rs after every hundredth
commit and delta-spark after every tenth, there is one, half a hundred versions before the newest.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

SINCE_CHECKPOINT = 50
"""Versions: half of delta-rs's checkpoint interval, so what its readers find on average."""

Action = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Template:
    """A table to make copies of."""

    path: Path
    versions: int
    rows: int


def template(table: Path, versions: int) -> Template:
    """Extend a table's log to the given number of versions."""
    log = table / "_delta_log"
    newest = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())
    actions = [json.loads(line) for line in _commit_file(log, newest).read_text().splitlines() if line]
    for version in range(newest + 1, versions):
        commit = [_moved_on(action, version - newest) for action in actions]
        for old, new in zip(actions, commit, strict=True):
            if "add" in new:
                os.link(table / old["add"]["path"], table / new["add"]["path"])
        text = "\n".join(json.dumps(action, separators=(",", ":")) for action in commit)
        _commit_file(log, version).write_text(text + "\n")
        if version == versions - SINCE_CHECKPOINT:
            DeltaTable(table).create_checkpoint()
    return Template(table, versions, sum(_rows(path) for path in log.glob("*.json") if path.stem.isdigit()))


@contextmanager
def copy_of(table: Template, path: Path) -> Iterator[Path]:
    """Yield a copy of a table with links to its files, which no Delta writer ever changes; deleted after use."""
    shutil.copytree(table.path, path, copy_function=os.link)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _commit_file(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _moved_on(action: Action, by: int) -> Action:
    """Return an action as it is in a later commit."""
    action = copy.deepcopy(action)
    if "add" in action:
        directory, _, name = action["add"]["path"].rpartition("/")
        suffix = "".join(Path(name).suffixes)
        action["add"]["path"] = f"{directory}/" * bool(directory) + f"part-{by:05d}-{uuid.uuid4()}{suffix}"
        action["add"]["modificationTime"] += by
    if "txn" in action:
        action["txn"]["version"] += by
    if "commitInfo" in action:
        action["commitInfo"]["timestamp"] += by
    return action


def _rows(commit: Path) -> int:
    actions = [json.loads(line) for line in commit.read_text().splitlines() if line]
    return sum(json.loads(action["add"]["stats"])["numRecords"] for action in actions if "add" in action)
