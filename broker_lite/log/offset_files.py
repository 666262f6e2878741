"""The offset checkpoints of a log directory, in Kafka's files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from sparkonce.broker_lite.log import checkpoints
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.log.topics import Topic
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class OffsetFiles:
    """Recovery points, log start offsets, high watermarks, and the offsets up to which logs were compacted."""

    def __init__(self, storage: Storage, log_dir: str, topics: Mapping[str, Topic]) -> None:
        """`topics` is a live view of the current topics."""
        self._storage = storage
        self._log_dir = log_dir
        self._topics = topics
        self._named: set[tuple[str, int]] = set()
        """The partitions that the files may list, including those no longer here."""
        self._written_high_watermarks: Mapping[tuple[str, int], int] = MappingProxyType({})

    def read(self, name: str, gone: Collection[tuple[str, int]] = ()) -> dict[tuple[str, int], int] | None:
        """Return the offsets in a file, except those of partitions in `gone`; None if it is missing or damaged."""
        found = checkpoints.read_offsets(self._storage, f"{self._log_dir}/{name}")
        if found is None:
            return None
        self._named.update(found)
        return {key: offset for key, offset in found.items() if key not in gone}

    def write(self) -> None:
        """Write recovery points, start offsets and high watermarks to their files."""
        self.write_recovery_points()
        self._write(checkpoints.LOG_START_OFFSETS, self._of_logs(_start_offset))
        self._write(checkpoints.HIGH_WATERMARKS, self._of_logs(_high_watermark))

    def write_recovery_points(self) -> None:
        """Write the recovery point of each log: the offset up to which it is flushed."""
        found = self._of_logs(lambda log: log.recovery_point)
        self._write(checkpoints.RECOVERY_POINTS, found)
        for (topic, index), offset in found.items():
            self._topics[topic].logs[index].noted_recovery_point = offset

    def write_cleaned(self) -> None:
        """Write the offset up to which each log was compacted, and flush the file."""
        self._write(checkpoints.CLEANER_OFFSETS, self._of_logs(lambda log: log.cleaned_offset))

    def write_high_watermarks(self) -> None:
        """Write the high watermarks, without flushing."""
        found = self._of_logs(_high_watermark)
        if found != self._written_high_watermarks:
            self._write(checkpoints.HIGH_WATERMARKS, found, durable=False)
            self._written_high_watermarks = found

    def take_high_watermarks(self) -> None:
        """Restore the high watermarks from the checkpoint."""
        known = self.read(checkpoints.HIGH_WATERMARKS) or {}
        for topic in self._topics.values():
            for index, log in topic.logs.items():
                log.be_one_of_several(known.get((topic.name, index), 0))
        self._warn_of_missing_records(known)

    def _warn_of_missing_records(self, known: Mapping[tuple[str, int], int]) -> None:
        """Log which partitions end below their high watermark; their leaders send the records again."""
        for (name, index), offset in known.items():
            topic = self._topics.get(name)
            log = None if topic is None else topic.logs.get(index)
            end = 0 if log is None else log.log_end_offset
            if topic is not None and end < offset:
                logger.warning(
                    "%s/%s-%d: it ends at offset %d, but was replicated up to %d: unless it was made anew, or has "
                    "moved away, data was removed or lost here",
                    *(self._log_dir, name, index, end, offset),
                )

    def forget(self, topic: str, indexes: Iterable[int]) -> None:
        """Remove the entries of partitions that are about to be created from all checkpoints.

        They may be those of an older topic of this name, or of replicas that have moved away. Kafka rewrites its
        checkpoints when such a log is deleted (LogManager.asyncDelete). Here it is done at the latest when a log of
        this name is created again, so it also holds after a crash or with a full disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._named.isdisjoint((topic, index) for index in indexes):
            return
        try:
            self.write()
            self.write_cleaned()
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log_dir}: {error}") from error
        self._named = set(self._of_logs(_high_watermark))

    def _of_logs(self, offset_of: Callable[[PartitionLog], int | None]) -> dict[tuple[str, int], int]:
        logs = ((topic.name, index, log) for topic in self._topics.values() for index, log in topic.logs.items())
        offsets = ((name, index, offset_of(log)) for name, index, log in logs)
        return {(name, index): offset for name, index, offset in offsets if offset is not None}

    def _write(self, name: str, offsets: Mapping[tuple[str, int], int], *, durable: bool = True) -> None:
        self._named.update(offsets)
        self._storage.write(f"{self._log_dir}/{name}", checkpoints.encode_offsets(offsets), durable=durable)


def _start_offset(log: PartitionLog) -> int | None:
    return log.log_start_offset if log.log_start_offset > log.first_base_offset else None


def _high_watermark(log: PartitionLog) -> int:
    return log.high_watermark


def note_lost(directory: str, recovery_point: int) -> None:
    """Log that a folder with records is missing; as in Kafka, the partition starts again without them."""
    if recovery_point > 0:
        logger.warning(
            "%s is gone, with records up to offset %d: the partition begins empty. If the folder was moved away, "
            "stop the broker and bring it back before anybody writes",
            directory,
            recovery_point,
        )


def note_shorter(log: PartitionLog, recovery_point: int) -> None:
    """Log that a log is shorter than its recovery point, as when a file is missing; as in Kafka, it is used."""
    if log.log_end_offset < recovery_point:
        logger.warning(
            "%s ends at offset %d, and was on the disk up to %d: unless a follower was cut, records are "
            "gone, and new ones get their offsets. If a file was moved away, stop the broker and bring it back first",
            log.directory,
            log.log_end_offset,
            recovery_point,
        )
