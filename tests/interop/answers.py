"""Questions whose answers Apache Kafka gave, and which the broker must give alike; the answers are kept in a file.

`python -m tests.interop.answers` asks a Kafka of `lab.peers` and writes the file anew.
"""

from __future__ import annotations

import json
import re
import struct
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lab.network import free_port
from lab.peers import QUICK_JVM, RealKafka, kafka_nodes
from sparkonce.broker_lite.handlers.api_versions import FEATURES
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
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
_BROKER, _SET, _DELETE = 4, 0, 1
_DYNAMIC, _DYNAMIC_DEFAULT = 2, 3
_INTERNAL: Final = "__transaction_state"
_LEAST_IN_SYNC: Final = "min.insync.replicas"
_OF_NOBODY: Final = "no.such.setting"
_USER_DATA_BYTES: Final = 100_000
_THREADS: Final = ("10", "11")
"""What `num.io.threads` is set to, for all brokers and for one."""
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
        for version in (1, 9, 12):
            ((_, *answer),) = _described(client, version, [METADATA_LOG], create=True)
            said[f"metadata of {METADATA_LOG} v{version}"] = answer[:2]
        more = client.ask(
            ApiKey.CREATE_PARTITIONS, 3, topics=[(METADATA_LOG, 3, None)], timeout_ms=30_000, validate_only=False
        )
        said[f"more partitions of {METADATA_LOG}"] = [error_of(each.error_code) for each in more.results]
        said |= _play_deletions(client)
    return said


def play_first_use(servers: str) -> dict[str, Any]:
    """Ask for topics that are not there, in each version, until those that can be made are there."""
    said: dict[str, Any] = {}
    with PlainClient(servers) as client:
        for version in range(14):
            for create in (True, False) if version >= 4 else (True,):
                name = f"first-use-{version}-{create}"
                said[f"v{version} create={create}"] = _described(client, version, [name] * 2, create)
                if create:
                    _until(lambda version=version, name=name: _described(client, version, [name])[0][1] == "NONE")  # type: ignore[misc]
        names = ["a.b_c", "a_b.c", "", ".", "..", "a b", "x" * 249, "x" * 250, "ünï", METADATA_LOG, _INTERNAL]
        for create in (False, True):
            for name in names:
                said[f"{name} create={create}"] = _described(client, 12, [name], create)
        _until(lambda: _described(client, 12, [_INTERNAL])[0][1:3] == ["NONE", True])
    return said


def _described(client: PlainClient, version: int, names: list[str], create: bool = False) -> list[list[Any]]:
    """Return what is said of topics, without the numbers of partitions that there are."""
    kind = apis.request_class(ApiKey.METADATA).MetadataRequestTopic
    wanted = [kind(version=version, name=name, topic_id=ZERO_UUID) for name in names]
    flag = {"allow_auto_topic_creation": create} if version >= 4 else {}
    answer = client.ask(ApiKey.METADATA, version, topics=wanted, **flag)
    return [
        [
            each.name,
            error_of(each.error_code),
            each.is_internal,
            bool(each.partitions),
            bool((each.topic_id or ZERO_UUID).int),
        ]
        for each in answer.topics
    ]


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


def play_groups(servers: str) -> dict[str, Any]:
    """Ask for groups of each kind, and for those that are not there; send heartbeats that make no sense."""
    said: dict[str, Any] = {}
    with PlainClient(servers) as client:
        client.create_topic("of-groups")
        for group_id in ("classic", "consumer", "offsets"):
            _until(lambda group_id=group_id: _finds(client, group_id))  # type: ignore[misc]
        _until(lambda: "NONE" in _beat(client, "consumer", 0, 300_000, ["of-groups"], []))
        joined = client.ask(
            ApiKey.JOIN_GROUP, 5, group_id="classic", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            member_id="", group_instance_id="static", protocol_type="consumer", protocols=[("range", b"")],
        )  # fmt: skip
        assert joined.error_code == 0
        assert _committed(client, None) == "NONE"
        for letters in (4_096, 4_097, 6_000):
            for letter in ("x", "\u3042"):
                said[f"commits {letters} times {letter}"] = _committed(client, letter * letters)
        subscription = struct.pack(">hii", 0, 0, _USER_DATA_BYTES) + b"\xff" * _USER_DATA_BYTES
        joined = client.ask(
            ApiKey.JOIN_GROUP, 5, group_id="large", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            member_id="", group_instance_id="static", protocol_type="consumer", protocols=[("range", subscription)],
        )  # fmt: skip
        said["joins with large user data"] = error_of(joined.error_code)
        for version in (4, 5):
            more = {"types_filter": []} if version >= 5 else {}
            listed = client.ask(ApiKey.LIST_GROUPS, version, states_filter=[], **more).groups
            said[f"list v{version}"] = sorted([each.group_id, each.protocol_type, each.group_type] for each in listed)
        for kind in ("classic", "Classic", "consumer", "CONSUMER", "share", MISSING):
            found = client.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[kind])
            said[f"list of type {kind}"] = [error_of(found.error_code), *sorted(each.group_id for each in found.groups)]
        for group_id in (MISSING, "consumer", "offsets"):
            for version in (5, 6):
                (group,) = client.ask(ApiKey.DESCRIBE_GROUPS, version, groups=[group_id]).groups
                said[f"describe {group_id} v{version}"] = [_text(group), group.group_state, group.protocol_type]
        for group_id in (MISSING, "classic", "offsets"):
            (group,) = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group_id]).groups
            said[f"describe {group_id} as a consumer group"] = [_text(group), group.group_state]
        deleted = client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[MISSING, "classic", "consumer", "offsets"]).results
        said["delete"] = sorted([each.group_id, error_of(each.error_code)] for each in deleted)
        said |= _play_heartbeats(client)
        said |= _play_static_members(client)
    return said


def _committed(client: PlainClient, metadata: str | None) -> str:
    answer = client.ask(
        ApiKey.OFFSET_COMMIT, 8, group_id="offsets", generation_id_or_member_epoch=-1, member_id="",
        group_instance_id=None, topics=[("of-groups", [(0, 5, -1, metadata)])],
    )  # fmt: skip
    return error_of(answer.topics[0].partitions[0].error_code)


def _finds(client: PlainClient, group_id: str) -> bool:
    client.ask(ApiKey.FIND_COORDINATOR, 3, key=group_id, key_type=0)
    fetched = client.ask(ApiKey.OFFSET_FETCH, 7, group_id=group_id, topics=[("of-groups", [0])], require_stable=False)
    return bool(fetched.error_code == 0)


def _beat(
    client: PlainClient,
    group_id: str,
    epoch: int,
    timeout_ms: int = -1,
    names: list[str] | None = None,
    owned: list[Any] | None = None,
    member_id: str = "member",
    **more: Any,
) -> str:
    fields = {"instance_id": None, "rack_id": None, "subscribed_topic_regex": None, "server_assignor": None, **more}
    answer = client.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group_id, member_id=member_id, member_epoch=epoch,
        rebalance_timeout_ms=timeout_ms, subscribed_topic_names=names, topic_partitions=owned, **fields,
    )  # fmt: skip
    return re.sub(r"\(\d+\)", "(…)", _text(answer))  # Kafka is a step behind with epochs: it assigns in another thread


def _play_heartbeats(client: PlainClient) -> dict[str, str]:
    """Join, leave and go on without what a heartbeat must have; a client of librdkafka does after many changes."""
    names, owned = ["of-groups"], [(uuid.UUID(int=7), [0])]
    return {
        "changes its subscription": _beat(client, "consumer", 1, -1, [MISSING]),
        "leaves": _beat(client, "consumer", -1),
        "joins without a time-out": _beat(client, "consumer", 0, -1, names),
        "joins without what it owns": _beat(client, "consumer", 0, 1000, names),
        "joins with what it owned": _beat(client, "consumer", 0, 1000, names, owned),
        "joins without topics": _beat(client, "consumer", 0, 1000, None, []),
        "joins with no topics": _beat(client, "consumer", 0, 1000, [], []),
        "no group id": _beat(client, "", 0, 1000, names, []),
        "no member id": _beat(client, "consumer", 0, 1000, names, [], ""),
        "an empty instance id": _beat(client, "consumer", 0, 1000, names, [], instance_id=""),
        "an empty rack": _beat(client, "consumer", 0, 1000, names, [], rack_id=""),
        "epoch -3": _beat(client, "consumer", -3),
        "leaves for a while without an instance id": _beat(client, "consumer", -2),
        "a later epoch": _beat(client, "consumer", 70),
        "a stranger": _beat(client, "consumer", 70, member_id="stranger"),
        "a stranger leaves": _beat(client, "consumer", -1, member_id="stranger"),
        "another assignor": _beat(client, "consumer", 0, 1000, names, [], server_assignor=MISSING),
        "no such group": _beat(client, MISSING, 1),
        "leaves no such group": _beat(client, MISSING, -1),
    }


def _play_static_members(client: PlainClient) -> dict[str, str]:
    """Go on with the id of a member that has joined, or that has left for a while, with its instance id or without."""
    names = ["of-groups"]
    instance: dict[str, Any] = {"instance_id": "instance"}
    said = {"a static member joins": _beat(client, "static", 0, 1000, names, [], "first", **instance)}
    _until(lambda: _member_epoch(client, "static") > 0)
    for what, more in (("without its instance id", {}), ("with its instance id", instance)):
        said[f"joined, {what}: joins again"] = _beat(client, "static", 0, 1000, names, [], "first", **more)
    said["leaves for a while"] = _beat(client, "static", -2, member_id="first", **instance)
    for what, epoch in (("joins again", 0), ("an earlier epoch", 1), ("leaves for a while again", -2)):
        said[f"away, without its instance id: {what}"] = _beat(client, "static", epoch, 1000, names, [], "first")
        said[f"away, without its instance id: {what}: its epoch"] = str(_member_epoch(client, "static"))
    said["away, with its instance id: an earlier epoch"] = _beat(client, "static", 1, member_id="first", **instance)
    said["away: another member takes its place"] = _beat(client, "static", 0, 1000, names, [], "second", **instance)
    said["away: it comes back"] = _beat(client, "static", 0, 1000, names, [], "first", **instance)
    return said


def _member_epoch(client: PlainClient, group_id: str) -> int:
    (group,) = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group_id]).groups
    return max((int(each.member_epoch) for each in group.members), default=0)


def _text(each: Any) -> str:
    return error_of(each.error_code, each.error_message)


def play_acls(servers: str) -> dict[str, Any]:
    """Make, describe and delete a rule in each version, as kafka-go does: its DescribeAcls has a byte too many."""
    said: dict[str, Any] = {}
    with PlainClient(servers) as client:
        for version in (1, 2, 3):
            rule = (_TOPIC, f"ruled-{version}", _LITERAL, "User:kim", "*", _DESCRIBE, _ALLOW)
            found = (_TOPIC, rule[1], _LITERAL, None, None, 1, 1)
            made = client.ask(ApiKey.CREATE_ACLS, version, b"\0", creations=[rule]).results
            said[f"creates v{version}"] = [_text(each) for each in made]
            names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter",
                     "host_filter", "operation", "permission_type")  # fmt: skip
            wanted = dict(zip(names, found, strict=True))
            _until(lambda version=version, wanted=wanted: len(_rules(client, version, wanted)) > 1)  # type: ignore[misc]
            said[f"describes v{version}"] = _rules(client, version, wanted)
            deleted = client.ask(ApiKey.DELETE_ACLS, version, b"\0", filters=[found]).filter_results
            said[f"deletes v{version}"] = [
                [_text(each), *([rule.resource_name, rule.principal] for rule in each.matching_acls)]
                for each in deleted
            ]
    return said


def _rules(client: PlainClient, version: int, wanted: dict[str, Any]) -> list[Any]:
    answer = client.ask(ApiKey.DESCRIBE_ACLS, version, b"\0", **wanted)
    return [_text(answer), *([each.resource_name, each.acls[0].principal] for each in answer.resources)]


def play_tools(servers: str) -> dict[str, Any]:
    """Ask what tools for a cluster of many directories and controllers ask."""
    said: dict[str, Any] = {}
    with PlainClient(servers) as client:
        client.create_topic("moved", 2)
        (here,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results
        there = "/no/such/directory"
        plans: dict[str, list[tuple[str, list[tuple[str, list[int]]]]]] = {
            "to where they are": [(here.log_dir, [("moved", [0, 1]), (MISSING, [0])])],
            "of partitions that are missing": [(here.log_dir, [("moved", [-1, 2]), (METADATA_LOG, [0])])],
            "elsewhere": [(there, [("moved", [0, 7]), (MISSING, [0])])],
            "to the same directory in another spelling": [(f"{here.log_dir}/", [("moved", [0])])],
            "here, then elsewhere": [(here.log_dir, [("moved", [0])]), (there, [("moved", [0])])],
            "elsewhere, then here": [(there, [("moved", [0])]), (here.log_dir, [("moved", [0])])],
            "of nothing": [],
        }
        for version in (1, 2):
            for what, dirs in plans.items():
                results = client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=dirs).results
                said[f"moves {what} v{version}"] = sorted(
                    [topic.topic_name, each.partition_index, error_of(each.error_code)]
                    for topic in results
                    for each in topic.partitions
                )
        for version in (0, 1, 2):
            for topics in (
                [(METADATA_LOG, [0])],
                [(METADATA_LOG, [1])],
                [("moved", [0])],
                [],
                [(METADATA_LOG, [0, 0])],
            ):
                said[f"quorum of {topics} v{version}"] = _quorum(client, version, topics)
    return said


def play_settings(servers: str) -> dict[str, Any]:
    """Change settings that a file for Kafka holds, for one broker and for all."""
    said: dict[str, Any] = {}
    with PlainClient(servers) as client:
        said |= _play_eligible_leaders(client)
        node = str(client.ask(ApiKey.METADATA, 9, topics=None).brokers[0].node_id)
        for name, value in (
            ("num.io.threads", "9"),
            ("num.network.threads", "5"),
            ("background.threads", "7"),
            ("num.replica.fetchers", "2"),
            ("log.cleaner.threads", "2"),
            ("num.recovery.threads.per.data.dir", "2"),
            ("controller.quorum.voters", "1@localhost:1"),
            ("process.roles", "broker"),
            ("background.threads", "many"),
            ("leader.replication.throttled.rate", "1000"),
            ("follower.replication.throttled.rate", "fast"),
            ("replica.alter.log.dirs.io.max.bytes.per.second", "7"),
            ("log.cleaner.io.max.bytes.per.second", "5"),
            ("max.connection.creation.rate", "100"),
            ("max.connections.per.ip.overrides", "127.0.0.1:50"),
            ("transaction.partition.verification.enable", "true"),
            ("group.consumer.assignment.interval.ms", "1000"),
            ("log.dir", "/data"),
            ("num.partitions", "5"),
            ("remote.log.storage.system.enable", "true"),
            (_OF_NOBODY, "5"),
            ("cleanup.policy", "delete"),
            ("sasl.kerberos.min.time.before.relogin", "58000"),
            (_LEAST_IN_SYNC, "0"),
            (_LEAST_IN_SYNC, "3"),
        ):
            for resource in (node, ""):
                for change in (_SET, _DELETE):
                    wanted = [(_BROKER, resource, [(name, change, value if change == _SET else None)])]
                    answer = client.ask(
                        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=wanted, validate_only=False
                    )  # fmt: skip
                    done = f"sets {name}={value}" if change == _SET else f"removes {name}"
                    key = f"{done} of {'one' if resource else 'all'}"
                    said[key] = error_of(answer.responses[0].error_code)
        for name, value in (("cleanup.policy", "delete"), ("sasl.kerberos.min.time.before.relogin", "58000")):
            answer = client.ask(
                ApiKey.ALTER_CONFIGS, 1, resources=[(_BROKER, node, [(name, value)])], validate_only=False
            )  # KafkaJS and librdkafka try these
            said[f"replaces those of one by {name}={value}"] = error_of(answer.responses[0].error_code)
        for name in ("num.io.threads", _OF_NOBODY):
            for resource in (node, ""):
                changes = [(name, _SET, _THREADS[bool(resource)])]
                client.ask(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[(_BROKER, resource, changes)], validate_only=False
                )
            for resource in (node, ""):
                source = _DYNAMIC if resource else _DYNAMIC_DEFAULT
                _until(
                    lambda name=name, resource=resource, source=source: _shown(client, resource, name)[1:2] == [source]
                )  # type: ignore[misc]
                said[f"shows {name} of {'one' if resource else 'all'}"] = _shown(client, resource, name)
    return said


def _play_eligible_leaders(client: PlainClient) -> dict[str, Any]:
    """Ask for what is different with eligible leader replicas (KIP-966)."""
    answer = client.ask(ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    said: dict[str, Any] = {
        each.name: [each.min_version, each.max_version, finalized[each.name]]
        for each in answer.supported_features
        if each.name in FEATURES
    }
    made = client.ask(
        ApiKey.CREATE_TOPICS, 7, topics=[("new", 1, 1, [], [])], timeout_ms=30_000, validate_only=False
    ).topics[0]
    said["new topic"] = [[each.value, each.config_source] for each in made.configs if each.name == _LEAST_IN_SYNC]
    node = str(client.ask(ApiKey.METADATA, 9, topics=None).brokers[0].node_id)
    for what, kind, resource in (("topic", _TOPIC, "new"), ("all", _BROKER, ""), ("one", _BROKER, node)):
        _until(lambda kind=kind, resource=resource: bool(_shown(client, resource, _LEAST_IN_SYNC, kind)))  # type: ignore[misc]
        said[f"{_LEAST_IN_SYNC} of {what}"] = _shown(client, resource, _LEAST_IN_SYNC, kind, synonyms=True)
    (topic,) = client.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[("new",)], response_partition_limit=1, cursor=None
    ).topics
    said["eligible"] = [[each.eligible_leader_replicas, each.last_known_elr] for each in topic.partitions]
    for configs in ([], [("num.io.threads", "9")], [("num.io.threads", "9"), (_LEAST_IN_SYNC, "2")]):
        (changed,) = client.ask(
            ApiKey.ALTER_CONFIGS, 2, resources=[(_BROKER, "", configs)], validate_only=True
        ).responses  # fmt: skip
        said[f"replaces those of all by {configs}"] = error_of(changed.error_code)
    return said


def _shown(client: PlainClient, resource: str, name: str, kind: int = _BROKER, synonyms: bool = False) -> list[Any]:
    """Return a setting, as described."""
    wanted = [(kind, resource, [name])]
    (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=wanted, include_synonyms=synonyms).results
    return [
        value
        for each in answer.configs
        for value in (each.value, each.config_source, each.read_only, each.is_sensitive, *_synonyms(each))
    ]


def _synonyms(config: Any) -> list[list[Any]]:
    return [[each.name, each.value, each.source] for each in config.synonyms]


def _quorum(client: PlainClient, version: int, topics: list[tuple[str, list[int]]]) -> Any:
    wanted = [(name, [(index,) for index in indexes]) for name, indexes in topics]
    answer = client.ask(ApiKey.DESCRIBE_QUORUM, version, topics=wanted)
    (described,) = client.ask(ApiKey.METADATA, 9, topics=None).brokers
    found = [
        [
            error_of(each.error_code, each.error_message if version >= 2 and each.error_code else None),
            not each.error_code and each.leader_id == described.node_id,
            [voter.replica_id == described.node_id for voter in each.current_voters],
            [voter.log_end_offset == each.high_watermark for voter in each.current_voters],
            len(each.observers),
        ]
        for topic in answer.topics
        for each in topic.partitions
    ]
    nodes = [node.node_id == described.node_id for node in answer.nodes] if version >= 2 else []
    return [error_of(answer.error_code), found, nodes]


CHAPTERS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "first use": play_first_use,
    "topics": play_topics,
    "acls": play_acls,
    "groups": play_groups,
    "tools": play_tools,
    "settings": play_settings,
}


def kafka() -> tuple[RealKafka, str, str]:
    """Start a Kafka with access control on both families; return it and its addresses."""
    node, v6_port = kafka_nodes(1)[0], free_port()
    v4, v6 = f"127.0.0.1:{node.port}", f"[::1]:{v6_port}"
    listeners = f"PLAINTEXT://{v4},V6://{v6},CONTROLLER://127.0.0.1:{node.controller_port}"
    config = {
        **SETTINGS,
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{v4},V6://{v6}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,V6:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    broker = RealKafka(config=config, heap="300m", java_options=QUICK_JVM, node=node)
    broker.await_ready()
    return broker, v4, v6


def play_kafka() -> dict[str, Any]:
    """Ask a real Kafka everything."""
    broker, v4, v6 = kafka()
    with broker:
        return {**{name: play(v4) for name, play in CHAPTERS.items()}, "hosts": play_hosts(v4, v6)}


if __name__ == "__main__":
    FILE.write_text(json.dumps(play_kafka(), indent=1) + "\n")
