"""A simulated cluster: its machines, what is true of it, and what has been seen of its logs and by its clients.

Clients, faults and judges go by it. None of them is part of it: it offers what happens to whoever listens. What it is
made for, a run from its first event to its last, is in `simulation.py`.
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
from lab.sim.plan import Durability, Plan, TopicPlan
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
"""In one millisecond: more is a loop without an end."""


class World(Run):
    """A run with a cluster in it; its machines' owner."""

    def __init__(self, plan: Plan, tracing: bool) -> None:
        super().__init__(plan, tracing)
        self.brokers = {each: Machine(each, self, self) for each in range(1, plan.brokers + 1)}
        self.versions: list[type[Process]] = [Process]
        """What brokers are run from."""
        self.metadata = (
            Truth(self.shared) if self.ensemble is None else ZooKeeperTruth(self, self.brokers, self.ensemble)
        )
        self.budget = Budget(plan, self.brokers, lambda: self.image)
        self.words = Words(plan.seed, plan.settings.timeout_ms)
        # What has been seen.
        self.logs: dict[tuple[int, PartitionKey], WatchedLog] = {}
        self.cleaned = CleanedEnds()
        self.retained_from: dict[PartitionKey, int] = {}
        """Where logs begin at the latest that a replica has made shorter by its size."""
        self.histories: dict[PartitionKey, PartitionHistory] = {}
        self.leads_ms: dict[PartitionKey, dict[int, int]] = {}
        """Since when the leader of each leader epoch leads a partition, to its own knowledge."""
        self.leader_changed_ms = 0
        """When a leader was last changed."""
        self.on_joined: list[Callable[[Machine, ClusterMember], None]] = []
        """Called with each broker that begins to take part in its cluster."""
        self.on_member_joins: list[Callable[[int], None]] = []
        """Called with the coordinator of a group of KIP-848 that a member is about to join."""
        self.on_epoch_told: list[Callable[[int], None]] = []
        """Called with a coordinator that has told such a member of a new epoch."""
        # What clients were answered.
        self.client_loops: list[SimulatedLoop] = []
        self.transactions = Transactions()
        self.fencing = Fencing()
        self.groups = Groups()
        self.holders = Holders()
        self.commits = Commits()
        places = [(topic.name, each) for topic in plan.topics for each in range(topic.partitions)]
        self.places = [place for place in places if place[0] not in INTERNAL]
        """All partitions that clients write to and read."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as the durable log has it."""
        return self.metadata.image

    def pass_until(self, until_ms: int) -> None:
        """Let time pass.

        Raises:
            ViolationError: the first that anybody has seen.
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
        """Check something, by what is true now."""
        self.metadata.look()
        super().judge(check)

    # Partitions.

    def name_of(self, key: PartitionKey) -> str:
        """Return a partition's name."""
        return f"{self.topic_of(key).name}-{key[1]}"

    def topic_of(self, key: PartitionKey) -> TopicPlan:
        """Return what a partition's topic was planned to be."""
        topic = self.image.topics.get(key[0])
        name = "deleted" if topic is None else topic.name
        found = next((each for each in self.plan.topics if each.name == name), None)
        return found or TopicPlan(name, 0, (1,), by_default=False, unclean=False, flushed=False, segment_bytes=0)

    def is_planned(self, key: PartitionKey) -> bool:
        """Whether a partition is one of the plan's, whose records are judged; others come and go."""
        return self.topic_of(key).partitions > 0

    @property
    def is_lossy(self) -> bool:
        """Whether a partition of the plan may have lost records by design."""
        return any(history.lossy for history in self.histories.values() if not isinstance(history, Unjudged))

    def history_of(self, key: PartitionKey, name: str | None = None) -> PartitionHistory:
        """Return what has happened to a partition; `name` is its name, where that may not be known yet."""
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
        """Check what a read_committed consumer got."""
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
        """See `Owner`; the logs that were on the other disk are forgotten."""
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
