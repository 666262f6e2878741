"""Small files of the tables, merged in this process while their queries run: one table at a time.

`connectors.delta_sink.compaction` says why that neither disturbs a query nor doubles a row. A compaction that fails is
logged, and the next one is due as if it had not been: rows are not at risk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from sparkonce.connectors.delta_sink.compaction import DEFAULT_TARGET_BYTES, Compaction, CompactionError
from sparkonce.offset_store.errors import OffsetStoreError, counted
from sparkonce.offset_store.locations import Location

_log = logging.getLogger("sparkonce.ingest")


def is_due(every: int, before: int, batch: int) -> bool:
    """Whether a multiple of ``every`` batches lies between two numbers of batches; so restarts do not matter."""
    return every > 0 and (batch + 1) // every > (before + 1) // every


class Compactor:
    """Runs compactions in a thread of its own."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "sparkonce-compaction")
        self._running: dict[str, Future[None]] = {}
        self._stopping = Event()

    def submit(self, path: str, storage: Mapping[str, str], target_bytes: int | None) -> None:
        """Have a table compacted, unless it is waiting for that already."""
        running = self._running.get(path)
        if running is None or running.done():
            target = target_bytes or DEFAULT_TARGET_BYTES
            self._running[path] = self._executor.submit(self._compact, path, storage, target)

    def close(self, *, complete: bool) -> None:
        """Wait for what is running; without ``complete``, only until its present partition is done."""
        if not complete:
            self._stopping.set()
        self._executor.shutdown(cancel_futures=not complete)

    def _compact(self, path: str, storage: Mapping[str, str], target_bytes: int) -> None:
        compaction = Compaction(Location.parse(path), storage, target_bytes, {})
        before = after = 0
        try:
            _, columns, plan = compaction.plan()
            if not plan:
                return
            for done in compaction.merge(columns, plan):
                before, after = before + done.files_before, after + done.files_after
                if self._stopping.is_set():
                    return  # the claim ends with the generator
        except (OffsetStoreError, CompactionError) as error:
            _log.warning("compaction of %s failed, the query goes on: %s", path, error)
            return
        _log.info("compacted %s: %s into %d", path, counted(before, "file"), after)
