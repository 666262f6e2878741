"""A broker whose disk fails for good: others lead in its place, and nothing that was acknowledged is lost."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

import pytest
from confluent_kafka import Producer

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite.embedded import _Thread
from sparkonce.broker_lite.log.storage import DiskFile
from sparkonce.broker_lite.server.server import Server
from tests.cluster.control.clients import QUIET, admin, consumed, create, produce

QUICK = {"broker.heartbeat.interval.ms": 200, "replica.lag.time.max.ms": 2_000}


def server(cluster: EmbeddedCluster, broker_id: int) -> Server:
    runner = cluster.brokers[broker_id]._runner
    assert isinstance(runner, _Thread)
    return runner._server


def begin_to_produce(cluster: EmbeddedCluster, partition: int, **settings: Any) -> tuple[Producer, list[Any]]:
    """Send a record; returns the producer, and what becomes of it."""
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUIET, **settings})
    producer.produce("t", b"after", partition=partition, on_delivery=lambda error, _: told.append(error))
    producer.poll(0)
    return producer, told


def test_a_leader_whose_directory_has_failed_lets_others_lead(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(brokers=3, config=QUICK) as cluster:
        client = admin(cluster.bootstrap_servers)
        create(client, "t", partitions=3, min_insync_replicas="2")
        led = next(index for index in range(3) if cluster.leader("t", index) != cluster.controller_id)
        victim = cluster.leader("t", led)
        produce(cluster, "t", led, [b"before"])

        def broken(path: str, _: int) -> None:
            if "/t-" in path:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        gate = server(cluster, victim).write_gate
        gate.check = broken
        produce(cluster, "t", led, [b"after"])
        cluster.wait_until(lambda: victim not in cluster.alive, "the broker is not fenced")
        for index in range(3):
            state = cluster.state("t", index)
            assert victim not in (state.leader, *state.in_sync_replicas, *state.eligible_leader_replicas)
        assert caplog.text.count("the log directory has failed") == 1
        gate.check = None
        cluster.restart(victim)
        cluster.wait_in_sync()
        assert consumed(cluster, "t", led, 2) == [b"before", b"after"]


def test_a_leader_that_lacks_descriptors_for_a_while_goes_on_leading() -> None:
    with EmbeddedCluster(brokers=3, config=QUICK) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=3, min_insync_replicas="2")
        cluster.wait_in_sync()
        victim, before = cluster.leader("t", 0), cluster.state("t", 0)
        refused: list[str] = []

        def lacking(path: str, _: int) -> None:
            if "/t-" in path and len(refused) < 3:
                refused.append(path)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

        running = server(cluster, victim)
        running.write_gate.check = lacking
        produce(cluster, "t", 0, [b"a", b"b"])
        assert len(refused) == 3
        logs = running.broker.logs
        assert logs.failure() is None
        assert cluster.state("t", 0) == before
        assert consumed(cluster, "t", 0, 2) == [b"a", b"b"]


@pytest.mark.parametrize(("number", "is_fenced"), [(errno.EMFILE, False), (errno.EIO, True)])
def test_a_partition_that_cannot_be_read_holds_up_no_other_of_its_leader(
    number: int, is_fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedCluster(brokers=3, config=QUICK) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=6, min_insync_replicas="2")
        cluster.wait_in_sync()
        bad = next(index for index in range(6) if cluster.leader("t", index) != cluster.controller_id)
        victim = cluster.leader("t", bad)
        well = next(index for index in range(6) if index != bad and cluster.leader("t", index) == victim)
        running = server(cluster, victim)
        produce(cluster, "t", bad, [b"before"])
        real, asked = DiskFile.pread, threading.Event()
        broken = running.broker.logs.partition("t", bad).segments[-1].file

        def failing(file: DiskFile, size: int, position: int) -> bytes:
            if file is broken:
                asked.set()
                raise OSError(number, os.strerror(number))
            return real(file, size, position)

        monkeypatch.setattr(DiskFile, "pread", failing)
        producer, told = begin_to_produce(cluster, bad)
        assert asked.wait(20), "nobody has read it"
        produce(cluster, "t", well, [b"well"])
        if is_fenced:
            cluster.wait_until(lambda: victim not in cluster.alive, "the broker is not fenced")
        else:
            assert victim in cluster.alive
            assert cluster.leader("t", bad) == victim
            monkeypatch.undo()
        assert producer.flush(30) == 0
        assert told == [None]
        assert consumed(cluster, "t", bad, 2) == [b"before", b"after"]
        assert consumed(cluster, "t", well, 1) == [b"well"]


def test_a_broker_whose_disk_has_stalled_until_it_was_fenced_and_fails_then_is_eligible_no_more() -> None:
    with EmbeddedCluster(brokers=3, config={**QUICK, "broker.session.timeout.ms": 1_500}) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=3, min_insync_replicas="3")
        cluster.wait_in_sync()
        led = next(index for index in range(3) if cluster.leader("t", index) != cluster.controller_id)
        victim = cluster.leader("t", led)
        fails = threading.Event()

        def stalled(path: str, _: int) -> None:
            if "/t-" in path:
                fails.wait(30)
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        gate = server(cluster, victim).write_gate
        gate.check = stalled
        producer, _ = begin_to_produce(cluster, led, **{"message.timeout.ms": 1_000})
        try:
            cluster.wait_until(
                lambda: victim in cluster.state("t", led).eligible_leader_replicas, "the silent broker is not fenced"
            )
        finally:
            fails.set()
        cluster.wait_until(
            lambda: victim not in cluster.state("t", led).eligible_leader_replicas, "it is eligible all the same"
        )
        assert victim not in cluster.alive
        producer.flush(10)
        gate.check = None
