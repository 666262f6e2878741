"""How the members of a group share partitions.

The articles' claim for range: with P partitions and C members, M = ceil(P / C), and each member gets M of them until
there are none left. For 5 partitions and 4 members that would be 2, 2, 1, 0: one member idle. Kafka does not do that:
its range assignor gives P div C to each and one more to the first P mod C: 2, 1, 1, 1. All clients here do as Kafka
does, and so does this broker's own `range` for the protocol of KIP-848.

What the articles say of the rest holds. Range works topic by topic, so that the first members get the odd partition of
every topic; round-robin deals out all topics at once. Sticky keeps what a member has when another one leaves.

The assignor runs in a client (the group's leader) under the classic protocol, in the broker under KIP-848.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic

from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason
from sparkonce import EmbeddedBroker

DEADLINE_S = 30.0
PARTITIONS = 5
MEMBERS = 4
KAFKAS = [2, 1, 1, 1]
THE_ARTICLES = [2, 2, 1, 0]
TOPIC = "eight"
QUICK = {"group.consumer.heartbeat.interval.ms": 100}

Broker = EmbeddedBroker | RealKafka
Shares = dict[str, list[tuple[str, int]]]
"""What each member has, by its client id: (topic, partition), sorted."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=QUICK) as embedded:
        make_topics(embedded)
        yield embedded


@pytest.fixture(scope="module")
def real_kafka() -> Iterator[RealKafka]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    with RealKafka(
        config={**QUICK, "group.consumer.min.heartbeat.interval.ms": 100}, heap="256m", java_options=QUICK_JVM
    ) as kafka:
        make_topics(kafka)
        yield kafka


def make_topics(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = {"five": PARTITIONS, "a": 3, "b": 3, TOPIC: 8}
    for future in admin.create_topics([NewTopic(name, count) for name, count in topics.items()]).values():
        future.result(DEADLINE_S)


def shares_of(counts: Shares) -> list[int]:
    return [len(counts[name]) for name in sorted(counts)]


class Group:
    """Members of librdkafka's in one group, polled in turn; what they have is asked of the broker."""

    def __init__(self, broker: Broker, group: str, topics: list[str], **settings: Any) -> None:
        self.members: dict[str, Consumer] = {}
        self._group = group
        self._topics = topics
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        self._settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            **settings,
        }

    def join(self, name: str) -> None:
        consumer = Consumer({**self._settings, "client.id": name})
        consumer.subscribe(self._topics)
        self.members[name] = consumer

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def close(self) -> None:
        for name in list(self.members):
            self.leave(name)

    def settled(self, total: int, others: int = 0) -> Shares:
        """Poll until the group is stable with all its members, and they have what the broker thinks they have.

        `others` is how many members are in it that are not of this object. Returns what all members have.
        """
        deadline_s = time.monotonic() + DEADLINE_S
        told: Shares = {}
        while time.monotonic() < deadline_s:
            for consumer in self.members.values():
                consumer.poll(0.01)
            has = {
                name: sorted((each.topic, each.partition) for each in consumer.assignment())
                for name, consumer in self.members.items()
            }
            if others or sum(map(len, has.values())) == total:
                told = described(self._admin, self._group)
                complete = len(told) == len(has) + others and sum(map(len, told.values())) == total
                if complete and all(told[name] == share for name, share in has.items()):
                    return told
        raise AssertionError(f"not settled: the members have {has}, the broker says {told}")


def described(admin: AdminClient, group: str) -> Shares:
    """What the broker says its members have; nothing while the group is not stable."""
    description = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    if description.state != ConsumerGroupState.STABLE:
        return {}
    return {
        member.client_id: sorted((each.topic, each.partition) for each in member.assignment.topic_partitions)
        for member in description.members
    }


@contextmanager
def group_of(broker: Broker, group: str, topics: list[str], **settings: Any) -> Iterator[Group]:
    with ExitStack() as stack:
        members = Group(broker, group, topics, **settings)
        stack.callback(members.close)
        yield members


def classic(strategy: str) -> Mapping[str, Any]:
    return {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 100, "session.timeout.ms": 10_000}


NEXT_GENERATION = {"group.protocol": "consumer", "group.remote.assignor": "range"}
"""KIP-848: the broker assigns."""


@pytest.mark.parametrize("settings", [classic("range"), NEXT_GENERATION], ids=["classic", "KIP-848"])
@pytest.mark.parametrize(
    "kind",
    ["broker", pytest.param("real_kafka", marks=[pytest.mark.java, pytest.mark.soak])],
    ids=["embedded", "kafka"],
)
def test_range_gives_five_partitions_to_four_members_as_2_1_1_1(
    kind: str, settings: Mapping[str, Any], request: pytest.FixtureRequest
) -> None:
    broker: Broker = request.getfixturevalue(kind)
    with group_of(broker, request.node.name, ["five"], **settings) as group:
        for number in range(MEMBERS):
            group.join(f"m{number}")
        shares = group.settled(PARTITIONS)
    counts = sorted(shares_of(shares), reverse=True)
    assert counts == KAFKAS
    assert counts != THE_ARTICLES
    for share in shares.values():  # each has a stretch without gaps
        partitions = [partition for _, partition in share]
        assert partitions == [*range(partitions[0], partitions[-1] + 1)]


@pytest.mark.parametrize(
    ("strategy", "counts"), [("range", [4, 2]), ("roundrobin", [3, 3])], ids=["range", "roundrobin"]
)
def test_two_topics_of_three_partitions_for_two_members(
    broker: EmbeddedBroker, strategy: str, counts: list[int]
) -> None:
    with group_of(broker, f"two-{strategy}", ["a", "b"], **classic(strategy)) as group:
        group.join("m0")
        group.join("m1")
        shares = group.settled(6)
    assert sorted(shares_of(shares), reverse=True) == counts


def moved(before: Shares, after: Shares) -> int:
    """How many partitions changed hands although the one who had them stayed."""
    return sum(len(set(before[name]) - set(after[name])) for name in after)


@pytest.mark.parametrize(
    ("strategy", "moves"), [("roundrobin", None), ("cooperative-sticky", 0)], ids=["roundrobin", "cooperative-sticky"]
)
def test_sticky_leaves_the_others_what_they_have(broker: EmbeddedBroker, strategy: str, moves: int | None) -> None:
    with group_of(broker, f"leave-{strategy}", [TOPIC], **classic(strategy)) as group:
        for number in range(MEMBERS):
            group.join(f"m{number}")
        before = group.settled(8)
        assert shares_of(before) == [2, 2, 2, 2]
        first = next(name for name, share in before.items() if (TOPIC, 0) in share)
        group.leave(first)
        after = group.settled(8)
    assert sorted(shares_of(after), reverse=True) == [3, 3, 2]
    if moves is None:
        assert moved(before, after) > 0
    else:
        assert moved(before, after) == moves


class AioMembers:
    """Members of aiokafka's in one group, and what they have."""

    def __init__(
        self, broker: EmbeddedBroker, group: str, assignor: Any, count: int = MEMBERS, topic: str = TOPIC
    ) -> None:
        self._topic = topic
        # A class for each: aiokafka's sticky assignor keeps what its member has in the class.
        self._consumers = {
            f"aio{number}": AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap_servers,
                group_id=group,
                client_id=f"aio{number}",
                partition_assignment_strategy=(type(assignor.__name__, (assignor,), {}),),
                heartbeat_interval_ms=100,
                enable_auto_commit=False,
            )
            for number in range(count)
        }
        self._shares: Shares = {name: [] for name in self._consumers}
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> AioMembers:
        for name, consumer in self._consumers.items():
            consumer.subscribe([self._topic], listener=_Listener(self, name))
        await asyncio.gather(*(consumer.start() for consumer in self._consumers.values()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self._consumers):
            await self.leave(name)

    async def note(self, name: str, share: Iterable[Any]) -> None:
        async with self._changed:
            if name in self._shares:
                self._shares[name] = sorted((each.topic, each.partition) for each in share)
                self._changed.notify_all()

    async def have(self, told: Shares) -> None:
        """Wait until the members have what the broker says they have."""
        async with self._changed:
            expected = {name: told[name] for name in self._shares}
            await asyncio.wait_for(self._changed.wait_for(lambda: self._shares == expected), DEADLINE_S)

    async def leave(self, name: str) -> None:
        del self._shares[name]
        await self._consumers.pop(name).stop()

    async def settled(self, total: int) -> Shares:
        """Wait until the members share all partitions, and nobody has two more than another."""

        def is_settled() -> bool:
            sizes = [len(share) for share in self._shares.values()]
            partitions = {each for share in self._shares.values() for each in share}
            return sum(sizes) == len(partitions) == total and max(sizes) - min(sizes) <= 1

        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(is_settled), DEADLINE_S)
            return dict(self._shares)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, members: AioMembers, name: str) -> None:
        self._members = members
        self._name = name

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self._members.note(self._name, [])

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        await self._members.note(self._name, assigned)


@pytest.mark.parametrize(
    ("assignor", "keeps"),
    [(RangePartitionAssignor, False), (RoundRobinPartitionAssignor, False), (StickyPartitionAssignor, True)],
    ids=["range", "roundrobin", "sticky"],
)
def test_aiokafkas_assignors(broker: EmbeddedBroker, assignor: Any, keeps: bool) -> None:
    async def act() -> tuple[Shares, Shares]:
        async with AioMembers(broker, f"aio-{assignor.name}", assignor) as members:
            before = await members.settled(8)
            await members.leave(next(name for name, share in before.items() if (TOPIC, 0) in share))
            return before, await members.settled(8)

    before, after = asyncio.run(act())
    assert sorted(shares_of(after)) == [2, 3, 3]
    assert (moved(before, after) == 0) == keeps


def test_members_of_two_clients_share_as_if_of_one(broker: EmbeddedBroker) -> None:
    async def act() -> Shares:
        with group_of(broker, "mixed", ["five"], **classic("range")) as group:
            async with AioMembers(broker, "mixed", RangePartitionAssignor, 2, "five") as members:
                group.join("m0")
                group.join("m1")
                told = await asyncio.to_thread(group.settled, PARTITIONS, others=2)
                await members.have(told)
                return told

    assert sorted(shares_of(asyncio.run(act())), reverse=True) == KAFKAS
