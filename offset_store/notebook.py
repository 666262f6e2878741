"""A store's newest committed ranges, as a table in a notebook."""

from __future__ import annotations

from datetime import UTC, datetime

from sparkonce.notebook import table, text
from sparkonce.offset_store.errors import StoreMissingError
from sparkonce.offset_store.store import OffsetStore

NEWEST = 20
"""The most commits shown."""
_HEAD = ("version", "committed", "appId", "batch", "source", "partition", "from", "to", "rows")


def store_table(store: OffsetStore) -> str:
    """Return one row for each range of the newest commits; the error if the store cannot be read."""
    name = str(store)
    try:
        entries = store.snapshot().history(NEWEST)
    except StoreMissingError:
        return table(_HEAD, (), title=name, note="nothing is stored yet")
    except Exception as error:  # for example, the group's brokers do not answer
        return f"<div><b>{text(name)}</b></div><div>{text(error)}</div>"
    rows = (
        (
            entry.version,
            datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00"),
            entry.record.app_id,
            entry.record.batch_id,
            source,
            f"{tp.topic}-{tp.partition}",
            extent.start,
            extent.end,
            None if entry.record.counts is None else entry.record.counts.rows,
        )
        for entry in entries
        for (source, tp), extent in sorted(entry.record.moved.items())
    )
    return table(_HEAD, rows, title=name, note="The newest commits, times in UTC.")
