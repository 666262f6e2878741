"""Brokers that stop or die while clients are at work, after Kafka's system tests: what was acknowledged is read, once.

Three processes, topics of three replicas, `min.insync.replicas` 2, an idempotent producer with acks=all and a member of
a group throughout; the history checker judges what all of them say. Clean is SIGTERM, hard is SIGKILL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedCluster
from sparkonce.jobs.lab.history import judge, read_history
from tests.cluster.files import check_files
from tests.interop.verifiable_clients import Client

TOPIC = "t"
PARTITIONS = 3
WHILE_DOWN = 300
"""Records that must be acknowledged while a broker is away."""
BETWEEN = 100
ROLLING = 3
QUICK = {("hard", "leader", "one"), ("clean", "controller", "one")}
"""What `make test` runs; `make soak` runs them all."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = {"min.insync.replicas": 2, "default.replication.factor": 3, "num.partitions": PARTITIONS}
    with EmbeddedCluster(3, tmp_path / "data", process=True, config=config) as embedded:
        admin = AdminClient({"bootstrap.servers": embedded.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
        embedded.wait_in_sync()
        yield embedded
    check_files(tmp_path / "data")


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(cluster: EmbeddedCluster, folder: Path, stack: ExitStack, module: str, name: str, *more: str) -> Client:
    arguments = ["--bootstrap-servers", cluster.bootstrap_servers, "--topic", TOPIC, *more]
    return stack.enter_context(Client(module, folder / f"{name}.jsonl", *arguments))


def whom(cluster: EmbeddedCluster, role: str) -> int:
    """Return the broker that has the role now."""
    leader = cluster.leader(TOPIC, 0)
    if role == "leader":
        return leader
    if role == "controller":
        return cluster.controller_id
    return next(each for each in cluster.in_sync_replicas(TOPIC, 0) if each != leader)


def cases() -> Iterator[Any]:
    for how in ("clean", "hard"):
        for role in ("leader", "follower", "controller"):
            for times in ("one", "rolling"):
                marks = [] if (how, role, times) in QUICK else [pytest.mark.soak]
                yield pytest.param(how, role, times, marks=marks, id=f"{how}-{role}-{times}")


@pytest.mark.parametrize(("how", "role", "times"), list(cases()))
def test_what_is_acknowledged_is_read_once_through_bounces(
    cluster: EmbeddedCluster, tmp_path: Path, clients: ExitStack, how: str, role: str, times: str
) -> None:
    producing = ("--value-prefix", "p", "--throughput", "1000", "--repeating-keys", "17")
    producer = start(cluster, tmp_path, clients, "verifiable_producer", "producer", *producing)
    member = start(cluster, tmp_path, clients, "verifiable_consumer", "member", "--verbose", "--group-id", "g")
    acknowledged = 0
    for _ in range(1 if times == "one" else ROLLING):
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
    assert producer.stop() == 0, producer.errors.decode()
    reading = ("--verbose", "--assign", "--final", "--timeout", "100")
    final = start(cluster, tmp_path, clients, "verifiable_consumer", "final", *reading)
    assert final.wait() == 0, final.errors.decode()
    member.wait_for("records_consumed")
    assert member.stop() == 0, member.errors.decode()

    verdict = judge(read_history([producer.file, member.file, final.file]))
    assert verdict.anomalies == ()
    assert verdict.unknown == 0
    assert sorted(final.values("record_data")) == sorted(producer.values("producer_send_success"))
    assert len(final.values("record_data")) >= acknowledged
