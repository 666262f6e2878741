"""One run of one plan: a cluster comes up, things go wrong, all is healed, and it must recover."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import PurePath
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Final

from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.replication.invariants import (
    PartitionHistory,
    ViolationError,
)
from sparkonce.broker_lite.replication.leader import PartitionLeader, Proposal
from sparkonce.broker_lite.replication.replicas import Event, Leads
from sparkonce.broker_lite.sim.clients.admin import Admin
from sparkonce.broker_lite.sim.clients.client import Client
from sparkonce.broker_lite.sim.clients.groups import ClassicMember, Commits, GroupClient
from sparkonce.broker_lite.sim.clients.heartbeats import HeartbeatMember
from sparkonce.broker_lite.sim.clients.intruder import Intruder
from sparkonce.broker_lite.sim.clients.keeper import Keeper
from sparkonce.broker_lite.sim.clients.operator import Operator, has_operator
from sparkonce.broker_lite.sim.clients.producers import Consumer, Herald, Producer
from sparkonce.broker_lite.sim.clients.transactional import Courier, TransactionalProducer
from sparkonce.broker_lite.sim.faults.long_ago import left_long_ago
from sparkonce.broker_lite.sim.faults.markers import ShellFaults
from sparkonce.broker_lite.sim.faults.strangers import beside_strangers, has_strangers
from sparkonce.broker_lite.sim.faults.words import Words
from sparkonce.broker_lite.sim.judges.atomicity import Transactions
from sparkonce.broker_lite.sim.judges.cleaned_logs import CleanedEnds
from sparkonce.broker_lite.sim.judges.decisions import Decisions
from sparkonce.broker_lite.sim.judges.fencing import Fencing
from sparkonce.broker_lite.sim.judges.groups import observed_groups
from sparkonce.broker_lite.sim.judges.ownership import Groups, Holders
from sparkonce.broker_lite.sim.judges.promptness import probe
from sparkonce.broker_lite.sim.judges.rare import rare_things
from sparkonce.broker_lite.sim.judges.recovery import ails, compare_images, look_at_disks
from sparkonce.broker_lite.sim.judges.transactions import observed_transactions
from sparkonce.broker_lite.sim.judges.truth import Mistakes, ObservedLog, Truth, Unjudged
from sparkonce.broker_lite.sim.judges.watched_log import WatchedLog
from sparkonce.broker_lite.sim.machine.machine import METADATA, Machine, Process, SharedDisk
from sparkonce.broker_lite.sim.machine.settings import broker_config, has_cleaning, has_intruder
from sparkonce.broker_lite.sim.machine.sockets import Network
from sparkonce.broker_lite.sim.machine.standalone import StandaloneMachine, has_standalone
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.outcome import Outcome
from sparkonce.broker_lite.sim.plan import SAFETY_MS, Durability, Plan, TopicPlan
from sparkonce.broker_lite.sim.replacing import replaced
from sparkonce.broker_lite.sim.scheduler import Scheduler
from sparkonce.broker_lite.sim.zookeeper.ensemble import ensemble_of
from sparkonce.broker_lite.sim.zookeeper.truth import ZooKeeperTruth

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.config import BrokerConfig

_LOOK_MS: Final = 200
"""How often it is checked whether the cluster has recovered, and whether images agree."""
_UP_MS: Final = 200_000
"""How long the cluster may take to come up: several requests between brokers may be lost, one after the other."""
CALM_MS: Final = 75_000
"""How long it has to recover: a request between brokers whose answer is lost without a sign takes 30 s."""
_MOST_EVENTS: Final = 200_000
"""In one millisecond: more is a loop without an end."""
INTERNAL: Final = (TRANSACTIONS_TOPIC, OFFSETS_TOPIC)


class World:
    """Everything that one run has."""

    def __init__(self, plan: Plan, tracing: bool) -> None:
        self.plan = plan
        self.scheduler = Scheduler()
        self.marks: Counter[Mark] = Counter()
        self.network = Network(self.scheduler, plan.seed, plan.settings)
        self.shared = SharedDisk()
        self.decisions = Decisions(self)
        self.ensemble = ensemble_of(plan, self.scheduler, self.network)
        self.metadata = (
            Truth(self.shared, self.decisions.landed) if self.ensemble is None else ZooKeeperTruth(self, self.ensemble)
        )
        self.lines: list[str] | None = [] if tracing else None
        self.violation: ViolationError | None = None
        self.logs: dict[tuple[int, PartitionKey], WatchedLog] = {}
        self.cleaned = CleanedEnds()
        self.histories: dict[PartitionKey, PartitionHistory] = {}
        self.leads_ms: dict[PartitionKey, dict[int, int]] = {}
        """Since when the leader of each leader epoch leads a partition, to its own knowledge."""
        self.leader_changed_ms = 0
        """When a leader was last changed."""
        self._running: int | None = None
        self.brokers = {each: Machine(each, self) for each in range(1, plan.brokers + 1)}
        self.faults = ShellFaults(self)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.transactional: list[TransactionalProducer] = []
        self.transactions = Transactions()
        self.fencing = Fencing()
        self.members: list[GroupClient] = []
        self.groups = Groups()
        self.holders = Holders()
        self.commits = Commits()
        self.places = [(topic.name, each) for topic in plan.topics for each in range(topic.partitions)]
        self.places = [place for place in self.places if place[0] not in INTERNAL]
        """All partitions that clients write to and read."""
        self._words = Words(plan.seed, plan.settings.timeout_ms)
        self.hurried = self._words.hurried
        self._herald: Herald | None = None
        self._couriers: dict[int, Courier] = {}
        self.clients: list[Client] = []
        self.has_strangers = has_strangers(plan.seed)
        self.admin = Admin(self, self.client_number())
        self.intruder = Intruder(self, self.client_number()) if has_intruder(plan.seed) else None
        self.operator = Operator(self, self.client_number()) if has_operator(plan.seed) else None
        self.keeper = Keeper(self, self.client_number()) if has_cleaning(plan.seed) else None
        self.standalone = StandaloneMachine(self) if has_standalone(plan.seed) else None

    @property
    def image(self) -> ClusterImage:
        """The cluster as the durable log has it."""
        return self.metadata.image

    def client_number(self) -> int:
        """Return the next client's number."""
        return len(self.clients) + 1

    def config_of(self, node_id: int) -> BrokerConfig:
        """Return the settings of a broker."""
        return broker_config(self.plan, node_id, METADATA)

    # A run.

    def run(self) -> Outcome:
        """Go through all phases."""
        try:
            with self._listening():
                self._come_up()
                began_ms = self.scheduler.now_ms
                if self.ensemble is not None:
                    self.ensemble.is_calm = False
                for step in self.plan.steps:
                    self.scheduler.after(step.at_ms, self.faults.carry_out, step)
                self.pass_until(began_ms + SAFETY_MS)
                self.faults.end()
                self._calm_down()
        except ViolationError as error:
            self.violated(error)
        except Exception as error:  # whatever it is, no event may end like that, and the seed is to be told
            self.mistake(None, repr(error), error)
        violation = self.violation
        self._end()
        if violation is not None:
            self.trace(lambda: f"VIOLATION {violation}")
        lines = tuple(self.lines or ())
        digest = blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
        return Outcome(
            self.plan.seed,
            None if violation is None else str(violation),
            None if violation is None else violation.invariant,
            self.scheduler.now_ms,
            self.marks,
            lines,
            digest,
        )

    def _end(self) -> None:
        """Let nothing of all this happen any more."""
        for client in self.clients:
            client.loop.end()
        for machine in (*self.brokers.values(), self.standalone):
            if machine is not None and machine.process is not None:
                machine.process.end(power=True)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Hear of what brokers log as their own mistakes, and see their logs."""
        logger = logging.getLogger("sparkonce.broker_lite")
        handler = Mistakes(self)
        level, logger.propagate = logger.level, False
        logger.setLevel(logging.ERROR)
        logger.addHandler(handler)
        try:
            with (
                replaced(LogManager, "log_class", ObservedLog),
                left_long_ago(self.plan.transactional),
                observed_transactions(self),
                observed_groups(self),
                rare_things(self),
            ):
                yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = True
            logger.setLevel(level)

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

    def _come_up(self) -> None:
        for machine in self.brokers.values():
            machine.start()
        self._until(lambda: all(self.image.may_join(each) for each in self.brokers), "no broker is in the cluster")
        self.admin.run(self.admin.create_topics())
        self._until(self._has_topics, "its topics have not been made")
        self._begin_clients()

    def _until(self, done: Callable[[], bool], otherwise: str) -> None:
        while not done():
            if self.scheduler.now_ms > _UP_MS:
                raise ViolationError("liveness", f"the cluster has not come up in {_UP_MS} ms: {otherwise}")
            self.pass_until(self.scheduler.now_ms + 50)

    def _has_topics(self) -> bool:
        wanted = sum(topic.partitions for topic in self.plan.topics)
        return self.admin.has_created and sum(1 for _ in self.image.partitions()) == wanted

    def _begin_clients(self) -> None:
        for number in range(len(self.plan.producers)):
            self.producers.append(Producer(self, number, self.client_number()))
        keys = [key for key, _ in self.image.partitions() if self.topic_of(key).name not in INTERNAL]
        for key in keys:
            self.consumers.append(Consumer(self, self.client_number(), key))
            if self.plan.transactional:
                self.consumers.append(Consumer(self, self.client_number(), key, committed=True))
        for number in range(len(self.plan.transactional)):
            self.transactional.append(TransactionalProducer(self, number, self.client_number(), keys))
        if self.intruder is not None:
            self.intruder.begin()
        for each in (self.operator, self.keeper, self.standalone):
            if each is not None:
                each.begin()
        for group in self.plan.groups:
            kind = HeartbeatMember if group.by_heartbeats else ClassicMember
            for index in range(group.members):
                self.members.append(kind(self, len(self.members), self.client_number(), group, index))

    def _calm_down(self) -> None:
        self.trace(lambda: "all faults are over")
        for each in (self.operator, self.keeper, self.standalone):
            if each is not None:
                each.end()
        for member in self.members:
            member.calm()
        until_ms = self.scheduler.now_ms + CALM_MS
        while self.scheduler.now_ms < until_ms:
            self.pass_until(self.scheduler.now_ms + _LOOK_MS)
            compare_images(self)
            if ails(self) is None:
                look_at_disks(self)
                self.metadata.look_at_the_end()
                probe(self)
                return
        raise ViolationError("liveness", f"{CALM_MS} ms after the last fault: {ails(self)}")

    # What brokers and clients tell.

    def violated(self, error: ViolationError) -> None:
        """Note a violation; the first one counts."""
        if self.violation is None:
            self.violation = error

    def judge(self, check: Callable[[], object]) -> None:
        """Check something, by what is true now; brokers hear nothing of what is wrong."""
        self.metadata.look()
        try:
            check()
        except ViolationError as error:
            self.violated(error)
        except AssertionError as error:  # of what the state machines say of themselves
            self.mistake(None, repr(error), error)

    def mistake(self, machine: Machine | None, text: str, error: BaseException | None) -> None:
        """Note an error that nobody expects."""
        where = "" if machine is None else f"broker {machine.node_id}: "
        at = ""
        if error is not None and error.__traceback__ is not None:
            last = extract_tb(error.__traceback__)[-1]
            at = f" in {last.name}, {PurePath(last.filename).name}:{last.lineno}"
        self.violated(ViolationError("error", f"{where}{text}{at}"))

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

    def courier(self, number: int) -> Courier:
        """Return what has connections of its own, for one producer."""
        found = self._couriers.get(number)
        if found is None:
            found = self._couriers[number] = Courier(self, self.client_number())
        return found

    def reads_out_of_range(self, consumer: Consumer) -> None:
        """Take a consumer that has read more than there is now."""
        history = self.history_of(consumer.key)
        if history.lossy:
            consumer.begin_again()
        elif history.safe and consumer.offset > history.safe[-1].last_offset + 1:
            raise ViolationError("read-is-safe", f"{history.name}: a consumer has read up to {consumer.offset}")

    def joined(self, machine: Machine, member: ClusterMember) -> None:
        """Watch a broker's membership."""
        poll, peers = member.poll, member._peers
        assert peers is not None
        send = peers.send
        process = machine.process
        self.metadata.joined(machine)

        def late_poll() -> None:
            if self.scheduler.now_ms >= max(machine.blind_until_ms, machine.learns_ms):
                poll()

        def sent(broker_id: int, request: Any, then: Callable[[Any], None]) -> None:
            again_ms = self._proposes(machine, request) if request.API_KEY == ApiKey.ALTER_PARTITION else 0
            if request.API_KEY == ApiKey.WRITE_TXN_MARKERS and process is not None:
                self.faults.sends_markers(machine.node_id, broker_id)
                then = self._answered_late(process, broker_id, then)
            elif request.API_KEY == ApiKey.ADD_PARTITIONS_TO_TXN and process is not None:
                then = self._words.late(process.loop, request, then, calm=self.faults.over)
            if again_ms and process is not None:
                process.loop.call_later(again_ms / 1000, send, broker_id, request, lambda _: None)
            send(broker_id, request, then)

        member.poll = late_poll  # type: ignore[method-assign]
        if self.has_strangers:
            failing = partial(self.mark, Mark.STRANGER)
            both = beside_strangers(member.when_safe, self.plan.seed, machine.node_id, failing)
            member.when_safe = both  # type: ignore[assignment]  # names of parameters
        peers.send = sent  # type: ignore[method-assign]
        member.listen(lambda event: self._event(machine, member, event))

    def _answered_late(self, process: Process, leader: int, then: Callable[[Any], None]) -> Callable[[Any], None]:
        """Let a leader's answer to markers be one of those that faults are about."""

        def answered(answer: Any) -> None:
            arrive = partial(process.loop.call_soon, then, answer)
            self.faults.answered(process.machine.node_id, leader, arrive)

        return answered

    def _proposes(self, machine: Machine, request: Any) -> int:
        proposals = [
            (
                (topic.topic_id, each.partition_index),
                Proposal(
                    each.leader_epoch,
                    each.partition_epoch,
                    tuple((member.broker_id, member.broker_epoch) for member in each.new_isr_with_epochs),
                ),
            )
            for topic in request.topics
            for each in topic.partitions
            if isinstance(machine.replicas.roles.get((topic.topic_id, each.partition_index)), PartitionLeader)
        ]
        return self.faults.proposed(machine, proposals)

    def _event(self, machine: Machine, member: ClusterMember, event: Event) -> None:
        if isinstance(event, Leads):
            self.judge(lambda: self._leads(machine.node_id, member, event.key))

    def _leads(self, broker_id: int, member: ClusterMember, key: PartitionKey) -> None:
        role = member.replicas.roles[key]  # its session may be over by now
        assert isinstance(role, PartitionLeader)
        epoch = role.state.leader_epoch
        now = self.image.partition(key)
        current = now is not None and now.leader_epoch == epoch
        self.trace(lambda: f"broker {broker_id} leads {self.history_of(key).name} in epoch {epoch}")
        self.leads_ms.setdefault(key, {})[epoch] = self.scheduler.now_ms
        log = self.logs[broker_id, key]
        self.history_of(key).leads(broker_id, epoch, log.batches, current, log.high_watermark)

    # What faults do.

    def stopped_uncleanly(self, broker_id: int, power: bool) -> None:
        """Note that a broker has died."""
        self.faults.stopped_uncleanly(broker_id, power)

    def may_stop(self, broker_id: int, *, power: bool) -> bool:
        """Whether a broker may die now."""
        return self.faults.may_stop(broker_id, power=power)

    def forget_logs(self, broker_id: int) -> None:
        """Forget what logs a broker had: its disk is another one."""
        for key in [key for each, key in self.logs if each == broker_id]:
            del self.logs[broker_id, key]
            self.cleaned.cut(broker_id, key, 0)

    def start_later(self, broker: Machine, delay_ms: int) -> None:
        """Start a broker again, if it is still down then."""
        self.scheduler.after(delay_ms, broker.start)

    def produce(self, number: int, records: int) -> None:
        """Let a producer send."""
        self.producers[number].send(records)

    def transact(self, number: int, amount: int) -> None:
        """Let a producer write a transaction."""
        self.transactional[number].transact(amount)

    def produce_to(self, key: PartitionKey) -> None:
        """Let all producers of a partition send, and one that needs not look for its leader."""
        for producer in self.producers:
            if producer.key == key:
                producer.send(1)
        if self.topic_of(key).name not in INTERNAL:
            if self._herald is None:
                self._herald = Herald(self, self.client_number())
            self._herald.send(key)

    def elect(self, key: PartitionKey) -> None:
        """Ask for the preferred leader."""
        self.admin.run(self.admin.elect(self.topic_of(key).name, key[1]))

    def change_settings(self, topic: TopicPlan, minimum: int, *, unclean: bool) -> None:
        """Ask for other settings of a topic."""
        self.mark(Mark.SETTINGS)
        self.admin.run(self.admin.change_settings(topic, minimum, unclean=unclean))

    def change_default(self, minimum: int) -> None:
        """Ask for another `min.insync.replicas` of the cluster."""
        self.mark(Mark.SETTINGS)
        self.admin.run(self.admin.change_default(minimum))

    def reassign(self, key: PartitionKey, target: tuple[int, ...] | None) -> None:
        """Ask for other replicas of a partition; None gives a move up."""
        self.mark(Mark.MOVE if target is not None else Mark.MOVE_GIVEN_UP)
        self.admin.run(self.admin.reassign(self.topic_of(key).name, key[1], target))

    def lead(self, key: PartitionKey, broker_id: int) -> None:
        """Ask that one of its replicas leads a partition."""
        state = self.image.partition(key)
        if state is not None and broker_id in state.replicas:
            self.mark(Mark.FLIP)
            others = [each for each in state.replicas if each != broker_id]
            self.admin.run(self.admin.lead(self.topic_of(key).name, key[1], (broker_id, *others)))


def run_plan(plan: Plan, *, tracing: bool = False) -> Outcome:
    """Run a plan."""
    return World(plan, tracing).run()
