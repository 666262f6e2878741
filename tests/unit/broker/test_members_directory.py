"""A broker by itself keeps out of the data of a cluster's member, and the cluster's directory out of its members'."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.embedded import BrokerStartError
from tests.cluster.control.clients import admin, create


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        ("data", r"metadata\.log\.dir=\S+/data is this broker's data directory: give another one"),
        ("data/../data/", r"is this broker's data directory"),
        ("link", r"metadata\.log\.dir=\S+/link is this broker's data directory"),
        (
            "data/shared",
            r"metadata\.log\.dir=\S+/data/shared is in this broker's data directory, \S+/data: give another",
        ),
    ],
)
@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_the_shared_directory_is_in_no_members_data(shared: str, said: str, process: bool, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    config = {"metadata.log.dir": str(tmp_path / shared), "node.id": 1}
    with pytest.raises(BrokerStartError, match=said):
        EmbeddedBroker(tmp_path / "data", process=process, config=config)
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_the_shared_directory_is_not_kafkas(tmp_path: Path) -> None:
    log = tmp_path / "kafka" / "__cluster_metadata-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"the log of a controller")
    config = {"metadata.log.dir": str(tmp_path / "kafka"), "node.id": 1}
    with pytest.raises(BrokerStartError, match=r"has the metadata log of an Apache Kafka controller: give another one"):
        EmbeddedBroker(tmp_path / "data", config=config)
    assert [path.name for path in (tmp_path / "kafka").rglob("*")] == [log.parent.name, log.name]


def test_members_data_may_be_in_the_shared_directory(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", config={"metadata.log.dir": str(tmp_path), "node.id": 1}):
        assert (tmp_path / "data" / "meta.properties").exists()


def test_the_data_of_a_clusters_member_is_refused(tmp_path: Path) -> None:
    """It would take writes at offsets where the other replicas have other records."""
    with EmbeddedBroker(tmp_path / "data", config={"metadata.log.dir": str(tmp_path / "shared"), "node.id": 1}):
        pass
    with pytest.raises(BrokerStartError, match=r"member of a cluster: give metadata\.log\.dir"):
        EmbeddedBroker(tmp_path / "data", config={"node.id": 1})
    with EmbeddedBroker(tmp_path / "data", config={"metadata.log.dir": str(tmp_path / "shared"), "node.id": 1}):
        pass


def test_the_data_of_a_standalone_broker_is_refused_by_a_member(tmp_path: Path) -> None:
    """Also where the clusters' ids are the same: the cluster would put all of its topics aside."""
    config: dict[str, object] = {"node.id": 1, "cluster.id": "the-same"}
    member = {**config, "metadata.log.dir": str(tmp_path / "shared")}
    data = tmp_path / "data"
    with EmbeddedBroker(data, config=config):
        pass
    with EmbeddedBroker(data, config=member):
        pass  # it has no topics
    (data / "broker-epoch").unlink()
    with EmbeddedBroker(data, config=config) as broker:
        create(admin(broker.bootstrap_servers), "t", partitions=1, factor=1)
    with pytest.raises(BrokerStartError, match=r"has topics, and is not that of a member of a cluster"):
        EmbeddedBroker(data, config=member)
    with EmbeddedBroker(data, config=config) as broker:
        assert "t" in admin(broker.bootstrap_servers).list_topics(timeout=20).topics
