"""Three brokers under fire: killed, stopped, hung, cut off and made unreachable while clients of all kinds work.

Idempotent and transactional producers, some of whose transactions are aborted on purpose, and a group of two members,
all through proxies; at the end the history checker judges what they say and what final readers find. On a ZooKeeper the
brokers reach that through proxies as well, so that their sessions expire, and it is killed itself. What the brokers
have written is held to the simulator's invariants, and read by Kafka's DumpLogSegments.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.network import Proxy, free_port
from lab.peers import missing_kafka_reason
from sparkonce import EmbeddedCluster
from tests.cluster.files import check_files
from tests.cluster.fire import PARTITIONS, TOPIC, Clients
from tests.kafka_files import assert_kafka_finds_nothing_wrong, partitions_below
from tests.zookeeper import CHROOT, ZooKeeper, server_for

BROKERS = 3
PROGRESS = 100
"""Records that must be acknowledged between two faults."""
FAULTS = ("kill", "stop", "pause", "cut", "stall")
OF_ZOOKEEPER = ("session-cut", "session-stall", "zookeeper-kill")
LONGEST_S = 4.0
CONFIG = {
    "min.insync.replicas": 2,
    "num.partitions": PARTITIONS,
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_500,
    "replica.lag.time.max.ms": 2_000,
    "zookeeper.session.timeout.ms": 1_500,
}


@dataclass(frozen=True, slots=True)
class World:
    """The cluster, and the way to each of its brokers; what it rests on, and the way of each broker to that."""

    cluster: EmbeddedCluster
    proxies: dict[int, Proxy]
    zookeeper: ZooKeeper | None
    to_zookeeper: dict[int, Proxy]

    @property
    def faults(self) -> tuple[str, ...]:
        return FAULTS if self.zookeeper is None else (*FAULTS, *OF_ZOOKEEPER)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def world(tmp_path: Path, stack: ExitStack, request: pytest.FixtureRequest) -> World:
    ports = {broker_id: free_port() for broker_id in range(1, BROKERS + 1)}
    proxies = {broker_id: stack.enter_context(Proxy(port)) for broker_id, port in ports.items()}
    server = stack.enter_context(server_for(request.param, tmp_path / "zookeeper"))
    of_server = {} if server is None else {each: stack.enter_context(Proxy(server.port)) for each in ports}
    settings = {
        broker_id: {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxies[broker_id].port}",
        }
        for broker_id, port in ports.items()
    }
    for broker_id, proxy in of_server.items():
        settings[broker_id]["zookeeper.connect"] = f"127.0.0.1:{proxy.port}{CHROOT}"
    place = None if server is None else server.place
    stack.callback(look_at_files, tmp_path / "data", place)  # when it is closed
    made = EmbeddedCluster(BROKERS, tmp_path / "data", True, CONFIG, settings, place)
    cluster = stack.enter_context(made)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(60)
    cluster.wait_in_sync()
    return World(cluster, proxies, server, of_server)


def look_at_files(folder: Path, place: str | None) -> None:
    check_files(folder, place)
    if missing_kafka_reason() is None:
        assert_kafka_finds_nothing_wrong(partitions_below(folder), compacted=True)


def strike(world: World, fault: str, victim: int, seconds: float) -> None:
    """Let a fault happen to a broker, last for a while, and end."""
    cluster, proxy, passing = world.cluster, world.proxies[victim], threading.Event()
    match fault:
        case "kill":
            cluster.kill(victim)
        case "stop":
            cluster.stop(victim)
        case "pause":
            cluster.pause(victim)
        case "cut":
            proxy.cut()
        case "stall":
            proxy.stall()
        case "session-cut":
            world.to_zookeeper[victim].cut()
        case "session-stall":
            world.to_zookeeper[victim].stall()
        case "zookeeper-kill":
            assert world.zookeeper is not None
            world.zookeeper.kill()
    passing.wait(seconds)
    match fault:
        case "kill" | "stop":
            cluster.restart(victim)
        case "pause":
            cluster.resume(victim)
        case "session-cut" | "session-stall":
            world.to_zookeeper[victim].heal()
        case "zookeeper-kill":
            assert world.zookeeper is not None
            world.zookeeper.start()
        case _:
            proxy.heal()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", ["files", "zookeeper"], indirect=True)
@pytest.mark.parametrize("faults", [3, 40])
def test_histories_have_no_anomalies(world: World, tmp_path: Path, stack: ExitStack, faults: int) -> None:
    seed = int(os.environ.get("FIRE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"FIRE_SEED={seed}")
    chance = random.Random(seed)
    clients = Clients(world.cluster.bootstrap_servers, tmp_path, stack)
    for number in range(faults):
        clients.wait_for_progress(PROGRESS)
        fault = chance.choice(world.faults)
        victim = chance.choice(sorted(world.cluster.brokers))
        seconds = chance.uniform(0, LONGEST_S)
        print(f"{number}: {fault} of broker {victim} for {seconds:.1f} s")
        strike(world, fault, victim, seconds)
        world.cluster.wait_in_sync(60)
    verdict = clients.judge()
    assert verdict.anomalies == ()
    print(f"faults={faults} events={verdict.events} sent={verdict.sent} acknowledged={verdict.acknowledged}")
