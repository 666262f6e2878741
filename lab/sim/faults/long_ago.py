"""Former producers that left a transactional id with few epochs: these are used up, then a new producer id follows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from lab.sim.judges.observing import observed
from sparkonce.broker_lite.coordinators.transaction_messages import Decision, Producer, Transaction
from sparkonce.broker_lite.coordinators.transactions import Transactions
from sparkonce.broker_lite.node.transaction_coordinator import TransactionCoordinator
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import NO_PRODUCER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lab.sim.plan import TransactionalPlan


def left_long_ago(plans: Iterable[TransactionalPlan]) -> AbstractContextManager[None]:
    """Let the first InitProducerId of a transactional id find a former producer's state, for a while."""
    left_at = {each.transactional_id: each.left_at for each in plans}
    coordinators: dict[Transactions, TransactionCoordinator] = {}

    def loaded(load: Callable[..., None], coordinator: TransactionCoordinator, partitions: Any) -> None:
        coordinators[coordinator.transactions] = coordinator
        load(coordinator, partitions)

    def init(ask: Callable[..., Decision], core: Transactions, producer: Producer, *rest: Any) -> Decision:
        name = producer.transactional_id
        epoch = left_at.get(name, NO_PRODUCER_EPOCH)
        if epoch != NO_PRODUCER_EPOCH and core.get(name) is None and core in coordinators:
            coordinator = coordinators[core]
            timeout_ms = core._settings.max_timeout_ms
            left = Transaction(name, core._take_producer_id(), timeout_ms, epoch=epoch)
            coordinator.carry_out(Decision(ErrorCode.NONE, change=left))
        return ask(core, producer, *rest)

    return observed([(TransactionCoordinator, "loaded", loaded), (Transactions, "init_producer_id", init)])
