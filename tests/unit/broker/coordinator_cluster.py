"""Several brokers in one process, without sockets: the image, who dies and when records are copied are the test's.

What is left out is what others test: the controller, the connections, and the fetches of followers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparkonce.broker_lite.cluster.member import Membership
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import (
    NO_LEADER,
    BrokerChanged,
    BrokerRegistered,
    PartitionChanged,
    PartitionState,
    Record,
    TopicCreated,
)
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node import dispatch
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.in_cluster import InCluster
from sparkonce.broker_lite.node.request import Body, Endpoint, Request
from sparkonce.broker_lite.protocol import apis, produce
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.primitives import ZERO_UUID
from sparkonce.broker_lite.protocol.records import Record as LogRecord
from sparkonce.broker_lite.protocol.records import encode_batch
from sparkonce.broker_lite.sim.disk import SimulatedDisk
from tests.unit.broker.test_transaction_coordinator import World

HOST = "127.0.0.1"
ENDPOINT = Endpoint(HOST, 9092)


class Told:
    """What a broker has of a cluster whose image the test tells it."""

    active = False
    is_shared = True
    registered = True
    broker_epoch = 7
    in_session = True

    def is_gone(self, _broker_id: int) -> bool:
        return False

    def is_announced(self, _broker_id: int, _incarnation: uuid.UUID) -> bool:
        return False

    def poll(self) -> tuple[()]:
        return ()

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """A request from one broker to another, on its way."""

    sender: int
    receiver: int
    request: Any
    then: Callable[[Any], None]


class Peers:
    """The network of one broker."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id

    def send(self, broker_id: int, request: Any, then: Callable[[Any], None]) -> None:
        self._cluster.send(Sent(self._broker_id, broker_id, request, then))


class Cluster:
    """Brokers 1 to 3; every partition has a replica on each."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.image = ClusterImage()
        self.image.default_settings = {"min.insync.replicas": "2"}
        self.brokers: dict[int, Broker] = {}
        self.dead: set[int] = set()
        self.held: list[Sent] | None = None
        """Requests between brokers, kept here instead of being delivered, if a test wants that."""
        self.to_controller: list[tuple[int, Any, Callable[[Any], None]]] = []
        ids = (1, 2, 3)
        for broker_id in ids:
            self.brokers[broker_id] = self._broker(broker_id, settings)
            self._apply(
                BrokerRegistered(broker_id, uuid.UUID(int=broker_id), HOST, 9092, (("L", HOST, 9091 + broker_id),)),
                BrokerChanged(broker_id, self.image.next_offset, fenced=False, shutting_down=False),
            )
        self._tell()

    def _broker(self, broker_id: int, settings: Mapping[str, Any]) -> Broker:
        world = self.world
        clock = Clock(lambda: world.now_ms, lambda: world.now_ms)
        log = LogConfig(min_insync_replicas=2)
        config = BrokerConfig(node_id=broker_id, metadata_log_dir="/metadata", log=log, **settings)
        broker = Broker(config, SimulatedDisk(), "/data", clock, world, InCluster())
        member, told = broker.member, Told()
        member.connect(Peers(self, broker_id))
        member.stand_alone(Membership(told, told, told), ClusterImage())  # type: ignore[arg-type]
        member.send_to_controller = (  # type: ignore[method-assign]
            lambda request, then, timeout_ms=0: self.to_controller.append((broker_id, request, then))
        )
        return broker

    # The controller's part.

    def create_topic(self, name: str, leaders: list[int], settings: Mapping[str, str] | None = None) -> None:
        """Make a topic whose partitions are led by these brokers."""
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        partitions = [
            PartitionChanged(topic_id, index, PartitionState((1, 2, 3), (1, 2, 3), leader, 0, 0))
            for index, leader in enumerate(leaders)
        ]
        self._apply(TopicCreated(name, topic_id, tuple((settings or {}).items())), *partitions)
        self._tell()

    def create_internal_topics(self, groups: list[int], transactions: list[int]) -> None:
        """Make the coordinators' topics."""
        self.create_topic(OFFSETS_TOPIC, groups)
        self.create_topic(TRANSACTIONS_TOPIC, transactions)

    def elect(self, topic: str, index: int, leader: int) -> None:
        """Let another broker lead a partition."""
        key = self.image.topic_ids[topic], index
        state = self.image.partition(key)
        assert state is not None
        alive = tuple(each for each in state.replicas if each not in self.dead)
        new = PartitionState(state.replicas, alive, leader, state.leader_epoch + 1, state.partition_epoch + 1)
        self._apply(PartitionChanged(*key, new))
        self._tell()

    def decide(self, *records: Record) -> None:
        """Let the controller decide this."""
        self._apply(*records)
        self._tell()

    def kill(self, broker_id: int) -> None:
        """End a broker; for what it led, the next one that is alive is elected."""
        self.dead.add(broker_id)
        epoch = self.image.broker_epoch(broker_id)
        changes: list[Record] = [BrokerChanged(broker_id, epoch, fenced=True, shutting_down=False)]
        for key, state in list(self.image.partitions()):
            alive = tuple(each for each in state.replicas if each not in self.dead)
            leader, epoch = state.leader, state.leader_epoch
            if leader == broker_id:
                leader, epoch = (alive[0] if alive else NO_LEADER), epoch + 1
            changes.append(
                PartitionChanged(*key, PartitionState(state.replicas, alive, leader, epoch, state.partition_epoch + 1))
            )
        self._apply(*changes)
        self._tell()

    def revive(self, broker_id: int) -> None:
        """Let a broker that was dead be in sync again everywhere."""
        self.dead.discard(broker_id)
        epoch = self.image.broker_epoch(broker_id)
        changes: list[Record] = [BrokerChanged(broker_id, epoch, fenced=False, shutting_down=False)]
        for key, state in list(self.image.partitions()):
            alive = tuple(each for each in state.replicas if each not in self.dead)
            new = PartitionState(state.replicas, alive, state.leader, state.leader_epoch, state.partition_epoch + 1)
            changes.append(PartitionChanged(*key, new))
        self._apply(*changes)
        self._tell()

    def answer_controller(self, **fields: Any) -> int:
        """Answer the oldest request to the controller; returns who has sent it."""
        broker_id, request, then = self.to_controller.pop(0)
        then(apis.response(request.API_KEY, request.version, **fields))
        return broker_id

    def _apply(self, *records: Record) -> None:
        for record in records:
            self.image.apply(record)

    def _tell(self) -> None:
        for broker_id, broker in self.brokers.items():
            if broker_id not in self.dead:
                member = broker.member
                assert member is not None
                member.image = self.image
                for listener in member.on_image:
                    listener(self.image)
                member.publish(member.replicas.apply(self.image, self.world.now_ms))

    # What else happens.

    def run(self) -> None:
        """Let everything happen that is due now, and copy records until all followers have them."""
        for _ in range(10):
            self.world.pass_time(0)
            self.replicate()
        self.world.pass_time(0)

    def replicate(self) -> None:
        """Copy once, from every leader to every follower that is alive."""
        for topic in list(self.image.topics.values()):
            for index, state in topic.partitions.items():
                if state.leader != NO_LEADER and state.leader not in self.dead:
                    self._replicate((topic.topic_id, index), state)

    def _replicate(self, key: tuple[uuid.UUID, int], state: PartitionState) -> None:
        leader = self.brokers[state.leader].member
        assert leader is not None
        log = _log(self.brokers[state.leader], key)
        for follower in state.replicas:
            if follower == state.leader or follower in self.dead:
                continue
            copy, now_ms = _log(self.brokers[follower], key), self.world.now_ms
            ours = log.epoch_end(copy.latest_epoch) if copy.log_end_offset else None
            if ours is not None and ours.end_offset < copy.log_end_offset:
                copy.truncate_to(ours.end_offset)
            while copy.log_end_offset < log.log_end_offset:
                data = log.read(copy.log_end_offset, 1 << 20, min_one_batch=True).read()
                copy.append_as_follower(data, state.leader_epoch, now_ms)
            epoch = self.image.broker_epoch(follower)
            leader.publish(leader.replicas.fetched_by(key, follower, epoch, copy.log_end_offset, 0, now_ms))
            copy.advance_high_watermark(log.high_watermark)

    @contextmanager
    def holding(self) -> Iterator[list[Sent]]:
        """Deliver nothing that is sent meanwhile; it is in the list."""
        self.held = held = []
        try:
            yield held
        finally:
            self.held = None

    def send(self, sent: Sent) -> None:
        """Take a request from a broker to another."""
        if self.held is not None:
            self.held.append(sent)
        else:
            self.world.call_soon(lambda: self.deliver(sent))

    def deliver(self, sent: Sent) -> None:
        """Bring a request where it is to go, and its answer back, unless somebody has died."""
        if sent.receiver in self.dead:
            self._answer(sent, None)
            return
        key, version = sent.request.API_KEY, sent.request.version
        body = memoryview(bytes(apis.encode_request(sent.request, version)))

        def answered(_request: Request, parts: Body) -> None:
            self._answer(sent, apis.decode_response(key, version, _joined(parts)))

        request = Request(key, version, 1, "broker", HOST, body, answered, "User:ANONYMOUS", ENDPOINT)
        parts = dispatch.handle(self.brokers[sent.receiver], request)
        if parts is not None:
            answered(request, parts)

    def answer(self, sent: Sent, **fields: Any) -> None:
        """Answer a request as the test wants it."""
        key, version = sent.request.API_KEY, sent.request.version
        self._answer(sent, apis.decode_response(key, version, _encoded(key, version, fields)))

    def _answer(self, sent: Sent, answer: Any) -> None:
        if sent.sender not in self.dead:
            self.world.call_soon(lambda: sent.then(answer))

    def client(self, broker_id: int) -> Client:
        """Return a client that is connected to a broker."""
        return Client(self.brokers[broker_id], broker_id)


class Client:
    """Asks a broker as a connection would; what is answered later is in `later`."""

    def __init__(self, broker: Broker, broker_id: int) -> None:
        self.broker = broker
        self._endpoint = Endpoint(HOST, 9091 + broker_id)
        self.later: list[Any] = []

    def ask(self, api: ApiKey, version: int, /, **fields: Any) -> Any:
        return self.send(api, version, bytes(apis.encode_request(apis.request(api, version, **fields), version)))

    def send(self, api: ApiKey, version: int, body: bytes | bytearray) -> Any:
        request = Request(api, version, 1, "c", "h", memoryview(body), self._send, "User:ANONYMOUS", self._endpoint)
        answer = dispatch.handle(self.broker, request)
        return None if answer is None else self._decode(request, answer)

    def _send(self, request: Request, body: Body) -> None:
        self.later.append(self._decode(request, body))

    def _decode(self, request: Request, body: Body) -> Any:
        if request.api_key == ApiKey.PRODUCE:
            return produce.decode_response(request.version, _joined(body))
        return apis.decode_response(request.api_key, request.version, _joined(body))

    # Transactions.

    def produce(
        self, producer: Producer, index: int, value: bytes = b"v", version: int = 12, sequence: int = 0
    ) -> None:
        """Write a record to partition `index` of topic t, as the first of its transaction there."""
        batch = encode_batch(
            [LogRecord(None, value, self.broker.clock.now_ms())],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        wanted = produce.ProduceTopic("t", ZERO_UUID, [produce.ProducePartition(index, batch)])
        asked = produce.ProduceRequest(producer.transactional_id, -1, 1_000, [wanted])
        body = memoryview(bytearray(produce.encode_request(version, asked)))
        request = Request(ApiKey.PRODUCE, version, 1, "c", "h", body, self._send, "User:ANONYMOUS", self._endpoint)
        answer = dispatch.handle(self.broker, request)
        body[:] = bytes(len(body))  # the connection reads the next request into it
        if answer is not None:
            self.later.append(self._decode(request, answer))

    # Groups.

    def join(self, group_id: str, member_id: str = "", instance_id: str | None = "i") -> Any:
        return self.ask(
            ApiKey.JOIN_GROUP,
            5,
            group_id=group_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[("range", b"subscription")],
        )

    def sync(self, group_id: str, joined: Any) -> Any:
        return self.ask(
            ApiKey.SYNC_GROUP,
            3,
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
            assignments=[(joined.member_id, b"assignment")],
        )

    def heartbeat(self, group_id: str, joined: Any) -> Any:
        return self.ask(
            ApiKey.HEARTBEAT,
            3,
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
        )

    def commit(self, group_id: str, offset: int) -> Any:
        return self.ask(ApiKey.OFFSET_COMMIT, 9, group_id=group_id, topics=[("t", [(0, offset, -1, "")])])

    def committed(self, group_id: str) -> Any:
        return self.ask(ApiKey.OFFSET_FETCH, 9, groups=[(group_id, None, -1, [("t", [0])])], require_stable=True)


def _log(broker: Broker, key: tuple[uuid.UUID, int]) -> PartitionLog:
    return broker.logs.log_of(key)


def _encoded(key: ApiKey, version: int, fields: Mapping[str, Any]) -> bytes:
    return bytes(apis.encode_response(apis.response(key, version, **fields), version))


def _joined(body: Body) -> bytes:
    return b"".join(bytes(part) for part in body if isinstance(part, (bytes, bytearray, memoryview)))


def error_of(answer: Any) -> ErrorCode:
    """Return the error of an answer about a group's only partition, or about a group."""
    for each in getattr(answer, "topics", ()):
        return ErrorCode(each.partitions[0].error_code)
    for each in getattr(answer, "groups", ()):
        return ErrorCode(each.error_code)
    return ErrorCode(answer.error_code)
