"""The controller's log: written by one broker at a time, read by all of them, in shared files.

Theory of operation: each controller epoch has its own file, which begins with a snapshot of the cluster as the
former epochs left it, followed by the changes. A change is one record batch, so it is complete or absent; its partition
leader epoch is the controller's epoch. A new controller reads the latest file up to its last complete batch, ignores a
torn one at the end, and writes its own file, as a whole, before others can see it. The files of former epochs are then
no longer needed; of one with a torn end a copy is kept, since it may have been damaged rather than cut off.

A controller that others consider dead, and that comes back, is fenced as follows: a reader checks the latest epoch
after a read, and drops what it has read if a later one has been claimed; a writer checks it after a write, and counts
the write as done only if its own epoch is still the latest. A new epoch is claimed before the old file is read. So
everything that the old controller has acknowledged was written before that claim, and is read; later writes are
ignored.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from sparkonce.broker_lite.cluster.coordination import Step
from sparkonce.broker_lite.cluster.record_format import MetadataFormatError, decode, encode_record, encode_snapshot
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import ControllerElected, MetadataRecord
from sparkonce.broker_lite.log.storage import File, Storage
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.primitives import Buffer
from sparkonce.kafka.protocol.records import (
    HEADER_BYTES,
    MAGIC,
    Record,
    decode_records,
    encode_batch,
    read_header,
    validate,
)

FOLDER: Final = "__cluster_metadata-0"
CLUSTER_FILE: Final = "cluster-id"
"""Beside the folder: the id of the log's cluster."""
MAX_READ_BYTES: Final = 16 << 20
"""How many bytes are read at once, unless one batch is longer."""
BEGINS_WITH: Final = 2
"""The number of batches in the first write of a file: a snapshot, and the election of the controller."""
MAGIC_POSITION: Final = 16
MAGIC_BYTE: Final = bytes([MAGIC])
_SUFFIX: Final = ".log"
_TORN_SUFFIX: Final = ".torn"
"""The suffix of a copy of a file, which is never read."""
_DIGITS: Final = 10
_FILE: Final = re.compile(rf"\d{{{_DIGITS}}}\{_SUFFIX}")

logger = logging.getLogger(__name__)


class DamagedMetadataError(OSError):
    """More of a log is unreadable than a crash in its last write can explain."""


class MetadataLog:
    """The files of the log."""

    def __init__(self, storage: Storage, directory: str) -> None:
        """Use the files of a folder in `directory`; it is created if it does not exist."""
        self._storage = storage
        self.folder = f"{directory}/{FOLDER}"
        storage.make_directory(self.folder)

    def path(self, epoch: int) -> str:
        """Return the file of an epoch."""
        return f"{self.folder}/{epoch:0{_DIGITS}d}{_SUFFIX}"

    def epochs(self) -> list[int]:
        """Return the epochs that have a file, in order."""
        names = self._storage.list_directory(self.folder)
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names if _FILE.fullmatch(name))

    def begin(
        self, epoch: int, controller_id: int, now_ms: int, incarnation: uuid.UUID | None = None
    ) -> tuple[ClusterImage, MetadataWriter]:
        """Begin an epoch that this broker has claimed; return the cluster as the former ones left it, and the writer.

        `incarnation` is that of this start of the broker.

        Raises:
            OSError: if the file cannot be written, or the former one is damaged (DamagedMetadataError).
        """
        image = self._latest_image(epoch)
        snapshot_offset = image.next_offset
        snapshot = _batch([encode_snapshot(image)], snapshot_offset, epoch, now_ms)
        image.next_offset += 1
        elected = ControllerElected(controller_id, epoch, incarnation, snapshot_offset)
        elected_offset = image.next_offset
        image.apply(elected)
        begun = snapshot + _batch([encode_record(elected)], elected_offset, epoch, now_ms)
        # Private, as it contains SCRAM credentials.
        self._storage.write(self.path(epoch), begun, durable=True, private=True)
        for former in self.epochs():
            if former < epoch:
                self._storage.remove(self.path(former))
        return image, MetadataWriter(self._storage.open(self.path(epoch)), epoch)

    def _latest_image(self, before: int) -> ClusterImage:
        former = [epoch for epoch in self.epochs() if epoch < before]
        image = ClusterImage()
        if former:
            data = self._storage.read(self.path(former[-1]))
            found, end = read_steps(data)
            wrong = damage(data, found, end)
            if wrong is not None:
                raise DamagedMetadataError(
                    f"{self.path(former[-1])} is damaged: {wrong}. To go on without would lose decisions: stop the "
                    "brokers, and put back a copy of it"
                )
            for step in found:
                image = taken(image, step)
            if end < len(data):
                self._keep_aside(former[-1], data, len(data) - end)
        return image

    def _keep_aside(self, epoch: int, data: bytes, left_out: int) -> None:
        """Keep a copy of a file that is about to be removed: a write cut off by a crash looks like a flipped bit."""
        aside = self.path(epoch) + _TORN_SUFFIX
        self._storage.write(aside, data, durable=True, private=True)
        text = "%s: leaving out %d bytes of a last write that was cut off; the file as it was is kept as %s"
        logger.warning(text, self.path(epoch), left_out, aside)


class MetadataWriter:
    """Appends to the file of one epoch."""

    def __init__(self, file: File, epoch: int) -> None:
        self._file = file
        self._epoch = epoch

    @property
    def size(self) -> int:
        """The size of the file, in bytes."""
        return self._file.size

    def append(self, records: Sequence[MetadataRecord], base_offset: int, now_ms: int) -> None:
        """Write changes as one batch, and flush it.

        Raises:
            OSError: if that fails; then the outcome is unknown.
        """
        self._file.append(_batch([encode_record(each) for each in records], base_offset, self._epoch, now_ms))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class MetadataReader:
    """Follows the log from one epoch's file to the next."""

    def __init__(self, storage: Storage, log: MetadataLog, latest_epoch: Callable[[], int]) -> None:
        """`latest_epoch` is called after each read: see the module."""
        self._storage = storage
        self._log = log
        self._latest_epoch = latest_epoch
        self._file: File | None = None
        self._position = 0
        self.epoch = -1
        """The epoch whose file is read, -1 before the first."""

    def poll(self) -> list[Step]:
        """Return the committed changes since the last call. Raises OSError if a file cannot be read."""
        data = b"" if self._file is None else self._following(self._file)
        latest = self._latest_epoch()
        if latest != self.epoch:
            data = self._beginning(latest)
            if not data:
                return []
        found, end = read_steps(data)
        self._position += end
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _following(self, file: File) -> bytes:
        """Read on; the first batch is read whole, even if it is long, as a change of many partitions may be."""
        data = file.pread(MAX_READ_BYTES, self._position)
        if len(data) < MAX_READ_BYTES:
            return data
        size = read_header(data).size
        return data if size <= len(data) else file.pread(size, self._position)

    def _beginning(self, epoch: int) -> bytes:
        """Switch to the file of a later epoch; return its content, empty if its controller has not begun yet."""
        path = self._log.path(epoch)
        try:
            data = self._storage.read(path)
        except FileNotFoundError:
            return b""
        if self._latest_epoch() != epoch:
            return b""
        self.close()
        self._file, self.epoch, self._position = self._storage.open(path), epoch, 0
        return data


def read_steps(data: bytes) -> tuple[list[Step], int]:
    """Parse complete batches; returns their steps, and the end: before a torn, damaged or foreign batch."""
    found: list[Step] = []
    position = 0
    while len(data) - position >= HEADER_BYTES:
        try:
            header = validate(data, position)
            batch = memoryview(data)[position : position + header.size]
            values = [decode(record.value) for record in decode_records(batch)]
        except (ProtocolError, MetadataFormatError):
            break
        position += header.size
        first = values[0]
        if isinstance(first, ClusterImage):
            first.next_offset = header.next_offset
            found.append(first)
        else:
            found.append([each for each in values if not isinstance(each, ClusterImage)])
    return found, position


def damage(data: bytes, found: Sequence[Step], end: int) -> str | None:
    """Return what is wrong with a file of which `read_steps` has found these steps, up to `end`.

    None if all of it was read, or the rest may be the beginning of a last write that a crash has cut off. That
    is impossible in the first write of a file, which is written as a whole, and before a complete batch.
    """
    place = f"at byte {end} of {len(data)} lies no batch that can be read"
    if len(found) < BEGINS_WITH:
        return f"{place}, in what its controller began it with"
    if end == len(data):
        return None
    return f"{place}, and after that there are whole ones" if has_whole_batch(data, end) else None


def is_last_at_full_length(data: bytes, end: int) -> bool:
    """Whether the rest after `end` has the length of one batch: more than a crash leaves of a write that it cuts off.

    A power failure may leave that, so a controller begins all the same.
    """
    left = len(data) - end
    return left >= HEADER_BYTES and read_header(data, end).size == left


def has_whole_batch(data: Buffer, position: int) -> bool:
    """Whether there is a complete batch anywhere at or after a position."""
    view = bytes(memoryview(data)[position:])
    magic = view.find(MAGIC_BYTE, MAGIC_POSITION)
    while magic >= 0:
        try:
            validate(view, magic - MAGIC_POSITION)
        except ProtocolError:
            magic = view.find(MAGIC_BYTE, magic + 1)
        else:
            return True
    return False


def taken(image: ClusterImage, step: Step) -> ClusterImage:
    """Return the image after a step: `image` itself, changed, or a new one."""
    if isinstance(step, ClusterImage):
        return step
    for record in step:
        image.apply(record)
    return image


def _batch(values: Sequence[bytes], base_offset: int, epoch: int, now_ms: int) -> bytearray:
    records = [Record(None, value, now_ms) for value in values]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)
