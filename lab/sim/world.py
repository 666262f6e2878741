"""A simulated cluster: its machines, its true state, and what was observed of its logs and by its clients.

Clients, faults and judges use it, but are not part of it: it notifies listeners of what happens. A whole run, from
its first event to its last, is in `simulation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.sim.faults.budget import Budget
from lab.sim.faults.words import Words
from lab.sim.judges.atomicity import Transactions
from lab.sim.judges.cleaned_logs import CleanedEnds
from lab.sim.judges.commits import Commits
from lab.sim.judges.fencing import Fencing
from lab.sim.judges.ownership import Groups, Holders
from lab.sim.judges.truth import Truth, Unjudged
from lab.sim.judges.watched_log import WatchedLog
from lab.sim.machine.machine import METADATA, Machine
from lab.sim.machine.process import Process
from lab.sim.machine.settings import broker_config
from lab.sim.plan import Durability, SeedPlan, TopicPlan
from lab.sim.run import Run
from lab.sim.zookeeper.truth import ZooKeeperTruth
from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.replication.invariants import PartitionHistory, ViolationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.sim.machine.loop import SimulatedLoop
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.config import BrokerConfig

INTERNAL: Final = (TRANSACTIONS_TOPIC, OFFSETS_TOPIC)
_MOST_EVENTS: Final = 200_000
"""Limit of events in one millisecond: more is an endless loop."""


class World(Run):
    """A run with a cluster in it; the owner of its machines."""

    def __init__(self, plan: SeedPlan, tracing: bool) -> None:
        super().__init__(plan, tracing)
        self.brokers = {each: Machine(each, self, self) for each in range(1, plan.brokers + 1)}
        self.versions: list[type[Process]] = [Process]
        """The versions of brokers."""
        self.metadata = (
            Truth(self.shared) if self.ensemble is None else ZooKeeperTruth(self, self.brokers, self.ensemble)
        )
        self.budget = Budget(plan, self.brokers, lambda: self.image)
        self.words = Words(plan.seed, plan.settings.timeout_ms)
        # Observations.
        self.logs: dict[tuple[int, PartitionKey], WatchedLog] = {}
        self.cleaned = CleanedEnds()
        self.retained_from: dict[PartitionKey, int] = {}
        """The latest log start offsets caused by size retention on any replica."""
        self.histories: dict[PartitionKey, PartitionHistory] = {}
        self.leads_ms: dict[PartitionKey, dict[int, int]] = {}
        """Since when the leader of each leader epoch leads a partition, as far as it knows."""
        self.leader_changed_ms = 0
        """When a leader was last changed."""
        self.on_joined: list[Callable[[Machine, ClusterMember], None]] = []
        """Called with each broker that joins its cluster."""
        self.on_member_joins: list[Callable[[int], None]] = []
        """Called with a group's coordinator when a KIP-848 member is about to join."""
        self.on_epoch_told: list[Callable[[int], None]] = []
        """Called with a coordinator that has sent such a member a new epoch."""
        # Acknowledged to clients.
        self.client_loops: list[SimulatedLoop] = []
        self.transactions = Transactions()
        self.fencing = Fencing()
        self.groups = Groups()
        self.holders = Holders()
        self.commits = Commits()
        places = [(topic.name, each) for topic in plan.topics for each in range(topic.partitions)]
        self.places = [place for place in places if place[0] not in INTERNAL]
        """All partitions that clients write and read."""

    @property
    def image(self) -> ClusterImage:
        """The cluster by the durable log."""
        return self.metadata.image

    def pass_until(self, until_ms: int) -> None:
        """Run events until a time.

        Raises:
            ViolationError: the first violation.
        """
        scheduler, truth = self.scheduler, self.metadata
        at_ms, events = -1, 0
        while scheduler.step(until_ms):
            truth.look()
            if self.violation is not None:
                raise self.violation
            if scheduler.now_ms == at_ms:
                events += 1
                if events > _MOST_EVENTS:
                    raise ViolationError("liveness", f"{events} events in one millisecond")
            else:
                at_ms, events = scheduler.now_ms, 0

    def judge(self, check: Callable[[], object]) -> None:
        """Run a check against the true state."""
        self.metadata.look()
        super().judge(check)

    # Partitions.

    def name_of(self, key: PartitionKey) -> str:
        """Return a partition's name."""
        return f"{self.topic_of(key).name}-{key[1]}"

    def topic_of(self, key: PartitionKey) -> TopicPlan:
        """Return the plan of a partition's topic."""
        topic = self.image.topics.get(key[0])
        name = "deleted" if topic is None else topic.name
        found = next((each for each in self.plan.topics if each.name == name), None)
        return found or TopicPlan(name, 0, (1,), by_default=False, unclean=False, flushed=False, segment_bytes=0)

    def is_planned(self, key: PartitionKey) -> bool:
        """Whether a partition is of a planned topic, so that its records are judged; others come and go."""
        return self.topic_of(key).partitions > 0

    @property
    def is_lossy(self) -> bool:
        """Whether a planned partition may have lost records by design."""
        return any(history.lossy for history in self.histories.values() if not isinstance(history, Unjudged))

    def history_of(self, key: PartitionKey, name: str | None = None) -> PartitionHistory:
        """Return a partition's history; `name` is its name, where that may be unknown yet."""
        history = self.histories.get(key)
        if history is None:
            name = name or self.name_of(key)
            planned = name.rpartition("-")[0] in {topic.name for topic in self.plan.topics}
            history = self.histories[key] = (PartitionHistory if planned else Unjudged)(name)
            if self.plan.durability is Durability.NONE:
                history.lossy, history.promises = True, False
        return history

    def acknowledged(self, key: PartitionKey, base_offset: int, last_offset: int, crc: int) -> None:
        """Check an acknowledgement with acks=all."""
        history = self.history_of(key)
        epoch = 0
        if history.lossy:
            found = (
                batch.epoch
                for (_, each), log in self.logs.items()
                if each == key
                for batch in log.batches
                if batch.base_offset == base_offset and batch.crc == crc
            )
            epoch = max(found, default=-1)
        self.judge(lambda: history.acknowledged(last_offset, crc, epoch))

    def read_committed(self, key: PartitionKey, batches: list[tuple[int, int]]) -> None:
        """Check what a read_committed consumer received."""
        if not self.history_of(key).lossy:
            self.transactions.read(key, batches)

    # Its machines.

    def config_of(self, node_id: int) -> BrokerConfig:
        """See `Owner`."""
        return broker_config(self.plan, node_id, METADATA)

    def broker_epoch(self, node_id: int) -> int:
        """See `Owner`."""
        return self.image.broker_epoch(node_id)

    def may_stop(self, node_id: int, *, power: bool) -> bool:
        """See `Owner`."""
        return self.budget.may_stop(node_id, power=power)

    def stopped_uncleanly(self, node_id: int, *, power: bool) -> None:
        """See `Owner`."""
        self.budget.stopped_uncleanly(node_id, power=power)

    def disk_replaced(self, node_id: int) -> None:
        """See `Owner`; the logs of the former disk are forgotten."""
        for key in [key for each, key in self.logs if each == node_id]:
            del self.logs[node_id, key]
            self.cleaned.cut(node_id, key, 0)

    def joined(self, machine: Machine, member: ClusterMember) -> None:
        """See `Owner`."""
        self.metadata.joined(machine)
        for listener in self.on_joined:
            listener(machine, member)

    def leads(self, machine: Machine, key: PartitionKey) -> None:
        """See `Owner`."""
        self.judge(lambda: self._leads(machine, key))

    def _leads(self, machine: Machine, key: PartitionKey) -> None:
        assert machine.process is not None
        broker_id, epoch = machine.node_id, machine.process.led[key].state.leader_epoch
        now = self.image.partition(key)
        current = now is not None and now.leader_epoch == epoch
        self.trace(lambda: f"broker {broker_id} leads {self.history_of(key).name} in epoch {epoch}")
        self.leads_ms.setdefault(key, {})[epoch] = self.scheduler.now_ms
        log = self.logs[broker_id, key]
        self.history_of(key).leads(broker_id, epoch, log.batches, current, log.high_watermark)
