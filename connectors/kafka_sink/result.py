"""The output topics as a result that `exactly_once.commit.Delivery` writes batches into.

Offsets are in a consumer group, and the last written batch is in the topic of decisions. A snapshot shows both, and
a commit is a decision, made under the producer epoch that was claimed when the batch began: if another driver has
claimed the application since, Kafka rejects it. So the comparison still holds when the decision is made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sparkonce.connectors.kafka_sink.driver import DRIVER_TIMEOUT_MS, Driver
from sparkonce.connectors.kafka_sink.producer import Producer
from sparkonce.connectors.kafka_sink.spool import Spool, SpooledRows
from sparkonce.connectors.kafka_sink.transactions import FencedProducerError, ProducerIdentity
from sparkonce.exactly_once.errors import FencedError, TransactionsGoneError
from sparkonce.exactly_once.transactions import Decision, Decisions, PreparedTransaction, following, ranges_text
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.group import GroupSnapshot
from sparkonce.offset_store.record import Commit, CommittedBatch, FileT, PartitionKey
from sparkonce.offset_store.store import Snapshot, SnapshotSource, SnapshotWithoutOffsets

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TopicResult(SnapshotSource):
    """Rows in transactions that tasks have left open, and the decisions about them."""

    driver: Driver
    identity: ProducerIdentity | None
    """Claimed for this batch; None for read-only use."""
    producer: ProducerSettings
    spool: Spool | None = None
    """The rows that the driver sends itself."""
    topics: tuple[str, ...] = ()
    """See `Decision.topics`."""
    _decided: Decision | None = field(default=None, init=False)

    def snapshot(self) -> TopicSnapshot:
        """Return a snapshot of the decisions and of the group's offsets."""
        decisions = self.driver.decisions(self.identity)
        group = self.driver.group
        offsets = GroupSnapshot(group, self.driver.scope.app_id, group.fetch(), now_ms)
        return TopicSnapshot(self, decisions, decisions.number, decisions.last, offsets)

    def decide(self, decision: Decision, offsets: GroupSnapshot, spooled: Sequence[SpooledRows]) -> None:
        """Write a decision; see `Driver.decide`."""
        assert self.identity is not None, "no batch has begun"
        record = decision.record
        here = self.driver.here(record.ranges)
        ranges = {key: extent for key, extent in record.ranges.items() if key in here}
        entries = offsets.entries(replace(record, ranges=ranges)) if ranges else {}
        self.driver.decide(decision, entries, self.identity, lambda: self._prepare(decision, spooled))
        self._decided = decision

    def _prepare(self, decision: Decision, spooled: Sequence[SpooledRows]) -> None:
        """Check the transactions of the tasks, and send what they have spooled, in the transaction of the decision."""
        assert self.identity is not None, "read-only use makes no decisions"
        if decision.transactions:
            self.driver.check_open(decision, self.identity)
        if not spooled:
            return
        assert self.spool is not None, "only tasks with a spool have spooled"
        producer = Producer(self.driver.client, self.producer, self.identity, self.driver.transactions)
        try:
            for rows in spooled:
                producer.send(self.spool.read(rows))
            producer.flush()
        finally:
            producer.close()

    def complete(self) -> None:
        """Commit the transactions of the decision. Raises TransactionsGoneError if that is no longer possible."""
        # An unfinished decision in the log that was not made here has landed although its response was lost.
        decided = self._decided or self.driver.log.read().unfinished
        if decided is None:
            return
        try:
            self.driver.finish(decided)
        except TransactionsGoneError:
            self._take_back(decided)
            raise

    def _take_back(self, decided: Decision) -> None:
        try:
            if self.identity is not None:
                self.driver.take_back(decided, self.identity)
        except Exception as error:  # the next start does it; report why the batch failed
            _log.warning("kafka_once: could not undo the decision about batch %d: %s", decided.record.batch_id, error)

    def __str__(self) -> str:
        return str(self.driver.group)


@dataclass(frozen=True, slots=True)
class TopicSnapshot(Snapshot):
    """What was decided and stored at one moment."""

    result: TopicResult
    decisions: Decisions
    version: int = field()
    """The number of the last decision."""
    last: Decision | None
    offsets: GroupSnapshot

    def last_batch(self, query_id: str) -> int | None:
        """See `Snapshot.last_batch`; batches that were written with a weaker guarantee are in the group only."""
        decided = None if self.last is None else self.last.queries.get(query_id)
        noted = self.offsets.last_batch(query_id)
        return max((batch for batch in (decided, noted) if batch is not None), default=None)

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `Snapshot.fingerprint`; from the group where the batch was written with a weaker guarantee."""
        decided = {} if self.last is None else self.last.fingerprints.get(query_id, {})
        return decided.get(batch_id) or self.offsets.fingerprint(query_id, batch_id)

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.next_offsets`.

        The last decision still has offsets that expired in the group, and alone has those of topics of another cluster.
        Of offsets that this application committed to the group, the later one counts; manually set ones always count.
        """
        wanted = list(keys)
        decided = {} if self.last is None else self.last.offsets
        known = {key: decided[key] for key in wanted if key in decided}
        for key, offset in self.offsets.next_offsets(self.result.driver.here(wanted)).items():
            known[key] = max(offset, known.get(key, 0)) if self.offsets.is_noted(key[1]) else offset
        return known

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.epochs`; a decision has none, and is carried out in the group before the next batch."""
        return self.offsets.epochs(self.result.driver.here(list(keys)))

    def commit(self, commit: Commit[FileT]) -> None:
        """Decide about a batch: its offsets, and the transactions to commit.

        Raises:
            CommitConflictError: if another driver has decided something since this snapshot.
            FencedError: if another driver has begun since.
            TransactionsGoneError: if a transaction has timed out already; nothing was decided then.
        """
        record, driver = commit.record, self.result.driver
        transactions = [each for each in commit.files if isinstance(each, PreparedTransaction)]
        group_id, topics = driver.scope.group_id, self.result.topics
        decision = following(self.last, record, transactions, group_id, now_ms(), topics)
        try:
            self.result.decide(decision, self.offsets, [each for each in commit.files if isinstance(each, SpooledRows)])
        except FencedProducerError as error:
            if driver.log.read().number > self.version:
                raise CommitConflictError(
                    f"another driver of appId {record.app_id} has decided a batch since"
                ) from error
            assert self.result.identity is not None, "nothing is decided without"
            if driver.has_timed_out(self.result.identity):
                raise TransactionsGoneError(
                    f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id}), records "
                    f"{ranges_text(record)}, was not decided: the driver's own transaction was aborted, since it timed "
                    f"out ({DRIVER_TIMEOUT_MS} ms, or kafka.transaction.timeout.ms if that is less, or with "
                    "atomicVisibility). None of the batch's rows is visible. Start the query again"
                ) from error
            raise FencedError(
                f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id}) was not decided: another "
                "driver has begun with the same appId since, and has fenced this one. Stop one of the two, or give "
                f"each its own appId. (Kafka: {error})"
            ) from error

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`; the log is compacted, so there may be only the last one."""
        return [decision.as_committed() for decision in reversed(self.decisions.standing)][:limit]


class VisibleRows(SnapshotSource):
    """Rows that tasks have sent without transactions: there is nothing left to commit, and nothing to read."""

    def snapshot(self) -> EmptySnapshot:
        """Return an empty snapshot."""
        return EmptySnapshot()

    def __str__(self) -> str:
        return "the output topics"


class EmptySnapshot(SnapshotWithoutOffsets):
    """The empty snapshot of rows that are in Kafka already."""

    version = 0

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`: the rows are there."""
