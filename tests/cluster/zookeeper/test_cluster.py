"""A cluster on a real ZooKeeper: sessions that end, a ZooKeeper that is gone for a while, and what cannot start."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient

from lab.network import Proxy, free_port
from sparkonce import EmbeddedBroker, EmbeddedCluster
from sparkonce.broker_lite.config import ConfigError
from sparkonce.broker_lite.embedded import BrokerStartError
from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination
from tests.cluster.control.clients import QUIET, admin, consumed, create, produce, told_leaders
from tests.zookeeper import ZooKeeper

CONFIG = {
    "zookeeper.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 10_000,
    "min.insync.replicas": 2,
}


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, config=CONFIG, coordination=zookeeper.place) as made:
        yield made


@pytest.fixture
def whole(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.wait_until(lambda: sorted(cluster.alive) == [1, 2, 3], "not all brokers are alive")
    cluster.wait_in_sync()
    return cluster


def coordination(cluster: EmbeddedCluster, broker_id: int) -> ZooKeeperCoordination:
    shell = cluster.brokers[broker_id]._runner._server._cluster  # type: ignore[union-attr]
    assert shell is not None
    found = shell.coordination  # type: ignore[union-attr]
    assert isinstance(found, ZooKeeperCoordination)
    return found


def end_session(zookeeper: ZooKeeper, cluster: EmbeddedCluster, broker_id: int) -> None:
    """End a broker's session from outside, by its id and password."""
    client: Any = coordination(cluster, broker_id)._client
    other = KazooClient(zookeeper.address, client_id=client._kazoo.client_id)
    other.start()
    other.stop()
    other.close()


def test_a_controller_whose_session_ends_is_replaced(zookeeper: ZooKeeper, whole: EmbeddedCluster) -> None:
    former, epoch = whole.controller_id, whole.image().controller_epoch
    create(admin(whole.bootstrap_servers), "before")
    end_session(zookeeper, whole, former)
    whole.wait_until(lambda: whole.image().controller_epoch > epoch, "nobody has taken over")
    create(admin(whole.bootstrap_servers), "after")
    assert {"before", "after"} <= whole.image().topic_ids.keys()
    whole.wait_until(lambda: sorted(whole.alive) == [1, 2, 3], "the broker does not come back")


def test_a_broker_does_not_wait_for_the_end_of_its_former_session(zookeeper: ZooKeeper) -> None:
    config = {"broker.session.timeout.ms": 600_000, "zookeeper.session.timeout.ms": 1_500}
    place = f"zookeeper://{zookeeper.address}/former-session"
    with EmbeddedCluster(1, process=True, config=config, coordination=place) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=1, factor=1)
        cluster.kill(1)
        cluster.restart(1)
        produce(cluster, "t", 0, [b"a"])


def test_a_leader_whose_session_ends_is_replaced_and_comes_back(zookeeper: ZooKeeper, whole: EmbeddedCluster) -> None:
    create(admin(whole.bootstrap_servers), "led")
    victim = next(each for each in whole.brokers if each != whole.controller_id)
    led = next(index for index, leader in told_leaders(whole, "led", 3).items() if leader == victim)
    produce(whole, "led", led, [b"before"])
    epoch = whole.state("led", led).leader_epoch
    end_session(zookeeper, whole, victim)
    whole.wait_until(lambda: whole.state("led", led).leader_epoch > epoch, "the broker still leads")
    produce(whole, "led", led, [b"after"])
    whole.wait_in_sync()
    assert consumed(whole, "led", led, 2) == [b"before", b"after"]


def test_nothing_is_acknowledged_without_a_session_and_all_is_there_afterwards(
    zookeeper: ZooKeeper, whole: EmbeddedCluster
) -> None:
    create(admin(whole.bootstrap_servers), "cut-off", partitions=1)
    produce(whole, "cut-off", 0, [b"before"])
    before = {each: coordination(whole, each) for each in whole.brokers}
    zookeeper.kill()
    try:
        produce(whole, "cut-off", 0, [b"within the session"])
        whole.wait_until(lambda: not any(each.in_session for each in before.values()), "a session goes on")
        errors: list[KafkaError | None] = []
        settings = {"bootstrap.servers": whole.bootstrap_servers, "acks": "1", "message.timeout.ms": 1_000, **QUIET}
        producer = Producer(settings)
        producer.produce("cut-off", b"without one", partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        assert [each is not None for each in errors] == [True]
    finally:
        zookeeper.start()
    whole.wait_until(lambda: all(each.in_session for each in before.values()), "no session")
    produce(whole, "cut-off", 0, [b"after"])
    assert consumed(whole, "cut-off", 0, 3) == [b"before", b"within the session", b"after"]
    create(admin(whole.bootstrap_servers), "after-the-restart")


def test_a_cluster_is_watched_by_a_way_of_its_own_to_zookeeper(zookeeper: ZooKeeper) -> None:
    place = f"{zookeeper.address}/{uuid.uuid4()}"
    with Proxy(zookeeper.port) as way:
        connects = {1: {"zookeeper.connect": place.replace(str(zookeeper.port), str(way.port))}}
        with EmbeddedCluster(2, config=CONFIG, of_broker=connects, coordination=f"zookeeper://{place}") as cluster:
            cluster.wait_until(lambda: sorted(cluster.alive) == [1, 2], "not all brokers are alive")
            way.stall()
            cluster.wait_until(lambda: cluster.alive == {2}, "what has become of broker 1 is not seen")
            way.heal()


def test_what_zookeeper_has_not_taken_is_not_answered(zookeeper: ZooKeeper) -> None:
    """The controller is cut off from ZooKeeper while a topic is made: the next one makes it, and it is there then."""
    place = f"{zookeeper.address}/{uuid.uuid4()}"
    with ExitStack() as stack:
        ways = {broker_id: stack.enter_context(Proxy(zookeeper.port)) for broker_id in (1, 2, 3)}
        connects = {
            each: {"zookeeper.connect": place.replace(str(zookeeper.port), str(way.port))} for each, way in ways.items()
        }
        made = EmbeddedCluster(3, config=CONFIG, of_broker=connects, coordination=f"zookeeper://{place}")
        cluster = stack.enter_context(made)
        cluster.wait_until(lambda: sorted(cluster.alive) == [1, 2, 3], "not all brokers are alive")
        client = admin(cluster.bootstrap_servers)
        former = cluster.controller_id
        ways[former].stall()
        (future,) = client.create_topics([NewTopic("t", 1, 2)], operation_timeout=0, request_timeout=60).values()
        cluster.wait_until(lambda: cluster.controller_id not in (former, -1), "nobody has taken over")
        ways[former].heal()
        future.result(60)
        assert "t" in cluster.image().topic_ids


@pytest.mark.parametrize("of_a_copy", [False, True])
def test_a_second_broker_of_the_same_id_does_not_start(
    zookeeper: ZooKeeper, whole: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_a_copy: bool
) -> None:
    """Not with a copy of the first one's directory either, as from a backup: both would lead, and acknowledge."""
    monkeypatch.setattr("sparkonce.broker_lite.server.membership.START_TIMEOUT_S", 1.0)
    config = {**CONFIG, "node.id": 1, "zookeeper.connect": zookeeper.place.removeprefix("zookeeper://")}
    data = tmp_path / "data"
    if of_a_copy:
        shutil.copytree(whole.brokers[1].data_dir, data)
    with pytest.raises(BrokerStartError, match=r"another broker with node\.id=1, at .*give each broker its own"):
        EmbeddedBroker(data, config=config)
    assert 1 in whole.alive


def test_a_broker_of_another_cluster_does_not_start(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    config = {"node.id": 1, "zookeeper.connect": f"{zookeeper.address}/{uuid.uuid4()}"}
    with EmbeddedBroker(tmp_path, config={**config, "zookeeper.session.timeout.ms": 2_000}):
        pass
    with pytest.raises(BrokerStartError, match=r"cannot be used: it is that of cluster\.id="):
        EmbeddedBroker(config={**config, "cluster.id": "another"})
    elsewhere = f"{zookeeper.address}/{uuid.uuid4()}"
    with pytest.raises(BrokerStartError, match=r"belongs to cluster\.id"):
        EmbeddedBroker(tmp_path, config={**config, "zookeeper.connect": elsewhere})


def test_a_broker_without_zookeeper_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkonce.broker_lite.server.zookeeper_mode.MIN_CONNECT_S", 0.5)
    address = f"127.0.0.1:{free_port()}"
    config = {"node.id": 1, "zookeeper.connect": f"{address}/c", "zookeeper.session.timeout.ms": 500}
    with pytest.raises(
        BrokerStartError, match=rf"zookeeper\.connect={address}/c cannot be used: no ZooKeeper has answ"
    ):
        EmbeddedBroker(config=config)


def test_a_cluster_without_zookeeper_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkonce.broker_lite.server.zookeeper_observer.START_TIMEOUT_S", 0.1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerStartError, match=r"ZooKeeper at \S+ cannot be used"):
        EmbeddedCluster(coordination=f"zookeeper://127.0.0.1:{free_port()}/c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"zookeeper.connect": "zk"}, "expected host:port of each server"),
        ({"zookeeper.connect": "zk:2181/a/"}, "expected host:port of each server"),
        ({"zookeeper.connect": "zk:2181/a,zk2:2181/a"}, "expected host:port of each server"),
        ({"zookeeper.connect": ""}, "expected host:port of each server"),
        ({"zookeeper.connect": "zk:2181", "metadata.log.dir": "/m"}, "leave one of them out"),
    ],
)
def test_settings_that_fit_no_zookeeper_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EmbeddedBroker(config={"node.id": 1, **settings})


def test_another_coordination_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected zookeeper://HOST:PORT/chroot"):
        EmbeddedCluster(coordination="etcd://x")
