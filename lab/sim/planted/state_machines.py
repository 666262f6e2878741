"""Planted bugs in the state machines, most of them real bugs of Kafka's past.

Each is a context manager that replaces methods of the cores in this process, and restores them. The cores themselves
do not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from weakref import WeakSet

from lab.sim.replacing import replaced
from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.controller.controller import Controller, InSyncProposal
from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, NO_LEADER, MetadataRecord, PartitionState
from sparkonce.broker_lite.coordinators.transaction_messages import Decision, Transaction
from sparkonce.broker_lite.coordinators.transaction_messages import Producer as TransactionalProducer
from sparkonce.broker_lite.coordinators.transactions import PREPARED, Transactions
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import ProducerEntry, ProducerStates, Verification
from sparkonce.broker_lite.replication.follower import FetchPosition, PartitionFollower
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.replication.replica_log import EpochEnd, ReplicaLog
from sparkonce.broker_lite.replication.replicas import Event, Replicas
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import BatchHeader


class Planted(NamedTuple):
    """A bug that can be planted."""

    name: str
    source: str
    plant: Callable[[], AbstractContextManager[None]]


def _asks_nothing(which: Callable[[PartitionFollower], bool]) -> AbstractContextManager[None]:
    """Let some followers not send the epoch of their last record: so nobody compares their logs."""
    original = vars(PartitionFollower)["position"]

    def position(self: PartitionFollower) -> FetchPosition:
        said: FetchPosition = original.fget(self)
        return said._replace(last_fetched_epoch=-1) if which(self) else said

    return replaced(PartitionFollower, "position", property(position))


@contextmanager
def _truncate_to_high_watermark() -> Iterator[None]:
    original = PartitionFollower.__init__

    def begin(self: PartitionFollower, log: ReplicaLog, leader: int, leader_epoch: int) -> None:
        original(self, log, leader, leader_epoch)
        if leader != NO_LEADER and log.latest_epoch >= 0:
            log.truncate_to(log.high_watermark)

    with replaced(PartitionFollower, "__init__", begin), _asks_nothing(lambda _: True):
        yield


@contextmanager
def _ask_once() -> Iterator[None]:
    """Let a follower truncate its log once for each leader epoch, without checking again whether both logs agree."""
    original = PartitionFollower.diverged
    asked: WeakSet[PartitionFollower] = WeakSet()

    def cut(self: PartitionFollower, theirs: EpochEnd) -> None:
        original(self, theirs)
        asked.add(self)

    with replaced(PartitionFollower, "diverged", cut), _asks_nothing(asked.__contains__):
        yield


@contextmanager
def _confirmed_in_sync_only() -> Iterator[None]:
    """Let the high watermark ignore replicas that are about to join the ISR."""
    confirmed = property(lambda self: set(self.state.in_sync_replicas))
    with (
        replaced(PartitionLeader, "maximal_in_sync_replicas", confirmed),
        replaced(PartitionLeader, "_is_about_to_join", lambda *_: False),
    ):
        yield


def _expand_before_epoch_start() -> AbstractContextManager[None]:
    original = PartitionLeader.__init__

    def begin(self: PartitionLeader, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.epoch_start_offset = 0

    return replaced(PartitionLeader, "__init__", begin)


def _broker_epoch_not_told() -> AbstractContextManager[None]:
    """Let fetches, and so ISR proposals, omit the broker epoch."""
    original = PartitionLeader.fetched

    def fetched(self: PartitionLeader, broker_id: int, _: int, offset: int, start: int, now_ms: int) -> bool:
        return original(self, broker_id, NO_BROKER_EPOCH, offset, start, now_ms)

    return replaced(PartitionLeader, "fetched", fetched)


def _advance_under_min() -> AbstractContextManager[None]:
    return replaced(PartitionLeader, "is_below_minimum", property(lambda _: False))


@contextmanager
def _same_leader_no_truncation() -> Iterator[None]:
    """Let a follower compare logs when another broker leads, but not when the same one leads in a new epoch."""
    original = Replicas._take
    unchanged: WeakSet[PartitionFollower] = WeakSet()

    def take(self: Replicas, key: PartitionKey, state: PartitionState, now_ms: int) -> list[Event]:
        before = self.roles.get(key)
        events = original(self, key, state, now_ms)
        after = self.roles.get(key)
        if not isinstance(before, PartitionFollower) or not isinstance(after, PartitionFollower) or before is after:
            return events
        if before.leader == after.leader != NO_LEADER:
            unchanged.add(after)
        return events

    with replaced(Replicas, "_take", take), _asks_nothing(unchanged.__contains__):
        yield


def _forgetful_stays_eligible() -> AbstractContextManager[None]:
    original = Controller._without

    def without(self: Controller, broker_id: int, _: Collection[int]) -> list[MetadataRecord]:
        return original(self, broker_id, ())

    return replaced(Controller, "_without", without)


def _partition_epoch_not_compared() -> AbstractContextManager[None]:
    original = Controller._altered

    def altered(self: Controller, leader: int, proposal: InSyncProposal) -> tuple[list[MetadataRecord], PartitionState]:
        state = self.image.partition(proposal.key)
        if state is not None:
            proposal = proposal._replace(partition_epoch=state.partition_epoch)
        return original(self, leader, proposal)

    return replaced(Controller, "_altered", altered)


def _late_verification_counts() -> AbstractContextManager[None]:
    """Accept a coordinator's verification of a transaction that has ended since."""
    original = ProducerStates._check_transaction

    def check(
        self: ProducerStates,
        entry: ProducerEntry | None,
        header: BatchHeader,
        verification: Verification | None,
        by_coordinator: bool,
    ) -> None:
        if verification is not None:
            self.begin_verification(header.producer_id, verification.epoch, verification.has_epochs)
            assert self._verifications is not None
            verification.among = self._verifications
            self._verifications[header.producer_id] = verification
        original(self, entry, header, verification, by_coordinator)

    return replaced(ProducerStates, "_check_transaction", check)


def _ended_too_early_fences() -> AbstractContextManager[None]:
    """Let EndTxn compare ids and epochs before it checks whether the previous transaction is complete."""
    original = Transactions._end_with_bump

    def end(self: Transactions, known: Transaction, producer: TransactionalProducer, *arguments: Any) -> Decision:
        if known.state in PREPARED and known.producer_id != producer.producer_id:
            return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.state in PREPARED and known.epoch != producer.epoch + 1:
            return Decision(ErrorCode.PRODUCER_FENCED)
        return original(self, known, producer, *arguments)

    return replaced(Transactions, "_end_with_bump", end)


def _leads_by_old_log() -> AbstractContextManager[None]:
    """Let a restarted broker take roles from the log that belong to its former start."""
    return replaced(ClusterMember, "registered", property(lambda self: self._membership is not None))


def _producers_not_rebuilt() -> AbstractContextManager[None]:
    original = PartitionLog._went_back

    def went_back(self: PartitionLog) -> None:
        producers = self.producers
        original(self)
        self.producers = producers

    return replaced(PartitionLog, "_went_back", went_back)


PLANTED = (
    Planted("truncate-to-high-watermark", "before KIP-101", _truncate_to_high_watermark),
    Planted("ask-once", "before KIP-279", _ask_once),
    Planted("confirmed-in-sync-only", "the maximal in-sync replicas of KIP-497", _confirmed_in_sync_only),
    Planted("expand-before-epoch-start", "KAFKA-7128", _expand_before_epoch_start),
    Planted("broker-epoch-not-told", "before KIP-903", _broker_epoch_not_told),
    Planted("advance-under-min", "before KIP-966", _advance_under_min),
    Planted("same-leader-no-truncation", "KAFKA-7164", _same_leader_no_truncation),
    Planted("forgetful-stays-eligible", "KIP-966 without its unclean stops", _forgetful_stays_eligible),
    Planted("partition-epoch-not-compared", "KIP-497 without its versions", _partition_epoch_not_compared),
    Planted("late-verification-counts", "KIP-890 without its verification guard", _late_verification_counts),
    Planted("ended-too-early-fences", "before KAFKA-18464 and KAFKA-18660", _ended_too_early_fences),
    Planted("leads-by-old-log", "KIP-631: a broker goes by the log from its registration on", _leads_by_old_log),
    Planted("producers-not-rebuilt", "producers' state kept through a truncation", _producers_not_rebuilt),
)
"""All of them; `source` says where each comes from."""
