"""When the writes of each batch landed: from the Delta log, and from the timestamps of what was sent to a topic."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from sparkonce.jobs.lab.verify.cells import Moment
from sparkonce.jobs.lab.verify.records import Delivered

_FIELD = "sparkonce"
_INTENT_FIELD = "sparkonceIntent"
TOGETHER_S = 0.1
OFFSETS_OF_MERGES = "_sparkonce"
"""The table of offsets inside a merged table's folder."""


def commits(table: Path, began_wall_s: float) -> list[Moment]:
    """Return a moment for each commit of the pipeline; none where the table cannot be read."""
    moments = []
    for entry in [*_history(table), *_history(table / OFFSETS_OF_MERGES)]:
        what = _what(entry)
        if what is not None:
            moments.append(Moment(max(entry["timestamp"] / 1000 - began_wall_s, 0.0), "commit", what))
    return moments


def sendings(delivered: Sequence[Delivered], began_wall_s: float) -> list[Moment]:
    """Return a moment for each group of committed records that were sent together."""
    groups: list[list[float]] = []
    for at_s in sorted(each.at_ms / 1000 for each in delivered):
        if groups and at_s - groups[-1][-1] < TOGETHER_S:
            groups[-1].append(at_s)
        else:
            groups.append([at_s])
    return [Moment(max(each[0] - began_wall_s, 0.0), "commit", f"{len(each)} rows are sent") for each in groups]


def _history(table: Path) -> list[dict[str, Any]]:
    try:
        return DeltaTable(table).history()
    except (TableNotFoundError, DeltaError, OSError):
        return []


def _what(entry: Mapping[str, Any]) -> str | None:
    """Say what a commit of ours holds; None for others."""
    if isinstance(entry.get(_INTENT_FIELD), dict):
        return f"intent to merge batch {entry[_INTENT_FIELD].get('batchId', '?')}"
    info = entry.get(_FIELD)
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        info = info or json.loads(entry["userMetadata"]).get(_FIELD) if "userMetadata" in entry else info
    if not isinstance(info, dict):
        return None
    return f"{' and '.join(info.get('writes', ['?']))} of batch {info.get('batchId', '?')}"
