"""Three brokers beside three nodes of Apache Kafka: replicated writes, failover after a leader's death, and idle CPU.

Both clusters run at once, each broker in its own process. Topics have three replicas and `min.insync.replicas` 2,
and clients use `acks=all`, with their defaults for all else.

A death is SIGKILL of the broker that leads the only partition of a topic, while a producer sends a record every few
milliseconds. The figure is the time from the signal until a record sent after it is acknowledged: detection,
election, and the client's metadata refresh. The broker is started again, and in sync, before the next death.

The idle cluster has a topic of 1,100 partitions that nobody uses. The figure is the CPU time of one broker, the mean of
the three, in percent of one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from typing import Protocol

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from lab.bench.load import DEADLINE_S, LoadError, admin_of, create_topic, delete_topic
from lab.bench.processes import cpu_s
from lab.bench.results import Bound, Comparison, Missing, Results, say
from lab.bench.settings import (
    BATCHES,
    CLUSTER_BENCHMARKS,
    CLUSTER_FAILOVER,
    CLUSTER_IDLE,
    CLUSTER_NODES,
    IDLE_PARTITIONS,
    LIMITS,
    PARTITIONS,
    TARGETS,
    Settings,
)
from lab.bench.sides import KAFKA, OURS, in_turn, records_per_second
from lab.bench.tools import produce
from lab.peers import RealKafkaCluster
from sparkonce.broker_lite.embedded_cluster import EmbeddedCluster
from sparkonce.jobs.shared.jars import PeerMissingError

TOPIC_SETTINGS = {"min.insync.replicas": "2"}
SEND_EVERY_S = 0.005
BEFORE_DEATH_S = 1.0
SETTLE_S = 10.0
IDLE_S = 20.0
_VALUE_BYTES = {"100B": 100, "1KiB": 1024}
_ASK_AGAIN_S = 0.05


class Cluster(Protocol):
    """The common interface of both clusters."""

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of clients."""

    def kill(self, broker_id: int, /) -> None:
        """End one broker by SIGKILL."""

    def restart(self, broker_id: int, /) -> None:
        """Start it again."""


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """A cluster under measurement."""

    name: str
    cluster: Cluster
    pids: Callable[[], Sequence[int]]

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of clients."""
        return self.cluster.bootstrap_servers


def run(settings: Settings, results: Results) -> None:
    """Run the selected ones of these benchmarks."""
    wanted = [name for name in CLUSTER_BENCHMARKS if name in settings.names]
    if not wanted:
        return
    try:
        with _both() as sides:
            for name in wanted:
                _OTHERS.get(name, _throughput)(name, sides, settings, results)
    except PeerMissingError as error:
        remedy = "install Java and Maven, or name the folder of its jars in KAFKA_LIBS"
        results.missing.append(Missing("kafka", str(error), remedy))


@contextmanager
def _both() -> Iterator[Sequence[ClusterSide]]:
    say(f"starting {CLUSTER_NODES} nodes of Apache Kafka and {CLUSTER_NODES} brokers of ours")
    with RealKafkaCluster(CLUSTER_NODES) as kafka, EmbeddedCluster(CLUSTER_NODES, process=True) as ours:
        yield (
            ClusterSide(OURS, ours, lambda: [each.pid for each in ours.brokers.values() if each.pid is not None]),
            ClusterSide(KAFKA, kafka, lambda: kafka.pids),
        )


def _throughput(name: str, sides: Sequence[ClusterSide], settings: Settings, results: Results) -> None:
    _, _, size, batch = name.split("-")
    value_bytes, batch_bytes = _VALUE_BYTES[size], BATCHES[batch]
    rows = settings.rows_of(value_bytes) // 3  # each is written three times

    def once(side: ClusterSide, number: int) -> float:
        topic = f"{name}-{number}"
        create_topic(side.bootstrap_servers, topic, PARTITIONS, CLUSTER_NODES, TOPIC_SETTINGS)
        speed = produce(side.bootstrap_servers, topic, rows, value_bytes, batch_bytes)
        delete_topic(side.bootstrap_servers, topic)
        return speed

    ours, peer = in_turn(name, sides, settings.rounds, once, records_per_second)
    results.comparisons.append(Comparison(name, "records/s", ours, peer, KAFKA, TARGETS[name]))


def _deaths(name: str, sides: Sequence[ClusterSide], settings: Settings, results: Results) -> None:
    def once(side: ClusterSide, number: int) -> float:
        topic = f"{name}-{number}"
        create_topic(side.bootstrap_servers, topic, 1, CLUSTER_NODES, TOPIC_SETTINGS)
        leader = _wait_in_sync(side.bootstrap_servers, topic)
        waited_s = _wait_of_writes(side, topic, leader)
        side.cluster.restart(leader)
        _wait_in_sync(side.bootstrap_servers, topic)
        delete_topic(side.bootstrap_servers, topic)
        return waited_s

    tell: Callable[[float], str] = "{:.3f} s without an acknowledgement".format
    ours, peer = in_turn(name, sides, settings.cluster_deaths, once, tell)
    results.comparisons.append(Comparison(name, "s", ours, peer, KAFKA, TARGETS[name], less_is_better=True))


def _idle(name: str, sides: Sequence[ClusterSide], settings: Settings, results: Results) -> None:
    def once(side: ClusterSide, number: int) -> float:
        topic = f"{name}-{number}"
        create_topic(side.bootstrap_servers, topic, IDLE_PARTITIONS, CLUSTER_NODES, TOPIC_SETTINGS)
        time.sleep(SETTLE_S)
        before, begun = [cpu_s(pid) for pid in side.pids()], time.monotonic()
        time.sleep(IDLE_S)
        used_s = mean(cpu_s(pid) for pid in side.pids()) - mean(before)
        percent = 100 * used_s / (time.monotonic() - begun)
        delete_topic(side.bootstrap_servers, topic)
        return percent

    ours, peer = in_turn(name, sides, settings.rounds, once, "{:.2f} % of a core".format)
    line = f"{name}-cpu-percent"
    results.bounds.append(Bound(line, "%", ours, peer, KAFKA, LIMITS[line]))


_OTHERS = {CLUSTER_FAILOVER: _deaths, CLUSTER_IDLE: _idle}


def _wait_of_writes(side: ClusterSide, topic: str, leader: int) -> float:
    """Kill the leader during writes; return the seconds until a record sent after that is acknowledged."""
    producer = Producer({"bootstrap.servers": side.bootstrap_servers, "acks": "all", "log_level": 2})
    acknowledged: list[float] = []

    def send(wanted: list[float] | None) -> None:
        def delivered(error: object, _: Message) -> None:
            if error is not None:
                raise LoadError(f"{topic} on {side.name}: a record was not acknowledged: {error}")
            if wanted is not None:
                wanted.append(time.monotonic())

        producer.produce(topic, b"x" * 100, on_delivery=delivered)
        producer.poll(SEND_EVERY_S)

    begun = time.monotonic()
    while time.monotonic() - begun < BEFORE_DEATH_S:
        send(None)
    side.cluster.kill(leader)
    killed = time.monotonic()
    while not acknowledged:
        if time.monotonic() - killed > DEADLINE_S:
            raise LoadError(f"{topic} on {side.name}: no acknowledgement within {DEADLINE_S} s of the leader's death")
        send(acknowledged)
    waited_s = acknowledged[0] - killed
    if producer.flush(DEADLINE_S):
        raise LoadError(f"{topic} on {side.name}: records without an acknowledgement after {DEADLINE_S} s")
    return waited_s


def _wait_in_sync(bootstrap_servers: str, topic: str) -> int:
    """Wait until all replicas of the only partition are in sync; return its leader."""
    admin: AdminClient = admin_of(bootstrap_servers)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.get(0)
        if found is not None and found.leader >= 0 and len(found.isrs) == CLUSTER_NODES:
            return int(found.leader)
        time.sleep(_ASK_AGAIN_S)
    raise LoadError(f"topic {topic} on {bootstrap_servers}: not all replicas in sync within {DEADLINE_S} s")
