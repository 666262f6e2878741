"""When the two writes of each batch landed, from the Delta log."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from jobs.verify.cells import Moment

_FIELD = "sparkonce"


def commits(table: Path, began_wall_s: float) -> list[Moment]:
    """Give a moment for each commit of the pipeline; none where the table cannot be read."""
    try:
        history = DeltaTable(table).history()
    except (TableNotFoundError, DeltaError, OSError):
        return []
    moments = []
    for entry in history:
        info = entry.get(_FIELD)
        if isinstance(info, dict):
            what = f"{' and '.join(info.get('writes', ['?']))} of batch {info.get('batchId', '?')}"
            moments.append(Moment(max(entry["timestamp"] / 1000 - began_wall_s, 0.0), "commit", what))
    return moments
