"""Election of the controller among the processes of one machine: a lock on a file, and an increasing epoch.

Theory of operation: each controller epoch has a file, its claim. The holder of the lock on the claim of the latest
epoch is the controller. The lock ends with the process that holds it, so others see at once that a controller is dead,
and claim the next epoch. A controller that hangs keeps its lock; but it also touches its claim regularly, and if it has
not done so for `timeout_ms`, others claim the next epoch as well. So two brokers may believe that they are the
controller: the log fences the older one by its epoch (`metadata_log`). Every broker checks the `latest_epoch` after a
read and after a write; if that is later than its own, the read or write is void.

The silence of a controller is summed up from check to check, and a late check counts at most `MAX_STEP_MS`: a
process that was suspended itself cannot know.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Final

from sparkonce.broker_lite.log.storage import Lock, Storage

MAX_STEP_MS: Final = 200
BEATS_PER_TIMEOUT: Final = 8
_SUFFIX: Final = ".claim"
_DIGITS: Final = 10
_CLAIM: Final = re.compile(rf"\d{{{_DIGITS}}}\{_SUFFIX}")

logger = logging.getLogger(__name__)


class ControllerLocks:
    """Locks on files, among the processes of one machine. Not for several threads at once."""

    def __init__(self, storage: Storage, directory: str, broker_id: int, timeout_ms: int) -> None:
        """Use the files in a directory; it is created if it does not exist.

        Args:
            storage: the file system.
            directory: shared by all brokers of the cluster.
            broker_id: this broker's id.
            timeout_ms: after how long without a sign of life a controller is considered to hang.
        """
        self._storage = storage
        self._directory = directory
        self._broker_id = broker_id
        self._timeout_ms = timeout_ms
        self._lock: Lock | None = None
        self._broker_lock: Lock | None = None
        self._beaten_ms = 0
        self._watched = _Watched(-1, -1, 0, 0)
        self.epoch = -1
        storage.make_directory(directory)

    @property
    def leading(self) -> bool:
        """Whether this broker has become the controller and has not resigned; it may have been replaced since."""
        return self._lock is not None

    def try_lead(self, monotonic_ms: int) -> bool:
        """Become the controller if there is none; return whether this broker is it. Raises OSError if that fails."""
        if self._lock is not None:
            return True
        latest = self.latest_epoch()
        if latest and not self._is_over(latest, monotonic_ms):
            return False
        return self._claim(latest + 1)

    def _claim(self, epoch: int) -> bool:
        path = self._path(epoch)
        try:
            lock = self._storage.lock(path)
        except BlockingIOError:
            return False  # another process holds it, or checks whether it is held
        try:
            if not self._is_new(path, epoch):
                lock.release()
                return False
            file = self._storage.open(path)
            file.append(b"%d\n" % self._broker_id)
            file.close()
            self._forget_before(epoch)
        except OSError:
            lock.release()
            raise
        self._lock, self.epoch = lock, epoch
        return True

    def touch(self, now_ms: int) -> None:
        """Beat at once; the only method for another thread. Does nothing unless this broker is the controller."""
        if self._lock is not None:
            with contextlib.suppress(FileNotFoundError):  # the next epoch has been claimed
                self._storage.set_modified_ms(self._path(self.epoch), now_ms)

    def _is_new(self, path: str, epoch: int) -> bool:
        """Whether an epoch is unused: a later one would have removed its claim."""
        try:
            return not self._storage.size(path) and self.latest_epoch() == epoch
        except FileNotFoundError:
            return False

    def _forget_before(self, epoch: int) -> None:
        for name in self._storage.list_directory(self._directory):
            if _CLAIM.fullmatch(name) and int(name.removesuffix(_SUFFIX)) < epoch:
                self._storage.remove(f"{self._directory}/{name}")

    @property
    def suspects(self) -> bool:
        """Whether the controller seems to hang: half of the timeout has passed."""
        return self._lock is None and 2 * self._watched.silent_ms >= self._timeout_ms

    def _is_over(self, epoch: int, monotonic_ms: int) -> bool:
        path = self._path(epoch)
        return self._hangs(epoch, path, monotonic_ms) if self._storage.is_locked(path) else True

    def _hangs(self, epoch: int, path: str, monotonic_ms: int) -> bool:
        try:
            touched_ms = self._storage.modified_ms(path)
        except FileNotFoundError:
            return False  # an earlier epoch, by now
        before = self._watched
        if (before.epoch, before.touched_ms) != (epoch, touched_ms):
            self._watched = _Watched(epoch, touched_ms, monotonic_ms, 0)
            return False
        silent_ms = before.silent_ms + min(monotonic_ms - before.looked_ms, MAX_STEP_MS)
        self._watched = _Watched(epoch, touched_ms, monotonic_ms, silent_ms)
        if silent_ms < self._timeout_ms:
            return False
        logger.warning("controller epoch %d has shown no sign of life for %d ms: claiming the next", epoch, silent_ms)
        return True

    def latest_epoch(self) -> int:
        """Return the latest epoch that has been claimed; 0 if none."""
        names = self._storage.list_directory(self._directory)
        claims = filter(_CLAIM.fullmatch, names)
        return max((int(name.removesuffix(_SUFFIX)) for name in claims), default=0)

    def leader(self) -> int:
        """Return the claimant of the latest epoch; -1 if unknown."""
        try:
            return int(self._storage.read(self._path(self.latest_epoch())))
        except (FileNotFoundError, ValueError):
            return -1

    def beat(self, monotonic_ms: int, now_ms: int) -> None:
        """Show that the leader is alive; to be called several times a second."""
        if self._lock is not None and monotonic_ms - self._beaten_ms >= self._timeout_ms // BEATS_PER_TIMEOUT:
            self._beaten_ms = monotonic_ms
            self.touch(now_ms)

    def resign(self) -> None:
        """Resign; does nothing if this broker is not the controller."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def hold_broker(self, broker_id: int) -> bool:
        """Lock this broker's id; return whether no other process has it."""
        try:
            self._broker_lock = self._storage.lock(self._broker_path(broker_id))
        except BlockingIOError:
            return False
        return True

    def is_gone(self, broker_id: int) -> bool:
        """Whether the process of a broker is known to be dead."""
        if self._broker_lock is not None and broker_id == self._broker_id:
            return False
        return not self._storage.is_locked(self._broker_path(broker_id))

    def release_broker(self) -> None:
        """Release this broker's id."""
        if self._broker_lock is not None:
            self._broker_lock.release()
            self._broker_lock = None

    def _path(self, epoch: int) -> str:
        return f"{self._directory}/{epoch:0{_DIGITS}d}{_SUFFIX}"

    def _broker_path(self, broker_id: int) -> str:
        return f"{self._directory}/broker-{broker_id}.lock"


class _Watched:
    """A controller as others observe it: its claim's modification time, and for how long that has not changed."""

    __slots__ = ("epoch", "looked_ms", "silent_ms", "touched_ms")

    def __init__(self, epoch: int, touched_ms: int, looked_ms: int, silent_ms: int) -> None:
        self.epoch = epoch
        self.touched_ms = touched_ms
        self.looked_ms = looked_ms
        self.silent_ms = silent_ms
