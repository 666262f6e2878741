"""One run of one plan: a cluster comes up, things go wrong, all is healed, and the cluster must recover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import PurePath
from traceback import extract_tb
from typing import Final
from uuid import UUID

from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import (
    NO_LEADER,
    ControllerElected,
    PartitionChanged,
    PartitionState,
    Record,
)
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, partition_of
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition
from sparkonce.broker_lite.replication.invariants import (
    PartitionHistory,
    Replica,
    ViolationError,
    check_image,
    check_images_equal,
)
from sparkonce.broker_lite.replication.replicas import ReplicationSettings
from sparkonce.broker_lite.sim.atomicity import Transactions, read_committed
from sparkonce.broker_lite.sim.broker import SimulatedBroker, nothing
from sparkonce.broker_lite.sim.clients import Client, Consumer, Producer
from sparkonce.broker_lite.sim.consumers import ConsumerMember
from sparkonce.broker_lite.sim.controller_host import ControllerHost
from sparkonce.broker_lite.sim.faults import Faults
from sparkonce.broker_lite.sim.fencing import Fencing
from sparkonce.broker_lite.sim.group_clients import GroupClient, GroupView, ailing
from sparkonce.broker_lite.sim.grouping import GroupCoordinator
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.members import Member
from sparkonce.broker_lite.sim.metadata import SharedMetadata
from sparkonce.broker_lite.sim.network import Network
from sparkonce.broker_lite.sim.node import Call
from sparkonce.broker_lite.sim.ownership import Groups, Holders, has
from sparkonce.broker_lite.sim.plan import CALM_MS, SAFETY_MS, Durability, Plan, TopicPlan
from sparkonce.broker_lite.sim.scheduler import Scheduler, stream
from sparkonce.broker_lite.sim.transactional import TransactionalProducer
from sparkonce.broker_lite.sim.watched_log import WatchedLog

_LOOK_MS: Final = 200
"""How often it is checked whether the cluster has recovered."""
_REPLICAS: Final = 3
FIRST_TRANSACTIONAL_ID: Final = 1_000_000
_INTERNAL: Final = (TRANSACTIONS_TOPIC, OFFSETS_TOPIC)
_UP_MS: Final = 30_000
"""How long the cluster may take to come up."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    seed: int
    violation: str | None
    invariant: str | None
    simulated_ms: int
    marks: Counter[Mark]
    trace: tuple[str, ...]
    digest: str
    """Of the trace, which must have been kept."""


class World:
    """Everything that one run has."""

    def __init__(self, plan: Plan, tracing: bool) -> None:
        self.plan = plan
        self.scheduler = Scheduler()
        self.marks: Counter[Mark] = Counter()
        self.rng = stream("clients", plan.seed)
        self.network = Network(self.scheduler, plan.seed, plan.settings)
        self.metadata = SharedMetadata(
            self.scheduler, stream("metadata", plan.seed), plan.settings.metadata_flush_ms, self._landed
        )
        self.lines: list[str] | None = [] if tracing else None
        self.logs: dict[tuple[int, PartitionKey], WatchedLog] = {}
        self._histories: dict[PartitionKey, PartitionHistory] = {}
        self._broker_epochs: dict[int, int] = {}
        self._controllers = 0
        self.brokers = {each: SimulatedBroker(each, self) for each in range(1, plan.brokers + 1)}
        self.faults = Faults(self)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.transactional: list[TransactionalProducer] = []
        self.transactions = Transactions()
        self.fencing = Fencing()
        self.members: list[GroupClient] = []
        self.groups = Groups()
        self.holders = Holders()
        self.places = [(topic.name, each) for topic in plan.topics for each in range(topic.partitions)]
        self.places = [place for place in self.places if place[0] not in _INTERNAL]
        """All partitions that clients write to and read."""
        self._topic_numbers = {topic.name: number for number, topic in enumerate(plan.topics, 1)}
        self._producer_ids = count(FIRST_TRANSACTIONAL_ID)
        self._member_numbers = count(1)
        self._admin = Client(self, -1)

    # A run.

    def run(self) -> Outcome:
        """Go through all phases."""
        violation = invariant = None
        try:
            self._come_up()
            began_ms = self.scheduler.now_ms
            for step in self.plan.steps:
                self.scheduler.after(step.at_ms, self.faults.carry_out, step)
            self._pass(began_ms + SAFETY_MS)
            self.faults.end()
            self._calm_down()
        except ViolationError as error:
            violation, invariant = str(error), error.invariant
        except Exception as error:  # whatever it is, no event may end like that, and the seed is to be told
            at = extract_tb(error.__traceback__)[-1]
            violation, invariant = f"error: {error!r} in {at.name}, {PurePath(at.filename).name}:{at.lineno}", "error"
        if violation is not None:
            self.trace(lambda: f"VIOLATION {violation}")
        lines = tuple(self.lines or ())
        digest = blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
        return Outcome(self.plan.seed, violation, invariant, self.scheduler.now_ms, self.marks, lines, digest)

    def _pass(self, until_ms: int) -> None:
        step = self.scheduler.step
        while step(until_ms):
            pass

    def _come_up(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self.brokers[1].first_controller()
        wanted = sum(topic.partitions for topic in self.plan.topics)
        while self.scheduler.now_ms < _UP_MS:
            self._pass(self.scheduler.now_ms + 50)
            image = self.metadata.image
            if sum(1 for _ in image.partitions()) == wanted:
                self._begin_clients()
                return
            if all(image.may_join(each) for each in self.brokers):
                self._ask_controller(lambda host, call: host.create_topics(call))
        raise ViolationError("liveness", f"the cluster has not come up in {_UP_MS} ms")

    def _begin_clients(self) -> None:
        topic_ids = list(self.metadata.image.topics)
        for number, plan in enumerate(self.plan.producers):
            self.producers.append(Producer(self, number, (topic_ids[plan.topic], plan.partition)))
        for number, (key, _) in enumerate(self.metadata.image.partitions()):
            self.consumers.append(Consumer(self, number, key))
        if self.plan.transactional:
            keys = [self.key_of(place) for place in self.places]
            for number, key in enumerate(keys, len(self.consumers)):
                self.consumers.append(Consumer(self, number, key, committed=True))
            for number in range(len(self.plan.transactional)):
                self.transactional.append(TransactionalProducer(self, number, keys))
        for group in self.plan.groups:
            for index in range(group.members):
                kind = ConsumerMember if group.by_heartbeats else Member
                self.members.append(kind(self, len(self.members), group, index))

    def _calm_down(self) -> None:
        self.trace(lambda: "all faults are over")
        for member in self.members:
            member.calm()
        until_ms = self.scheduler.now_ms + CALM_MS
        while self.scheduler.now_ms < until_ms:
            self._pass(self.scheduler.now_ms + _LOOK_MS)
            if self._ails() is None:
                self._look_at_disks()
                return
        raise ViolationError("liveness", f"{CALM_MS} ms after the last fault: {self._ails()}")

    def _ails(self) -> str | None:
        """Return what is not yet as it should be."""
        for producer in self.producers:
            if producer.pending:
                return f"producer {producer.number} has {producer.pending} batches that nobody has answered"
        for transactional in self.transactional:
            if transactional.pending:
                return f"transactional producer {transactional.number} has {transactional.pending} open transactions"
        for broker in self.brokers.values():
            if not broker.transactions.at_rest:
                return f"broker {broker.node_id} coordinates transactions that have not ended"
        for group in self.plan.groups:
            wrong = self._group_ails(group.group_id)
            if wrong is not None:
                return f"group {group.group_id}: {wrong}"
        for key, state in self.metadata.image.partitions():
            moves = state.adding_replicas or state.removing_replicas
            if state.leader == NO_LEADER or set(state.in_sync_replicas) != set(state.replicas) or moves:
                return f"{self.name_of(key)} is {state}"
            logs = [self.logs[each, key] for each in state.replicas]
            ends = {(log.log_end_offset, log.high_watermark) for log in logs}
            if len(ends) > 1 or any(end != safe for end, safe in ends):
                return f"{self.name_of(key)}: ends and high watermarks are {sorted(ends)}"
            stable = {log.last_stable_offset for log in logs}
            if not self.history_of(key).lossy and stable != {logs[0].high_watermark}:
                return f"{self.name_of(key)}: a transaction hangs, last stable offsets are {sorted(stable)}"
        return None

    def _group_ails(self, group_id: str) -> str | None:
        coordinator = self._coordinator_of(group_id)
        if coordinator is None:
            return "nobody coordinates it"
        members = [each for each in self.members if each.plan.group_id == group_id and each.alive]
        classic, modern = coordinator.groups.get(group_id), coordinator.consumers.groups.get(group_id)
        view: GroupView | None = None
        if classic is not None:
            view = GroupView(classic.state.value, classic.generation, list(classic.members))
        elif modern is not None:
            view = GroupView(modern.state.value, modern.image.epoch, list(modern.image.members))
        return ailing(view, members, self.places)

    def _coordinator_of(self, group_id: str) -> GroupCoordinator | None:
        state = self.metadata.image.partition(self.coordinator_key(OFFSETS_TOPIC, group_id))
        if state is None or state.leader == NO_LEADER:
            return None
        found = self.brokers[state.leader].groups.coordinators.find(group_id)
        return found if isinstance(found, GroupCoordinator) else None

    def _look_at_disks(self) -> None:
        for key, state in self.metadata.image.partitions():
            logs = [self.logs[each, key] for each in state.replicas]
            for log in logs:
                if log.batches != log.batches_on_disk() or log.batches != logs[0].batches:
                    raise ViolationError("logs-match", f"{self.name_of(key)}: files of equal logs differ in the end")
        for consumer in self.consumers:
            self.reads_out_of_range(consumer)
        self._look_at_transactions()
        for group in self.plan.groups:
            self._look_at_offsets(group.group_id)

    def _look_at_transactions(self) -> None:
        """Read everything as a read_committed consumer does, from every replica."""
        for number in range(_REPLICAS):
            found: dict[PartitionKey, Counter[int]] = {}
            for key, state in self.metadata.image.partitions():
                if not self.history_of(key).lossy and self.plan.transactional:
                    log = self.logs[state.replicas[number], key]
                    found[key], offset = Counter(), 0
                    while offset < log.last_stable_offset:
                        batches, offset = read_committed(log, offset)
                        found[key].update(crc for _, crc in batches)
            self.transactions.check_all(found)

    def _look_at_offsets(self, group_id: str) -> None:
        """Read what a group has committed, and see what has become of commits that were never acknowledged."""
        coordinator = self._coordinator_of(group_id)
        assert coordinator is not None
        for wrong in coordinator.read(group_id, self.places)[1]:
            raise ViolationError("commits-kept", wrong)
        log = coordinator.log.batches
        for commit, written in self.groups.left_behind():
            if commit.group_id == group_id and written.epoch < coordinator.epoch_now:
                self.mark(Mark.COMMIT_KEPT if has(log, written) else Mark.COMMIT_LOST)

    # What brokers and clients tell.

    def mark(self, mark: Mark) -> None:
        """Note that something rare was seen."""
        self.marks[mark] += 1

    def trace(self, line: Callable[[], str]) -> None:
        """Add a line to the trace, if there is one."""
        if self.lines is not None:
            self.lines.append(f"{self.scheduler.now_ms:>7} {line()}")

    def name_of(self, key: PartitionKey) -> str:
        """Return a partition's name."""
        return f"{self.topic_of(key).name}-{key[1]}"

    def place_of(self, key: PartitionKey) -> TopicPartition:
        """Return a partition by its topic's name."""
        return self.topic_of(key).name, key[1]

    def key_of(self, place: TopicPartition) -> PartitionKey:
        """Return a partition by its topic's id."""
        return self.metadata.image.topic_ids[place[0]], place[1]

    def coordinator_key(self, topic: str, name: str) -> PartitionKey:
        """Return the partition of an internal topic that keeps a transactional id or a group."""
        number = self._topic_numbers[topic]
        return UUID(int=number), partition_of(name, self.plan.topics[number - 1].partitions)

    def take_producer_id(self) -> int:
        """Return a producer id that is not in use."""
        return next(self._producer_ids)

    def take_member_number(self) -> int:
        """Return a number that no member's id has."""
        return next(self._member_numbers)

    def read_committed(self, key: PartitionKey, batches: list[tuple[int, int]]) -> None:
        """Check what a read_committed consumer got."""
        if not self.history_of(key).lossy:
            self.transactions.read(key, batches)

    def topic_of(self, key: PartitionKey) -> TopicPlan:
        """Return what a partition's topic was planned to be."""
        return self.plan.topics[key[0].int - 1]

    def history_of(self, key: PartitionKey) -> PartitionHistory:
        """Return what has happened to a partition."""
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = PartitionHistory(self.name_of(key))
            if self.plan.durability is Durability.NONE:
                history.lossy, history.promises = True, False
        return history

    def replication_settings(self, lag_ms: int) -> ReplicationSettings:
        """Return what brokers go by."""
        return ReplicationSettings(replica_lag_time_max_ms=lag_ms)

    def became_controller(self, broker_id: int) -> None:
        """Note that a broker holds the lock now."""
        self.trace(lambda: f"broker {broker_id} is the controller")
        self._controllers += 1
        if self._controllers > 1:
            self.mark(Mark.FAILOVER)
            if any(each.proposes for each in self.brokers.values()):
                self.mark(Mark.FAILOVER_IN_PROPOSAL)

    def stopped_uncleanly(self, broker_id: int, power: bool) -> None:
        """Note that a broker has died."""
        self.faults.stopped_uncleanly(broker_id, power)

    def may_stop(self, broker_id: int, *, power: bool) -> bool:
        """Whether a broker may die now."""
        return self.faults.may_stop(broker_id, power=power)

    def dies_with_machine(self, broker: SimulatedBroker) -> bool:
        """Draw whether a process that dies in the middle of a change takes its machine with it, if it may."""
        return broker.rng.random() < 0.5 and self.may_stop(broker.node_id, power=True)

    def start_later(self, broker: SimulatedBroker, delay_ms: int) -> None:
        """Start a broker again, if it is still down then."""
        self.scheduler.after(delay_ms, broker.start)

    def produce(self, number: int, records: int) -> None:
        """Let a producer send."""
        self.producers[number].produce(records)

    def transact(self, number: int, amount: int) -> None:
        """Let a producer write a transaction."""
        self.transactional[number].transact(amount)

    def produce_to(self, key: PartitionKey) -> None:
        """Let all producers of a partition send."""
        for producer in self.producers:
            if producer.key == key:
                producer.produce(1)

    def elect(self, key: PartitionKey) -> None:
        """Ask for the preferred leader."""
        self._ask_controller(lambda host, call: host.elect(call, key))

    def change_settings(self, topic: TopicPlan, minimum: int, *, unclean: bool) -> None:
        """Ask for other settings of a topic."""
        self._ask_controller(lambda host, call: host.change_settings(call, topic, minimum, unclean=unclean))

    def change_default(self, minimum: int) -> None:
        """Ask for another `min.insync.replicas` of the cluster."""
        self._ask_controller(lambda host, call: host.change_default(call, minimum))

    def reassign(self, key: PartitionKey, target: tuple[int, ...] | None) -> None:
        """Ask for other replicas of a partition; None gives a move up."""
        self._ask_controller(lambda host, call: host.reassign(call, key, target))

    def _ask_controller(self, handle: Callable[[ControllerHost, Call], None]) -> None:
        holder = self.brokers.get(self.metadata.holder)
        if holder is None:
            return

        def deliver(call: Call) -> None:
            if holder.host is not None:
                handle(holder.host, call)

        Call(self._admin, holder, deliver, nothing, 1_000).send()

    def reads_out_of_range(self, consumer: Consumer) -> None:
        """Take a consumer that has read more than there is now."""
        history = self.history_of(consumer.key)
        if history.lossy:
            consumer.begin_again()
        elif history.safe and consumer.offset > history.safe[-1].last_offset + 1:
            raise ViolationError("read-is-safe", f"{history.name}: a consumer has read up to {consumer.offset}")

    # The metadata log.

    def _landed(self, records: Sequence[Record]) -> None:
        """Apply what has become durable to the image of the truth, look at it, and let brokers read it."""
        image = self.metadata.image
        for record in records:
            self.trace(lambda record=record: f"log {image.next_offset}: {_shown(record)}")  # type: ignore[misc]
            if isinstance(record, PartitionChanged):
                key = (record.topic_id, record.partition)
                before = image.partition(key)
                self.history_of(key).changed(before, record.state)
                image.apply(record)
                if before is not None:
                    self._note_election(key, before, record.state)
                self.check_members(key)
                continue
            if isinstance(record, ControllerElected) and record.controller_epoch <= image.controller_epoch:
                raise ViolationError("epochs-rise", f"controller epoch {record.controller_epoch} comes again")
            image.apply(record)
        check_image(self._broker_epochs, image)
        self._broker_epochs = {each: image.broker_epoch(each) for each in image.brokers}
        for broker in self.brokers.values():
            if broker.alive:
                lag_ms = 1 + int(broker.rng.random() ** 2 * self.plan.settings.image_lag_ms)
                broker.after(lag_ms, broker.learn)

    def _note_election(self, key: PartitionKey, before: PartitionState, after: PartitionState) -> None:
        if before.adding_replicas and not after.adding_replicas and before.replicas != after.replicas:
            self.mark(Mark.MOVED)
        if after.leader == NO_LEADER:
            self.mark(Mark.NOBODY_LEADS)
        elif after.leader in before.in_sync_replicas:
            return
        elif after.leader in before.eligible_leader_replicas:
            self.mark(Mark.ELIGIBLE)
        elif after.leader == before.last_known_leader and not before.eligible_leader_replicas:
            self.mark(Mark.LAST_KNOWN)
        elif after.leader != before.leader:
            self.mark(Mark.UNCLEAN)
            self.history_of(key).loses(after.leader_epoch)

    def check_members(self, key: PartitionKey) -> None:
        """Look at all in sync or eligible."""
        state = self.metadata.image.partition(key)
        if state is not None:
            self.history_of(key).check_members(
                self._replica(key, each)
                for each in (*state.in_sync_replicas, *state.eligible_leader_replicas)
                if not self._has_forgotten(key, each)
            )

    def check_member(self, key: PartitionKey, broker_id: int) -> None:
        """Look at one replica, if it is in sync or eligible."""
        state = self.metadata.image.partition(key)
        if state is None or broker_id not in (*state.in_sync_replicas, *state.eligible_leader_replicas):
            return
        if not self._has_forgotten(key, broker_id):
            self.history_of(key).check_members((self._replica(key, broker_id),))

    def _replica(self, key: PartitionKey, broker_id: int) -> Replica:
        log = self.logs.get((broker_id, key))
        return Replica(broker_id, () if log is None else log.batches)

    def _has_forgotten(self, key: PartitionKey, broker_id: int) -> bool:
        """Whether a replica may have lost records that its broker has not yet registered again after."""
        forgot_epoch = self.brokers[broker_id].forgot_epoch
        flushed = self.topic_of(key).flushed
        return not flushed and forgot_epoch == self.metadata.image.broker_epoch(broker_id)

    def check_image(self, image: ClusterImage, broker_id: int) -> None:
        """Compare a broker's image with the truth."""
        if image.next_offset == self.metadata.image.next_offset:
            check_images_equal(image, self.metadata.image, f"broker {broker_id}")


def _shown(record: Record) -> str:
    if isinstance(record, PartitionChanged):
        state = record.state
        return (
            f"t{record.topic_id.int - 1}-{record.partition} leader {state.leader} epoch {state.leader_epoch} "
            f"in sync {list(state.in_sync_replicas)} eligible {list(state.eligible_leader_replicas)} "
            f"last known {state.last_known_leader} partition epoch {state.partition_epoch}"
        )
    return str(record)


def run_plan(plan: Plan, *, tracing: bool = False) -> Outcome:
    """Run a plan."""
    return World(plan, tracing).run()
