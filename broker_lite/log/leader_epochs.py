"""Which leader epoch began at which offset, kept in `leader-epoch-checkpoint` (KIP-101).

The file is rewritten whenever an epoch is added, which is rare. A broker that becomes the leader of many partitions at
once does not wait for the disk at each (as Kafka since KAFKA-15046): an epoch that a power failure removes is found
again in the log's batches, since the file is flushed before a later segment is.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from sparkonce.broker_lite.log.checkpoints import (
    LEADER_EPOCHS,
    CheckpointFormatError,
    EpochStart,
    decode_leader_epochs,
    encode_leader_epochs,
)
from sparkonce.broker_lite.log.storage import Flush, Storage

logger = logging.getLogger(__name__)


class EpochEnd(NamedTuple):
    """A leader epoch, and the offset at which its records end."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one partition, rising in epoch and in offset."""

    __slots__ = ("_directory", "_entries", "_flush", "_path", "_storage", "_unmade", "is_damaged")

    def __init__(self, storage: Storage, directory: str, *, unmade: bool = False) -> None:
        """Read the file in `directory`, or create it; with `unmade` nothing is written before `make`."""
        self._storage = storage
        self._directory = directory
        self._path = f"{directory}/{LEADER_EPOCHS}"
        self._flush: Flush | None = None
        self._entries: list[EpochStart] = []
        self.is_damaged = False
        """Whether the file could not be read, so that `rebuild` must be called."""
        self._unmade = unmade
        if unmade:
            return
        try:
            self._entries = decode_leader_epochs(storage.read(self._path))
        except FileNotFoundError:
            storage.write(self._path, encode_leader_epochs([]), durable=False)
        except CheckpointFormatError as error:
            logger.warning("%s: it is damaged (%s): the epochs are read from all batches", self._path, error)
            self.is_damaged = True

    def make(self) -> None:
        """Write the file to a new directory. Raises OSError if that fails."""
        self._storage.write(self._path, encode_leader_epochs(self._entries), durable=False)
        self._unmade = False

    @property
    def entries(self) -> list[EpochStart]:
        """The epochs and where they begin."""
        return list(self._entries)

    @property
    def latest(self) -> int:
        """The latest epoch, -1 if none is known."""
        return self._entries[-1].epoch if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that a record of `epoch` was appended at `start_offset`; does nothing unless the epoch is new."""
        if epoch <= self.latest or epoch < 0:
            return
        kept = [entry for entry in self._entries if entry.start_offset < start_offset]
        self._write([*kept, EpochStart(epoch, start_offset)])

    def rebuild(self, batches: Iterable[tuple[int, int]]) -> None:
        """Rebuild the epochs from all batches of the log: the epoch and first offset of each, in order."""
        entries: list[EpochStart] = []
        for epoch, base_offset in batches:
            if epoch >= 0 and (not entries or epoch > entries[-1].epoch):
                entries.append(EpochStart(epoch, base_offset))
        self._write(entries)
        self.is_damaged = False

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at or after `end_offset`."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._write(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end before `start_offset`; the one that continues there begins there from now on."""
        gone = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if gone and gone[-1].start_offset < start_offset:
            self._write([EpochStart(gone[-1].epoch, start_offset), *self._entries[len(gone) :]])
        elif len(gone) > 1:
            self._write(self._entries[len(gone) - 1 :])

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """Return an epoch and where it ended, as Kafka's `LeaderEpochFileCache.endOffsetFor`; None if it is unknown.

        The latest epoch ends at the log end offset; a future epoch is unknown. For an epoch without records the latest
        one before it is returned; an epoch before all others ends where the first begins.
        """
        if not 0 <= epoch <= self.latest:
            return None
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        index = bisect_right([entry.epoch for entry in self._entries], epoch)
        end = self._entries[index].start_offset
        return EpochEnd(self._entries[index - 1].epoch if index else epoch, end)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at an offset, -1 if it is older than all known ones."""
        index = bisect_right([entry.start_offset for entry in self._entries], offset)
        return self._entries[index - 1].epoch if index else -1

    def wait(self) -> None:
        """Wait until the file is flushed. Raises OSError if that has failed."""
        if self._flush is not None:
            self._flush.result()

    def _write(self, entries: list[EpochStart]) -> None:
        if self._unmade:
            self._entries = entries
            return
        before = self._flush
        if before is not None and before.done():
            self._flush = None
            before.result()  # raises its failure
        self._storage.write(self._path, encode_leader_epochs(entries), durable=False)
        self._entries = entries
        self._flush = self._storage.flush_later([self._path, self._directory])
