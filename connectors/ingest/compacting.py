"""Small files of the tables, merged in this process while their queries run: one table at a time.

`connectors.delta_sink.compaction` says why that neither disturbs a query nor doubles a row. A compaction that fails is
logged, and the next one is due as if it had not been: rows are not at risk.

A thread that returns from delta-rs while Python ends crashes the process: before 3.14 Python ends such a thread by
unwinding its stack, which Rust does not survive. So the end of the process waits for the partition that is compacted
then, but not for ever: a store may not answer.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Condition, Event, Thread

from sparkonce.connectors.delta_sink.compaction import Compaction
from sparkonce.connectors.delta_sink.target_size import DEFAULT_TARGET_BYTES
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.words import counted

END_LIMIT_S = 60.0
"""How long the end of the process waits for the partition that is compacted then."""

_log = logging.getLogger("sparkonce.ingest")


def is_due(every: int, before: int, batch: int) -> bool:
    """Whether a multiple of ``every`` batches lies between two numbers of batches; so restarts do not matter."""
    return every > 0 and (batch + 1) // every > (before + 1) // every


@dataclass(frozen=True, slots=True)
class _Due:
    """What is to be done for a table."""

    storage: Mapping[str, str]
    """The settings of its store."""
    target_bytes: int
    """The size of its files."""
    commits: int
    """How many it has had since."""


class Compactor:
    """Runs compactions in a thread of its own; the process ends after the partition that is compacted then."""

    def __init__(self) -> None:
        self._due: dict[str, _Due] = {}
        """By the paths of tables, in the order in which they were submitted."""
        self._failed: dict[str, _Due] = {}
        self._changed = Condition()
        """Guards all of these."""
        self._is_closed = False
        self._stopping = Event()
        self._thread: Thread | None = None

    def submit(self, path: str, storage: Mapping[str, str], target_bytes: int | None, commits: int = 1) -> None:
        """Have a table compacted; of those that wait, the one with most ``commits`` is next."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="sparkonce-compaction", daemon=True)
            self._thread.start()
            atexit.register(self._end)
        with self._changed:
            for before in (self._due.get(path), self._failed.pop(path, None)):
                commits += 0 if before is None else before.commits
            self._due[path] = _Due(storage, target_bytes or DEFAULT_TARGET_BYTES, commits)
            self._changed.notify()

    def submit_failed(self) -> None:
        """Have those compacted again of which the last compaction has failed."""
        for path, due in self._failed.copy().items():
            self.submit(path, due.storage, due.target_bytes, 0)

    def close(self, timeout_s: float | None) -> None:
        """Complete what was submitted; with a time, only the partition that is compacted now, and no longer than that.

        A process that is killed in a compaction keeps others from the table for a quarter of an hour.
        """
        if timeout_s is not None:
            self._stopping.set()
        self._finish()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _log.warning("a compaction has not ended in %g s: the process ends after this partition", timeout_s)
                return
            atexit.unregister(self._end)

    def _end(self) -> None:
        """Wait for the thread, which ends after its partition."""
        self._stopping.set()
        self._finish()
        if self._thread is not None:
            self._thread.join(END_LIMIT_S)

    def _finish(self) -> None:
        """Let the thread end when nothing waits any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _next(self) -> tuple[str, _Due] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._is_closed)
            if not self._due or self._stopping.is_set():
                return None
            path = max(self._due, key=lambda path: self._due[path].commits)
            return path, self._due.pop(path)

    def _run(self) -> None:
        while (found := self._next()) is not None:
            path, due = found
            try:
                self._compact(path, due.storage, due.target_bytes)
            except Exception as error:
                with self._changed:
                    self._failed[path] = due
                why = without_secrets(str(error), due.storage)
                _log.warning("compaction of %s failed, the query goes on: %s", path, why)

    def _compact(self, path: str, storage: Mapping[str, str], target_bytes: int) -> None:
        compaction = Compaction(Location.parse(path), storage, target_bytes, {})
        before = after = 0
        _, columns, plan = compaction.plan()
        if not plan:
            return
        for done in compaction.merge(columns, plan):
            before, after = before + done.files_before, after + done.files_after
            if done.conflict is not None:
                _log.warning("%s: a partition is left as it is: others changed its files (%s)", path, done.conflict)
            if self._stopping.is_set():
                break  # the claim ends with the generator
        if before:
            _log.info("compacted %s: %s into %d", path, counted(before, "file"), after)
