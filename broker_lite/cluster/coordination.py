"""Who may be the controller: an operating system's lock on a file, and a number that only ever rises.

Theory of operation: a controller's time is an epoch, and each epoch has a file, its claim. Whoever holds the lock on
the claim of the latest epoch leads. The lock dies with the process that holds it, so others see at once that a leader
is dead, and claim the next epoch. A leader that only hangs keeps its lock; but it also touches its claim now and then,
and when it has not done so for `timeout_ms`, others claim the next epoch as well. So two may believe that they lead:
the log is what keeps them apart (`metadata_log`), by the epoch. Everybody asks `latest_epoch` after a read and after a
write; who is told of a later epoch than its own has read and written nothing that counts.

How long a leader has been silent is added up from one look to the next, and a look that comes late counts no more than
`MAX_STEP_MS`: who has slept itself cannot tell.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Final, Protocol

from sparkonce.broker_lite.log.storage import Lock, Storage

MAX_STEP_MS: Final = 200
BEATS_PER_TIMEOUT: Final = 8
_SUFFIX: Final = ".claim"
_DIGITS: Final = 10
_CLAIM: Final = re.compile(rf"\d{{{_DIGITS}}}\{_SUFFIX}")

logger = logging.getLogger(__name__)


class Coordination(Protocol):
    """What decides who the controller is; an operating system's lock, or a service for it."""

    @property
    def leading(self) -> bool:
        """Whether this broker has been given the lead, and has not resigned; it may have been taken since."""

    @property
    def epoch(self) -> int:
        """The epoch that this broker leads in, or has led in last; -1 if never."""

    def try_lead(self, monotonic_ms: int) -> bool:
        """Take the lead if nobody has it; returns whether this broker leads.

        Raises:
            OSError: if that cannot be written down.
        """

    def latest_epoch(self) -> int:
        """Return the latest epoch that anybody has claimed; 0 if none."""

    def leader(self) -> int:
        """Who has claimed the latest epoch; -1 if that is not known."""

    def beat(self, monotonic_ms: int, now_ms: int) -> None:
        """Show that the leader is alive; to be called several times a second."""

    def resign(self) -> None:
        """Let go of the lead; without it, nothing happens."""

    def hold_broker(self, broker_id: int) -> bool:
        """Take this broker's id; returns whether nobody else has it."""

    def is_gone(self, broker_id: int) -> bool:
        """Whether the process of a broker is known to be dead."""

    def release_broker(self) -> None:
        """Let go of this broker's id."""


class LockCoordination:
    """Coordination by locks on files, among the processes of one machine. Not for several threads at once."""

    def __init__(self, storage: Storage, directory: str, broker_id: int, timeout_ms: int) -> None:
        """Use the files in a directory, which is made if it is not there.

        Args:
            storage: the file system.
            directory: where all brokers of the cluster look.
            broker_id: who this is.
            timeout_ms: after how long without a sign of life a leader is taken for one that hangs.
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
        """See `Coordination`."""
        return self._lock is not None

    def try_lead(self, monotonic_ms: int) -> bool:
        """See `Coordination`."""
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
            return False  # somebody else is at it, or looks whether somebody is
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
        """Beat at once; the one method that another thread may call. Nothing happens unless this leads."""
        if self._lock is not None:
            with contextlib.suppress(FileNotFoundError):  # the next epoch has been claimed
                self._storage.set_modified_ms(self._path(self.epoch), now_ms)

    def _is_new(self, path: str, epoch: int) -> bool:
        """Whether nobody has led in an epoch, nor in a later one, which would have removed its claim."""
        try:
            return not self._storage.size(path) and self.latest_epoch() == epoch
        except FileNotFoundError:
            return False

    def _forget_before(self, epoch: int) -> None:
        for name in self._storage.list_directory(self._directory):
            if _CLAIM.fullmatch(name) and int(name.removesuffix(_SUFFIX)) < epoch:
                self._storage.remove(f"{self._directory}/{name}")

    def _is_over(self, epoch: int, monotonic_ms: int) -> bool:
        path = self._path(epoch)
        try:
            self._storage.lock(path).release()
        except BlockingIOError:
            return self._hangs(epoch, path, monotonic_ms)
        return True

    def _hangs(self, epoch: int, path: str, monotonic_ms: int) -> bool:
        try:
            touched_ms = self._storage.modified_ms(path)
        except FileNotFoundError:
            return False  # an epoch of the past, by now
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
        """See `Coordination`."""
        names = self._storage.list_directory(self._directory)
        claims = filter(_CLAIM.fullmatch, names)
        return max((int(name.removesuffix(_SUFFIX)) for name in claims), default=0)

    def leader(self) -> int:
        """See `Coordination`."""
        try:
            return int(self._storage.read(self._path(self.latest_epoch())))
        except (FileNotFoundError, ValueError):
            return -1

    def beat(self, monotonic_ms: int, now_ms: int) -> None:
        """See `Coordination`."""
        if self._lock is not None and monotonic_ms - self._beaten_ms >= self._timeout_ms // BEATS_PER_TIMEOUT:
            self._beaten_ms = monotonic_ms
            self.touch(now_ms)

    def resign(self) -> None:
        """See `Coordination`."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def hold_broker(self, broker_id: int) -> bool:
        """See `Coordination`."""
        try:
            self._broker_lock = self._storage.lock(self._broker_path(broker_id))
        except BlockingIOError:
            return False
        return True

    def is_gone(self, broker_id: int) -> bool:
        """See `Coordination`."""
        if self._broker_lock is not None and broker_id == self._broker_id:
            return False
        try:
            self._storage.lock(self._broker_path(broker_id)).release()
        except BlockingIOError:
            return False
        return True

    def release_broker(self) -> None:
        """See `Coordination`."""
        if self._broker_lock is not None:
            self._broker_lock.release()
            self._broker_lock = None

    def _path(self, epoch: int) -> str:
        return f"{self._directory}/{epoch:0{_DIGITS}d}{_SUFFIX}"

    def _broker_path(self, broker_id: int) -> str:
        return f"{self._directory}/broker-{broker_id}.lock"


class _Watched:
    """A leader that somebody else watches: what its claim's time was, and how long that has not changed."""

    __slots__ = ("epoch", "looked_ms", "silent_ms", "touched_ms")

    def __init__(self, epoch: int, touched_ms: int, looked_ms: int, silent_ms: int) -> None:
        self.epoch = epoch
        self.touched_ms = touched_ms
        self.looked_ms = looked_ms
        self.silent_ms = silent_ms
