"""A cluster of a former version is upgraded under load, one broker after the other, and goes back; no record is lost.

    git worktree add ../former COMMIT
    SPARKONCE_FORMER=../former pytest tests/cluster/test_upgrade.py

Versions that the simulator can play beside this one (`python -m lab.sim --beside`) are tried there in many more ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite import embedded
from tests.cluster.files import check_files
from tests.cluster.test_bounces import BETWEEN, CONFIG, PARTITIONS, TOPIC, WHILE_DOWN, end_and_judge, start
from tests.zookeeper import server_for

FORMER = os.environ.get("SPARKONCE_FORMER", "")
BROKERS = (1, 2, 3)

pytestmark = [pytest.mark.soak, pytest.mark.skipif(not FORMER, reason="SPARKONCE_FORMER is no checkout")]


@pytest.fixture
def set_version(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what chooses the checkout that brokers are started from, from now on; none is this one."""
    this = embedded._environment

    def choose(checkout: str) -> None:
        former = {**os.environ, "PYTHONPATH": str(Path(checkout).resolve()), "PYTHONSAFEPATH": "1"}
        monkeypatch.setattr(embedded, "_environment", lambda: former if checkout else this())

    return choose


@pytest.fixture
def cluster(
    tmp_path: Path, request: pytest.FixtureRequest, set_version: Callable[[str], None]
) -> Iterator[EmbeddedCluster]:
    set_version(FORMER)
    with server_for(request.param, tmp_path / "zookeeper") as server:
        place = None if server is None else server.place
        known = {name: value for name, value in CONFIG.items() if place is not None or "zookeeper" not in name}
        with EmbeddedCluster(3, tmp_path / "data", True, known, coordination=place) as brokers:
            admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
            brokers.wait_in_sync()
            yield brokers
        check_files(tmp_path / "data", place)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cluster", ["files", "zookeeper"], indirect=True)
def test_no_record_is_lost_by_an_upgrade_and_the_way_back(
    cluster: EmbeddedCluster, tmp_path: Path, set_version: Callable[[str], None]
) -> None:
    with ExitStack() as clients:
        producing = ("--value-prefix", "p", "--throughput", "1000", "--repeating-keys", "17")
        producer = start(cluster, tmp_path, clients, "verifiable_producer", "producer", *producing)
        member = start(cluster, tmp_path, clients, "verifiable_consumer", "member", "--verbose", "--group-id", "g")
        for version, broker_id in [("", each) for each in BROKERS] + [(FORMER, each) for each in BROKERS]:
            producer.wait_for("producer_send_success", producer.counts.get("producer_send_success", 0) + BETWEEN)
            cluster.stop(broker_id)
            producer.wait_for("producer_send_success", producer.counts.get("producer_send_success", 0) + WHILE_DOWN)
            set_version(version)
            cluster.restart(broker_id)
            cluster.wait_in_sync()
        end_and_judge(cluster, tmp_path, clients, producer, member)
