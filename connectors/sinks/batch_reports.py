"""How much each batch has read and written, passed from the process that commits it to the one that observes queries.

Spark's progress has no place for what a Python sink has counted, and the two processes share nothing but the machine:
Spark starts the one that commits beside the driver, and a `LagListener` runs in the driver's own Python. So a sink
leaves a small file for each query in a folder of this user, and a listener reads it when the progress of the batch
arrives. Nothing is decided by it: where it is missing, figures are.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import tempfile
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sparkonce.offset_store.record import BatchCounts, BatchRecord

KEPT_BATCHES = 20
"""Reports of a query in its file: a listener may be a few batches late."""
KEPT_QUERIES = 100
"""Queries whose reports one process remembers."""
KEPT_S = 7 * 86_400
"""Files of queries that have ended are removed after this time, by the next process that reports."""

_QUERY_ID = re.compile(r"[0-9A-Za-z-]{1,64}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch has read and written, and when that was committed (ms since 1970)."""

    batch_id: int
    at_ms: int
    counts: BatchCounts


class BatchReports:
    """The reports of all queries of this user on this machine, in files of one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use ``folder``, by default one of this user below the machine's folder for temporary files."""
        self._folder = folder
        self._known: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self._is_swept = False

    def add(self, record: BatchRecord, counts: BatchCounts) -> None:
        """Report a batch; never raises: the batch is written, and only figures would be missing."""
        known = self._known.setdefault(record.query_id, [])
        self._known.move_to_end(record.query_id)
        while len(self._known) > KEPT_QUERIES:
            self._known.popitem(last=False)
        report = {"batchId": record.batch_id, "atMs": time.time_ns() // 1_000_000, "counts": counts.to_document()}
        known[:] = [*known[1 - KEPT_BATCHES :], report]
        try:
            file = self._file(record.query_id)
            if file is not None:
                self._sweep(file.parent)
                _replace(file, json.dumps(known))
        except OSError as error:
            _log.info("the counts of batch %d are not reported: %s", record.batch_id, error)

    def find(self, query_id: str, batch_id: int, since_ms: int) -> BatchReport | None:
        """Return the report of a batch, unless there is none of ``since_ms`` or later: then it is of an earlier run."""
        file = self._file(query_id)
        if file is None:
            return None
        try:
            found = [_report(each) for each in json.loads(file.read_text())]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return next((each for each in found if each.batch_id == batch_id and each.at_ms >= since_ms), None)

    def _file(self, query_id: str) -> Path | None:
        """Return the file of a query; ids are read from a checkpoint, and name no other file."""
        folder = self._folder or _private_folder()
        return folder / f"{query_id}.json" if folder is not None and _QUERY_ID.fullmatch(query_id) else None

    def _sweep(self, folder: Path) -> None:
        """Remove files of queries that ended long ago, once in each process."""
        if self._is_swept:
            return
        self._is_swept = True
        oldest = time.time() - KEPT_S
        for path in folder.glob("*.json*"):
            with suppress(OSError):
                if path.lstat().st_mtime < oldest:
                    path.unlink()


@cache
def shared_reports() -> BatchReports:
    """Return this process's view of the reports."""
    return BatchReports()


def _report(document: Mapping[str, Any]) -> BatchReport:
    return BatchReport(int(document["batchId"]), int(document["atMs"]), BatchCounts.from_document(document["counts"]))


def _replace(path: Path, text: str) -> None:
    """Write a file that is there whole, or as it was."""
    written = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        written.write_text(text)
        written.replace(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def _private_folder() -> Path | None:
    """Return this user's folder; None if there is none that nobody else may write to."""
    try:
        folder = Path(tempfile.gettempdir()) / f"sparkonce-batches-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_ours else None
