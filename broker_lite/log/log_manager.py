"""All partitions of one broker: their log directory, and the topics that they belong to.

Theory of operation: the controller decides which topics exist, and which brokers have replicas; logs are created and
removed to match (`take`). A standalone broker writes the decisions of its controller to `topics.json` (`keep`): a topic
is created when the file lists it, and deleted when it no longer does. The file is written once, however many topics
are created or deleted together. At the next start, folders of topics that it does not list are renamed (`…-stray`),
and those of unfinished deletions, whose topic id the file keeps, are removed. In a cluster the file only lists what is
here. Logs found at the start are opened, and kept until the cluster image is known; those that the cluster does not
know are renamed, as Kafka does with stray logs, since it may be the wrong directory.

A partition gets its directory with its first record (see `local_log`), so one without a directory is empty; a
topic's last partition has it from the beginning. What takes long for thousands of partitions is a generator that
yields after each, so that its caller can serve clients in between.

Beside them lie Kafka's own files: `meta.properties`, the checkpoints, the clean shutdown marker. High watermarks
are written every few seconds and, in a cluster, read back, so that a broker that restarts alone serves what it served
before. One that is too low does no harm, so the file need not be flushed. A directory of a Kafka broker, which has no
`topics.json`, is taken over by its `partition.metadata`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Self

from sparkonce.broker_lite.log import checkpoints, directories, meta_properties, topics_file
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.flush_state import FAILED
from sparkonce.broker_lite.log.offset_files import OffsetFiles, note_lost, note_shorter
from sparkonce.broker_lite.log.partition_log import PartitionLog, close_together
from sparkonce.broker_lite.log.storage import Lock, Storage
from sparkonce.broker_lite.log.topics import Topic, WantedTopic
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

__all__ = ["LogManager", "Topic", "WantedTopic"]

TOPICS_FILE: Final = "topics.json"
LOCK_FILE: Final = ".lock"
MAX_PARTITIONS_PER_TOPIC: Final = 10_000
EPOCH_JUMP: Final = 1_000
"""At most so many leader epochs are skipped at a start. Otherwise two copies of one directory, started equally often,
would use the same epochs for different records, and readers could not tell the two logs apart (KIP-320)."""

logger = logging.getLogger(__name__)


class LogManager:
    """The topics of one log directory. Not safe for use by several threads at once."""

    log_class: type[PartitionLog] = PartitionLog
    _are_strays_kept = False
    """Whether topics unknown at the first `take` are renamed, since this may be another cluster's directory."""

    def __init__(self, storage: Storage, log_dir: str, config: LogConfig, new_uuid: Callable[[], uuid.UUID]) -> None:
        """Private: use `open`."""
        self._storage = storage
        self.log_dir = log_dir
        self.config = config
        self._new_uuid = new_uuid
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._lock: Lock | None = None
        self._last_checkpoint_ms = 0
        self._deleted: dict[str, list[tuple[int, PartitionLog]]] = {}
        """Partitions of deleted topics whose files are still to be removed."""
        self._prepared: dict[str, tuple[uuid.UUID, dict[int, PartitionLog]]] = {}
        """Logs created before the decision about their partitions, by topic name."""
        self.deletions: dict[uuid.UUID, str] = {}
        """The names of topics whose deletion is unfinished, including those that a crash interrupted."""
        self._kept: Mapping[str, topics_file.Entry] = {}
        """The topics that `topics.json` lists."""
        self._is_written = True
        """Whether `topics.json` is known to match `_kept`."""
        self._has_taken = False
        self._failure: OSError | None = None
        self.high_watermark_interval_ms = 0
        self._checkpoint_interval_ms = 0
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        self._offsets = OffsetFiles(storage, log_dir, self.topics)
        self.metadata_position: topics_file.MetadataPosition | None = None
        """How far a member of a cluster has read the controller's log, for the next start."""
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
        high_watermark_interval_ms: int = 5_000,
        checkpoint_interval_ms: int = 60_000,
    ) -> Self:
        """Open a log directory, or create it; recover every partition unless the last broker stopped cleanly.

        An empty `cluster_id` means the one found there, or a new one. `internal_topics`: the settings for internal
        topics that are found in another broker's directory. `high_watermark_interval_ms`: see `MemberLogs`;
        `checkpoint_interval_ms`: see `flush_due`.

        Raises:
            LogDirectoryError: if it is in use, belongs to another cluster or node, or cannot be created.
        """
        manager = cls(storage, log_dir, config, new_uuid)
        manager._last_checkpoint_ms = now_ms
        manager.high_watermark_interval_ms = high_watermark_interval_ms
        manager._checkpoint_interval_ms = checkpoint_interval_ms
        try:
            storage.make_directory(log_dir)
            manager._lock = storage.lock(f"{log_dir}/{LOCK_FILE}")
        except BlockingIOError:
            raise LogDirectoryError(f"{log_dir} is in use by another broker: stop that one, or use another") from None
        except FileExistsError:
            raise LogDirectoryError(f"{log_dir} cannot be used (it is a file): choose another data directory") from None
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
        """Return the topic with an id."""
        return self._by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionLog:
        """Return one partition's log. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        found = self._topics.get(topic)
        log = None if found is None else found.logs.get(index)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")
        return log

    def check_new_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> LogConfig:
        """Check whether such a topic could be created, and there is room; return the settings that it would have.

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

    def check_new_partitions(self, name: str, count: int) -> Topic:
        """Check for room, and return the topic. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION or INVALID_PARTITIONS."""
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

    def log_of(self, key: tuple[uuid.UUID, int]) -> PartitionLog:
        """Return the log of a partition that `take` has created. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._by_id.get(key[0])
        log = None if topic is None else topic.logs.get(key[1])
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of partition {key}")
        return log

    def failure(self) -> OSError | None:
        """Return the directory's permanent disk failure, if any of its logs has noticed one."""
        if self._failure is None:
            failures = (log.failure for topic in self._topics.values() for log in topic.logs.values())
            self._failure = next((each for each in failures if each is not None), None)
        return self._failure

    def note_failure(self, error: BaseException) -> None:
        """Record that something failed with a log, if the disk is the cause, and the error is permanent."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in FAILED:
            self._failure = self._failure or cause

    def prepare(
        self, name: str, topic_id: uuid.UUID, indexes: Collection[int], settings: Mapping[str, str], now_ms: int
    ) -> Generator[bool, None, None]:
        """Create the logs of partitions before the decision to create them; to be followed by `end_preparation`.

        Yields after each partition whether it touched files.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; TOPIC_ALREADY_EXISTS if the same is under way for a topic of this name.
        """
        if name in self._prepared:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is being created or extended")
        self._prepared[name] = topic_id, {}
        try:
            config = self.config.with_topic_settings(settings)
            logs = yield from self._new_partitions(name, indexes, topic_id, config, now_ms)
        except KafkaError:
            del self._prepared[name]
            raise
        self._prepared[name] = topic_id, logs

    def end_preparation(self, name: str, topic_id: uuid.UUID) -> None:
        """Remove prepared logs whose partitions were not created."""
        if name in self._prepared and self._prepared[name][0] == topic_id:
            self._remove_folders(self._prepared.pop(name)[1].values())

    def keep(self, topics: Mapping[str, topics_file.Entry]) -> None:
        """Write which topics a standalone broker has: when this returns, the decision is durable.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; then nothing has changed.
        """
        before, deletions = self._kept, self.deletions
        ids = {each.topic_id for each in topics.values()}
        gone = {each.topic_id: each.name for each in self._topics.values() if each.topic_id not in ids}
        self._kept, self.deletions = topics, deletions | gone
        try:
            self._write_topics()
        except OSError as error:
            self._kept, self.deletions = before, deletions
            self._write_down()  # the file may have the change already, and the next start would read it
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log_dir}: {error}") from error

    def take(self, wanted: Iterable[WantedTopic], gone: Iterable[Topic], now_ms: int) -> Generator[bool, None, bool]:
        """Create and change logs to match these topics, and drop those that are gone; return whether anything changed.

        Yields after each partition whether it touched files. A topic that does not fit on the disk does not block the
        others, and is retried the next time. Files of topics that are gone are left to `remove_deleted`.
        """
        first, self._has_taken = not self._has_taken, True
        changed = False
        for topic in gone:
            changed = True
            self._drop(topic, stray=first and self._are_strays_kept)
        for each in wanted:
            try:
                changed |= yield from self._take(each, now_ms)
            except (KafkaError, OSError) as error:
                logger.error("topic %s: its logs cannot be made here: %s; it is tried again", each.name, error)
                self.note_failure(error)
        if changed:
            self._taken()
        return changed

    def note_metadata_position(self, position: topics_file.MetadataPosition | None, *, continues: bool) -> None:
        """Note how far the controller's log was read; at once on disk, if it is another log than at the last start.

        Otherwise the next start would reject it.
        """
        self.metadata_position = position
        if not continues:
            self._write_down()

    def _taken(self) -> None:
        """Do nothing after a change: `keep` has written it before."""

    def _write_down(self) -> None:
        """Write `_kept` to `topics.json`; if that fails, `flush_due` and `close` retry."""
        is_first, self._is_written = self._is_written, False
        try:
            self._write_topics()
        except OSError as error:
            if is_first:
                logger.error("%s: the topics cannot be written down: %s; it is tried again", self.log_dir, error)

    def change_defaults(self, config: LogConfig) -> None:
        """Set the defaults for topics without these settings of their own, from now on."""
        if config == self.config:
            return
        self.config = config
        for topic in list(self._topics.values()):
            changed = config.with_topic_settings(topic.settings)
            self._add(replace(topic, config=changed))
            for log in topic.logs.values():
                log.config = changed

    def _take(self, wanted: WantedTopic, now_ms: int) -> Generator[bool, None, bool]:
        """Create or remove the logs of one topic; return whether something has changed."""
        topic = self._topics.get(wanted.name)
        if topic is None:
            config = self._config_of(wanted)
            logs = yield from self._new_logs(wanted, sorted(wanted.here), config, now_ms)
            settings = MappingProxyType(dict(wanted.settings))
            self._add(Topic(wanted.name, wanted.topic_id, wanted.partition_count, logs, settings, config))
            return True
        now = topic
        if topic.settings != wanted.settings:
            config = self._config_of(wanted)
            now = replace(now, settings=MappingProxyType(dict(wanted.settings)), config=config)
            self._add(now)
            for log in topic.logs.values():
                log.config = config
        if topic.partition_count != wanted.partition_count or topic.logs.keys() != set(wanted.here):
            logs = yield from self._right_logs(now, wanted, now_ms)
            now = replace(self._topics[now.name], partition_count=wanted.partition_count, logs=logs)
        if now is topic:
            return False
        self._add(now)
        return True

    def _right_logs(
        self, topic: Topic, wanted: WantedTopic, now_ms: int
    ) -> Generator[bool, None, dict[int, PartitionLog]]:
        here = set(wanted.here)
        new = yield from self._new_logs(wanted, sorted(here - topic.logs.keys()), topic.config, now_ms)
        for index in topic.logs.keys() - here:
            self._remove_log(topic.name, index, topic.logs[index])
        return {index: log for index, log in topic.logs.items() if index in here} | new

    def _new_logs(
        self, wanted: WantedTopic, indexes: Collection[int], config: LogConfig, now_ms: int
    ) -> Generator[bool, None, dict[int, PartitionLog]]:
        topic_id, logs = self._prepared.pop(wanted.name, (None, {}))
        if topic_id != wanted.topic_id or logs.keys() != set(indexes):
            logs = yield from self._new_partitions(wanted.name, indexes, wanted.topic_id, config, now_ms)
        for log in logs.values():
            self._begun(log)
        return logs

    def _begun(self, log: PartitionLog) -> None:
        """Prepare a new partition's log: here it is the only replica."""

    def _config_of(self, wanted: WantedTopic) -> LogConfig:
        try:
            return self.config.with_topic_settings(wanted.settings)
        except KafkaError as error:
            logger.error("topic %s: going on with the broker's settings alone: %s", wanted.name, error)
            return self.config

    def _drop(self, topic: Topic, *, stray: bool) -> None:
        del self._topics[topic.name], self._by_id[topic.topic_id]
        if not stray:
            self._put_to_be_removed(topic)
            return
        for index, log in topic.logs.items():
            log.abandon()
            if not log.is_made:
                continue
            try:
                directories.put_aside(self._storage, self.log_dir, topic.name, index, self._new_uuid)
            except OSError as error:  # the others are renamed all the same
                logger.error("%s stays where it is, until the next start: %s", log.directory, error)
                self.note_failure(error)

    def finish_deletions(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Note that nothing is left of deleted topics: neither files nor committed offsets."""
        for topic_id in topic_ids:
            del self.deletions[topic_id]
        self._write_down()

    def _put_to_be_removed(self, topic: Topic) -> None:
        for log in topic.logs.values():
            log.forget()
        made = [(index, log) for index, log in topic.logs.items() if log.is_made]
        if made:
            self._deleted.setdefault(topic.name, []).extend(made)

    def remove_deleted(self, name: str | None = None) -> bool:
        """Remove the files of one partition of a deleted topic, `name` or any; False if there is none."""
        name = next(iter(self._deleted), None) if name is None else name
        left = None if name is None else self._deleted.get(name)
        if name is None or not left:
            return False
        self._remove_log(name, *left.pop())
        if not left:
            del self._deleted[name]
        return True

    def _remove_log(self, name: str, index: int, log: PartitionLog) -> None:
        """Delete a log's files; those that cannot be removed are removed at the next start."""
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
        """Flush the partitions whose `flush.ms` have passed, and write the checkpoints if their interval has passed.

        To be called every second or so, and as often as the least `flush.ms` requires.
        """
        for log in self._partitions():
            log.flush_if_due(now_ms)
        if not self._is_written:
            self._write_down()
        if now_ms - self._last_checkpoint_ms >= self._checkpoint_interval_ms:
            self._last_checkpoint_ms = now_ms
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write recovery points, start offsets and high watermarks to their files."""
        self._offsets.write()

    def checkpoint_cleaner(self) -> None:
        """Write the offsets up to which logs were compacted to their file, and flush it."""
        self._offsets.write_cleaned()

    def close(self, now_ms: int) -> None:
        """Stop cleanly: flush every partition, write the checkpoints, and the clean shutdown marker last.

        Raises:
            OSError: if some of that fails; everything is closed nevertheless, and the next start recovers.
        """
        try:
            while self.remove_deleted():
                pass
            for name, (topic_id, _) in list(self._prepared.items()):
                self.end_preparation(name, topic_id)
            failures = close_together(self._storage, self._partitions(), now_ms)
            self.checkpoint()
            if not self._is_written:
                self._write_topics()
            if failures:
                raise failures[0]
            mark = f"{self.log_dir}/{checkpoints.CLEAN_SHUTDOWN}"
            self._storage.write(mark, checkpoints.CLEAN_SHUTDOWN_CONTENT, durable=True)
        finally:
            self._release()

    def abandon(self) -> None:
        """Close everything without flushing, as a crash would; the next start recovers."""
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
        self, topic: str, indexes: Collection[int], topic_id: uuid.UUID, config: LogConfig, now_ms: int
    ) -> Generator[bool, None, dict[int, PartitionLog]]:
        """Return the logs of new partitions, whose directories are created later except for the last one's.

        That one shows the number of partitions if `topics.json` is lost. Yields after each whether it touched files.
        """
        directories.check_not_metadata_log(topic)
        while self.remove_deleted(topic):  # of an older topic of this name
            yield True
        self._offsets.forget(topic, indexes)
        logs: dict[int, PartitionLog] = {}
        metadata = checkpoints.encode_partition_metadata(topic_id)
        last = max(indexes, default=-1)
        try:
            for index in indexes:
                directory = directories.free_path(self._storage, self.log_dir, topic, index, self._new_uuid)
                logs[index] = self.log_class.begin(self._storage, directory, config, now_ms, metadata)
                logs[index].note_recovery_point = self._offsets.write_recovery_points
                if index == last:
                    logs[index].make()
                yield index == last
        except OSError as error:
            self._remove_folders(logs.values())
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log_dir}: {error}") from error
        return logs

    def _remove_folders(self, logs: Iterable[PartitionLog]) -> None:
        """Remove the folders of partitions that were created for a topic that cannot be created."""
        for log in logs:
            log.abandon()
            directories.remove_log_if_there(self._storage, log.directory)

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
        gone = directories.clear_leftovers(self._storage, self.log_dir, names, wanted, self.deletions, self._new_uuid)
        noted = self._offsets.read(checkpoints.RECOVERY_POINTS, gone)
        recovery_points = noted or {}
        start_offsets = self._offsets.read(checkpoints.LOG_START_OFFSETS, gone) or {}
        cleaned_offsets = self._offsets.read(checkpoints.CLEANER_OFFSETS, gone) or {}
        here = frozenset(names) - {f"{topic}-{index}" for topic, index in gone}
        for name, (topic_id, count, settings) in wanted.items():
            config = topics_file.config_of(self.config, f"{self.log_dir}/{TOPICS_FILE}", name, settings)
            metadata = checkpoints.encode_partition_metadata(topic_id)
            logs: dict[int, PartitionLog] = {}
            for index in self._indexes_here(name, count, here):
                directory = directories.partition_path(self.log_dir, name, index)
                start_offset = start_offsets.get((name, index), 0)
                is_compacted = "compact" in config.cleanup_policy or (name, index) in cleaned_offsets
                if f"{name}-{index}" not in here and not start_offset:
                    note_lost(directory, recovery_points.get((name, index), 0))
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
                    # A Kafka broker may have compacted beyond its checkpoint. This one checkpoints first, so a hole
                    # beyond the checkpoint is a loss; if the file is missing, compaction may have made the hole.
                    holes_allowed=not known or (noted is None and is_compacted),
                    metadata=metadata,
                )
                note_shorter(logs[index], recovery_points.get((name, index), 0))
            for index, log in logs.items():
                log.cleaned_offset = cleaned_offsets.get((name, index))
                log.noted_recovery_point = recovery_points.get((name, index), 0)
                log.note_recovery_point = self._offsets.write_recovery_points
            self._add(Topic(name, topic_id, count, logs, MappingProxyType(settings), config))
        self._kept = self._entries()
        if not known:  # the next start counts holes beyond these as losses, including those accepted now
            self._offsets.write_recovery_points()
        self._loaded(is_known=known)
        if self.clean:
            self._storage.remove(f"{self.log_dir}/{checkpoints.CLEAN_SHUTDOWN}")
            self._storage.flush_later([self.log_dir]).result()

    def _indexes_here(self, _name: str, count: int, _here: Collection[str]) -> Iterable[int]:
        """Return which partitions of a topic this directory has, of those found `_here` or expected: here all."""
        return range(count)

    def _loaded(self, *, is_known: bool) -> None:
        """Begin with the logs that were found; `is_known`: `topics.json` existed.

        The leader epoch of this start is above all earlier ones, including those in a Kafka broker's logs.
        """
        if is_known or self._topics:
            known = max((log.leader_epochs.latest for log in self._partitions()), default=0)
            self.leader_epoch = max(known, self.leader_epoch) + 1 + self._new_uuid().int % EPOCH_JUMP
        self._write_topics()

    def _entries(self) -> dict[str, topics_file.Entry]:
        return {
            each.name: topics_file.Entry(each.topic_id, each.partition_count, each.settings)
            for each in self._topics.values()
        }

    def _read_topics(self) -> dict[str, directories.Entry]:
        found = topics_file.read(self._storage, f"{self.log_dir}/{TOPICS_FILE}")
        self.leader_epoch, self.metadata_position = found.leader_epoch, found.position
        self.deletions = dict(found.deleted)
        return {name: (topic_id, count, dict(settings)) for name, (topic_id, count, settings) in found.topics.items()}

    def _write_topics(self) -> None:
        content = topics_file.Content(self._kept, self.leader_epoch, self.deletions, self.metadata_position)
        self._storage.write(f"{self.log_dir}/{TOPICS_FILE}", topics_file.encode(content), durable=True)
        self._is_written = True
