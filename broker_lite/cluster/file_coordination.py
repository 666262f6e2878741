"""Coordination by a directory that the brokers of one machine share: locks elect the controller, beside a log."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from sparkonce.broker_lite.cluster.controller_locks import ControllerLocks
from sparkonce.broker_lite.cluster.coordination import OvertakenError
from sparkonce.broker_lite.cluster.metadata_log import MetadataLog, MetadataReader, MetadataWriter
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import MetadataRecord
from sparkonce.broker_lite.log.storage import Storage

logger = logging.getLogger(__name__)


class Watch(Protocol):
    """A watch on directories."""

    def close(self) -> None:
        """Stop watching."""


WatchDirectories = Callable[[Sequence[str], Callable[[], None]], Watch | None]
"""Call back whenever files in these directories may have been created, removed or extended, or locks released.

None if not supported.
"""


def _no_watch(_directories: Sequence[str], _then: Callable[[], None]) -> None:
    return None


def _nothing() -> None:
    """Do nothing."""


class FileCoordination:
    """See `Coordination`; `locks` and `log` are its parts."""

    in_session = True
    """Locks are held while the process lives."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        broker_id: int,
        timeout_ms: int,
        max_log_bytes: int,
        watch: WatchDirectories = _no_watch,
    ) -> None:
        """Use the files in a directory; it is created if it does not exist.

        Args:
            storage: the file system.
            directory: shared by all brokers of the cluster.
            broker_id: this broker's id.
            timeout_ms: after how long without a sign of life a controller is considered to hang.
            max_log_bytes: the size of changes from which on the log is long.
            watch: reports changes of the files, if the machine supports it.
        """
        self.locks = ControllerLocks(storage, directory, broker_id, timeout_ms)
        self.log = MetadataLog(storage, directory)
        self.on_change: list[Callable[[], None]] = []
        self.on_report: Callable[[], None] = _nothing
        self.on_lead: Callable[[], None] = _nothing
        self._watch = watch([directory, self.log.folder], lambda: self.on_report())
        self.touch = self.locks.touch
        self.is_gone = self.locks.is_gone
        self.advice = f"no broker can write in {directory}; look at its permissions and its disk"
        self._storage = storage
        self._directory = directory
        self._broker_id = broker_id
        self._max_log_bytes = max_log_bytes
        self._reader = MetadataReader(storage, self.log, self.locks.latest_epoch)
        self.poll = self._reader.poll
        self._incarnation: uuid.UUID | None = None
        self._writer: MetadataWriter | None = None
        self._snapshot_bytes = 0
        """The initial size of this epoch's file, which does not count for `is_log_long`."""
        self.durable_offset = 0

    @property
    def epoch(self) -> int:
        """See `Coordination`."""
        return self.locks.epoch

    def lead(self, monotonic_ms: int, now_ms: int) -> ClusterImage | None:
        """See `Coordination`."""
        if not self.locks.try_lead(monotonic_ms):
            return None
        self.on_lead()
        image, self._writer = self.log.begin(self.epoch, self._broker_id, now_ms, self._incarnation)
        self._snapshot_bytes = self._writer.size
        self._written(image.next_offset)
        return image

    def keep_leading(self, monotonic_ms: int, now_ms: int) -> bool:
        """See `Coordination`."""
        self.locks.beat(monotonic_ms, now_ms)
        return self.locks.latest_epoch() == self.epoch

    def resign(self) -> None:
        """See `Coordination`."""
        writer, self._writer = self._writer, None
        self.locks.resign()  # on any error: to begin the same epoch again would replace its content
        if writer is not None:
            try:
                writer.close()
            except OSError as error:
                logger.warning("the controller's log of epoch %d is not closed as it should be: %s", self.epoch, error)

    @property
    def may_rest(self) -> bool:
        """See `Coordination`."""
        return self._watch is not None and not self.locks.suspects

    @property
    def is_log_long(self) -> bool:
        """See `Coordination`."""
        return self._writer is not None and self._writer.size - self._snapshot_bytes > self._max_log_bytes

    def append(self, records: Sequence[MetadataRecord], base_offset: int, now_ms: int) -> None:
        """See `Coordination`: it is on the disk when this returns."""
        assert self._writer is not None, "this broker leads"
        self._writer.append(records, base_offset, now_ms)
        latest = self.locks.latest_epoch()
        if latest != self.epoch:
            raise OvertakenError(f"controller epoch {latest} has begun")
        self._written(base_offset + len(records))

    def _written(self, next_offset: int) -> None:
        self.durable_offset = next_offset
        for listener in self.on_change:
            listener()

    def announce(
        self,
        incarnation: uuid.UUID,
        addresses: Sequence[tuple[str, str, int]],  # noqa: ARG002
        lock_id: str,  # noqa: ARG002
    ) -> None:
        """See `Coordination`: the lock on the broker's id shows that one is alive, a file beside it which start."""
        self._incarnation = incarnation
        try:
            self._storage.write(self._incarnation_path(self._broker_id), f"{incarnation}\n".encode(), durable=False)
        except OSError as error:  # else it registers when the session of its former start has ended
            logger.warning("the cluster is not told which start of broker %d this is: %s", self._broker_id, error)

    def is_announced(self, broker_id: int, incarnation: uuid.UUID) -> bool:
        """See `Coordination`."""
        try:
            return self._storage.read(self._incarnation_path(broker_id)).strip() == str(incarnation).encode()
        except OSError:
            return False

    def _incarnation_path(self, broker_id: int) -> str:
        return f"{self._directory}/broker-{broker_id}.incarnation"

    def close(self) -> None:
        """See `Coordination`."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self.resign()
        self._reader.close()
        self.locks.release_broker()
