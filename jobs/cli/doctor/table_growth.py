"""Warnings of a table that costs more each day: a log without clean-up or checkpoints, or very many small files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pyarrow.compute as pc

from sparkonce.jobs.cli.doctor.findings import Finding, warning
from sparkonce.offset_store.log.checkpoint_files import StoredCheckpoint
from sparkonce.offset_store.log.cleanup import ENABLED
from sparkonce.offset_store.log.maintenance import INTERVAL
from sparkonce.offset_store.log.reader import DeltaLog, LogListing
from sparkonce.offset_store.log.state import TableState

MOST_COMMITS = 10_000
"""That a log keeps where nothing cleans it up."""
MOST_SINCE_CHECKPOINT = 1_000
MOST_FILES = 50_000
SMALL_BYTES = 1 << 20
"""Files are small if their mean is below this."""


def growth(log: DeltaLog, state: TableState) -> Iterator[Finding]:
    """Yield what to do about the growth of a table. Raises OffsetStoreError if its log cannot be read."""
    listing, properties = log.listing(), state.metadata.configuration
    kept = state.version - min(listing.commits, default=state.version) + 1
    if properties.get(ENABLED, "true").lower() == "false" and kept > MOST_COMMITS:
        yield warning(
            "table",
            f"the log of {log.location} keeps {kept:,} commits, and {ENABLED}=false keeps all that will come",
            f"Let them expire: ALTER TABLE delta.`{log.location}` UNSET TBLPROPERTIES ('{ENABLED}')",
        )
    checkpoint = listing.newest_checkpoint(state.version)
    since = state.version - (0 if checkpoint is None else checkpoint)
    if since > MOST_SINCE_CHECKPOINT:
        why, cure = (
            "none was written since",
            "The next commit of a query, or of sparkonce compact, writes one; if it does not, its warning says why",
        )
        if INTERVAL in properties:
            why = f"{INTERVAL}={properties[INTERVAL]} delays one"
            cure = f"Remove it: ALTER TABLE delta.`{log.location}` UNSET TBLPROPERTIES ('{INTERVAL}')"
        yield warning(
            "table",
            f"{since:,} commits of {log.location} came after its newest checkpoint, and each reader reads them all; "
            f"{why}",
            cure,
        )
        return
    files, size = _files(log, listing, checkpoint, state.version)
    if files > MOST_FILES and size < files * SMALL_BYTES:
        yield warning(
            "table",
            f"{log.location} has {files:,} files of {size / files / 1000:,.0f} kB on average",
            f"Merge them: sparkonce compact {shlex.quote(str(log.location))}",
        )


def _files(log: DeltaLog, listing: LogListing, checkpoint: int | None, version: int) -> tuple[int, int]:
    """Return how many files a table has, and their bytes, without holding their names."""
    files = size = 0
    if checkpoint is not None:
        for rows in StoredCheckpoint(log, checkpoint, listing.checkpoints[checkpoint]).files("add", {"size"}):
            files, size = files + len(rows), size + (pc.sum(rows.field("size")).as_py() or 0)
    for actions in log.actions_of(range(0 if checkpoint is None else checkpoint + 1, version + 1), ("add", "remove")):
        files += len(actions["add"]) - len(actions["remove"])
        size += sum(int(add["size"]) for add in actions["add"])
        size -= sum(int(remove.get("size") or 0) for remove in actions["remove"])
    return files, size
