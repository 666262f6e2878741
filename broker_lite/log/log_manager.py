"""All partitions of one broker: the directory that they live in, and which topics there are.

`topics.json` says which topics exist, with their ids and settings: a topic is created when the file names it, and
deleted when it no longer does. Folders that a crash leaves of one that was being created are renamed at the next start
(`…-stray`), and those of one that was being deleted, whose id the file keeps until then, are removed. However many
topics are created or deleted together, it is written once. A partition gets its directory with its first record (see
`partition_log`), so one without a directory is a partition without records; a topic's last one has it from the
beginning. What takes its time for thousands of partitions is a generator that yields after each, so that its caller can
serve clients in between. Beside it lie Kafka's own files: `meta.properties`, the checkpoints, the mark of a clean
shutdown, one directory for each partition. A directory from a Kafka broker, which has no `topics.json`, is taken over
by its `partition.metadata`.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from sparkonce.broker_lite.log import checkpoints, directories, meta_properties, topics_file
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.storage import Lock, Storage
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

TOPICS_FILE: Final = "topics.json"
LOCK_FILE: Final = ".lock"
MAX_PARTITIONS_PER_TOPIC: Final = 10_000
CHECKPOINT_INTERVAL_MS: Final = 60_000
"""How often recovery points are written: what is older needs no check after a crash."""

EPOCH_JUMP: Final = 1_000
"""Up to so many leader epochs are skipped at a start. Two copies of one directory that are started equally often would
else use the same epochs for different records, and no reader could tell the two logs apart (KIP-320)."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: `settings` are its own, `config` is what they come to on top of the broker's."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    logs: Mapping[int, PartitionLog]
    """The partitions that this broker has a replica of; all, unless it belongs to a cluster."""
    settings: Mapping[str, str]
    config: LogConfig


class NewTopic(NamedTuple):
    """A topic that is to be made."""

    name: str
    partitions: int
    topic_id: uuid.UUID
    settings: Mapping[str, str]


class LogManager:
    """The topics of one log directory. Not safe for use by several threads at once."""

    log_class: type[PartitionLog] = PartitionLog

    def __init__(self, storage: Storage, log_dir: str, config: LogConfig, new_uuid: Callable[[], uuid.UUID]) -> None:
        """Not to be called: see `open`."""
        self._storage = storage
        self.log_dir = log_dir
        self.config = config
        self._new_uuid = new_uuid
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._lock: Lock | None = None
        self._last_checkpoint_ms = 0
        self._deleted: dict[str, list[tuple[int, PartitionLog]]] = {}
        """What is left of deleted topics: partitions whose files are still to be removed."""
        self.deletions: dict[uuid.UUID, str] = {}
        """The names of topics whose deletion is not finished, also one that a crash cut short."""
        self._checkpointed: set[str] = set()
        """The topics that the checkpoints may name, those among them too that were deleted since."""
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        self.cluster_id = ""
        self.clean = False
        """Whether the broker before this one stopped cleanly."""
        self.leader_epoch = 0
        """The leader epoch of a standalone broker until it stops: higher at each start of this directory."""

    @classmethod
    def open(
        cls,
        storage: Storage,
        log_dir: str,
        config: LogConfig,
        now_ms: int,
        *,
        cluster_id: str = "",
        node_id: int = 0,
        internal_topics: Mapping[str, Mapping[str, str]] | None = None,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> LogManager:
        """Open a log directory, or begin it, and recover every partition if its broker did not stop cleanly.

        An empty `cluster_id` means the one found there, or a new one. `internal_topics` are the settings that internal
        topics get if they are found in a directory of another broker.

        Raises:
            LogDirectoryError: if another broker uses it, it belongs to another cluster or node, or it cannot be made.
        """
        manager = cls(storage, log_dir, config, new_uuid)
        manager._last_checkpoint_ms = now_ms
        try:
            storage.make_directory(log_dir)
            manager._lock = storage.lock(f"{log_dir}/{LOCK_FILE}")
        except BlockingIOError:
            raise LogDirectoryError(f"{log_dir} is in use by another broker: stop that one, or use another") from None
        except OSError as error:
            raise LogDirectoryError(f"{log_dir} cannot be used ({error}): choose another data directory") from error
        try:
            manager.cluster_id = meta_properties.load_or_write(storage, log_dir, cluster_id, node_id, new_uuid)
            manager._load_topics(now_ms, internal_topics or {})
        except BaseException:
            manager.abandon()
            raise
        return manager

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic of an id."""
        return self._by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionLog:
        """Return one partition's log.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        found = self._topics.get(topic)
        log = None if found is None else found.logs.get(index)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")
        return log

    def check_new_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> LogConfig:
        """Check whether `create_topic` would accept this, as far as there is room; return the settings it would have.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS or INVALID_CONFIG;
                INVALID_REQUEST for `__cluster_metadata`.
        """
        directories.check_topic_name(name)
        if name in self._topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if not 1 <= partitions <= MAX_PARTITIONS_PER_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; 1 to {MAX_PARTITIONS_PER_TOPIC} are possible"
            )
        return self.config.with_topic_settings(settings)

    def create_topic(
        self, name: str, partitions: int, topic_id: uuid.UUID, settings: Mapping[str, str], now_ms: int
    ) -> Topic:
        """Create a topic; when this returns it is durable.

        Raises:
            KafkaError: as `check_new_topic`, or KAFKA_STORAGE_ERROR.
        """
        self.check_new_topic(name, partitions, settings)
        (made,) = finish(self.create_topics([NewTopic(name, partitions, topic_id, settings)], now_ms))
        if isinstance(made, KafkaError):
            raise made
        return made

    def create_topics(self, wanted: Sequence[NewTopic], now_ms: int) -> Generator[bool, None, list[Topic | KafkaError]]:
        """Make topics that have been checked; when this ends, they are there for good, and before none is.

        Yields after each partition. Returns for each what it has become, or what keeps it from being made.
        """
        made: list[Topic | KafkaError] = []
        for name, partitions, topic_id, settings in wanted:
            try:
                self._forget_namesake(name)
                config = self.config.with_topic_settings(settings)
                logs = yield from self._new_partitions(name, range(partitions), topic_id, config, now_ms)
                made.append(Topic(name, topic_id, partitions, logs, MappingProxyType(dict(settings)), config))
            except KafkaError as error:
                made.append(error)
        for index, topic in enumerate(made):  # others may have come in between
            if isinstance(topic, Topic) and topic.name in self._topics:
                made[index] = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name} already exists")
        try:
            self._commit([topic for topic in made if isinstance(topic, Topic)])
        except KafkaError as error:
            return [error if isinstance(topic, Topic) else topic for topic in made]
        return made

    def check_new_partitions(self, name: str, count: int) -> Topic:
        """Check whether `more_partitions` would accept this; return the topic as it is.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_PARTITIONS if that is no increase or too many.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        have = topic.partition_count
        if count == have:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
        if count < have:
            text = f"The topic {name} currently has {have} partition(s); {count} would not be an increase."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
        if count > MAX_PARTITIONS_PER_TOPIC:
            text = f"{count} partitions; at most {MAX_PARTITIONS_PER_TOPIC} are possible"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
        topics_file.check_room(sum(each.partition_count for each in self._topics.values()), count - have)
        return topic

    def more_partitions(self, name: str, count: int, now_ms: int) -> Generator[bool, None, Topic]:
        """Add partitions to a topic; when this ends they are there for good. Yields after each, as `create_topics`.

        Raises:
            KafkaError: as `check_new_partitions`, or KAFKA_STORAGE_ERROR.
        """
        before = self.check_new_partitions(name, count)
        indexes = range(before.partition_count, count)
        new = yield from self._new_partitions(name, indexes, before.topic_id, before.config, now_ms)
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != before.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # deleted in between
        topic = replace(topic, partition_count=count, logs={**topic.logs, **new})
        self._commit([topic])
        return topic

    def change_settings(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace a topic's own settings, from now on.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG or KAFKA_STORAGE_ERROR.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        config = self.config.with_topic_settings(settings)
        self._commit([replace(topic, settings=MappingProxyType(dict(settings)), config=config)])
        for log in topic.logs.values():
            log.config = config

    def change_defaults(self, config: LogConfig) -> None:
        """Set the values for topics without these settings of their own, from now on."""
        if config == self.config:
            return
        self.config = config
        for topic in list(self._topics.values()):
            changed = config.with_topic_settings(topic.settings)
            self._add(replace(topic, config=changed))
            for log in topic.logs.values():
                log.config = changed

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its files; slices of it that are being sent keep their bytes.

        It is deleted when that is written down. What remains of its files then, because they cannot be removed, goes at
        the next start, or when the name is used again.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR; then the topic is as it was.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        self.forget_topics([topic])
        while self.remove_deleted(name):
            pass
        self.finish_deletions([topic.topic_id])

    def forget_topics(self, topics: Sequence[Topic]) -> None:
        """Delete topics, but leave their files for `remove_deleted` to remove.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; then they are as they were.
        """
        for topic in topics:
            del self._topics[topic.name], self._by_id[topic.topic_id]
            self.deletions[topic.topic_id] = topic.name
        try:
            self._write_topics()
        except OSError as error:
            for topic in topics:
                self._add(topic)
                del self.deletions[topic.topic_id]
            # The file may say already that they are deleted, and the next start would remove them.
            with contextlib.suppress(OSError):
                self._write_topics()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log_dir}: {error}") from error
        for topic in topics:
            self._put_to_be_removed(topic)

    def finish_deletions(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Note that nothing is left of deleted topics: neither files nor, with the groups, offsets."""
        for topic_id in topic_ids:
            del self.deletions[topic_id]
        try:
            self._write_topics()
        except OSError as error:
            logger.warning("%s: that topics are deleted for good is not written down yet: %s", self.log_dir, error)

    def _put_to_be_removed(self, topic: Topic) -> None:
        for log in topic.logs.values():
            log.forget()
        made = [(index, log) for index, log in topic.logs.items() if log.is_made]
        if made:
            self._deleted.setdefault(topic.name, []).extend(made)

    def remove_deleted(self, name: str | None = None) -> bool:
        """Remove the files of one partition of a deleted topic, this one or any; False if there is none."""
        name = next(iter(self._deleted), None) if name is None else name
        left = None if name is None else self._deleted.get(name)
        if name is None or not left:
            return False
        self._remove_log(name, *left.pop())
        if not left:
            del self._deleted[name]
        return True

    def _remove_log(self, name: str, index: int, log: PartitionLog) -> None:
        """Delete a log's files; what cannot be removed goes at the next start."""
        log.forget()
        if not log.is_made:
            return
        aside = directories.aside_path(self.log_dir, name, index, directories.DELETED_SUFFIX, self._new_uuid)
        try:
            self._storage.rename(log.directory, aside)
            directories.remove_log(self._storage, aside)
        except OSError as error:
            logger.warning("%s: some of the deleted log's files are still there: %s", log.directory, error)

    def flush_due(self, now_ms: int) -> None:
        """Flush the partitions whose `flush.ms` have passed, and now and then write the checkpoints.

        To be called every second or so, and as often as the least `flush.ms` asks.
        """
        for log in self._partitions():
            log.flush_if_due(now_ms)
        if now_ms - self._last_checkpoint_ms >= CHECKPOINT_INTERVAL_MS:
            self._last_checkpoint_ms = now_ms
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write recovery points, start offsets and high watermarks to their files."""
        recovery_points: dict[tuple[str, int], int] = {}
        start_offsets: dict[tuple[str, int], int] = {}
        high_watermarks: dict[tuple[str, int], int] = {}
        for topic in self._topics.values():
            for index, log in topic.logs.items():
                recovery_points[topic.name, index] = log.recovery_point
                high_watermarks[topic.name, index] = log.high_watermark
                if log.log_start_offset > log.first_base_offset:
                    start_offsets[topic.name, index] = log.log_start_offset
        self._checkpointed.update(self._topics)
        for name, offsets in (
            (checkpoints.RECOVERY_POINTS, recovery_points),
            (checkpoints.LOG_START_OFFSETS, start_offsets),
            (checkpoints.HIGH_WATERMARKS, high_watermarks),
        ):
            self._write_offsets(name, offsets)

    def checkpoint_cleaner(self) -> None:
        """Write up to where each log was compacted to its file; when this returns it is there."""
        offsets = {
            (topic.name, index): log.cleaned_offset
            for topic in self._topics.values()
            for index, log in topic.logs.items()
            if log.cleaned_offset is not None
        }
        self._checkpointed.update(topic for topic, _ in offsets)
        self._write_offsets(checkpoints.CLEANER_OFFSETS, offsets)

    def _write_offsets(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self._storage.write(f"{self.log_dir}/{name}", checkpoints.encode_offsets(offsets), durable=True)

    def _forget_namesake(self, name: str) -> None:
        """Ensure that no checkpoint has entries of an older topic of this name, whose offsets the new one would get.

        Kafka rewrites its checkpoints when a topic is deleted (LogManager.asyncDelete). Here that is done no later than
        when the name is used again, so it holds whatever came between, a crash or a full disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if name not in self._checkpointed:
            return
        try:
            self.checkpoint()
            self.checkpoint_cleaner()
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log_dir}: {error}") from error
        self._checkpointed = set(self._topics)

    def close(self, now_ms: int) -> None:
        """Stop cleanly: every partition on the disk, checkpoints written, and last the mark that says so.

        Raises:
            OSError: if some of that fails; everything is closed nevertheless, and the next start recovers.
        """
        try:
            while self.remove_deleted():
                pass
            failures: list[OSError] = []
            for log in self._partitions():
                try:
                    log.close(now_ms)
                except OSError as error:
                    failures.append(error)
                    log.abandon()
            self.checkpoint()
            if failures:
                raise failures[0]
            mark = f"{self.log_dir}/{checkpoints.CLEAN_SHUTDOWN}"
            self._storage.write(mark, checkpoints.CLEAN_SHUTDOWN_CONTENT, durable=True)
        finally:
            self._release()

    def abandon(self) -> None:
        """Close everything as it is, as a crash would; the next start recovers."""
        for log in self._partitions():
            log.abandon()
        self._release()

    def _partitions(self) -> Iterator[PartitionLog]:
        for topic in self._topics.values():
            yield from topic.logs.values()

    def _release(self) -> None:
        self._storage.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _new_partitions(
        self, topic: str, indexes: Iterable[int], topic_id: uuid.UUID, config: LogConfig, now_ms: int
    ) -> Generator[bool, None, dict[int, PartitionLog]]:
        """Return the logs of new partitions, whose directories are made later but for the last one's.

        That one tells how many there are, should `topics.json` be lost. Yields after each whether it worked on files.
        """
        directories.check_not_metadata_log(topic)
        while self.remove_deleted(topic):  # of an older topic of this name
            yield True
        logs: dict[int, PartitionLog] = {}
        metadata = checkpoints.encode_partition_metadata(topic_id)
        last = max(indexes, default=-1)
        try:
            for index in indexes:
                directory = directories.free_path(self._storage, self.log_dir, topic, index, self._new_uuid)
                logs[index] = self.log_class.begin(self._storage, directory, config, now_ms, metadata)
                if index == last:
                    logs[index].make()
                yield index == last
        except OSError as error:
            self._take_back(logs.values())
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log_dir}: {error}") from error
        return logs

    def _take_back(self, logs: Iterable[PartitionLog]) -> None:
        """Remove the folders of partitions that were made for a topic that cannot be."""
        for log in logs:
            log.abandon()
            directories.remove_log_if_there(self._storage, log.directory)

    def _commit(self, topics: Sequence[Topic]) -> None:
        """Save these topics durably; if that fails, they stay as they were.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        before = [self._topics.get(topic.name) for topic in topics]
        for topic in topics:
            self._add(topic)
        try:
            if topics:
                self._write_topics()
        except OSError as error:
            for topic, former in zip(topics, before, strict=True):
                if former is not None:
                    self._add(former)
                else:
                    del self._topics[topic.name], self._by_id[topic.topic_id]
                self._take_back(log for index, log in topic.logs.items() if former is None or index not in former.logs)
            # The file may hold them already, and the next start would take them from there.
            with contextlib.suppress(OSError):
                self._write_topics()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log_dir}: {error}") from error

    @staticmethod
    def _note_lost(directory: str, recovery_point: int) -> None:
        """Log that a folder with records is gone; as in Kafka, the partition starts again without them."""
        if recovery_point > 0:
            logger.warning(
                "%s is gone, with records up to offset %d: the partition begins empty. If the folder was moved away, "
                "stop the broker and bring it back before anybody writes",
                directory,
                recovery_point,
            )

    def _add(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _load_topics(self, now_ms: int, internal_topics: Mapping[str, Mapping[str, str]]) -> None:
        names = self._storage.list_directory(self.log_dir)
        self.clean = checkpoints.CLEAN_SHUTDOWN in names
        known = TOPICS_FILE in names
        if known:
            wanted = self._read_topics()
        else:
            wanted = directories.find_topics(self._storage, self.log_dir, names, internal_topics, self._new_uuid)
        directories.clear_leftovers(self._storage, self.log_dir, names, wanted, self.deletions, self._new_uuid)
        recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        start_offsets = self._read_offsets(checkpoints.LOG_START_OFFSETS)
        cleaned_offsets = self._read_offsets(checkpoints.CLEANER_OFFSETS)
        self._checkpointed = {topic for topic, _ in (*recovery_points, *start_offsets, *cleaned_offsets)}
        here = frozenset(names)
        for name, (topic_id, count, settings) in wanted.items():
            config = self.config.with_topic_settings(settings)
            metadata = checkpoints.encode_partition_metadata(topic_id)
            logs: dict[int, PartitionLog] = {}
            for index in self._indexes(name, count, here):
                directory = directories.partition_path(self.log_dir, name, index)
                start_offset = start_offsets.get((name, index), 0)
                if f"{name}-{index}" not in here and not start_offset:
                    self._note_lost(directory, recovery_points.get((name, index), 0))
                    logs[index] = self.log_class.begin(self._storage, directory, config, now_ms, metadata)
                    continue
                logs[index] = self.log_class.open(
                    self._storage,
                    directory,
                    config,
                    now_ms,
                    recovery_point=recovery_points.get((name, index), 0),
                    log_start_offset=start_offset,
                    clean=self.clean,
                    # A Kafka broker may have compacted what it had not yet noted as flushed.
                    holes_allowed=not known,
                    metadata=metadata,
                )
            for index, log in logs.items():
                log.cleaned_offset = cleaned_offsets.get((name, index))
            self._add(Topic(name, topic_id, count, logs, MappingProxyType(settings), config))
        self._begin_epoch(is_known=known)
        if self.clean:
            self._storage.remove(f"{self.log_dir}/{checkpoints.CLEAN_SHUTDOWN}")
            self._storage.flush_later([self.log_dir]).result()

    def _begin_epoch(self, *, is_known: bool) -> None:
        """Choose the leader epoch of this start: above all that were before, those in a Kafka broker's logs too.

        Raises:
            OSError: if it cannot be written down.
        """
        if is_known or self._topics:
            known = max((log.leader_epochs.latest for log in self._partitions()), default=0)
            self.leader_epoch = max(known, self.leader_epoch) + 1 + self._new_uuid().int % EPOCH_JUMP
        self._write_topics()

    def _indexes(self, _topic: str, count: int, _here: Collection[str]) -> Iterable[int]:
        """Return the partitions of a topic that are here, among the names that are `here`, in the log directory."""
        return range(count)

    def _read_topics(self) -> dict[str, directories.Entry]:
        path = f"{self.log_dir}/{TOPICS_FILE}"
        try:
            found = topics_file.decode(self._storage.read(path))
        except topics_file.DamagedTopicsError as error:
            raise LogDirectoryError(
                f"{path} cannot be read ({error}): restore it, or remove it to have the topics found by their "
                f"directories, without their settings"
            ) from None
        self.leader_epoch = found.leader_epoch
        self.deletions = dict(found.deleted)
        return {name: (topic_id, count, dict(settings)) for name, (topic_id, count, settings) in found.topics.items()}

    def _write_topics(self) -> None:
        entries = {each.name: (each.topic_id, each.partition_count, each.settings) for each in self._topics.values()}
        content = topics_file.Content(entries, self.leader_epoch, self.deletions)
        self._storage.write(f"{self.log_dir}/{TOPICS_FILE}", topics_file.encode(content), durable=True)

    def _read_offsets(self, name: str) -> dict[tuple[str, int], int]:
        return checkpoints.read_offsets(self._storage, f"{self.log_dir}/{name}")
