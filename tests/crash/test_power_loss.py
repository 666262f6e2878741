"""Brokers lose power under load, as real processes: what was promised to be kept is kept.

By default Kafka leaves flushing to the operating system, and so do we: then other replicas keep what one machine loses.
With `log.flush.interval.messages=1` a broker by itself keeps all that it has acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedBroker, EmbeddedCluster
from sparkonce.jobs.cli.main import main
from tests.chance import new_seed
from tests.crash.power import Power
from tests.crash.test_broker_sigkill import DEADLINE_S, PARTITIONS, Load, read_all

SEED = 22
LOSSES = 3
SOAK_LOSSES = 20
FEW = 2_000
"""So many records may wait in the producer: a broker that flushes each is slow, and none may wait for too long."""
SETTINGS = {"num.partitions": PARTITIONS, "log.segment.bytes": 30_000, "log.index.interval.bytes": 500}


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The same in each `make test`; new ones are for long runs."""
    return new_seed() if request.node.get_closest_marker("soak") else SEED


def check(load: Load, servers: str) -> None:
    """See that what was acknowledged is there, at its offset, and each record once and in order."""
    assert not load.failures
    for partition in range(PARTITIONS):
        records = read_all(servers, partition)
        assert [offset for offset, _ in records] == list(range(len(records)))
        numbers = [number for _, number in records]
        assert numbers == list(range(partition, load.sent, PARTITIONS)), "lost, doubled, or out of order"
        there = {number: offset for offset, number in records}
        assert not {n: o for n, o in load.acknowledged[partition].items() if o >= 0 and there[n] != o}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("losses", [LOSSES, pytest.param(SOAK_LOSSES, marks=pytest.mark.soak)])
def test_a_broker_that_flushes_each_record_keeps_what_it_acknowledged(
    tmp_path: Path, seed: int, losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    power, chance = Power(tmp_path / "flushes", seed, monkeypatch), random.Random(seed)
    settings: Mapping[str, object] = {**SETTINGS, "log.flush.interval.messages": 1}
    with EmbeddedBroker(tmp_path / "data", process=True, config=settings) as broker:
        with Load(broker.bootstrap_servers, queue_buffering_max_messages=FEW) as load:
            for _ in range(losses):
                load.wait_for(load.count + chance.randrange(1, 400))
                broker.kill()
                power.fail(tmp_path / "data")
                broker.restart()
            load.wait_for(load.count + 100)
        check(load, broker.bootstrap_servers)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_cluster_keeps_what_one_machine_loses(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    power, chance = Power(tmp_path / "flushes", seed, monkeypatch), random.Random(seed)
    settings = {**SETTINGS, "min.insync.replicas": 2}
    lost = 0
    with EmbeddedCluster(3, tmp_path / "data", process=True, config=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(DEADLINE_S)
        with Load(cluster.bootstrap_servers) as load:
            for _ in range(SOAK_LOSSES):
                load.wait_for(load.count + chance.randrange(1, 400))
                victim = cluster.leader("t", chance.randrange(PARTITIONS))
                directory = cluster.brokers[victim].data_dir
                cluster.kill(victim)
                lost += power.fail(directory)
                cluster.restart(victim)
                cluster.wait_in_sync()
            load.wait_for(load.count + 100)
        check(load, cluster.bootstrap_servers)
        directories = [str(broker.data_dir) for broker in cluster.brokers.values()]
    assert lost, "no loss of power took anything"
    assert main(["cluster-check", str(tmp_path / "data" / "metadata"), *directories]) == 0
