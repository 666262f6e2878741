"""All observers inside running brokers, for one version of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lab.sim.faults.long_ago import left_long_ago
from lab.sim.judges.groups import observed_groups
from lab.sim.judges.observed_log import observed_logs
from lab.sim.judges.rare import rare_things
from lab.sim.judges.transactions import observed_transactions
from lab.sim.replacing import replaced
from sparkonce.broker_lite.log.log_manager import LogManager

if TYPE_CHECKING:
    from lab.sim.clients.transactional import TransactionalProducer
    from lab.sim.judges.decisions import Decisions
    from lab.sim.world import World


@contextmanager
def observed_brokers(
    world: World, decisions: Decisions, transactional: Sequence[TransactionalProducer]
) -> Iterator[None]:
    """Observe logs, coordinators and controllers for a while."""
    with (
        replaced(LogManager, "log_class", observed_logs(world, decisions)),
        left_long_ago(world.plan.transactional),
        observed_transactions(world, transactional),
        observed_groups(world),
        rare_things(world),
    ):
        yield
