"""EmbeddedCluster: what it says of wrong arguments, of brokers that there are not, and of a cluster that is down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkonce import BrokerStartError, ConfigError, EmbeddedBroker, EmbeddedCluster
from sparkonce.kafka.protocol.apis import ApiKey
from tests.cases import each_case
from tests.cluster.control.clients import admin, create, produce
from tests.interop.plain_client import PlainClient


@pytest.fixture(scope="module")
def threads() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@each_case(
    ("arguments", "error", "message"),
    [
        ({"brokers": 0}, ValueError, r"^brokers=0: a cluster has one at least$"),
        ({"brokers": "3"}, TypeError, r"^brokers='3': expected how many$"),
        (
            {"config": ["num.partitions=4"]},
            TypeError,
            r"^config=\['num.partitions=4'\]: expected settings by their names",
        ),
        ({"of_broker": [{}]}, TypeError, r"^of_broker=\[\{\}\]: expected settings by ids, as in \{1: "),
        ({"of_broker": {1: 4}}, TypeError, r"^of_broker\[1\]=4: expected settings by their names"),
        (
            {"of_broker": {4: {}}},
            ValueError,
            r"^of_broker has settings of broker 4, .*: the cluster has brokers 1 to 3$",
        ),
        ({"of_broker": {"1": {}}}, ValueError, r"^of_broker has settings of broker '1', which there is not"),
        (
            {"config": {"node.id": 4}},
            ValueError,
            r"^config has node\.id, which each broker is given by .*: leave it out$",
        ),
        (
            {"of_broker": {2: {"log.dirs": "x"}}},
            ValueError,
            r"^of_broker\[2\] has log\.dirs, which each broker is given",
        ),
        (
            {"config": {"port": 29123}},
            ValueError,
            r"^brokers 1 and 2 would both listen on 127\.0\.0\.1, port 29123: give each its own in of_broker",
        ),
        (
            {"config": {"listeners": "A://:0,B://:7", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}},
            ValueError,
            r"^brokers 1 and 2 would both listen on 127\.0\.0\.1, port 7:",
        ),
        (
            {"config": {"metrics.port": 7}, "of_broker": {2: {"metrics.port": 8}}},
            ValueError,
            r"^brokers 1 and 3 would both listen on .*, port 7:",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        EmbeddedCluster(**arguments)


def test_access_control_lists_need_somebody_that_brokers_may_be() -> None:
    """Such a cluster would wait for a minute, since it refuses its own brokers."""
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with pytest.raises(ConfigError, match=r"needs super\.users=User:ANONYMOUS on each broker"):
        EmbeddedCluster(brokers=1, config={**authorizer, "super.users": "User:admin"})


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerStartError, match=rf"^{tmp_path}/file cannot be used \(.*\): choose another"):
        EmbeddedCluster(data_dir=tmp_path / "file")


def test_a_brokers_own_directory_is_refused(tmp_path: Path) -> None:
    """Its topics would lie there unseen, beside those of the cluster."""
    with EmbeddedBroker(tmp_path):
        pass
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BrokerStartError, match=rf"^{tmp_path} is the data directory of a broker: give the cluster"):
        EmbeddedCluster(data_dir=tmp_path)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("broker_id", [3, 0, "1"])
@pytest.mark.parametrize(
    "method",
    [
        EmbeddedCluster.kill,
        EmbeddedCluster.stop,
        EmbeddedCluster.restart,
        EmbeddedCluster.pause,
        EmbeddedCluster.resume,
    ],
)
def test_a_broker_that_there_is_not_is_named(
    threads: EmbeddedCluster, method: Callable[[EmbeddedCluster, Any], None], broker_id: object
) -> None:
    with pytest.raises(ValueError, match=rf"^there is no broker {broker_id!r} in this cluster: it has brokers 1 to 2$"):
        method(threads, broker_id)


def test_what_only_processes_can_is_refused_in_threads(threads: EmbeddedCluster) -> None:
    for method, what in ((threads.kill, "killed"), (threads.pause, "paused")):
        with pytest.raises(RuntimeError, match=rf"^broker 2 runs in a thread, which cannot be {what}: .*process=True"):
            method(2)
    threads.resume(2)


def test_partitions_that_there_are_not_are_named(threads: EmbeddedCluster) -> None:
    create(admin(threads.bootstrap_servers), "named", partitions=2, factor=2)
    with pytest.raises(KeyError, match=r"the cluster has no topic 'nobody'"):
        threads.leader("nobody", 0)
    for partition in (2, "0"):
        with pytest.raises(KeyError, match=rf"topic 'named' has no partition {partition!r}: it has 2, from 0 on"):
            threads.in_sync_replicas("named", partition)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^condition=True: expected a function"):
        threads.wait_until(True, "nothing")  # type: ignore[arg-type]


def test_where_all_are_dead_nobody_is_alive_or_leads_and_all_come_back() -> None:
    with EmbeddedCluster(brokers=2, process=True) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=1, factor=2)
        produce(cluster, "t", 0, [b"kept"])
        cluster.wait_in_sync()
        for broker_id in cluster.brokers:
            cluster.kill(broker_id)
        assert (cluster.alive, cluster.leader("t", 0)) == (set(), -1)
        assert cluster.in_sync_replicas("t", 0), "who may lead is on the disk"
        with pytest.raises(TimeoutError, match=r"not all replicas are in sync: .*\(down\)"):
            cluster.wait_in_sync(timeout_s=0.0)
        for method, what in ((cluster.kill, "killed"), (cluster.pause, "paused")):
            with pytest.raises(
                RuntimeError, match=rf"^broker 1 is down, and cannot be {what}: restart\(1\) brings it back$"
            ):
                method(1)
        for broker_id in cluster.brokers:
            cluster.restart(broker_id)
        cluster.wait_in_sync()
        assert cluster.alive == {1, 2}
    cluster.close()
    for after in (lambda: cluster.alive, lambda: cluster.leader("t", 0), lambda: cluster.restart(1)):
        with pytest.raises(RuntimeError, match=r"^this cluster has been closed: make another"):
            after()


def test_every_broker_is_shown_as_one_that_may_be_the_controller(threads: EmbeddedCluster) -> None:
    controller = threads.image().controller_id
    for broker in threads.brokers.values():
        with PlainClient(broker.bootstrap_servers) as client:
            answer = client.ask(ApiKey.DESCRIBE_QUORUM, 2, topics=[("__cluster_metadata", [(0,)])])
        (log,) = answer.topics[0].partitions
        assert (log.error_code, log.leader_id) == (0, controller)
        assert sorted(voter.replica_id for voter in log.current_voters) == sorted(threads.brokers)
        assert {voter.log_end_offset for voter in log.current_voters} == {log.high_watermark}
        assert log.high_watermark > 0
        assert sorted(node.node_id for node in answer.nodes) == sorted(threads.brokers)
