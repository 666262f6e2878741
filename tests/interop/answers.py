"""Questions whose answers Apache Kafka gave, and which the broker must give alike; the answers are kept in a file.

`python -m tests.interop.answers` asks a Kafka of `jobs.peers` and writes the file anew.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from broker_lite.protocol import apis
from broker_lite.protocol.apis import ApiKey
from broker_lite.protocol.errors import ErrorCode
from broker_lite.protocol.primitives import ZERO_UUID
from jobs.peers import RealKafka, kafka_nodes
from tests.interop.plain_client import PlainClient

FILE: Final = Path(__file__).with_name("answers_of_kafka_4_3_0.json")
RECORDED: Final[dict[str, dict[str, Any]]] = json.loads(FILE.read_text()) if FILE.exists() else {}
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
DEADLINE_S: Final = 30.0
MISSING: Final = "no-such-thing"
METADATA_LOG: Final = "__cluster_metadata"
ANONYMOUS: Final = "User:ANONYMOUS"
ACL_HOSTS: Final = (
    "127.0.0.1", "*", "0:0:0:0:0:0:0:1", "::1", "0000:0000:0000:0000:0000:0000:0000:0001", "[::1]", "::ffff:127.0.0.1",
    "0:0:0:0:0:ffff:7f00:1", "127.1", "127.0.0.0/8", "localhost", "/127.0.0.1", "127.0.0.1 ", "0.0.0.0", "::",
    "0:0:0:0:0:0:0:1%1", "0:0:0:0:0:0:0:1%lo",
)  # fmt: skip
"""Hosts of rules: those that apply to a client on this machine, and others."""
_TOPIC, _LITERAL, _DESCRIBE, _DENY, _ALLOW = 2, 3, 8, 2, 3


def error_of(code: int, text: str | None = None) -> str:
    """Return an error as a line."""
    return ErrorCode(code).name if text is None else f"{ErrorCode(code).name}: {text}"


def play_hosts(v4: str, v6: str) -> dict[str, list[str]]:
    """Ask for a topic over IPv4 and over IPv6, under a rule that allows it to a host, and under one that denies it."""
    with PlainClient(v4) as client, PlainClient(v6) as other:
        rules = []
        for number, host in enumerate(ACL_HOSTS):
            for kind in ("allow", "deny"):
                client.create_topic(f"{kind}-{number}")
            rules.append((_TOPIC, f"allow-{number}", _LITERAL, ANONYMOUS, host, _DESCRIBE, _ALLOW))
            rules.append((_TOPIC, f"deny-{number}", _LITERAL, ANONYMOUS, "*", _DESCRIBE, _ALLOW))
            rules.append((_TOPIC, f"deny-{number}", _LITERAL, "User:*", host, _DESCRIBE, _DENY))
        made = client.ask(ApiKey.CREATE_ACLS, 3, creations=rules)
        assert {each.error_code for each in made.results} == {0}
        _until(lambda: _count_acls(client) == len(rules))
        return {
            f"{kind} {host}": [_offsets_of(each, f"{kind}-{number}") for each in (client, other)]
            for number, host in enumerate(ACL_HOSTS)
            for kind in ("allow", "deny")
        }


def _count_acls(client: PlainClient) -> int:
    everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    unnamed = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    answer = client.ask(ApiKey.DESCRIBE_ACLS, 3, **everything, **unnamed)
    return sum(len(each.acls) for each in answer.resources)


def _offsets_of(client: PlainClient, topic: str) -> str:
    answer = client.ask(
        ApiKey.LIST_OFFSETS, 6, replica_id=-1, isolation_level=0, topics=[(topic, [(0, -1, -1)])]
    )  # fmt: skip
    return error_of(answer.topics[0].partitions[0].error_code)


def _until(holds: Callable[[], bool]) -> None:
    """Ask until it holds: Kafka's controller answers before its broker knows."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline


def play_topics(servers: str) -> dict[str, Any]:
    """Name the topic that is Kafka's own, and topics that are not there."""
    said: dict[str, Any] = {}
    with PlainClient(servers) as client:
        for version in (2, 5, 7):
            for only in (False, True):
                said[f"create {METADATA_LOG} v{version} validate_only={only}"] = _created(
                    client, version, [(METADATA_LOG, 1, 1, [], [])], only
                )
        said["create it twice"] = _created(client, 7, [(METADATA_LOG, -1, -1, [], [])] * 2)
        said["create it wrongly"] = _created(client, 7, [(METADATA_LOG, 0, 9, [], [("no.such.setting", "1")])])
        said["create what resembles it"] = _created(client, 7, [(f"{METADATA_LOG}s", 1, 1, [], [])])
        kind = apis.request_class(ApiKey.METADATA).MetadataRequestTopic
        for version in (1, 9, 12):
            wanted = [kind(version=version, name=METADATA_LOG, topic_id=ZERO_UUID)]
            flag = {"allow_auto_topic_creation": True} if version >= 4 else {}
            (topic,) = client.ask(ApiKey.METADATA, version, topics=wanted, **flag).topics
            said[f"metadata of {METADATA_LOG} v{version}"] = [error_of(topic.error_code), topic.is_internal]
        more = client.ask(
            ApiKey.CREATE_PARTITIONS, 3, topics=[(METADATA_LOG, 3, None)], timeout_ms=30_000, validate_only=False
        )
        said[f"more partitions of {METADATA_LOG}"] = [error_of(each.error_code) for each in more.results]
        said |= _play_deletions(client)
    return said


def _created(client: PlainClient, version: int, topics: list[Any], validate_only: bool = False) -> list[str]:
    answer = client.ask(
        ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=30_000, validate_only=validate_only
    )  # fmt: skip
    return [error_of(each.error_code, each.error_message) for each in answer.topics]


def _play_deletions(client: PlainClient) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for names in ([METADATA_LOG], [MISSING], [MISSING, MISSING, "other"]):
        answer = client.ask(ApiKey.DELETE_TOPICS, 5, topic_names=names, timeout_ms=30_000)
        said[f"delete v5 {names}"] = sorted([each.name, _text(each)] for each in answer.responses)
    kind = apis.request_class(ApiKey.DELETE_TOPICS).DeleteTopicState
    unknown = uuid.UUID(int=12_345)
    for topics in (
        [(METADATA_LOG, ZERO_UUID)],
        [(MISSING, ZERO_UUID)],
        [("", ZERO_UUID)],
        [(None, unknown)],
        [(None, ZERO_UUID)],
        [(MISSING, unknown)],
        [(MISSING, ZERO_UUID), (MISSING, ZERO_UUID), ("other", ZERO_UUID)],
        [(None, unknown), (None, unknown)],
    ):
        wanted = [kind(version=6, name=name, topic_id=topic_id) for name, topic_id in topics]
        answer = client.ask(ApiKey.DELETE_TOPICS, 6, topics=wanted, timeout_ms=30_000)
        named = [[each.name or "", str(each.topic_id or ZERO_UUID), _text(each)] for each in answer.responses]
        said[f"delete v6 {[[name, topic_id.int] for name, topic_id in topics]}"] = sorted(named)
    return said


def _text(each: Any) -> str:
    return error_of(each.error_code, each.error_message)


def kafka() -> tuple[RealKafka, str, str]:
    """Start a Kafka with access control on both families; return it and its addresses."""
    node, (_, v6_port) = kafka_nodes(1)[0], _two_ports()
    v4, v6 = f"127.0.0.1:{node.port}", f"[::1]:{v6_port}"
    listeners = f"PLAINTEXT://{v4},V6://{v6},CONTROLLER://127.0.0.1:{node.controller_port}"
    config = {
        **SETTINGS,
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{v4},V6://{v6}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,V6:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    broker = RealKafka(config=config, heap="300m", node=node)
    broker.await_ready()
    return broker, v4, v6


def _two_ports() -> tuple[int, int]:
    spare = kafka_nodes(1)[0]
    return spare.port, spare.controller_port


def play_kafka() -> dict[str, Any]:
    """Ask a real Kafka everything."""
    broker, v4, v6 = kafka()
    with broker:
        return {"topics": play_topics(v4), "hosts": play_hosts(v4, v6)}


if __name__ == "__main__":
    FILE.write_text(json.dumps(play_kafka(), indent=1) + "\n")
