"""What is in the topic: after a SIGKILL of the registry and of the broker, with two registries, and damaged."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from sparkonce import EmbeddedBroker, EmbeddedRegistry, RegistryStartError
from sparkonce.registry_lite import topic as topics
from tests.unit.registry.rest import Answer, ask

INT, LONG, STRING = ({"schema": f'"{name}"'} for name in ("int", "long", "string"))


@contextmanager
def process(broker: EmbeddedBroker, topic: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a registry as a process; yield its address."""
    words = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic, "--port", "0"]
    command = [sys.executable, "-m", "sparkonce.jobs.cli.main", "registry", *words]
    with open(folder / "stderr", "a") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        with child:
            try:
                assert child.stdout is not None
                yield child.stdout.readline().strip(), child
            finally:
                child.kill()


def records(broker: EmbeddedBroker, topic: str) -> list[tuple[Any, Any]]:
    """Return what is in a topic, as others read it."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        value = message.value()
        found.append((json.loads(message.key()), None if value is None else json.loads(value)))
    consumer.close()
    return found


def create(broker: EmbeddedBroker, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([topic])[topic.topic].result(30)


def produce(broker: EmbeddedBroker, topic: str, *pairs: tuple[bytes | None, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in pairs:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def register(url: str, subject: str, body: dict[str, Any]) -> Answer:
    return ask(url, f"POST /subjects/{subject}/versions", body)


def test_the_topic_and_its_records(broker: EmbeddedBroker) -> None:
    with EmbeddedRegistry(broker.bootstrap_servers) as registry:
        register(registry.url, "s", INT)
        register(registry.url, "j", {"schema": "{}", "schemaType": "JSON"})
        ask(registry.url, "PUT /config/s", {"compatibility": "FULL"})
        ask(registry.url, "PUT /mode", {"mode": "READWRITE"})
        ask(registry.url, "DELETE /subjects/s")
        ask(registry.url, "DELETE /subjects/s?permanent=true")
    found = records(broker, "_schemas")
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    guid = found[0][1].pop("guid")
    assert len(guid) == 36
    assert found[0] == (key, {"subject": "s", "version": 1, "id": 1, "schema": '"int"', "deleted": False})
    assert found[1][1]["schemaType"] == "JSON"
    assert found[2] == ({"keytype": "CONFIG", "subject": "s", "magic": 0}, {"compatibilityLevel": "FULL"})
    assert found[3] == ({"keytype": "MODE", "subject": None, "magic": 0}, {"mode": "READWRITE"})
    assert found[4] == (found[2][0], None)
    assert found[5][0] == key
    assert found[5][1]["deleted"]
    assert found[6:] == [(key, None), ({"keytype": "NOOP", "magic": 0}, {"lastIds": {".": 2}})]
    resource = ConfigResource(ResourceType.TOPIC, "_schemas")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"


def test_a_registry_killed_and_another_process(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with process(broker, "_killed", tmp_path) as (url, child):
        assert [register(url, "s", each).body["id"] for each in (INT, LONG)] == [1, 2]
        child.send_signal(signal.SIGKILL)
        child.wait()
    with process(broker, "_killed", tmp_path) as (url, child):
        assert ask(url, "GET /subjects/s/versions").body == [1, 2]
        assert register(url, "t", STRING).body["id"] == 3
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_the_broker_killed(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(process=True) as broker,
        EmbeddedRegistry(broker.bootstrap_servers, kafka={"reconnect.backoff.max.ms": "100"}) as registry,
    ):
        register(registry.url, "s", INT)
        broker.kill()
        assert ask(registry.url, "GET /schemas/ids/1").status == 200
        assert register(registry.url, "s", INT).body["id"] == 1  # changes nothing, so that it needs no broker
        broker.restart()
        assert register(registry.url, "s", LONG).body == {**register(registry.url, "s", LONG).body, "id": 2}
        assert ask(registry.url, "GET /subjects/s/versions").body == [1, 2]


def test_writes_work_again_after_some_that_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        EmbeddedBroker(process=True) as broker,
        EmbeddedRegistry(broker.bootstrap_servers, kafka={"reconnect.backoff.max.ms": "100"}) as registry,
    ):
        register(registry.url, "s", INT)
        broker.kill()
        with monkeypatch.context() as patch:
            patch.setattr(topics, "TIMEOUT_S", 0.3)
            for _ in range(2):
                answer = register(registry.url, "s", LONG)
                assert (answer.status, answer.body["error_code"]) == (500, 50001)
        broker.restart()
        answer = register(registry.url, "t", STRING)
        found = ask(registry.url, "GET /schemas").body
        assert answer.status == 200
        # Whether the write that timed out is there is open; ids are those of one registry in any case.
        assert {each["schema"]: each["id"] for each in found}['"string"'] == len(found) == answer.body["id"]


def test_one_takes_over_from_another(broker: EmbeddedBroker) -> None:
    settings = {"topic": "_two"}
    with EmbeddedRegistry(broker.bootstrap_servers, **settings) as first:  # type: ignore[arg-type]
        register(first.url, "s", INT)
        with EmbeddedRegistry(broker.bootstrap_servers, **settings) as second:  # type: ignore[arg-type]
            assert register(second.url, "s", LONG).body["id"] == 2
            for body in (STRING, {"schema": '"bytes"'}):
                answer = register(first.url, "t", body)
                assert (answer.status, answer.body["error_code"]) == (500, 50003)
            assert register(second.url, "t", STRING).body["id"] == 3
            assert register(first.url, "s", INT).body["id"] == 1  # it still answers what changes nothing
    with EmbeddedRegistry(broker.bootstrap_servers, **settings) as third:  # type: ignore[arg-type]
        assert [(each["subject"], each["id"]) for each in ask(third.url, "GET /schemas").body] == [
            ("s", 1),
            ("s", 2),
            ("t", 3),
        ]


def test_records_of_others_and_damaged_ones(broker: EmbeddedBroker) -> None:
    topic = "_damaged"
    create(broker, NewTopic(topic, 1))  # not compacted yet: it may have records without keys

    def key(**more: Any) -> bytes:
        return json.dumps({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1, **more}).encode()

    def value(**more: Any) -> bytes:
        return json.dumps({"subject": "s", "version": 1, "id": 5, "schema": '"int"', "deleted": False, **more}).encode()

    produce(
        broker,
        topic,
        (b'{"keytype":"NOOP","magic":0}', None),
        (key(), value(guid="00000000-0000-0000-0000-000000000007", ts=1)),
        (key(magic=0, version=2), value(version=2, id=7)),
        *((key(version=3), each) for each in (b"{", b"[]", b"\xff", b"[" * 100_000, b"{}")),
        *((key(version=3), value(**each)) for each in ({"id": "8"}, {"schema": 1}, {"references": [1]})),
        *((each, value()) for each in (b"{", b"3", b"{}", key(version="x"), b'{"keytype":"SCHEMA"}')),
        (None, value()),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":3}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":1}'),
        (b'{"keytype":"SOMETHING","magic":0}', b"{}"),
        (b'{"keytype":"CONTEXT","magic":0,"context":"x"}', b"{}"),
    )
    compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[compact])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)
    with EmbeddedRegistry(broker.bootstrap_servers, topic=topic) as registry:
        assert ask(registry.url, "GET /subjects/s/versions?deleted=true").body == [1, 2]
        assert ask(registry.url, "GET /subjects/s/versions").body == [2]
        assert ask(registry.url, "GET /schemas/guids/00000000-0000-0000-0000-000000000007").body["schema"] == '"int"'
        assert ask(registry.url, "GET /config").body == {"compatibilityLevel": "NONE"}
        assert register(registry.url, "s", STRING).body["id"] == 8


def test_what_does_not_start(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, NewTopic("wide", 2))
    with pytest.raises(RegistryStartError, match="topic wide has 2 partitions; schemas need one"):
        EmbeddedRegistry(broker.bootstrap_servers, topic="wide")
    for policy in ("delete", "compact,delete"):
        topic = f"of-orders-{policy[0]}"
        create(broker, NewTopic(topic, 1, config={"cleanup.policy": policy}))
        with pytest.raises(RegistryStartError, match=rf"topic {topic} has cleanup\.policy={policy}, which deletes"):
            EmbeddedRegistry(broker.bootstrap_servers, topic=topic)
    with (
        EmbeddedRegistry(broker.bootstrap_servers, topic="_free") as registry,
        pytest.raises(RegistryStartError, match="cannot listen"),
    ):
        EmbeddedRegistry(broker.bootstrap_servers, topic="_other", port=int(registry.url.rpartition(":")[2]))
    with pytest.raises(RegistryStartError, match="expected user:password"):
        EmbeddedRegistry(broker.bootstrap_servers, user_info="me")
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.2)
    with pytest.raises(RegistryStartError, match=r"topic _schemas at 127\.0\.0\.1:1: no broker answers there"):
        EmbeddedRegistry("127.0.0.1:1")


def test_certificates_that_cannot_be_used_are_reported_before_another_registry_is_fenced(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"certificate": str(tmp_path / "none.pem")}, r"none\.pem cannot be used for TLS: .*No such file"),
        ({"certificate": str(tmp_path / "no.pem")}, r"no\.pem cannot be used for TLS"),
        ({"client_ca": str(tmp_path / "no.pem")}, "needs the registry's own certificate"),
    ]
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_running") as running:
        for files, told in cases:
            with pytest.raises(RegistryStartError, match=told):
                EmbeddedRegistry(broker.bootstrap_servers, topic="_running", **files)
            assert ask(running.url, "PUT /config", {"compatibility": "NONE"}).status == 200


def test_an_address_of_ipv6_is_a_url(broker: EmbeddedBroker) -> None:
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_six", host="::1") as registry:
        assert ask(registry.url, "GET /subjects").body == []


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    settings = tmp_path / "kafka.properties"
    settings.write_text("# comment\n\nacks\n")
    words = ["registry", "--bootstrap-servers", "127.0.0.1:1", "--kafka-config", str(settings)]
    ended = subprocess.run([sys.executable, "-m", "sparkonce.jobs.cli.main", *words], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "kafka.properties, line 3: expected NAME=VALUE" in ended.stderr
