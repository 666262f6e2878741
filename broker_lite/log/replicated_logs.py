"""The logs of a broker that belongs to a cluster: of each topic, the partitions that it has a replica of.

Theory of operation: the cluster decides which topics exist, and which brokers have replicas of them (`take`). Logs that
are found at the start are opened, and stay until the cluster image is known; those that the cluster does not know are
put aside, as Kafka does with stray logs, since it may be the wrong directory. High watermarks are written every few
seconds and read back, so that a broker that restarts alone shows what it showed before; one that is too low does no
harm, so the file need not be on the disk.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from sparkonce.broker_lite.log import checkpoints, directories
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.flush_state import FAILED
from sparkonce.broker_lite.log.log_manager import LogManager, Topic
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class WantedTopic(NamedTuple):
    """A topic as the cluster knows it; `here` are the partitions that this broker is to have."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    here: Collection[int]
    settings: Mapping[str, str]


class ReplicatedLogs(LogManager):
    """The topics of one log directory. Not safe for use by several threads at once."""

    log_class = PartitionLog
    high_watermark_interval_ms = 5_000
    """How often high watermarks are written down (`replica.high.watermark.checkpoint.interval.ms`)."""
    _next_high_watermarks_ms = 0
    _written_high_watermarks: Mapping[tuple[str, int], int] = MappingProxyType({})
    _told = False
    _is_written = True
    """Whether `topics.json` says what there is."""
    _failure: OSError | None = None

    def failure(self) -> OSError | None:
        """Return what the directory has failed with for good, as far as any of its logs has noticed."""
        if self._failure is None:
            failures = (log.failure for topic in self._topics.values() for log in topic.logs.values())
            self._failure = next((each for each in failures if each is not None), None)
        return self._failure

    def note_failure(self, error: BaseException) -> None:
        """Note that something failed with a log, if the disk is the cause, and the error is permanent."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in FAILED:
            self._failure = self._failure or cause

    def log_of(self, key: tuple[uuid.UUID, int]) -> PartitionLog:
        """Return the log of a partition that the cluster has told of.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self._by_id.get(key[0])
        log = None if topic is None else topic.logs.get(key[1])
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of partition {key}")
        assert isinstance(log, PartitionLog)
        return log

    def take(self, wanted: Iterable[WantedTopic], now_ms: int) -> list[Topic] | None:
        """Create and remove logs to match these topics; return those that are gone, or None if nothing has changed.

        A topic that the disk has no room for does not block the others, and is retried the next time.
        """
        by_name = {each.name: each for each in wanted}
        gone = [
            topic
            for topic in self._topics.values()
            if topic.name not in by_name or by_name[topic.name].topic_id != topic.topic_id
        ]
        first, self._told = not self._told, True
        for topic in gone:
            self._is_written = False
            self._drop(topic, stray=first)
        for each in by_name.values():
            try:
                if self._take(each, now_ms):
                    self._is_written = False
            except (KafkaError, OSError) as error:
                logger.error("topic %s: its logs cannot be made here: %s; it is tried again", each.name, error)
                self.note_failure(error)
        if self._is_written:
            return None
        try:
            self._write_topics()
            self._is_written = True
        except OSError as error:
            logger.error("%s: the topics cannot be written down: %s; it is tried again", self.log_dir, error)
        return gone

    def flush_due(self, now_ms: int) -> None:
        """Do what is due for all logs, and write down the high watermarks now and then."""
        super().flush_due(now_ms)
        if now_ms >= self._next_high_watermarks_ms:
            self._next_high_watermarks_ms = now_ms + self.high_watermark_interval_ms
            self._write_high_watermarks()

    def _write_high_watermarks(self) -> None:
        found = {
            (topic.name, index): log.high_watermark
            for topic in self._topics.values()
            for index, log in topic.logs.items()
        }
        if found != self._written_high_watermarks:
            path = f"{self.log_dir}/{checkpoints.HIGH_WATERMARKS}"
            self._storage.write(path, checkpoints.encode_offsets(found), durable=False)
            self._written_high_watermarks = found

    def _load_topics(self, now_ms: int, internal_topics: Mapping[str, Mapping[str, str]]) -> None:
        super()._load_topics(now_ms, internal_topics)
        known = self._read_offsets(checkpoints.HIGH_WATERMARKS)
        self._checkpointed.update(topic for topic, _ in known)
        for topic in self._topics.values():
            for index, log in topic.logs.items():
                assert isinstance(log, PartitionLog)
                log.be_one_of_several(known.get((topic.name, index), 0))
        self._warn_of_less_than_known(known)

    def _warn_of_less_than_known(self, known: Mapping[tuple[str, int], int]) -> None:
        """Log which partitions have less than every replica in sync once had; their leaders send it again."""
        for (name, index), offset in known.items():
            topic = self._topics.get(name)
            log = None if topic is None else topic.logs.get(index)
            end = 0 if log is None else log.log_end_offset
            if topic is not None and end < offset:
                logger.warning(
                    "%s/%s-%d: it ends at offset %d, but was replicated up to %d: unless it was made anew, or has "
                    "moved away, data was removed or lost here",
                    *(self.log_dir, name, index, end, offset),
                )

    def _begin_epoch(self, *, is_known: bool) -> None:
        """Leave it to the cluster, which elects a leader for each partition, in epochs of their own."""
        if not is_known:
            self._write_topics()

    def _indexes(self, topic: str, count: int, here: Collection[str]) -> Iterable[int]:
        return [index for index in range(count) if f"{topic}-{index}" in here]

    def _take(self, wanted: WantedTopic, now_ms: int) -> bool:
        """Create or remove the logs of one topic; return whether something has changed."""
        topic = self._topics.get(wanted.name)
        if topic is None:
            config = self._config_of(wanted)
            self._forget_namesake(wanted.name)
            logs = self._new_logs(wanted, sorted(wanted.here), config, now_ms)
            settings = MappingProxyType(dict(wanted.settings))
            self._add(Topic(wanted.name, wanted.topic_id, wanted.partition_count, logs, settings, config))
            return True
        now = topic
        if dict(topic.settings) != dict(wanted.settings):
            config = self._config_of(wanted)
            now = replace(now, settings=MappingProxyType(dict(wanted.settings)), config=config)
            for log in topic.logs.values():
                log.config = config
        if topic.partition_count != wanted.partition_count or topic.logs.keys() != set(wanted.here):
            now = replace(now, partition_count=wanted.partition_count, logs=self._right_logs(now, wanted, now_ms))
        if now is topic:
            return False
        self._add(now)
        return True

    def _right_logs(self, topic: Topic, wanted: WantedTopic, now_ms: int) -> dict[int, PartitionLog]:
        here = set(wanted.here)
        new = self._new_logs(wanted, sorted(here - topic.logs.keys()), topic.config, now_ms)
        for index in topic.logs.keys() - here:
            self._remove_log(topic.name, index, topic.logs[index])
        return {index: log for index, log in topic.logs.items() if index in here} | new

    def _new_logs(
        self, wanted: WantedTopic, indexes: Collection[int], config: LogConfig, now_ms: int
    ) -> dict[int, PartitionLog]:
        logs = finish(self._new_partitions(wanted.name, indexes, wanted.topic_id, config, now_ms))
        for log in logs.values():
            log.be_one_of_several(0)  # until its role here is known
        return logs

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
            aside = directories.aside_path(self.log_dir, topic.name, index, directories.STRAY_SUFFIX, self._new_uuid)
            logger.warning("%s belongs to no topic of this cluster: moving it to %s", log.directory, aside)
            self._storage.rename(log.directory, aside)
