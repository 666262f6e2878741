"""The tables of a query that has one for each topic: what is stored there, and which topics are not read, and why.

With ``isolateTables`` the trouble of one topic, or of its table, holds up no other: the topic is not read while its
table is behind, or for good if it has ended or its records are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache

from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.epochs import Divergence
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.runtime.cache import MAX_TABLES, LruCache
from sparkonce.offset_store import OffsetStore, OffsetStoreError, open_store
from sparkonce.offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition
from sparkonce.options import OptionError

_log = logging.getLogger(__name__)

BOTH_IN_ONE_TABLE = (
    "its table lacks what was not read of the old topic, and the new one is read from its start into the same table. "
    "For a table of the new topic's records alone, drop this one, or move it away"
)
_FORBIDDEN = "not read until the client may describe the topic (an ACL for DESCRIBE, which READ includes)"
_MISSING = "not read, since the topic does not exist: if it was deleted, remove it from the option"


class TablesByTopic:
    """The tables of the topics of one query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._stores: LruCache[tuple[str, str], OffsetStore] = LruCache(MAX_TABLES)
        """By name and appId."""
        self._behind: frozenset[str] = frozenset()
        """Topics that were not read in the last batch, since their tables are behind it."""
        self._leaderless: frozenset[str] = frozenset()
        """Topics of which a partition had no leader in the last batch."""
        self._ended: set[tuple[str, str]] = set()
        """Topics, by name and id, that were reported as gone or created again."""
        self._unreadable: dict[str, OffsetStoreError] = {}
        """Topics that are not read, since their tables could not be read when that was last tried."""
        self.forbidden: frozenset[str] = frozenset()
        """Topics that this client must not describe. One that was read before goes on where it was."""
        self._missing: frozenset[str] = frozenset()
        """Topics that the options name and that do not exist."""
        self.unknown: set[str] = set()
        """Topics that could not be begun with the query, since they, or their tables, must not or cannot be read: it
        begins them later, wherever their logs do."""
        self.lost: dict[str, DataLossError] = {}
        """Topics that are not read any more, since some of their records are lost, and what was said of these."""

    def check_apart(self, topics: Collection[str]) -> None:
        """Raise OptionError if two of these topics have one table."""
        try:
            self._options.names.check_apart(self._options.offset_store or "", set(topics))
        except ValueError as error:
            raise OptionError(f"kafka_once: {error}") from None

    def with_places(self, partitions: Collection[TopicPartition], known: Collection[str]) -> list[TopicPartition]:
        """Leave out topics that have the table of one that is ``known``, has begun it, or comes before; warn once."""
        taken = set(known)
        with suppress(OptionError):
            self.check_apart({*taken, *(tp.topic for tp in partitions)})
            return list(partitions)
        in_order = sorted(by_topic(partitions).items(), key=lambda each: (not self._has_begun(*each), each[0]))
        for topic, own in in_order:
            try:
                self.check_apart({*taken, topic})
                taken.add(topic)
            except OptionError as error:
                self.note_ended(own[0], f"is not read: {error}")
        return [tp for tp in partitions if tp.topic in taken]

    def _has_begun(self, topic: str, partitions: Sequence[TopicPartition]) -> bool:
        """Whether a topic's table has any of its offsets."""
        try:
            return bool(self.store(topic).read(self._options.source, partitions))
        except OffsetStoreError:
            return False

    def store(self, topic: str) -> OffsetStore:
        """Return the store of a topic's own table, which is kept: it is read again for each batch.

        Raises:
            OffsetStoreError: if it has none.
        """
        names, spec, app_id = self._options.names, self._options.offset_store or "", self._options.app_id or ""
        try:
            place, storage = (names.of(spec, topic), names.app_id(app_id, topic)), self._options.storage_options or None
        except ValueError as error:
            raise OffsetStoreError(str(error)) from None
        return self._stores.get(place, lambda: open_store(*place, storage))

    def behind(
        self, start: SourceOffset, moving: Mapping[TopicPartition, OffsetRange]
    ) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Return the moving partitions of topics whose tables lack records before ``start``, or cannot be read.

        And the partitions of these topics, moving or not, of which nothing is stored.
        """
        behind: set[TopicPartition] = set()
        without: set[TopicPartition] = set()
        moves = by_topic(moving)
        for topic, own in by_topic(tp for tp in start.positions if tp.topic in moves).items():
            try:
                store = self.store(topic)
                stored = store.read(start.source, own)
                positions = {tp: start.positions[tp] for tp in own}
                ends_in_a_cut_log = ends_in_cut_log(store, start.source, stored, positions)
                self.note_read(topic)
            except OffsetStoreError as error:
                self.note_unreadable(topic, error)
                behind.update(moves[topic])
                continue
            follows = {tp: moving[tp].follows if tp in moving else at.next for tp, at in positions.items()}
            if ends_in_a_cut_log or any(stored.get(tp, positions[tp].origin) < follows[tp] for tp in own):
                behind.update(moves[topic])
            without.update(tp for tp in own if tp not in stored)
        return behind, without

    def after_cut(
        self,
        start: SourceOffset,
        cut: Mapping[TopicPartition, int],
        parted: Callable[[Mapping[TopicPartition, Position]], Mapping[TopicPartition, Divergence]],
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Position]]:
        """Return where the query goes on in logs that were ``cut`` before ``start``, and how far tables were written.

        A table whose end the log still has may be behind the cut, or another query has written it from the new log:
        the query goes on where the table ends. If that is beyond the query's own position, the sink is to refuse the
        batch as an overlap. A table whose end is gone has records of a log that was cut, by this cut or an earlier one:
        the query goes on where the log diverges from the table. The query stays where it is while a table cannot be
        read. ``parted`` says where logs diverge.
        """
        ends: dict[TopicPartition, Position] = {}
        found: dict[TopicPartition, int] = {}
        for topic, own in by_topic(cut).items():
            try:
                store = self.store(topic)
                stored, epochs = store.read(start.source, own), store.epochs(start.source, own)
                at = {tp: stored.get(tp, start.positions[tp].origin) for tp in own}
                ends |= {tp: Position(at[tp], at[tp], epochs.get(tp)) for tp in own}
                self.note_read(topic)
            except OffsetStoreError as error:
                self.note_unreadable(topic, error)
                found |= {tp: start.positions[tp].next for tp in own}
        gone = parted(ends)
        written: dict[TopicPartition, Position] = {}
        for tp, end in ends.items():
            before = start.positions[tp]
            if tp in gone and gone[tp].offset < before.next:
                found[tp], written[tp] = gone[tp].offset, end
            elif end.next <= cut[tp] or (end.epoch is not None and end.next < before.next):
                found[tp], written[tp] = end.next, end
            elif end.epoch is not None:
                found[tp], written[tp] = cut[tp], Position(cut[tp], cut[tp])
            else:
                found[tp], written[tp] = cut[tp], before
        return found, written

    def note_unknown(self, topic: str, error: OffsetStoreError) -> None:
        """Warn once of a topic that is not begun, since its table cannot be read."""
        if topic not in self.unknown:
            _log.warning("kafka_once: %s is not read while its table cannot be read: %s", topic, error)
        self.unknown.add(topic)
        self._unreadable[topic] = error

    def note_read(self, topic: str) -> None:
        """Note that a topic's table was read."""
        self._unreadable.pop(topic, None)

    def note_unreadable(self, topic: str, error: OffsetStoreError) -> None:
        """Note that a topic is not read in this batch, since its table cannot be read."""
        self._unreadable[topic] = error
        _log.info("kafka_once: the table of %s: %s", topic, error)

    def note_behind(self, topics: Iterable[str]) -> None:
        """Warn of topics that are not read from now on, since their tables are behind."""
        now = frozenset(topics)
        _warn_of(now - self._behind, "not read until their tables have all records before, or can be read")
        self._behind = now

    def note_leaderless(self, partitions: Iterable[TopicPartition]) -> None:
        """Warn of topics that are not read from now on, since a partition has no leader."""
        now = frozenset(tp.topic for tp in partitions)
        _warn_of(now - self._leaderless, "partitions without a leader are not read until they have one")
        self._leaderless = now

    def note_forbidden(self, topics: Iterable[str], before: Collection[str] = ()) -> None:
        """Note topics that are not read while this client must not describe them, and warn once of each.

        Those that were not read ``before`` begin later, wherever their logs do.
        """
        self.forbidden = frozenset(topics)
        self.unknown.update(self.forbidden.difference(before))
        for topic in sorted(self.forbidden):
            _warn_of_topic(topic, _FORBIDDEN)

    def note_missing(self, topics: Iterable[str]) -> None:
        """Note topics that the options name and that do not exist, and warn once of each."""
        self._missing = frozenset(topics)
        for topic in sorted(self._missing):
            _warn_of_topic(topic, _MISSING)

    def note_ended(self, tp: TopicPartition, what: str) -> None:
        """Warn once that a topic has ended."""
        if (tp.topic, tp.topic_id) not in self._ended:
            self._ended.add((tp.topic, tp.topic_id))
            _log.warning("kafka_once: topic %s %s", tp.topic, what)

    @contextmanager
    def losing(self, topic: str) -> Iterator[None]:
        """With isolated tables: note a DataLossError as the reason why a topic is not read any more, and warn once."""
        try:
            yield
        except DataLossError as error:
            if not self._options.isolate_tables:
                raise
            if topic not in self.lost:
                _log.warning("kafka_once: topic %s: %s", topic, error)
            self.lost[topic] = error

    def check_read(self) -> None:
        """Check that a run which reads all there is has not left a topic out, but those whose tables are behind.

        To a pattern, a topic that must not be described is not there.

        Raises:
            TopicsNotReadError: if records of one are lost, or it must not be described, or does not exist, or its table
                cannot be read.
        """
        named = self.forbidden.intersection(self._options.topics)
        unread: dict[str, Exception | str] = {
            **dict.fromkeys(named, _FORBIDDEN),
            **dict.fromkeys(self._missing, _MISSING),
            **self._unreadable,
            **self.lost,
        }
        if unread:
            raise TopicsNotReadError("; ".join(f"topic {topic}: {why}" for topic, why in sorted(unread.items())))


class TopicsNotReadError(RuntimeError):
    """A run that reads all there is has left out topics, which the message names, and has read all others."""


def ends_in_cut_log(
    store: OffsetStore,
    source: str,
    stored: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, Position],
) -> bool:
    """Return whether a table ends in records that its log does not have any more, of a log that was cut before.

    Then it is behind its query, although its offset is not: the records there are of an older epoch.

    Raises:
        OffsetStoreError: if the store cannot be read.
    """
    after_cut = {
        tp: at.epoch
        for tp, at in positions.items()
        if tp in stored and at.cut_from is not None and at.origin < at.next <= stored[tp] and at.epoch is not None
    }
    epochs = store.epochs(source, after_cut) if after_cut else {}
    return any(epochs[tp] < epoch for tp, epoch in after_cut.items() if tp in epochs)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return partitions in order, by topic."""
    found: dict[str, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp)
    return found


def by_name(wanted: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
    """Return what is wanted of partitions, by their topics' names and their numbers."""
    return {(tp.topic, tp.partition): what for tp, what in wanted.items()}


@cache
def _warn_of_topic(topic: str, why: str) -> None:
    _log.warning("kafka_once: %s: %s", topic, why)


def _warn_of(topics: Collection[str], what: str) -> None:
    if topics:
        _log.warning("kafka_once: %s: %s", ", ".join(sorted(topics)), what)
