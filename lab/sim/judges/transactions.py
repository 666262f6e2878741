"""Observes the transaction coordinators of brokers: decisions, rejections, and rare events.

The invariants are in `fencing.py` and `atomicity.py`. Which EndTxn ends a transaction is known by its producer id and
epoch, and by what the producer that has these had requested by then.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from lab.sim.disk import CutShort
from lab.sim.judges.observing import Around, CoordinatorPartition, observed
from lab.sim.judges.ownership import KNOWS_BETTER
from lab.sim.marks import Mark
from sparkonce.broker_lite.coordinators.transaction_messages import (
    LEGACY,
    Decision,
    Producer,
    Transaction,
    TransactionState,
)
from sparkonce.broker_lite.coordinators.transactions import Transactions, check_invariants
from sparkonce.broker_lite.log.producer_state import NO_TRANSACTION
from sparkonce.broker_lite.node.transaction_coordinator import TransactionCoordinator
from sparkonce.broker_lite.waiting import begin_in_background
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lab.sim.clients.transactional import TransactionalProducer
    from lab.sim.world import World
    from sparkonce.broker_lite.log.producer_state import Marker
    from sparkonce.broker_lite.node.coordinated import Coordinated


def observed_transactions(world: World, producers: Iterable[TransactionalProducer]) -> AbstractContextManager[None]:
    """Observe all transaction coordinators for a while."""
    return observed(_Observer(world, producers).observers)


class _Observer:
    """Knows the last request: a decision follows before the next request."""

    def __init__(self, world: World, producers: Iterable[TransactionalProducer]) -> None:
        self._world = world
        self._producers = producers
        self._asks: Producer | None = None
        self._ends = False
        self._decision: Decision | None = None
        self._coordinators: dict[Transactions, TransactionCoordinator] = {}
        self.observers: tuple[tuple[Any, str, Around], ...] = (
            (Transactions, "init_producer_id", self._asked),
            (Transactions, "add_partitions", self._asked),
            (Transactions, "end", self._asked_to_end),
            (Transactions, "verify_partitions", self._verify),
            (TransactionCoordinator, "carry_out", self._carry_out),
            (TransactionCoordinator, "loaded", self._loaded),
            (TransactionCoordinator, "write_marker", self._write_marker),
        )

    def _asked(self, ask: Callable[..., Decision], core: Transactions, producer: Producer, *rest: Any) -> Decision:
        return self._decided(ask(core, producer, *rest), producer, ends=False)

    def _asked_to_end(
        self,
        end: Callable[..., Decision],
        core: Transactions,
        producer: Producer,
        committed: bool,
        version: int,
        *rest: Any,
    ) -> Decision:
        decision = end(core, producer, committed, version, *rest)
        # A retry may name the previous epoch, but not in an older version of EndTxn than the original.
        self._decided(decision, producer, ends=version != LEGACY)
        if decision.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            self._note_early_end(producer, core.get(producer.transactional_id))
        if decision.change is not None and core in self._coordinators:
            for each in self._producers:
                if each.is_ended_by_earlier(producer, committed=committed):
                    self._ended_by_earlier(self._coordinators[core].partitions, each)
        return decision

    def _ended_by_earlier(self, partitions: Coordinated, client: TransactionalProducer) -> None:
        """Note that a transaction is decided by an EndTxn that its producer sent for an earlier one.

        That counts at once if no other coordinator has been elected, and otherwise once it is safe. A coordinator that
        was replaced without knowing it decides by its old state, and that has no effect unless it becomes safe.
        """
        world, attempt = self._world, client.attempt

        def counts() -> None:
            world.mark(Mark.ENDED_BY_EARLIER)
            world.judge(lambda: world.transactions.ended_by_earlier(attempt, client.has_epochs))

        async def once_safe() -> None:
            if not await partitions.safe([client.name]):
                counts()

        if CoordinatorPartition(world, partitions, client.name).is_current:
            counts()
        elif hasattr(partitions, "safe"):  # former versions are not judged by this
            begin_in_background(once_safe(), "what an earlier EndTxn has decided is not judged")

    def _verify(
        self, verify: Callable[..., dict[Any, ErrorCode]], core: Transactions, producer: Producer, *rest: Any
    ) -> dict[Any, ErrorCode]:
        errors, coordinator = verify(core, producer, *rest), self._coordinators.get(core)
        if coordinator is not None:
            place = CoordinatorPartition(self._world, coordinator.partitions, producer.transactional_id)
            for error in errors.values():
                self._judge_refusal(place, producer, error, ends=False)
        return errors

    def _judge_refusal(self, place: CoordinatorPartition, asks: Producer, error: ErrorCode, *, ends: bool) -> None:
        fencing = self._world.fencing
        if place.is_current:
            self._world.judge(lambda: fencing.refused(asks, error, ends=ends))
        elif place.epoch_now != KNOWS_BETTER:
            fencing.refused_by_former(asks, error)

    def _decided(self, decision: Decision, producer: Producer, *, ends: bool) -> Decision:
        self._asks, self._ends, self._decision = producer, ends, decision
        return decision

    def _note_early_end(self, producer: Producer, known: Transaction | None) -> None:
        """Note an EndTxn under an epoch or a producer id that is valid only after the markers are written."""
        if known is not None and known.producer_id != producer.producer_id == known.next_producer_id:
            self._world.mark(Mark.ENDED_TOO_EARLY_BY_NEXT_ID)
        elif known is not None and known.client_version != LEGACY and known.epoch == producer.epoch:
            self._world.mark(Mark.ENDED_TOO_EARLY)

    def _carry_out(
        self, carry_out: Callable[..., Decision], coordinator: TransactionCoordinator, decision: Decision
    ) -> Decision:
        world = self._world
        asks, self._asks = self._asks if decision is self._decision else None, None
        name = decision.change.transactional_id if decision.change is not None else asks and asks.transactional_id
        if name is None or not self._is_of_cluster(coordinator):
            return carry_out(coordinator, decision)
        place = CoordinatorPartition(world, coordinator.partitions, name)
        is_current = place.is_current
        if decision.change is not None and not (is_current and asks is not None):
            world.fencing.unknown(name)
        try:
            answer = carry_out(coordinator, decision)
        except CutShort:
            world.fencing.unknown(name)
            raise
        if decision.change is not None and answer is decision:
            world.judge(lambda: check_invariants(coordinator.transactions))
            if asks is None and decision.change.state is TransactionState.PREPARE_ABORT:
                world.mark(Mark.TRANSACTION_TIMED_OUT)
            if is_current and asks is not None:
                world.fencing.decided(asks, decision)
        if answer.error is ErrorCode.PRODUCER_FENCED:
            world.mark(Mark.PRODUCER_FENCED)
        if asks is not None:
            self._judge_refusal(place, asks, answer.error, ends=self._ends)
        return answer

    def _loaded(self, loaded: Callable[..., None], coordinator: TransactionCoordinator, partitions: Any) -> None:
        if self._is_of_cluster(coordinator):
            self._coordinators[coordinator.transactions] = coordinator
        if coordinator.transactions.decided():
            self._world.mark(Mark.DECISION_TAKEN_OVER)
        loaded(coordinator, partitions)

    def _is_of_cluster(self, coordinator: TransactionCoordinator) -> bool:
        """Whether it belongs to the cluster, not to a standalone broker."""
        return coordinator._led.member.broker_id in self._world.brokers

    def _write_marker(
        self,
        write: Callable[..., int | None],
        coordinator: TransactionCoordinator,
        topic: str,
        index: int,
        marker: Marker,
    ) -> int | None:
        try:
            entry = coordinator._led.leading(topic, index).log.producers.get(marker.producer_id)
            if entry is None or entry.current_transaction_first_offset == NO_TRANSACTION:
                self._world.mark(Mark.MARKER_AGAIN)
            return write(coordinator, topic, index, marker)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                self._world.mark(Mark.MARKER_UNDER_MIN)
            raise
