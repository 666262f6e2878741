"""Where batches begin and end: the driver's side of the source, between Spark's offsets and the broker's.

One planner lives as long as its query. Choosing the end of a micro-batch costs two requests, metadata and latest
offsets, the second right behind the first, over connections that stay open.

What existed before and is missing now is requested again before it counts as lost (`data_loss.ask_again`): metadata
takes a while to reach every broker. If a topic vanishes between two requests the planner starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any, TypeVar

from sparkonce.connectors.kafka_source.checkpoint import (
    Line,
    initial_offset,
    initial_offset_if_any,
    ranges_between,
    read_line,
)
from sparkonce.connectors.kafka_source.data_loss import (
    NEW_CHECKPOINT,
    RETENTION,
    ask_again,
    report_loss,
    report_replaced,
)
from sparkonce.connectors.kafka_source.epochs import LeadersChangedError, LogEpochs, ask_epochs
from sparkonce.connectors.kafka_source.finding import TopicFinder
from sparkonce.connectors.kafka_source.hand_over import with_lost
from sparkonce.connectors.kafka_source.offset_rules import OffsetRule
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planning import Piece, bundle, divide, moved_position, share_out, split
from sparkonce.connectors.kafka_source.ranges import FetchRange, KafkaInputPartition, check_same_topic, is_same_topic
from sparkonce.connectors.kafka_source.resolving import Offsets, resolve
from sparkonce.connectors.kafka_source.sizes import densities
from sparkonce.connectors.kafka_source.tables import BOTH_IN_ONE_TABLE, TablesByTopic, by_name, by_topic
from sparkonce.kafka.client.client import EARLIEST, LATEST, Client
from sparkonce.kafka.client.metadata import ForbiddenTopicError, Leader, MissingTopicError, TopicMetadata
from sparkonce.kafka.client.retry import retry
from sparkonce.offset_store import OffsetStore, OffsetStoreError, open_store
from sparkonce.offset_store.group import GroupOffsets
from sparkonce.offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition, batch_ranges

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
SettledGroup = Callable[[Client, str, str], GroupOffsets]
"""Returns a group of an id for an application, whose offsets are not those of a decision that must be reverted."""

_NOTHING = Line(SourceOffset("", {}), ours=True)


class Planner:
    """Plans the batches of one query."""

    def __init__(self, options: SourceOptions, settled_group: SettledGroup | None = None) -> None:
        """Plan by ``options``; ``settled_group`` is needed for offsets that are stored in a group."""
        self._options = options
        self._settled_group = settled_group
        self._client = Client(options.settings)
        self._lines: list[tuple[Mapping[str, Any], Line]] = []
        """The last lines of the checkpoint: the end of a batch is used twice, for its tasks and as the next start."""
        self._is_first = True
        """Whether it has not made the tasks of a batch yet."""
        self.topics: dict[str, TopicMetadata] = {}
        """Metadata of the topics; leaders that change while offsets are requested are updated here."""
        self._asked_in: dict[str, TopicMetadata] = {}
        """The metadata, and with it the leader epochs, in which the latest offsets were requested."""
        self.tables = TablesByTopic(options)
        """The tables that are each of one topic, if the query has such."""
        self._finder = TopicFinder(options, self.tables)
        self._written: dict[TopicPartition, Position] = {}
        """Where isolated tables ended when their logs turned out to be cut."""
        self._epochs = LogEpochs(lambda wanted: ask_epochs(self._client, self.topics, wanted), self._leader_epoch)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def refresh(self, before: Line = _NOTHING, *, lenient: bool = False) -> list[TopicPartition]:
        """Refresh the metadata, and return the partitions that this query reads.

        Those that were read ``before`` may be missing, and if ``lenient`` all may.

        Raises:
            MissingTopicError: if a topic, or an assigned partition, does not exist.
            KafkaUnreachableError: if no broker answers.
        """
        slots = {(tp.topic, tp.partition) for tp in before.offset.positions}
        self.topics = self._finder.find(self._client, slots, lenient=lenient)
        return self._finder.partitions(self.topics, slots, lenient=lenient)

    def survey(self, start: Mapping[str, Any]) -> tuple[Line, list[TopicPartition]]:
        """Read a line of the checkpoint, and request the current partitions, twice if some seem to be gone.

        Raises:
            CheckpointError: if the line is of another source, or cannot be read.
            MissingTopicError, KafkaUnreachableError: as `refresh`.
        """
        line = self._line(start)
        self._client.send_behind(by_name(dict.fromkeys(self.visible(line.offset), LATEST)), self.topics)
        partitions = self.refresh(line)

        def is_strange() -> bool:
            partitions[:] = self.refresh(line)
            return bool(self._gone(line, partitions))

        if self._gone(line, partitions):
            ask_again(is_strange, self._options.pauses_s())
        return line.with_topic_ids(self.topics), partitions

    def while_topics_stay(self, plan: Callable[[], _Result]) -> _Result:
        """Call ``plan``, and again if a topic vanishes, or a leader changes, between its requests.

        With isolated tables, also if a topic must not be described any more.

        Raises:
            MissingTopicError, LeadersChangedError, ForbiddenTopicError: if that keeps happening.
        """
        note = lambda error: _log.info("kafka_once: %s, planning again", error)  # noqa: E731
        changed = (MissingTopicError, LeadersChangedError)
        retried = (*changed, ForbiddenTopicError) if self._options.isolate_tables else changed
        return retry(plan, retried, self._options.pauses_s(), note=note)

    def resolve(
        self, rule: OffsetRule, partitions: list[TopicPartition], wanted: Collection[TopicPartition] | None = None
    ) -> Offsets:
        """Turn a rule into an offset for each partition, or those ``wanted``; for errors see `resolving.resolve`."""
        latest_if_no_match = self._options.latest_if_no_match or rule.option.startswith("ending")
        return resolve(
            rule,
            partitions,
            self.ask,
            fail_on_data_loss=self._options.fail_on_data_loss,
            latest_if_no_match=latest_if_no_match,
            wanted=wanted,
        )

    def ask(self, wanted: Mapping[TopicPartition, int], *, waits_for_leaders: bool = True) -> Offsets:
        """Return LATEST or EARLIEST of each partition, or the offset at a timestamp, from the brokers.

        LATEST respects kafka.isolation.level. Unless this ``waits_for_leaders``, partitions without one are left out.
        """
        found = self._client.offsets(by_name(wanted), self.topics, waits_for_leaders=waits_for_leaders)
        return {tp: found[tp.topic, tp.partition] for tp in wanted if (tp.topic, tp.partition) in found}

    def initial(self, rule: OffsetRule) -> SourceOffset:
        """Return the starting offset of a query without a checkpoint: the stored one, or by the rule.

        A checkpoint of Spark's own connector may have an initial offset and no planned batch: the query begins there.
        """
        partitions, until = self.refresh(), self._options.until_offsets
        if until is not None:  # of these topics, and not of any that were created again since
            partitions = sorted(until.positions)
        if self._options.checkpoint_location is not None:
            topics = {tp.topic for tp in partitions}
            noted = initial_offset_if_any(
                self._options.checkpoint_location, self._options.source, topics, self._options.storage_options
            )
            if noted is not None:
                return Line(noted, ours=False).with_topic_ids(self.topics).offset
        if self._options.isolate_tables:
            partitions = self.tables.with_places(partitions, ())
        stored, unknown = self._stored(partitions, partitions)
        offsets = {tp: position.next for tp, position in stored.items()}
        rest = [tp for tp in partitions if tp not in offsets and tp not in unknown]
        if until is not None:
            offsets |= self._begins_behind({tp: until.positions[tp].origin for tp in rest})
        elif offsets and rest and rule.everywhere == LATEST:
            # Nothing of these partitions was ever written to the table, or it would have their offsets. Starting at
            # the latest could lose records since the others were stored, so they are read from their beginning.
            _log.warning("kafka_once: no offsets stored for %s: reading from the start", _text(rest))
            offsets |= self.ask(dict.fromkeys(rest, EARLIEST))
        elif rest:
            offsets |= self.resolve(rule, partitions, rest)
        return SourceOffset(self._options.source, {tp: Position(at, at) for tp, at in offsets.items()} | stored)

    def _begins_behind(self, origins: Offsets) -> Offsets:
        """Return where a table that is behind begins with partitions of which it has nothing.

        That is where the query of the others began, or before that if the log does and all of it is to be read.
        Records that are gone since then count as read, if that is allowed.

        Raises:
            DataLossError: if records are gone and failOnDataLoss is true.
        """
        begins = dict(origins)
        for tp, earliest in self.ask(dict.fromkeys(origins, EARLIEST)).items():
            if earliest > origins[tp]:
                report_loss(
                    f"the table has no records of {tp}, which are to be read from offset {origins[tp]} on, but its log "
                    f"begins at {earliest} now",
                    fail=self._options.fail_on_data_loss,
                    prevention=RETENTION,
                )
            elif self._options.reads_all:
                begins[tp] = earliest
        return begins

    def adapt(self, start: SourceOffset, partitions: Collection[TopicPartition]) -> SourceOffset:
        """Return ``start`` with new partitions added, and without those that this query no longer reads.

        Topics that this client must not describe for a time stay where they are.

        Raises:
            DataLossError: if either loses records and failOnDataLoss is true.
            RecreatedTopicError: if a topic was created again, as `_report_recreated`.
        """
        current = set(partitions)
        gone = sorted(tp for tp in self.visible(start) if tp not in current)
        recreated = self._report_recreated(gone)
        gone = [tp for tp in gone if tp.topic not in recreated]
        if gone:
            self._report_gone(gone)
        new = [tp for tp in partitions if tp not in start.positions]
        if not gone and not recreated and not new:
            return start
        current.update(start.positions.keys() - self.visible(start))
        positions = {tp: position for tp, position in start.positions.items() if tp in current}
        if new and self._options.has_table_for_each_topic:
            if self._options.isolate_tables:
                new = self.tables.with_places(new, {tp.topic for tp in positions})
                partitions = [*positions, *new]
            stored, unknown = self._stored(new, partitions)
            positions |= stored
            new = [tp for tp in new if tp not in stored and tp not in unknown]
        may_begin_late = recreated | self.tables.unknown.difference(tp.topic for tp in start.positions)
        for tp, earliest in self.ask(dict.fromkeys(new, EARLIEST)).items():
            with self.tables.losing(tp.topic):
                if earliest > 0 and tp.topic not in may_begin_late:
                    report_loss(
                        f"added partition {tp} should be read from offset 0, but its log starts from {earliest}",
                        fail=self._options.fail_on_data_loss,
                        alone=self._options.isolate_tables,
                        prevention=RETENTION,
                    )
                positions[tp] = Position(earliest, earliest)
        return SourceOffset(start.source, positions)

    def latest(self, start: SourceOffset, *, waits_for_leaders: bool = True) -> Offsets:
        """Return the latest offsets of the partitions in ``start``; for a truncated log, the offset where it diverges.

        Unless this ``waits_for_leaders``, a partition that has none ends where ``start`` is.

        Raises:
            DataLossError: if one is before ``start``, even when requested again, or the records before it have been
                replaced, and failOnDataLoss is true.
        """
        offsets = self.ask(dict.fromkeys(self.visible(start), LATEST), waits_for_leaders=waits_for_leaders)
        positions = {tp: at for tp, at in start.positions.items() if tp in offsets}
        self._asked_in = dict(self.topics)
        parted = self._parted(positions, offsets)
        offsets |= parted

        def behind() -> list[TopicPartition]:
            return [tp for tp, at in positions.items() if offsets[tp] < at.next and tp not in parted]

        def is_strange() -> bool:
            offsets.update(self.ask(dict.fromkeys(behind(), LATEST), waits_for_leaders=waits_for_leaders))
            return bool(behind())

        if behind() and ask_again(is_strange, self._options.pauses_s()):
            for tp in sorted(behind()):
                with self.tables.losing(tp.topic):
                    report_loss(
                        f"the offset of partition {tp} was changed from {positions[tp].next} to {offsets[tp]}, where "
                        "its log ends now: what was read before or where the query should start is gone, and new "
                        "records get the same offsets",
                        fail=self._options.fail_on_data_loss,
                        alone=self._options.isolate_tables,
                        instead=f"{NEW_CHECKPOINT}; if kafka.bootstrap.servers is another cluster's, set it back",
                    )
                    continue
                offsets[tp] = positions[tp].next  # the topic is not read any more
        if not self._options.isolate_tables:
            return offsets
        cut = {tp: at for tp, at in offsets.items() if at < positions[tp].next}
        found, written = self.tables.after_cut(start, cut, lambda ends: self._epochs.parted(ends, ends))
        offsets |= found
        self._written |= written
        return {tp: offsets.get(tp, at.next) for tp, at in start.positions.items()}

    def with_leaders(
        self, partitions: Collection[TopicPartition], known: Collection[TopicPartition] = ()
    ) -> list[TopicPartition]:
        """Leave out new partitions that have no leader, and warn of these and of those ``known`` that have none."""
        leaderless = {tp for tp in partitions if _leader(self.topics, tp) is None}
        self.tables.note_leaderless(leaderless)
        return [tp for tp in partitions if tp in known or tp not in leaderless]

    def advance(
        self, start: SourceOffset, latest: Offsets, limit: int | None, pinned: Offsets | None = None
    ) -> SourceOffset:
        """Return the end of the batch that begins at ``start``, goes to ``latest`` at most, and respects the limit.

        It does not go past ``pinned``, if that is set. A partition whose log was truncated goes back to where it
        diverges from what was read, or if that is unknown to its end, as in Spark's connector: a new origin.
        """
        positions = start.positions
        begin = {tp: position.next for tp, position in positions.items()}
        target = latest
        if pinned is not None:
            target = {tp: min(offset, max(begin[tp], pinned.get(tp, offset))) for tp, offset in latest.items()}
        ends = target if limit is None else share_out(limit, begin, target)
        moved = {
            tp: moved_position(tp, positions[tp], end, self._written) for tp, end in ends.items() if end != begin[tp]
        }
        return SourceOffset(start.source, {**positions, **moved})

    def without_those_behind(self, start: SourceOffset, latest: Offsets, *, waits_for_leaders: bool = True) -> Offsets:
        """Return ``latest`` as if there were no more of topics whose tables lack records before ``start``.

        Nor of those whose tables cannot be read, or of which records are lost. So none of a batch's limit is spent on
        them. A table that has more is another matter: another driver writes it, and the sink refuses that.
        """
        lost = {tp: at.next for tp, at in start.positions.items() if tp.topic in self.tables.lost}
        latest = {**latest, **lost}
        ranges = batch_ranges(start, self.advance(start, latest, None))
        moving = {tp: extent for tp, extent in ranges.items() if extent.end > extent.start}
        behind, without = self.tables.behind(start, moving)
        made_anew = {tp.topic for tp in self._begun_later(start, without, waits_for_leaders)}
        behind.update(tp for tp in moving if tp.topic in made_anew)
        self.tables.note_behind({tp.topic for tp in behind})
        return {**latest, **{tp: start.positions[tp].next for tp in behind}}

    def _begun_later(
        self, start: SourceOffset, partitions: Collection[TopicPartition], waits_for_leaders: bool
    ) -> list[TopicPartition]:
        """Return those whose logs may have records before this query's origin, if it is to read all of them."""
        later = [tp for tp in partitions if start.positions[tp].origin]
        if not later or not self._options.reads_all:
            return []
        earliest = self.ask(dict.fromkeys(later, EARLIEST), waits_for_leaders=waits_for_leaders)
        return [tp for tp in later if earliest.get(tp, EARLIEST) < start.positions[tp].origin]

    def with_epochs(self, start: SourceOffset, end: SourceOffset) -> SourceOffset:
        """Return ``end`` with the leader epochs of what moved since ``start``; other epochs are kept.

        Raises:
            LeadersChangedError: if a leader has changed since `latest` asked it: the offset may be of another log.
        """
        moved = {tp: at.next for tp, at in end.moved_since(start).items()}
        asked_in = {tp: _epoch_of(self._asked_in, tp) for tp in moved}
        epochs = self._epochs.before(moved, asked_in)
        changed = {tp: replace(end.positions[tp], epoch=epochs.get(tp)) for tp in moved}
        return SourceOffset(end.source, {**end.positions, **changed})

    def _parted(self, positions: Mapping[TopicPartition, Position], latest: Offsets) -> Offsets:
        """Return where logs diverge from what was read of them, after reporting it.

        Raises:
            DataLossError: if one does and failOnDataLoss is true; with isolated tables the topic is noted as lost.
        """
        doubtful = [tp for tp, end in latest.items() if end < positions[tp].next]
        parted = self._epochs.parted(positions, doubtful)
        found: dict[TopicPartition, int] = {}
        for tp, divergence in sorted(parted.items()):
            with self.tables.losing(tp.topic):
                report_replaced(
                    tp,
                    positions[tp],
                    divergence,
                    latest.get(tp),
                    fail=self._options.fail_on_data_loss,
                    alone=self._options.isolate_tables,
                )
                if divergence.offset < positions[tp].next:
                    found[tp] = divergence.offset
        return found

    def _leader_epoch(self, tp: TopicPartition) -> int:
        return _epoch_of(self.topics, tp)

    def batch(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[KafkaInputPartition]:
        """Return the tasks of the batch between two lines of the checkpoint.

        Raises:
            CheckpointError: if they do not define a batch.
            RecreatedTopicError: if a topic was created again since it was planned, as `_report_recreated`.
            DataLossError: if records of it have been replaced since, and failOnDataLoss is true; else they are skipped,
                and the next batch begins where the log diverges.
        """
        first, last = self._line(start), self._line(end)
        if not self.topics:
            self.refresh(last)
        first, last = first.with_topic_ids(self.topics), last.with_topic_ids(self.topics)
        if first.ours and not last.ours and self._options.checkpoint_location is not None:
            found = initial_offset(self._options.checkpoint_location, last.offset, self._options.storage_options)
            first = Line(found, ours=False).with_topic_ids(self.topics)
        logged = {tp: extent for tp, extent in ranges_between(first, last).items() if extent.end > extent.start}
        recreated = self._report_recreated(logged)
        if self._options.isolate_tables:
            self._wait_for_leaders([tp for tp in logged if tp.topic not in recreated], last)
        ranges = {tp: extent for tp, extent in logged.items() if tp.topic not in recreated}
        for tp, at in self._parted({tp: last.offset.positions[tp] for tp in ranges}, {}).items():
            ranges[tp] = replace(ranges[tp], end=max(ranges[tp].start, min(ranges[tp].end, at)))
        return self._with_lost(self.tasks(ranges), logged) if self._options.hands_over_ranges else self.tasks(ranges)

    def _wait_for_leaders(self, partitions: Collection[TopicPartition], line: Line) -> None:
        """Request leaders again while partitions have none: one that has none then is left out of the batch.

        An outage may have ended the query before its first batch, so that leaders are just being elected.
        """
        pauses = (
            repeat(0.5, self._options.settings.api_timeout_ms // 500) if self._is_first else self._options.pauses_s()
        )
        self._is_first = False

        def is_strange() -> bool:
            return any(tp.topic in self.topics and _leader(self.topics, tp) is None for tp in partitions)

        if is_strange():
            ask_again(lambda: bool(self.refresh(line)) and is_strange(), pauses)

    def _with_lost(
        self, tasks: list[KafkaInputPartition], logged: Mapping[TopicPartition, OffsetRange]
    ) -> list[KafkaInputPartition]:
        """Add what is lost of the logged ranges, so that the sink sees each offset of the batch once."""
        kept = [each for task in tasks for each in task.wanted]
        whole = [self._fetch_range(tp, extent, extent.epoch) for tp, extent in logged.items()]
        lost = with_lost(kept, whole)
        return [*tasks, KafkaInputPartition(tuple(lost))] if lost else tasks

    def tasks(self, ranges: Mapping[TopicPartition, OffsetRange]) -> list[KafkaInputPartition]:
        """Split ranges into tasks, each with the leader to contact first."""
        return [
            KafkaInputPartition(tuple(self._fetch_range(tp, extent, ranges[tp].epoch) for tp, extent in pieces))
            for pieces in self._pieces(ranges)
        ]

    def _pieces(self, ranges: Mapping[TopicPartition, OffsetRange]) -> list[list[Piece]]:
        least, most = self._options.min_partitions, self._options.max_records_per_partition
        asked_for = least is not None or most is not None
        pieces = bundle(split(ranges, least, most), asked_for=asked_for)
        if asked_for or len(pieces) == 1 or not self._options.hands_over_ranges:
            return pieces
        wanted = (self._fetch_range(tp, extent, extent.epoch) for tp, extent in ranges.items())
        return divide(ranges, densities(self._client, wanted), may_cut=self._options.split_partitions)

    def _line(self, document: Mapping[str, Any]) -> Line:
        for known, line in self._lines:
            if known == document:
                return line
        line = read_line(document, self._options.source)
        self._lines = [(document, line), *self._lines[:1]]
        return line

    def note(self, end: SourceOffset) -> dict[str, Any]:
        """Return the line for an end offset, and remember it: Spark passes it back soon."""
        document = self.document(end)
        self._lines = [(document, Line(end, ours=True)), *self._lines[:1]]
        return document

    def document(self, offset: SourceOffset) -> dict[str, Any]:
        """Return the JSON object of an offset, made from that of the last line: most partitions have not moved."""
        offset = replace(offset, hands_over_ranges=self._options.hands_over_ranges)
        document, line = self._lines[0] if self._lines else ({}, _NOTHING)
        return offset.to_document() if not line.ours else offset.to_document_after(line.offset, document)

    def _gone(self, line: Line, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        current = set(partitions)
        return [tp for tp in self.visible(line.with_topic_ids(self.topics).offset) if tp not in current]

    def visible(self, offset: SourceOffset) -> list[TopicPartition]:
        """Return the partitions of an offset, without those of topics that this client must not describe."""
        return [tp for tp in offset.positions if tp.topic not in self.tables.forbidden]

    def _report_gone(self, gone: Collection[TopicPartition]) -> None:
        """Report partitions that are not there, or are no longer chosen; raise or warn.

        A topic that has a table of its own ends with a warning: the tables of others have nothing to do with it.

        Raises:
            DataLossError: if failOnDataLoss is true.
        """
        if self._options.isolate_tables:
            ended = [tp for tp in gone if tp.topic not in self.topics]
            for tp in ended:
                self.tables.lost.pop(tp.topic, None)
                self.tables.note_ended(tp, "is gone: its table stays as it is, and lacks what was not read before")
            gone = [tp for tp in gone if tp not in ended]
            if not gone:
                return
        what, instead = f"partitions {_text(gone)} of the checkpoint are gone: ", NEW_CHECKPOINT
        topics = sorted({tp.topic for tp in gone})
        if all(name in self._options.topics and name not in self.topics for name in topics):
            what += "they have been deleted. "
            what += f"Remove {', '.join(topics)} from {self._finder.chosen_by}, or the query will not start again"
        else:
            what += f"they have been deleted, or {self._finder.chosen_by} no longer names them"
            instead = f"or set {self._finder.chosen_by} back, {NEW_CHECKPOINT}"
        report_loss(what, fail=self._options.fail_on_data_loss, instead=instead)

    def _report_recreated(self, planned: Collection[TopicPartition]) -> set[str]:
        """Report topics whose id is no longer that of these partitions; raise or warn.

        Those with isolated tables only end, as those that are gone, and the new ones are read from their start.

        Raises:
            RecreatedTopicError: if there are any, and failOnDataLoss is true or the query has an end in the old ones.
        """
        recreated, isolated = set(), self._options.isolate_tables
        fail = self._options.until_offsets is not None or (self._options.fail_on_data_loss and not isolated)
        for tp in planned:
            topic = self.topics.get(tp.topic)
            if topic is None or tp.topic in recreated or is_same_topic(tp.topic_id, topic.topic_id):
                continue
            recreated.add(tp.topic)
            if fail:
                check_same_topic(tp.topic, tp.topic_id, topic.topic_id)
            what = f"was deleted and created again (its id was {tp.topic_id} and is {topic.topic_id})"
            if isolated:
                self.tables.lost.pop(tp.topic, None)
                self.tables.note_ended(tp, f"{what}: {BOTH_IN_ONE_TABLE}")
                continue
            report_loss(
                f"topic {tp.topic} {what}, so the old one's records are gone and the new one is read from its start",
                fail=False,
            )
        return recreated

    def _fetch_range(self, tp: TopicPartition, extent: OffsetRange, epoch: int | None) -> FetchRange:
        # Of a lost topic the task is to look itself whether the leader has the records that were planned.
        leader, is_lost = _leader(self.topics, tp), tp.topic in self.tables.lost
        without = self._options.isolate_tables and leader is None and tp.topic in self.topics
        where = tp.topic, tp.topic_id, tp.partition, extent.start, extent.end
        return FetchRange(*where, None if is_lost else leader, epoch, leaderless=without)

    def _stored(
        self, partitions: list[TopicPartition], among: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, Position], set[TopicPartition]]:
        """Return what is stored, and the partitions of isolated tables that cannot be read: nothing is known of those.

        Raises:
            OptionError: if topics, ``among`` all that are read, would have one table.
            OffsetStoreError: if another store cannot be read.
        """
        spec, app_id, settled = self._options.offset_store, self._options.app_id or "", self._settled_group
        if spec is None:
            return {}, set()
        if not self._options.has_table_for_each_topic:
            groups = None if settled is None else lambda group_id: settled(self._client, group_id, app_id)
            store = open_store(spec, app_id, self._options.storage_options or None, groups=groups)
            return self._stored_in(store, partitions), set()
        self.tables.check_apart({tp.topic for tp in among})
        found: dict[TopicPartition, Position] = {}
        unknown: set[TopicPartition] = set()
        for topic, own in by_topic(partitions).items():
            try:
                found |= self._stored_in(self.tables.store(topic), own)
                self.tables.note_read(topic)
            except OffsetStoreError as error:
                if not self._options.isolate_tables:
                    raise
                self.tables.note_unknown(topic, error)
                unknown.update(own)
        return found, unknown

    def _stored_in(self, store: OffsetStore, partitions: list[TopicPartition]) -> dict[TopicPartition, Position]:
        source = self._options.source
        offsets = store.read(source, partitions)
        epochs = store.epochs(source, offsets)
        stored = {tp: Position(at, at, epochs.get(tp)) for tp, at in offsets.items()}
        parted = self._parted(stored, {})
        return stored | {tp: moved_position(tp, stored[tp], at) for tp, at in parted.items()}

    def check_until(self, until: SourceOffset) -> None:
        """Check that the logs still have what another query has read up to ``until``, and not others' records there.

        Raises:
            DataLossError: if not.
        """
        for tp, divergence in sorted(self._epochs.parted(until.positions).items()):
            report_replaced(tp, until.positions[tp], divergence, None, fail=True, this_query="is to read")


def _leader(topics: Mapping[str, TopicMetadata], tp: TopicPartition) -> Leader | None:
    topic = topics.get(tp.topic)
    return topic.partitions.get(tp.partition) if topic else None


def _epoch_of(topics: Mapping[str, TopicMetadata], tp: TopicPartition) -> int:
    leader = _leader(topics, tp)
    return -1 if leader is None else leader.epoch


def _text(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
