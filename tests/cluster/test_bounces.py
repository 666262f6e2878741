"""Brokers that stop or die while clients are at work, after Kafka's system tests: what was acknowledged is read, once.

Three processes, topics of three replicas, `min.insync.replicas` 2, an idempotent producer with acks=all and a member of
a group throughout; the history checker judges what all of them say. Clean is SIGTERM, hard is SIGKILL. The
controller is elected, and its decisions are kept, in files that the brokers share or in a real ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.history import judge, read_history
from sparkonce import EmbeddedCluster
from tests.cluster.files import check_files
from tests.interop.verifiable_clients import Client
from tests.zookeeper import server_for

TOPIC = "t"
PARTITIONS = 3
WHILE_DOWN = 300
"""Records that must be acknowledged while a broker is away."""
BETWEEN = 100
ROLLING = 3
CONFIG = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "num.partitions": PARTITIONS,
    "zookeeper.session.timeout.ms": 3_000,
}


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with server_for(request.param, tmp_path / "zookeeper") as server:
        place = None if server is None else server.place
        with EmbeddedCluster(3, tmp_path / "data", True, CONFIG, coordination=place) as embedded:
            admin = AdminClient({"bootstrap.servers": embedded.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
            embedded.wait_in_sync()
            yield embedded
        check_files(tmp_path / "data", place)


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(cluster: EmbeddedCluster, folder: Path, stack: ExitStack, module: str, name: str, *more: str) -> Client:
    arguments = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", TOPIC, *more]
    return stack.enter_context(Client(module, folder / f"{name}.jsonl", *arguments))


def end_and_judge(
    cluster: EmbeddedCluster, folder: Path, stack: ExitStack, producer: Client, member: Client
) -> list[str]:
    """End the clients, and judge what they report, and one that reads all in the end; returns the values it read."""
    assert producer.stop() == 0, producer.errors.decode()
    reading = ("--verbose", "--assign", "--final", "--timeout", "100")
    final = start(cluster, folder, stack, "verifiable_consumer", "final", *reading)
    assert final.wait() == 0, final.errors.decode()
    member.wait_for("records_consumed")
    assert member.stop() == 0, member.errors.decode()

    verdict = judge(read_history([producer.file, member.file, final.file]))
    assert verdict.anomalies == ()
    assert verdict.unknown == 0
    values = final.values("record_data")
    assert sorted(values) == sorted(producer.values("producer_send_success"))
    return values


def whom(cluster: EmbeddedCluster, role: str) -> int:
    """Return the broker that has the role now."""
    leader = cluster.leader(TOPIC, 0)
    if role == "leader":
        return leader
    if role == "controller":
        return cluster.controller_id
    return next(each for each in cluster.in_sync_replicas(TOPIC, 0) if each != leader)


Bounce = tuple[str, str]
"""How a broker ends, and which."""
QUICK: tuple[tuple[str, tuple[Bounce, ...]], ...] = (
    ("files", (("hard", "leader"), ("clean", "controller"))),
    ("zookeeper", (("hard", "controller"),)),
)
"""What `make test` runs, one bounce after the other in the same cluster; `make soak` runs all, each for itself."""


def cases() -> Iterator[Any]:
    for coordination, bounces in QUICK:
        yield pytest.param(coordination, bounces, id=f"{coordination}-{'-'.join(role for _, role in bounces)}")
    ways = ("files", "zookeeper"), ("clean", "hard"), ("leader", "follower", "controller"), (1, ROLLING)
    for coordination, how, role, times in product(*ways):
        name = f"{coordination}-{how}-{role}-{'one' if times == 1 else 'rolling'}"
        yield pytest.param(coordination, ((how, role),) * times, marks=pytest.mark.soak, id=name)


@pytest.mark.parametrize(("cluster", "bounces"), list(cases()), indirect=["cluster"])
def test_what_is_acknowledged_is_read_once_through_bounces(
    cluster: EmbeddedCluster, tmp_path: Path, clients: ExitStack, bounces: tuple[Bounce, ...]
) -> None:
    producing = ("--value-prefix", "p", "--throughput", "1000", "--repeating-keys", "17")
    producer = start(cluster, tmp_path, clients, "verifiable_producer", "producer", *producing)
    member = start(cluster, tmp_path, clients, "verifiable_consumer", "member", "--verbose", "--group-id", "g")
    acknowledged = 0
    for how, role in bounces:
        acknowledged = producer.counts.get("producer_send_success", 0) + BETWEEN
        producer.wait_for("producer_send_success", acknowledged)
        broker_id = whom(cluster, role)
        if how == "hard":
            cluster.kill(broker_id)
        else:
            cluster.stop(broker_id)
        acknowledged = producer.counts.get("producer_send_success", 0) + WHILE_DOWN
        producer.wait_for("producer_send_success", acknowledged)
        cluster.restart(broker_id)
        cluster.wait_in_sync()
    assert len(end_and_judge(cluster, tmp_path, clients, producer, member)) >= acknowledged
