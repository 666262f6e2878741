"""All rows of a batch visible at once: tasks spool record batches to files, which the driver sends in one transaction.

One transaction belongs to one producer, and one producer's sequence numbers cannot be split over several
processes. So where a batch must become visible all at once, tasks do all the work but the sending: they write finished
record batches into files beside Spark's checkpoint, which driver and executors both reach, and the driver streams these
through its own transaction, the one that holds the decision too. Nothing of the rows stays in the driver's memory.
"""

from __future__ import annotations

import logging
import socket
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import fs

from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.connectors.kafka_sink.tasks import RowSender, Sending
from sparkonce.connectors.kafka_sink.topics import Topics
from sparkonce.connectors.sinks.target import Task
from sparkonce.crash_points import reach
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.kafka.client.client import shared_client
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import BatchCounts
from sparkonce.offset_store.store_hints import full_disk
from sparkonce.words import counted

FOLDER = "sparkonce-spool"
"""Within the checkpoint directory; what is in it belongs to the batch that runs."""
BUFFER_BYTES = 1 << 20
PIECE_BYTES = BUFFER_BYTES // 2
"""Pieces that fit into the buffer: larger ones bypass it, and delta-rs's file systems reject them."""
_FRAME = struct.Struct(">HiiI")
"""Length of the topic's name, partition, number of records, length of the record batch."""

_log = logging.getLogger(__name__)


class SpoolError(RuntimeError):
    """A spooled file is truncated, or is not where the driver reads it."""


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """What one task has spooled: the file's name, and how many rows are in it."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Spool:
    """The folder of one query's spooled rows."""

    checkpoint: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def place(self) -> tuple[fs.FileSystem, str]:
        """Return the file system and the folder's path there."""
        filesystem, root = Location.parse(self.checkpoint).filesystem(self.storage_options)
        return filesystem, f"{root}/{FOLDER}"

    def read(self, spooled: SpooledRows) -> Iterator[EncodedBatch]:
        """Yield a file's record batches in order. Raises SpoolError if missing or cut (seen at its end), or OSError."""
        filesystem, folder = self.place()
        rows = 0
        with self._open(filesystem, f"{folder}/{spooled.name}") as stream:
            while head := stream.read(_FRAME.size):
                if len(head) < _FRAME.size:
                    raise SpoolError(f"{folder}/{spooled.name} ends within a record batch")
                name_length, partition, count, length = _FRAME.unpack(head)
                topic, data = stream.read(name_length), bytearray(stream.read(length))
                if len(data) < length:
                    raise SpoolError(f"{folder}/{spooled.name} ends within a record batch")
                rows += count
                yield EncodedBatch(topic.decode(), partition, count, data)
        if rows != spooled.rows:
            raise SpoolError(f"{folder}/{spooled.name} ends after {rows} of {counted(spooled.rows, 'row')}")

    def _open(self, filesystem: fs.FileSystem, path: str) -> pa.NativeFile:
        try:
            return filesystem.open_input_stream(path)
        except FileNotFoundError as error:
            place = Location.parse(self.checkpoint)
            where = path if place.is_local else f"{place}/{FOLDER}/{path.rpartition('/')[2]}"
            elsewhere = (
                ", or checkpointLocation is a folder of each machine's own. With atomicVisibility it must be on "
                "storage that driver and executors share"
            )
            raise SpoolError(
                f"{where}, which a task has written, is not there for the driver on {socket.gethostname()}: another "
                f"driver of this appId has removed it{elsewhere if place.is_local else ''}"
            ) from error

    def clear(self) -> None:
        """Remove all files; never raises: what stays takes space, and is removed with the next batch."""
        try:
            filesystem, folder = self.place()
            if filesystem.get_file_info(folder).type is not fs.FileType.NotFound:
                filesystem.delete_dir(folder)
        except (OSError, ValueError, NotImplementedError) as error:
            _log.warning("kafka_once: could not remove spooled rows in %s: %s", self.checkpoint, error)


class SpoolFile:
    """Accepts record batches as a producer does, and writes them to a file that appears when it is complete."""

    def __init__(self, spool: Spool, topics: Topics, name: str) -> None:
        self.topics = topics
        self.on_too_large: Callable[[str, int], None] | None = None
        """Never called: nothing is sent from here."""
        filesystem, folder = spool.place()
        self._place = Location.parse(spool.checkpoint)
        self._filesystem = filesystem
        self._path = f"{folder}/{name}"
        with full_disk(self._place):
            filesystem.create_dir(folder, recursive=True)
            self._stream: pa.NativeFile = filesystem.open_output_stream(self._path, buffer_size=BUFFER_BYTES)

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Write record batches."""
        for batch in batches:
            topic = batch.topic.encode()
            with full_disk(self._place):
                self._stream.write(_FRAME.pack(len(topic), batch.partition, batch.record_count, len(batch.data)))
                self._stream.write(topic)
                data = memoryview(batch.data)
                for position in range(0, len(data), PIECE_BYTES):
                    self._stream.write(data[position : position + PIECE_BYTES])

    def flush(self) -> None:
        """Complete the file."""
        with full_disk(self._place):
            self._stream.close()

    def remove(self) -> None:
        """Close and delete it; never raises."""
        with suppress(OSError, NotImplementedError):  # a full disk does not take what is buffered
            self._stream.close()
        try:
            self._filesystem.delete_file(self._path)
        except (OSError, NotImplementedError) as error:
            _log.warning("kafka_once: could not remove %s: %s", self._path, error)


class SpoolWriter:
    """Spools the rows of one task; its part is `SpooledRows`."""

    def __init__(self, sending: Sending, task: Task, spool: Spool) -> None:
        self._sending = sending
        self._task = task
        self._spool = spool
        self._name = uuid.uuid4().hex
        self._file: SpoolFile | None = None
        self._sender = RowSender(sending, task, self._open)

    def write(self, rows: pa.RecordBatch) -> None:
        """See `TaskWriter.write`."""
        self._sender.write(rows)

    def close(self) -> SpooledRows | None:
        """See `TaskWriter.close`."""
        self._sender.finish()
        if self._file is None:
            return None
        reach(SinkPoint.FILE_WRITTEN, self._task.batch_id, self._sending.app_id)
        return SpooledRows(self._name, self._sender.rows)

    def discard(self) -> None:
        """See `TaskWriter.discard`."""
        if self._file is not None:
            self._file.remove()

    @property
    def written(self) -> BatchCounts:
        """See `TaskWriter.written`."""
        return self._sender.written

    def _open(self) -> SpoolFile:
        topics = Topics(shared_client(self._sending.client, reached=True))  # by the driver, which has begun the batch
        self._file = SpoolFile(self._spool, topics, self._name)
        return self._file
