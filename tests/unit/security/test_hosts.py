"""Hosts of access control lists: as Java spells them, on sockets of either family, compared as Kafka compares them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.broker_lite.security.acls import (
    Binding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    host_address,
    host_of,
    packed_address,
    right_spelling,
)
from sparkonce.broker_lite.security.authorizer import Authorizer
from sparkonce.kafka.protocol.apis import ApiKey
from tests.interop.answers import ACL_HOSTS, RECORDED, SETTINGS, play_hosts
from tests.interop.plain_client import PlainClient


@pytest.mark.parametrize(
    ("address", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::ffff:7f00:1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::a:0:f", "2001:db8:0:0:0:a:0:f"),
        ("::127.0.0.1", "0:0:0:0:0:0:7f00:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("?", "?"),
        ("host:9092", "host:9092"),
    ],
)
def test_addresses_are_written_as_java_writes_them(address: str, java: str) -> None:
    assert host_address(address) == java


def test_a_scope_is_shown_by_its_number() -> None:
    assert host_address("fe80::1%eth0", 2) == "fe80:0:0:0:0:0:0:1%2"
    assert host_address("::ffff:127.0.0.1", 2) == "127.0.0.1"


@given(st.ip_addresses())
def test_every_address_has_one_spelling(address: object) -> None:
    host = host_address(str(address))
    packed = packed_address(host)
    assert packed is not None
    assert host_of(packed) == host == host_address(host)
    assert right_spelling(host) is None
    assert right_spelling(str(address)) in (None, host)


def test_rules_about_nobody_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authorizer = Authorizer(DiskStorage(), str(tmp_path))
    rule = Rule("User:a", "::1", Operation.READ, Permission.DENY)
    authorizer.add([Binding(ResourceType.TOPIC, "t", PatternType.LITERAL, rule)])
    Authorizer(DiskStorage(), str(tmp_path))
    said = "ACLs with these 1 hosts apply to no client, as in Kafka: ::1 (write 0:0:0:0:0:0:0:1)"
    assert [record.message for record in caplog.records] == [said, said]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    listeners = "PLAINTEXT://[::ffff:127.0.0.1]:0,V6://[::1]:0"
    settings = {
        **SETTINGS, "listeners": listeners, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,V6:PLAINTEXT",
    }  # fmt: skip
    with EmbeddedBroker(config=settings) as embedded:
        yield embedded


def test_rules_apply_by_host_as_in_kafka(broker: EmbeddedBroker) -> None:
    said = play_hosts(broker.listeners["PLAINTEXT"], broker.listeners["V6"])
    assert said == RECORDED["hosts"]
    assert len(said) == 2 * len(ACL_HOSTS)


def test_groups_show_their_members_hosts_as_kafka_does(broker: EmbeddedBroker) -> None:
    for listener, host in (("PLAINTEXT", "/127.0.0.1"), ("V6", "/0:0:0:0:0:0:0:1")):
        with PlainClient(broker.listeners[listener]) as client:
            client.find_coordinator(listener, 0)
            client.ask(
                ApiKey.JOIN_GROUP, 5, group_id=listener, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
                member_id="", group_instance_id="static", protocol_type="consumer", protocols=[("range", b"")],
            )  # fmt: skip
            (group,) = client.ask(ApiKey.DESCRIBE_GROUPS, 4, groups=[listener]).groups
            assert [member.client_host for member in group.members] == [host]
