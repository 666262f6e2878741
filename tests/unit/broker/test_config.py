"""Settings: Kafka's names, the nearest known one for a wrong one, the file in conf/."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.broker_lite.config import BrokerConfig, ConfigError, read_properties
from tests.cases import each_case

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EXAMPLE = Path(__file__).resolve().parents[3] / "conf" / "broker.properties"


def test_text_and_values_are_read_alike() -> None:
    text = BrokerConfig.of({"num.partitions": "4", "auto.create.topics.enable": "false"})
    values = BrokerConfig.of({"num.partitions": 4, "auto.create.topics.enable": False})
    assert text == values
    assert (text.num_partitions, text.auto_create_topics_enable) == (4, False)


@each_case(
    ("settings", "said"),
    [
        ({"foo.bar": 1}, r"^unknown broker setting 'foo\.bar'; sparkonce broker --help-settings lists all$"),
        ({"num.partition": 1}, r"num\.partition.*nearest known one is 'num\.partitions'"),
        ({"num.partitions": "many"}, r"num\.partitions='many': expected a whole number"),
        ({"num.partitions": 0}, r"num\.partitions=0: must be at least 1"),
        ({"port": 70_000}, "must be at most 65535"),
        ({"auto.create.topics.enable": "yes"}, "expected true or false"),
        ({"log.dirs": "/a, /b"}, r"log\.dirs='/a, /b' names 2 directories; .*: give one"),
        ({"super.users": "User:root;admin"}, r"super\.users: 'admin' is nobody: expected User:<name>"),
        ({"super.users": "User:"}, r"super\.users: 'User:' is nobody: expected User:<name>"),
        ({"authorizer.class.name": "x"}, r"authorizer\.class\.name='x': expected empty or org\.apache.*Authorizer$"),
        ({"ssl.client.auth": "x"}, r"expected one of none, requested, required$"),
        ({"log.dir": "/a"}, r"'log\.dir' is Kafka's and is not served here: use log\.dirs$"),
        ({"broker.id": "1"}, r"'broker\.id' is Kafka's and is not served here: use node\.id$"),
        (
            {"metadata.log.dir": "", "node.id": 1},
            r"^metadata\.log\.dir is empty: give the directory .* or leave it out",
        ),
        ({"metadata.log.dir": " ", "node.id": 1}, r"^metadata\.log\.dir is empty"),
        (
            {"metadata.log.dir": "/m"},
            r"^node\.id is missing, and metadata\.log\.dir=/m .*: give each .* a number of its own",
        ),
        (
            {"metadata.log.dir": "/m", "node.id": 1, "authorizer.class.name": AUTHORIZER, "super.users": "User:root"},
            r"^authorizer\.class\.name in a cluster needs super\.users=User:ANONYMOUS on each broker",
        ),
        ({"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 9}, "must not exceed"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.of(settings)


def test_a_member_of_a_cluster_may_have_super_users_among_others() -> None:
    users = {"authorizer.class.name": AUTHORIZER, "super.users": "User:root; User:ANONYMOUS"}
    member = BrokerConfig.of({"metadata.log.dir": "/m", "node.id": 0, **users})
    assert (member.node_id, member.metadata_log_dir) == (0, "/m")


def test_a_place_of_a_cluster_that_is_none_is_not_given() -> None:
    connect = "zk:2181/one"
    assert not BrokerConfig.of({"metadata.log.dir": None, "zookeeper.connect": None}).rests_on
    on_zookeeper = {"metadata.log.dir": None, "zookeeper.connect": connect, "node.id": 1}
    assert BrokerConfig.of(on_zookeeper).rests_on == "zookeeper.connect"
    assert BrokerConfig(metadata_log_dir="/m").rests_on == "metadata.log.dir"
    with pytest.raises(ConfigError, match=r"^node\.id is missing, and zookeeper\.connect=zk:2181/one makes"):
        BrokerConfig.of({"metadata.log.dir": None, "zookeeper.connect": connect})


def test_one_directory_may_be_written_as_a_list() -> None:
    assert BrokerConfig.of({"log.dirs": " /a ,"}).log_dirs == "/a"


def test_the_example_is_read() -> None:
    assert BrokerConfig.of(read_properties(EXAMPLE)).num_partitions == 4


def test_a_file_that_is_no_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_text("# fine\n\nsasl.password hunter2\n")
    with pytest.raises(ConfigError, match=r"line 3: expected name=value") as raised:
        read_properties(file)
    assert "hunter2" not in str(raised.value), "clients' settings are read by it too"
    with pytest.raises(ConfigError, match="cannot read"):
        read_properties(tmp_path / "none")
