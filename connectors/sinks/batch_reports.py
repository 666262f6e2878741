"""The amounts that each batch has read and written, passed from the committing process to the listener.

Spark's progress has no field for a Python sink's counts, and the two processes share nothing but the machine:
Spark starts the one that commits beside the driver, and a `LagListener` runs in the driver's own Python. So a sink
leaves a small file for each query in a folder of this user, and a listener reads it when the progress of the batch
arrives. No decision depends on it: if it is missing, only figures are.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparkonce.offset_store.record import BatchCounts
from sparkonce.private_folder import private_folder

KEPT_BATCHES = 20
"""Reports of a query that stay in its file when that is shortened: a listener may be a few batches late."""
MAX_FILE_BYTES = 32 << 10
"""Above this size, a file is shortened."""
KEPT_S = 7 * 86_400
"""Files of queries that have ended are removed after this time, by the next process that reports."""
KEPT_FILES = 100
"""Beyond them, files are removed that no batch was added to for `IN_USE_S`: each new query has one."""
IN_USE_S = 600

_QUERY_ID = re.compile(r"[0-9A-Za-z-]{1,64}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch has read and written, and when that was committed (ms since 1970)."""

    batch_id: int
    at_ms: int
    counts: BatchCounts


class BatchReports:
    """The reports of all queries of this user on this machine: a file for each, with a line for each batch."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use ``folder``, by default one of this user below the machine's folder for temporary files."""
        self._folder = folder
        self._is_swept = False

    def add(self, query_id: str, batch_id: int, counts: BatchCounts) -> None:
        """Report a batch; never raises: the batch is written, and only figures would be missing."""
        document = {"batchId": batch_id, "atMs": time.time_ns() // 1_000_000, "counts": counts.to_document()}
        try:
            file = self._file(query_id)
            if file is not None:
                self._sweep(file.parent)
                if _append(file, json.dumps(document) + "\n") > MAX_FILE_BYTES:
                    _shorten(file)
        except OSError as error:
            _log.info("the counts of batch %d are not reported: %s", batch_id, error)

    def find(self, query_id: str, batch_id: int, since_ms: int) -> BatchReport | None:
        """Return the report of a batch, unless there is none of ``since_ms`` or later: then it is of an earlier run."""
        file = self._file(query_id)
        try:
            lines = [] if file is None else file.read_text().splitlines()
        except (OSError, ValueError):
            return None
        found = (report for line in reversed(lines) if (report := _read(line)) and report.batch_id == batch_id)
        newest = next(found, None)
        return newest if newest is not None and newest.at_ms >= since_ms else None

    def _file(self, query_id: str) -> Path | None:
        """Return the file of a query; ids are read from a checkpoint, and name no other file."""
        folder = self._folder or private_folder("sparkonce-batches")
        return folder / f"{query_id}.json" if folder is not None and _QUERY_ID.fullmatch(query_id) else None

    def _sweep(self, folder: Path) -> None:
        """Remove files of queries that have ended, once in each process, of which each query has its own."""
        if self._is_swept:
            return
        self._is_swept = True
        now, found = time.time(), []
        for path in folder.glob("*.json*"):
            with suppress(OSError):
                found.append((now - path.lstat().st_mtime, path))
        for place, (age_s, path) in enumerate(sorted(found)):
            if age_s > (IN_USE_S if place >= KEPT_FILES else KEPT_S):
                with suppress(OSError):
                    path.unlink()


@cache
def shared_reports() -> BatchReports:
    """Return this process's view of the reports."""
    return BatchReports()


def _read(line: str) -> BatchReport | None:
    """Read a line; None if it is damaged."""
    try:
        document = json.loads(line)
        counts = BatchCounts.from_document(document["counts"])
        return BatchReport(int(document["batchId"]), int(document["atMs"]), counts)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _append(file: Path, line: str) -> int:
    """Append a line, whole or not at all if there are several writers; return the size of the file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode())
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _shorten(file: Path) -> None:
    """Drop all but the newest reports; a reader sees the file as it was, or as it is then."""
    written = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    try:
        written.write_text("".join(file.read_text().splitlines(keepends=True)[-KEPT_BATCHES:]))
        written.replace(file)
    except OSError:
        written.unlink(missing_ok=True)
        raise
