"""Scripts: a cluster of the simulator in which nothing happens but what a test says.

Theory of operation: brokers 1 to 3 have a replica of everything; broker 4 is the controller, and nothing else. All of
them are brokers on the simulator's machines, disks and network, and its judges look on. The network takes no
time, so what is due happens within the same millisecond: `pass_time` lets it. A script starts and kills brokers, lets
others lead, cuts the network, damages files, keeps back what brokers ask each other and the answers to it, and sends
requests, each on a connection of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

from lab.sim.clients.client import Address, Client
from lab.sim.machine.machine import METADATA, Machine
from lab.sim.machine.process import DATA, Process
from lab.sim.machine.settings import FIRST_PORT
from lab.sim.plan import Durability, SeedPlan, Settings, TopicPlan
from lab.sim.simulation import Simulation
from lab.sim.world import World
from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.controller.records import PartitionState
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import Buffer

CONTROLLER: Final = 4
REPLICAS: Final = (1, 2, 3)
LOOK_MS: Final = 20
"""How often brokers look at what the controller has decided."""
_PATIENCE_MS: Final = 20_000
"""After how long something that is waited for is taken to never happen."""
_NEVER_MS: Final = 1 << 60
_SETTINGS: Final = {
    "min_insync_replicas": 2,
    "auto_create_topics_enable": False,
    "auto_leader_rebalance_enable": False,
    "group_initial_rebalance_delay_ms": 0,
}
_OF_CLIENTS: Final = Settings(
    heartbeat_ms=0, session_ms=0, lag_ms=0, fetch_wait_ms=0, backoff_ms=20, timeout_ms=10_000_000, rebalance_ms=0,
    image_lag_ms=0, delay_ms=0, loss=0.0, torn=False,
)  # fmt: skip
"""Brokers have none of these: see `Script.config_of`."""


class PlantedError(Exception):
    """A mistake that a test makes."""


@dataclass(slots=True, eq=False)
class Call:
    """A request of a client, and what was answered, if anything was."""

    answer: Any = None


@dataclass(slots=True, eq=False)
class Sent:
    """A request from one broker to another that is kept back, and its answer when that is kept, too."""

    sender: int
    receiver: int
    request: Any
    then: Callable[[Any], None]
    process: Process
    send: Callable[[int, Any, Callable[[Any], None]], None]
    answers: list[Any] = field(default_factory=list)

    def deliver(self) -> None:
        """Bring it where it is to go; its answer comes back."""
        self.process.loop.call_soon(self.send, self.receiver, self.request, self.then)

    def deliver_only(self) -> None:
        """Bring it where it is to go, and keep the answer back."""
        self.process.loop.call_soon(self.send, self.receiver, self.request, self.answers.append)

    def answered(self) -> None:
        """Let the answer that was kept back arrive."""
        self.process.loop.call_soon(self.then, self.answers.pop())

    def answer(self, **fields: Any) -> None:
        """Answer as the test wants it; it arrives nowhere."""
        key, version = self.request.API_KEY, self.request.version
        encoded = bytes(apis.encode_response(apis.response(key, version, **fields), version))
        self.process.loop.call_soon(self.then, apis.decode_response(key, version, encoded))

    def lose(self) -> None:
        """Let it get lost with its connection."""
        self.process.loop.call_soon(self.then, None)


class Script(World):
    """A cluster that does what a test says."""

    def __init__(self, **settings: object) -> None:
        """`settings` are those of all brokers, with underscores in place of dots."""
        self._settings = {name.replace("_", "."): value for name, value in {**_SETTINGS, **settings}.items()}
        self._undo = ExitStack()
        self._held: dict[ApiKey, list[Sent]] = {}
        self.expected: tuple[type[Exception], ...] = (PlantedError,)
        """Errors that brokers may note."""
        self.noted: list[str] = []
        """What they have noted of those."""
        topics = tuple(
            TopicPlan(name, 1, (2,), by_default=False, unclean=False, flushed=False, segment_bytes=1 << 20)
            for name in ("t", OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        )
        super().__init__(
            SeedPlan(0, CONTROLLER, Durability.BUDGETED, 2, topics, (), (), (), _OF_CLIENTS, ()), tracing=False
        )
        self._simulation = Simulation(self)
        self._simulation.between_brokers.has_strangers = False
        self.is_healed = True  # nothing comes late by chance
        self.on_joined.append(self._hold_back)

    def config_of(self, node_id: int) -> BrokerConfig:
        """See `World`; all that a test does not set is as Kafka has it."""
        return BrokerConfig.of({**self._settings, "node.id": node_id, "metadata.log.dir": METADATA})

    def __enter__(self) -> Self:
        """Let the cluster come up: the controller first."""
        self._undo.enter_context(self._simulation.judged())
        self._undo.callback(self._simulation.end)
        self.brokers[CONTROLLER].start()
        self.until(lambda: self.image.controller_id == CONTROLLER)
        for broker_id in REPLICAS:
            self.brokers[broker_id].start()
        self.until(lambda: all(self.image.may_join(each) for each in self.brokers))
        return self

    def __exit__(self, *_: object) -> None:
        """End it.

        Raises:
            ViolationError: if a judge has seen something.
        """
        with self._undo:
            if self.violation is None:
                self.pass_time()

    # Time.

    def pass_time(self, duration_ms: int = 0) -> None:
        """Let so much time pass, and then whatever is due happen."""
        self.pass_until(self.scheduler.now_ms + duration_ms)

    def settle(self) -> None:
        """Let everything come to rest that needs no more than a few looks of brokers at each other."""
        self.pass_time(10 * LOOK_MS)

    def until(self, done: Callable[[], object]) -> None:
        """Let one thing after the other happen until something is so."""
        latest_ms = self.scheduler.now_ms + _PATIENCE_MS
        while not done():
            assert self.scheduler.step(latest_ms), "it does not happen"
            self.metadata.look()
            if self.violation is not None:
                raise self.violation

    # What the controller decides.

    def create_topic(self, name: str, leaders: Sequence[int], settings: Mapping[str, str] | None = None) -> None:
        """Make a topic whose partitions are led by these brokers."""
        layout = [(index, _first(leader)) for index, leader in enumerate(leaders)]
        topic = (name, -1, -1, layout, list((settings or {}).items()))
        answer = self.ask(CONTROLLER, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=5_000, validate_only=False)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0]
        self.settle()

    def let_lead(self, topic: str, index: int, leader: int) -> None:
        """Let another broker lead a partition; all brokers hear of that in their own time, see `settle`."""
        self.ask(
            CONTROLLER, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1_000,
            topics=[(topic, [(index, _first(leader))])],
        )  # fmt: skip
        answer = self.ask(
            CONTROLLER, ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=[(topic, [index])], timeout_ms=1_000
        )
        assert self.state(topic, index).leader == leader, answer

    def state(self, topic: str, index: int) -> PartitionState:
        """Return what the controller has decided of a partition."""
        found = self.image.partition((self.image.topic_ids[topic], index))
        assert found is not None
        return found

    def leader(self, topic: str, index: int) -> int:
        """Return who leads a partition."""
        return self.state(topic, index).leader

    def log(self, topic: str, index: int) -> PartitionLog:
        """Return a partition's log, as its leader has it."""
        return self.broker(self.leader(topic, index)).leading(topic, index).log

    # Brokers.

    def broker(self, broker_id: int) -> Broker:
        """Return what runs on a machine."""
        process = self.brokers[broker_id].process
        assert process is not None
        assert process.server.broker is not None
        return process.server.broker

    def kill(self, broker_id: int, *, power: bool = False) -> None:
        """End a broker's process, or its machine, and let the others notice."""
        self.brokers[broker_id].die(power=power)
        self.until(lambda: all(state.leader != broker_id for _, state in self.image.partitions()))

    def revive(self, broker_id: int) -> None:
        """Start a broker again, until it is in sync everywhere."""
        self.brokers[broker_id].start()
        self.until(lambda: all(broker_id in state.in_sync_replicas for _, state in self.image.partitions()))

    @contextmanager
    def damaged(self, broker_id: int, topic: str, index: int) -> Iterator[None]:
        """Let the length of the first batch of a broker's log be one that cannot be."""
        first = self.brokers[broker_id].disk.files[f"{DATA}/{topic}-{index}/{0:020}.log"].data
        length = bytes(first[8:12])
        first[8:12] = bytes(4)
        self.expected += (KafkaError,)
        yield
        first[8:12] = length

    @contextmanager
    def blind(self, broker_id: int) -> Iterator[None]:
        """Let a broker read nothing of what the controller decides."""
        machine = self.brokers[broker_id]
        machine.blind_until_ms = _NEVER_MS
        yield
        machine.blind_until_ms = 0

    def hear(self, broker_id: int) -> None:
        """Let a blind broker read all that has been decided, as soon as it has ended what it does now."""
        process = self.brokers[broker_id].process
        assert process is not None
        assert process.member is not None
        self.brokers[broker_id].blind_until_ms = 0
        process.loop.call_soon(process.member.poll)

    @contextmanager
    def unheard(self, broker_id: int) -> Iterator[None]:
        """Let nothing that a broker says get to other replicas: they copy nothing from it."""
        ways = {(broker_id, each) for each in REPLICAS if each != broker_id}
        self.network.blocked |= ways
        yield
        self.network.blocked -= ways

    def mistake(self, text: str, error: BaseException | None) -> None:
        """See `World`; what a test is about is none."""
        if isinstance(error, self.expected):
            self.noted.append(text)
        else:
            super().mistake(text, error)

    # What brokers ask of each other.

    def _hold_back(self, machine: Machine, member: ClusterMember) -> None:
        peers, process = member._peers, machine.process
        assert peers is not None
        assert process is not None
        send = peers.send

        def keep_or_send(broker_id: int, request: Any, then: Callable[[Any], None]) -> None:
            held = self._held.get(request.API_KEY)
            if held is None:
                send(broker_id, request, then)
            else:
                held.append(Sent(machine.node_id, broker_id, request, then, process, send))

        peers.send = keep_or_send  # type: ignore[method-assign]

    @contextmanager
    def holding(self, *kinds: ApiKey) -> Iterator[list[Sent]]:
        """Keep back what brokers ask each other by these APIs meanwhile: it is in the list."""
        held: list[Sent] = []
        self._held |= dict.fromkeys(kinds, held)
        try:
            yield held
        finally:
            for each in kinds:
                del self._held[each]

    # Clients.

    def send(self, broker_id: int, api: ApiKey, version: int, /, **fields: Any) -> Call:
        """Send a request; it is answered when time passes."""
        return self.send_bytes(
            broker_id, api, version, apis.encode_request(apis.request(api, version, **fields), version)
        )

    def send_bytes(self, broker_id: int, api: ApiKey, version: int, body: Buffer) -> Call:
        """Send a request that has been encoded."""
        client = Client(self)
        call = Call()

        async def exchange() -> None:
            address = Address(self.brokers[broker_id].address, FIRST_PORT)
            call.answer = _decoded(api, version, await client.exchange(address, api, version, body))

        client.run(exchange())
        return call

    def ask(self, broker_id: int, api: ApiKey, version: int, /, **fields: Any) -> Any:
        """Send a request, and let time pass until it is answered."""
        return self.answer(self.send(broker_id, api, version, **fields))

    def answer(self, call: Call) -> Any:
        """Return what is answered to a request, when it is."""
        self.until(lambda: call.answer is not None)
        return call.answer


def _first(leader: int) -> list[int]:
    return [leader, *(each for each in REPLICAS if each != leader)]


def _decoded(api: ApiKey, version: int, body: bytes) -> Any:
    if api == ApiKey.PRODUCE:
        return produce.decode_response(version, body)
    if api == ApiKey.FETCH:
        return fetch.decode_response(version, memoryview(body))
    return apis.decode_response(api, version, body)


def error_of(answer: Any) -> ErrorCode:
    """Return the error of an answer about a group's only partition, or about a group."""
    for each in getattr(answer, "topics", ()):
        return ErrorCode(each.partitions[0].error_code)
    for each in getattr(answer, "groups", ()):
        return ErrorCode(each.error_code)
    return ErrorCode(answer.error_code)
