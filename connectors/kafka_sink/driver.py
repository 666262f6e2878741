"""What the driver knows and does about the transactions of one application: decide, finish, undo, abort.

One `Driver` lives in each of the processes that Spark's driver keeps for a sink: the one that begins batches and the
one that commits them. `recover` is the entry point: it claims the application's own transactional id, which fences
every other driver, and resolves everything that is incomplete.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_sink.decisions import PARTITION, DecisionLog
from sparkonce.connectors.kafka_sink.transactions import (
    FENCING_TIMEOUT_MS,
    FencedProducerError,
    ProducerIdentity,
    State,
    TransactionClient,
    TransactionDescription,
    TransactionError,
    transactional_prefix,
)
from sparkonce.connectors.kafka_sink.unfinished import Ended
from sparkonce.connectors.runtime.cache import MAX_TABLES, LruCache
from sparkonce.crash_points import reach
from sparkonce.exactly_once.errors import TransactionsGoneError
from sparkonce.exactly_once.transactions import (
    Decision,
    Decisions,
    Fate,
    PreparedTransaction,
    Settlement,
    ranges_text,
    settle,
)
from sparkonce.kafka.client.client import Client, shared_client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.group import CommittedOffset, Note, Slot
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.record import BatchRecord, PartitionKey

DRIVER = "driver"
"""The suffix of a driver's transactional id; tasks' ids have an incarnation and one more part instead."""
DRIVER_TIMEOUT_MS = 20_000
"""A decision takes milliseconds, or as long as a broker needs to restart. If its driver dies in the middle, readers of
the group wait no longer than this; a source without a checkpoint is one, and fails after a minute."""
LEAST_LEFT_MS, LEAST_SHARE_LEFT = 10_000, 0.1
"""The time that a transaction must have left when it is decided, or this share of its timeout if that is less: ending
it may take that long."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scope:
    """The application of the transactions, and where its decisions and offsets are."""

    settings: ClientSettings
    app_id: str
    decision_topic: str
    group_id: str

    @property
    def prefix(self) -> str:
        """The prefix of all transactional ids of the application."""
        return transactional_prefix(self.app_id)

    @property
    def driver_id(self) -> str:
        """The transactional id of its driver."""
        return self.prefix + DRIVER


@dataclass(frozen=True, slots=True)
class _Begun:
    """The last batch that a driver has begun."""

    query_id: str
    batch_id: int
    identity: ProducerIdentity
    """The producer identity that it claimed for the batch."""

    def was_last(self, identity: ProducerIdentity) -> bool:
        """Whether no other driver claimed the application between this and ``identity``."""
        return (self.identity.producer_id, self.identity.epoch + 1) == (identity.producer_id, identity.epoch)


class Driver:
    """Manages the transactions of one application for the driver; for one thread at a time."""

    def __init__(self, scope: Scope, client: Client) -> None:
        self.scope = scope
        self.transactions = TransactionClient(client)
        self.log = DecisionLog(client, scope.decision_topic, scope.app_id)
        self.group = KafkaGroupOffsets(client, scope.group_id)
        self.client = client
        self._begun: _Begun | None = None
        self._spent: ProducerIdentity | None = None
        self._here: set[tuple[str, str]] = set()
        """Topics, with their ids, that this cluster is known to have."""
        self._is_settled = False
        self._read_under: ProducerIdentity | None = None
        """The claimed identity under which the log was read, if the result was not used yet."""

    def begin(
        self, record: BatchRecord, timeout_ms: int = DRIVER_TIMEOUT_MS, task_timeout_ms: int = 0
    ) -> ProducerIdentity:
        """Claim the application for one batch, after resolving what an earlier run may have left.

        ``timeout_ms`` bounds the transaction of the decision, ``task_timeout_ms`` those of tasks.

        Raises:
            as `recover`.
        """
        last, self._begun, self._read_under, self._is_settled = self._begun, None, None, False
        identity = None
        if last is not None and (last.query_id, last.batch_id + 1) == (record.query_id, record.batch_id):
            identity = self.claim(timeout_ms)
            if last.was_last(identity) and self.log.read().unfinished is None:
                self._read_under = identity
        if identity is None or self._read_under is None:
            identity = self.recover(timeout_ms, task_timeout_ms)
        self._begun = _Begun(record.query_id, record.batch_id, identity)
        return identity

    def decisions(self, identity: ProducerIdentity | None) -> Decisions:
        """Return the decisions of the log. What `begin` has read since it claimed ``identity`` is not read again.

        Any later decision of another driver needs another claim, which prevents ``identity`` from deciding anything.
        """
        begun, self._read_under = self._read_under, None
        return self.log.known if identity is not None and begun == identity else self.log.read()

    def settle_earlier(self) -> None:
        """Resolve, once, what exactly-once has left, before a weaker guarantee begins. Raises as `recover`."""
        if self._is_settled:
            return
        try:
            self.client.topics([self.scope.decision_topic])
        except (MissingTopicError, PermissionError):  # it was never used, or never by this user
            decisions = Decisions()
        else:
            decisions = self.log.read()
        if decisions.number:  # a running driver is fenced first: its decisions must not be aborted
            self.recover()
        self._is_settled = True

    def settle_pending(self) -> None:
        """Make sure that stored offsets can be read now and do not change.

        A decision that a dead driver may have left open is aborted, and a committed one that can only be undone is
        undone. No driver is fenced if neither is the case.

        Raises:
            OffsetStoreError, TransactionError, DecisionTopicError: if Kafka refuses something.
        """
        self.log.look()
        if self.scope.app_id in self.log.deciding:
            self.claim()
        self.take_back_if_gone()

    def take_back_if_gone(self) -> Ended | None:
        """Undo the last decision, if none of it is visible and some of it is gone; otherwise return None.

        Raises:
            TransactionsGoneError: if a driver that was held up has committed a part of it in the meantime.
            OffsetStoreError, TransactionError, DecisionTopicError: if Kafka refuses something.
        """
        found = self.unfinished()
        if found is None or found.settlement is not Settlement.UNDO:
            return None
        self.group.check_vacant()
        identity = self.claim()
        # From here on no other driver decides, so the log is final: another driver may have been faster.
        found = self.unfinished()
        if found is None or found.settlement is not Settlement.UNDO:
            return None
        self.undo(found.decision, found.fates, identity)
        return replace(found, undone=True)

    def unfinished(self) -> Ended | None:
        """Return the unfinished decision, if there is one, with the states of its transactions."""
        decision = self.log.read().unfinished
        return None if decision is None else Ended(decision, self.fates(decision.transactions))

    def claim(self, timeout_ms: int = DRIVER_TIMEOUT_MS) -> ProducerIdentity:
        """Become the only driver that may decide; the previous one is fenced."""
        return self.transactions.init_producer_id(self.scope.driver_id, timeout_ms)

    def recover(self, timeout_ms: int = DRIVER_TIMEOUT_MS, task_timeout_ms: int = 0) -> ProducerIdentity:
        """Claim, finish or undo what was decided, and abort all else, so that nothing of an earlier run stays open.

        A ``task_timeout_ms`` that brokers do not allow is rejected here, instead of in every task.

        Raises:
            TransactionsGoneError: if what was decided can be neither finished nor undone.
            TransactionError, OffsetStoreError, DecisionTopicError: if Kafka refuses something.
        """
        self.log.ensure()
        self.group.check_vacant()
        if task_timeout_ms > timeout_ms:
            self.claim(task_timeout_ms)
        identity = self.claim(timeout_ms)
        unfinished = self.log.read().unfinished
        if unfinished is not None:
            fates = self.fates(unfinished.transactions)
            if settle(list(fates.values())) is Settlement.UNDO:
                self.undo(unfinished, fates, identity)
                identity = self.claim(timeout_ms)
            else:
                self.finish(unfinished)
        aborted = self.abort_open(self.scope.prefix)
        if aborted:
            _log.warning("kafka_once: aborted %d transactions that an earlier run left undecided", len(aborted))
        return identity

    def decide(
        self,
        decision: Decision,
        offsets: Mapping[Slot, CommittedOffset],
        identity: ProducerIdentity,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Write a decision and its offsets in one transaction, and commit it.

        ``prepare`` is called when the transaction has begun: it may send rows in it, or raise to cancel the decision.

        Raises:
            FencedProducerError: if another driver has claimed the application since, or this took too long.
            TransactionError: if Kafka refuses it.
        """
        if identity == self._spent:  # sequence numbers are used: Kafka would see a second decision as a duplicate
            raise FencedProducerError(f"the transactional id {identity.name!r} must be claimed again for each decision")
        self._spent = identity
        try:
            group_id = decision.group_id if offsets else None
            self.transactions.add_partitions(identity, [(self.log.topic, PARTITION)], group_id)
            prepare()
            self.log.append_decision(decision, identity, sequence=0)
            if offsets:
                self.transactions.commit_offsets(identity, decision.group_id, offsets)
            reach(TransactionPoint.DECIDING, decision.record.batch_id, self.scope.app_id)
            self.transactions.end(identity, commit=True)
        except Exception:
            self._close(identity)
            raise

    def finish(self, decision: Decision) -> None:
        """Commit every transaction of a decision that is not committed yet, and mark the decision as finished.

        Raises:
            TransactionsGoneError: if that cannot be done, since some have timed out.
        """
        batch_id, app_id = decision.record.batch_id, self.scope.app_id
        reach(TransactionPoint.DECIDED, batch_id, app_id)
        fates = self.fates(decision.transactions)
        settlement = settle(list(fates.values()))
        if settlement is not Settlement.FINISH:
            raise Ended(decision, fates).error(self.log.topic)
        waiting = [transaction for transaction, fate in fates.items() if fate is Fate.WAITS]
        # One, and then all others together: a crash between the two makes a part of a batch visible.
        for some in filter(None, (waiting[:1], waiting[1:])):
            try:
                self.transactions.end_all(map(_identity, some), commit=True)
            except TransactionError:
                if not self._are_committed(some, decision):
                    raise
            if some[0] is waiting[0]:
                reach(TransactionPoint.ENDING, batch_id, app_id)
        reach(TransactionPoint.ENDED, batch_id, app_id)
        self.log.append_finished(decision.number)

    def undo(self, decision: Decision, fates: Mapping[PreparedTransaction, Fate], identity: ProducerIdentity) -> None:
        """Undo a decision of which no transaction is committed: the batch can be written again.

        Raises:
            TransactionsGoneError: if a delayed driver has committed one in the meantime.
        """
        gone = [each for each, fate in fates.items() if fate is Fate.GONE]
        # First the open ones: once the decision is undone, they must no longer be committed. By EndTxn and not by
        # another epoch, which would not show whether the transaction was committed at the same moment.
        for transaction in (each for each, fate in fates.items() if fate is Fate.WAITS):
            self._abort(transaction, decision)
        self.decide(decision.undoing(now_ms()), self._offsets_before(decision), identity)
        _log.warning(
            "kafka_once: batch %d (%s) was decided, and %d of its %d transactions timed out before they could be "
            "committed; none of its rows was visible. The decision is undone, and the batch is written again",
            decision.record.batch_id,
            ranges_text(decision.record),
            len(gone),
            len(fates),
        )

    def take_back(self, decision: Decision, identity: ProducerIdentity) -> None:
        """Undo a decision that could not be finished, if that is possible and ``identity`` is still the claim.

        Immediately, and not at the next start: a source without a checkpoint reads its starting offsets from the group
        before the sink does anything.
        """
        if not self.is_current(identity):
            return
        claimed = self.claim()
        # From here on no other driver decides, so the log is final: another driver may have been faster.
        unfinished = self.log.read().unfinished
        if unfinished is None or unfinished.number != decision.number:
            return
        fates = self.fates(unfinished.transactions)
        if settle(list(fates.values())) is Settlement.UNDO:
            self.undo(unfinished, fates, claimed)

    def fates(self, transactions: Collection[PreparedTransaction]) -> dict[PreparedTransaction, Fate]:
        """Return the states of transactions that were left open."""
        if not transactions:
            return {}
        found = self.transactions.describe([each.transactional_id for each in transactions])
        return {each: _fate(each, found.get(each.transactional_id)) for each in transactions}

    def abort_open(self, prefix: str) -> list[str]:
        """Abort the undecided transactions whose ids begin with ``prefix``, and fence their producers.

        Producers that claimed such an id and sent nothing yet are fenced too: a task that still runs would begin a
        transaction later, which readers wait for until it times out. A task that claims one after this detects that
        it is too late (`TransactionWriter`). Transactions of the last decision, or already ending, are not changed.
        """
        last = self.log.read().last
        return self.abort_but(last.transactions if last is not None else (), prefix)

    def abort_but(
        self, decided: Iterable[PreparedTransaction], prefix: str, identity: ProducerIdentity | None = None
    ) -> list[str]:
        """As `abort_open`, for callers that know what is decided and not committed yet.

        With ``identity``, nothing is touched unless that is still this application's driver: a later one may have
        decided about what was open when the list was made.
        """
        spared = {self.scope.driver_id, *(each.transactional_id for each in decided)}
        found = self.transactions.states(prefix, (State.ONGOING, State.EMPTY))
        names = {
            state: sorted(name for name in found if found[name] is state and name not in spared) for state in State
        }
        described = self.transactions.describe(names[State.EMPTY])
        claimed = [name for name, each in described.items() if each.timeout_ms != FENCING_TIMEOUT_MS]
        wanted = [*names[State.ONGOING], *claimed]
        if identity is not None and wanted and not self.is_current(identity):
            return []
        self.transactions.fence(wanted)
        return names[State.ONGOING]

    def here(self, keys: Iterable[PartitionKey]) -> set[PartitionKey]:
        """Return the partitions that are on the target cluster: a group there stores no offsets of others.

        A topic of the same name may be a different one, such as a copy of one that is read elsewhere. Missing topics
        are requested again each time: metadata may be out of date.

        Raises:
            PermissionError: if this user may not see a topic.
        """
        wanted = list(keys)
        for topic, topic_id in {(tp.topic, tp.topic_id) for _, tp in wanted} - self._here:
            try:
                found = self.client.topics([topic])[topic].topic_id
            except MissingTopicError:
                continue
            if not found or not topic_id or found == topic_id:
                self._here.add((topic, topic_id))
        return {key for key in wanted if (key[1].topic, key[1].topic_id) in self._here}

    def is_current(self, identity: ProducerIdentity) -> bool:
        """Whether no other driver has claimed the application since ``identity``."""
        found = self.transactions.describe([self.scope.driver_id]).get(self.scope.driver_id)
        return found is not None and found.is_of(identity)

    def has_timed_out(self, identity: ProducerIdentity) -> bool:
        """Whether the brokers have aborted the driver's own transaction; a claim would have left an empty one."""
        found = self.transactions.describe([identity.name]).get(identity.name)
        if found is None or (found.producer_id, found.epoch) != (identity.producer_id, identity.epoch + 1):
            return False
        return found.state in (State.PREPARE_ABORT, State.COMPLETE_ABORT)

    def check_open(self, decision: Decision, identity: ProducerIdentity) -> None:
        """Check that all transactions are open and have time left: a decision about one that times out has no effect.

        The driver's own transaction has just begun, so its start is the time by the brokers' clock.

        Raises:
            TransactionsGoneError: if one is gone already, or has little time left.
            FencedProducerError: if another driver has claimed the application since.
        """
        names = [identity.name, *(each.transactional_id for each in decision.transactions)]
        found = self.transactions.describe(names)
        own = found.get(identity.name)
        if own is None or not own.is_of(identity):
            raise FencedProducerError(f"the transactional id {identity.name!r} was claimed by another driver")
        bad = [each for each in decision.transactions if not _lasts(each, found.get(each.transactional_id), own)]
        if bad:
            record = decision.record
            raise TransactionsGoneError(
                f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id}), records "
                f"{ranges_text(record)}, was not decided: {len(bad)} of its {len(decision.transactions)} transactions "
                f"are no longer open, or not for long ({bad[0].transactional_id}): transaction.timeout.ms passed while "
                "the batch ran, or another driver has aborted them. None of its rows is visible. Start the query "
                "again; batches that take longer need a longer kafka.transaction.timeout.ms, or fewer rows "
                "(maxOffsetsPerTrigger)"
            )

    def _close(self, identity: ProducerIdentity) -> None:
        """End the driver's transaction after a failure, so that its outcome can be read."""
        try:
            found = self.transactions.describe([identity.name]).get(identity.name)
            if found is not None and found.is_of(identity) and found.state is State.ONGOING:
                self.transactions.end(identity, commit=False)
        except Exception as error:  # the first failure is the one to report; after this one the transaction times out
            _log.warning("kafka_once: could not abort the driver's transaction: %s", error)

    def _abort(self, transaction: PreparedTransaction, decision: Decision) -> None:
        """Abort a decision's transaction, unless it is gone. Raises TransactionsGoneError if it alone is committed."""
        try:
            self.transactions.end(_identity(transaction), commit=False)
        except TransactionError:
            fates = self.fates(decision.transactions)
            if fates[transaction] is Fate.COMMITTED:
                raise Ended(decision, fates).error(self.log.topic) from None
            if fates[transaction] is not Fate.GONE:
                raise

    def _offsets_before(self, decision: Decision) -> dict[Slot, CommittedOffset]:
        """Return the previous offsets of a batch's partitions in its group, without metadata that names the batch."""
        committed = KafkaGroupOffsets(self.client, decision.group_id).fetch()
        notes = ((slot, Note.from_text(entry.metadata)) for slot, entry in committed.items())
        attempt_id = decision.record.attempt_id
        return {slot: CommittedOffset(note.follows) for slot, note in notes if note and note.attempt_id == attempt_id}

    def _are_committed(self, transactions: Iterable[PreparedTransaction], decision: Decision) -> bool:
        """Whether transactions are committed; after a rejected EndTxn another driver may have done it.

        Raises:
            TransactionsGoneError: if a transaction is gone while others are not.
        """
        fates = self.fates(decision.transactions)
        settlement = settle(list(fates.values()))
        if settlement is not Settlement.FINISH:
            raise Ended(decision, fates).error(self.log.topic)
        return all(fates[each] is Fate.COMMITTED for each in transactions)


def _identity(transaction: PreparedTransaction) -> ProducerIdentity:
    return ProducerIdentity(transaction.transactional_id, transaction.producer_id, transaction.epoch)


def _lasts(transaction: PreparedTransaction, found: TransactionDescription | None, own: TransactionDescription) -> bool:
    if found is None or _fate(transaction, found) is not Fate.WAITS:
        return False
    left_ms = found.started_ms + found.timeout_ms - own.started_ms
    return left_ms > min(found.timeout_ms * LEAST_SHARE_LEFT, LEAST_LEFT_MS)


def _fate(transaction: PreparedTransaction, found: TransactionDescription | None) -> Fate:
    if found is None:
        return Fate.UNKNOWN
    if not found.is_of(_identity(transaction)):
        return Fate.GONE
    if found.state is State.ONGOING:
        return Fate.WAITS
    return Fate.COMMITTED if found.state.is_committed else Fate.GONE


_drivers: LruCache[tuple[int, Scope], Driver] = LruCache(MAX_TABLES)


def shared_driver(scope: Scope) -> Driver:
    """Return this process's driver of an application, whose connections and reading position are kept over batches."""
    return _drivers.get((os.getpid(), scope), lambda: Driver(scope, shared_client(scope.settings)))
