"""Directories that somebody has changed while a broker was down: followers become as their leader, and say so."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.cluster.partitions.support import (
    DEADLINE_S,
    client_of,
    create_topic,
    read_all,
    stored,
    wait_for_equal_logs,
    write,
)

NOW = 1_700_000_000_000
VALUES = [b"%d" % each for each in range(10)]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Yield two brokers with a topic: a batch of ten records, which both know to be safe, and one of one record."""
    with EmbeddedCluster(brokers=2) as cluster:
        create_topic(cluster, "t")
        with client_of(cluster, cluster.leader("t", 0)) as client:
            assert write(client, "t", VALUES, acks=-1).error_code == 0
            assert write(client, "t", [b"last"], acks=-1).error_code == 0
        wait_for_equal_logs(cluster, "t-0")
        yield cluster


def put_in_place(directory: Path, records: int, epoch: int) -> None:
    """Put other records where a replica's are, a batch each."""
    log = PartitionLog.open(DiskStorage(), str(directory), LogConfig(), NOW)
    log.begin_at(0)
    for _ in range(records):
        log.append(encode_batch([Record(None, b"from elsewhere", NOW)]), epoch, NOW)
    log.close(NOW)


def directory_of(cluster: EmbeddedCluster, broker_id: int) -> Path:
    return cluster.data_dir / str(broker_id) / "t-0"


def warnings(
    caplog: pytest.LogCaptureFixture, logger: str = "sparkonce.broker_lite.server.replica_fetcher"
) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == logger and each.levelname != "INFO"]


@pytest.mark.parametrize(
    ("records", "epochs_more", "said"),
    [
        pytest.param(5, 0, "its last records are not the leader's", id="in the middle of a batch of the leader's"),
        pytest.param(5, 9, "does not have what ours end with, 0 to 5: now they are 0 to 0", id="of a later epoch"),
        pytest.param(
            25, 9, "does not have what ours end with, 0 to 25: now they are 0 to 11", id="ahead of the leader"
        ),
    ],
)
def test_a_follower_with_records_from_elsewhere_becomes_as_its_leader(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, records: int, epochs_more: int, said: str
) -> None:
    state = cluster.state("t", 0)
    leader, epoch = state.leader, state.leader_epoch
    follower = 3 - leader
    cluster.stop(follower)
    put_in_place(directory_of(cluster, follower), records, epoch + epochs_more)
    caplog.clear()
    cluster.restart(follower)
    cluster.wait_in_sync(DEADLINE_S)
    assert stored(cluster, follower, "t-0") == stored(cluster, leader, "t-0")
    assert said in "\n".join(warnings(caplog))
    with client_of(cluster, leader) as client:
        assert write(client, "t", [b"after"], acks=-1).error_code == 0
    wait_for_equal_logs(cluster, "t-0")
    told = len(warnings(caplog))
    assert told <= 4, warnings(caplog)
    cluster.stop(leader)
    assert read_all(cluster, "t", 1, 12) == [[*VALUES, b"last", b"after"]]
    assert len(warnings(caplog)) == told, "nothing is said again and again"


def test_a_leader_whose_data_was_deleted_is_followed_and_what_is_lost_is_said(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    leader = cluster.leader("t", 0)
    follower = 3 - leader
    cluster.stop(follower)
    cluster.stop(leader)
    shutil.rmtree(directory_of(cluster, leader))
    cluster.restart(leader)
    cluster.wait_until(lambda: cluster.leader("t", 0) == leader, "nobody leads")
    cluster.restart(follower)
    cluster.wait_in_sync(DEADLINE_S)
    with client_of(cluster, leader) as client:
        assert write(client, "t", [b"after"], acks=-1).error_code == 0
    wait_for_equal_logs(cluster, "t-0")
    assert read_all(cluster, "t", 1, 1) == [[b"after"]]
    (said,) = warnings(caplog)
    assert re.search(
        rf"cut from 11 to 0, as broker {leader} has it: offsets 0 to (9|10) had been on all replicas", said
    )
