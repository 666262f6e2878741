"""Replacing old segments by compacted ones, so that after a crash at any moment either the old or the new remain.

The names show the progress, as in Kafka's LocalLog.replaceSegments and LogLoader:

    1. `….log.cleaned`  being written: removed after a crash, the old segments are valid
    2. `….log.swap`     complete and flushed: after a crash it replaces all segments that begin in its
                        range of offsets
    3. `….log.deleted`  the old ones, out of the log: removed after `file.delete.delay.ms`, or at the next start
    4. `….log`          the new one has its final name

The content is flushed before the first rename, so a file named `.swap` is complete.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.directories import is_log_file
from sparkonce.broker_lite.log.segment import LOG_SUFFIX, Segment
from sparkonce.broker_lite.log.storage import Storage

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"

logger = logging.getLogger(__name__)


class DeletedSegments:
    """Segments removed from the log whose files are not deleted yet.

    Their files stay open for connections that are sending from them, and are closed when the last one has finished.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Segment]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, segments: Sequence[Segment], now_ms: int, delay_ms: int) -> None:
        """Mark segments as deleted by renaming them; `remove_due` removes the files after `delay_ms`."""
        for segment in segments:
            segment.rename(DELETED)
            self._waiting.append((now_ms + delay_ms, segment))
        if not delay_ms:
            self.remove_due(now_ms)

    def remove_due(self, now_ms: int) -> None:
        """Remove the files whose delay has passed."""
        waiting = self._waiting
        for _ in range(len(waiting)):
            due_ms, segment = waiting.popleft()
            if due_ms <= now_ms:
                segment.forget()
            else:
                waiting.append((due_ms, segment))


def finish_swaps(storage: Storage, directory: str, config: LogConfig, now_ms: int) -> None:
    """At the start, finish what a crash interrupted; afterwards only segments with final names are left."""
    names = [name for name in storage.list_directory(directory) if is_log_file(name)]
    cleaned = {name: _offset(name) for name in names if name.endswith(CLEANED)}
    swaps = {name: _offset(name) for name in names if name.endswith(SWAP)}
    for name in [name for name in names if name.endswith(DELETED)]:
        storage.remove(f"{directory}/{name}")
    # A swap at or behind a file that was still being written belongs to the same round, and is not complete either.
    first_cleaned = min((offset for offset in cleaned.values() if offset is not None), default=None)
    for name, offset in list(swaps.items()):
        if offset is None or (first_cleaned is not None and offset >= first_cleaned):
            storage.remove(f"{directory}/{name}")
            del swaps[name]
    for name in cleaned:
        storage.remove(f"{directory}/{name}")
    ranges = []
    for name, offset in swaps.items():
        if name.endswith(LOG_SUFFIX + SWAP) and offset is not None:
            segment = Segment(storage, directory, offset, config, now_ms, SWAP)
            ranges.append((offset, segment.next_offset()))
            segment.close()
    if ranges:
        _remove_replaced(storage, directory, min(ranges)[0], max(end for _, end in ranges))
    for name in storage.list_directory(directory):
        if name.endswith(SWAP) and is_log_file(name):
            logger.warning("%s/%s: finishing a compaction that was cut short", directory, name)
            storage.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _remove_replaced(storage: Storage, directory: str, start: int, end: int) -> None:
    for name in storage.list_directory(directory):
        offset = _offset(name)
        if is_log_file(name) and offset is not None and start <= offset < end and not name.endswith(SWAP):
            storage.remove(f"{directory}/{name}")


def _offset(name: str) -> int | None:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdigit() else None
