"""Cleanup after deleted topics: first committed offsets, then files.

Theory of operation: for clients a deleted topic is gone at once. Its committed offsets are removed after that, and
before its name is used again; the log directory keeps the note of the deletion until their removal is flushed. So a
broker that is killed in between finishes the deletion at its next start.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Protocol

from sparkonce.broker_lite.coordinators.internal_topics import OFFSETS_TOPIC
from sparkonce.broker_lite.log.log_manager import LogManager, Topic
from sparkonce.broker_lite.node.turns import FILES, ITEM
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class _Groups(Protocol):
    """The owner of the committed offsets (`GroupCoordinator`)."""

    def forget_topic(self, topic: str) -> None:
        """Remove every offset of a topic; raises KafkaError if some could not be removed."""


class DeletedTopics:
    """Removes the committed offsets and files of deleted topics."""

    def __init__(
        self,
        logs: LogManager,
        groups: Callable[[], _Groups | None],
        settle: Callable[[], None],
        now_ms: Callable[[], int],
        note_refusal: Callable[[str], object],
    ) -> None:
        """Begin with none.

        Args:
            logs: the log directory.
            groups: returns the groups, if they have been loaded.
            settle: applies the decisions of the controller here.
            now_ms: the time of day.
            note_refusal: logs what could not be done, up to a rate.
        """
        self._logs = logs
        self._groups = groups
        self._settle = settle
        self._now_ms = now_ms
        self._note_refusal = note_refusal
        self._names: set[str] = set()
        """Topics that may still have committed offsets."""

    def note(self, topics: Iterable[Topic]) -> None:
        """Note that topics were deleted."""
        self._names.update(topic.name for topic in topics)

    def resume(self) -> None:
        """Remove committed offsets of topics whose deletion a crash interrupted; their files are gone by now."""
        groups = self._groups()
        finished = []
        for topic_id, name in self._logs.deletions.items():
            try:
                # If the topic was created again since, the older one's offsets were removed first.
                if groups is not None and name not in self._logs.topics:
                    groups.forget_topic(name)
                finished.append(topic_id)
            except KafkaError as error:
                logger.warning("offsets of the deleted topic %s cannot be removed yet: %s", name, error)
        if finished:
            self._finish(finished)

    def make_way(self, names: Iterable[str]) -> None:
        """Remove everything of deleted topics whose names are used again; it stays removed after a power failure.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, if the removal of committed offsets is not durable.
        """
        deleted = set(self._logs.deletions.values())
        again = [name for name in names if name in deleted]
        if again:
            self._settle()
        groups = self._groups()
        for name in again:
            self._names.discard(name)
            if groups is not None:
                groups.forget_topic(name)
        if again:
            self._flush_group_offsets()

    def clean_up(self, topics: Iterable[Topic]) -> Generator[int, None, None]:
        """Remove the committed offsets, then the files, of topics deleted here. Yields units of work."""
        finished = []
        for topic in [each for each in topics if each.topic_id in self._logs.deletions]:
            try:
                self._forget(topic.name)
                finished.append(topic.topic_id)
            except KafkaError as error:  # the topic is deleted all the same
                text = "offsets of the deleted topic %s stay until the next start, or until it is created again: %s"
                logger.warning(text, topic.name, error)
            yield ITEM * topic.partition_count
            while self._logs.remove_deleted(topic.name):
                yield FILES
        if finished:
            self._finish(finished)

    def forget_all(self) -> None:
        """Remove the committed offsets of all deleted topics; those that cannot be removed expire."""
        for name in sorted(self._names):
            try:
                self._forget(name)
            except KafkaError as error:
                self._names.discard(name)
                self._note_refusal(f"offsets of the deleted topic {name} could not be removed: {error}")

    def close(self) -> None:
        """Remove their committed offsets, as far as possible; the next start continues."""
        with contextlib.suppress(KafkaError):
            for name in sorted(self._names):
                self._forget(name)

    def _forget(self, name: str) -> None:
        """Remove a deleted topic's committed offsets, unless that is done."""
        groups = self._groups()
        if name in self._names:
            if groups is not None:
                groups.forget_topic(name)
            self._names.discard(name)

    def _finish(self, topic_ids: Sequence[uuid.UUID]) -> None:
        """Note that deletions are complete, once the removal of the committed offsets is flushed."""
        try:
            self._flush_group_offsets()
        except KafkaError as error:
            logger.warning("%s cannot be flushed: deletions are finished at the next start: %s", OFFSETS_TOPIC, error)
            return
        self._logs.finish_deletions(topic_ids)

    def _flush_group_offsets(self) -> None:
        """Flush the committed offsets, including removals. Raises KafkaError KAFKA_STORAGE_ERROR."""
        offsets = self._logs.topics.get(OFFSETS_TOPIC)
        try:
            for log in () if offsets is None else offsets.logs.values():
                log.flush(self._now_ms())
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
