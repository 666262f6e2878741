"""Admin requests of a client that may do nothing, and of one that may do just that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkonce.broker_lite.coordinators.internal_topics import OFFSETS_TOPIC
from sparkonce.broker_lite.security.acls import (
    CLUSTER_NAME,
    Binding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.cases import each_case
from tests.unit.broker.admin_support import Asked

TOPIC, CLUSTER, GROUP = (int(ErrorCode[f"{kind}_AUTHORIZATION_FAILED"]) for kind in ("TOPIC", "CLUSTER", "GROUP"))
NAMES = {ResourceType.TOPIC: "a", ResourceType.GROUP: "g", ResourceType.CLUSTER: CLUSTER_NAME}
T, C, G = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

REQUESTS: list[tuple[ApiKey, int, dict[str, Any], int, ResourceType, Operation]] = [
    (ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [(2, "a", None)]}, TOPIC, T, Operation.DESCRIBE_CONFIGS),
    (ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [(4, "3", None)]}, CLUSTER, C, Operation.DESCRIBE_CONFIGS),
    (ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [(32, "g", None)]}, GROUP, G, Operation.DESCRIBE_CONFIGS),
    (ApiKey.ALTER_CONFIGS, 1, {"resources": [(2, "a", [])]}, TOPIC, T, Operation.ALTER_CONFIGS),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [(4, "3", [])]}, CLUSTER, C, Operation.ALTER_CONFIGS),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [(32, "g", [])]}, GROUP, G, Operation.ALTER_CONFIGS),
    (ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": []}, CLUSTER, C, Operation.DESCRIBE_CONFIGS),
    (ApiKey.CREATE_PARTITIONS, 1, {"topics": [("a", 2, None)]}, TOPIC, T, Operation.ALTER),
    (ApiKey.DELETE_RECORDS, 1, {"topics": [("a", [(0, 0)])]}, TOPIC, T, Operation.DELETE),
    (ApiKey.DESCRIBE_LOG_DIRS, 3, {"topics": None}, CLUSTER, C, Operation.DESCRIBE),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [("a",)]}, TOPIC, T, Operation.DESCRIBE),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, {"topics": [("a", [(0, -1, 0)])]}, TOPIC, T, Operation.DESCRIBE),
    (ApiKey.ELECT_LEADERS, 1, {"topic_partitions": None}, CLUSTER, C, Operation.ALTER),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": []}, CLUSTER, C, Operation.ALTER),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None}, CLUSTER, C, Operation.DESCRIBE),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": []}, CLUSTER, C, Operation.DESCRIBE_CONFIGS),
]


def codes(answer: Any) -> Iterator[int]:
    """Yield every error code in an answer, wherever it is."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield value
            yield from codes(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from codes(value)


@each_case(("key", "version", "fields", "refused", "kind", "operation"), REQUESTS)
def test_only_who_may_do_it_does_it(
    key: ApiKey, version: int, fields: dict[str, Any], refused: int, kind: ResourceType, operation: Operation
) -> None:
    asked = Asked(authorizer_class_name=AUTHORIZER)
    asked.create("a")
    assert refused in codes(asked.ask(key, version, **fields).to_dict())
    assert asked.broker.logs.topics["a"].partition_count == 1
    authorizer = asked.broker.authorizer
    assert authorizer is not None
    rule = Rule("User:ANONYMOUS", "*", operation, Permission.ALLOW)
    authorizer.add([Binding(kind, NAMES[kind], PatternType.LITERAL, rule)])
    assert set(codes(asked.ask(key, version, **fields).to_dict())) <= {0}


def heartbeat(asked: Asked, epoch: int = 0, **fields: Any) -> Any:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 1, "subscribed_topic_regex": ".*", "topic_partitions": [], **fields}
    return asked.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=epoch, **fields)


def test_a_pattern_matches_only_topics_that_the_member_may_describe() -> None:
    asked = Asked(authorizer_class_name=AUTHORIZER)
    authorizer = asked.broker.authorizer
    assert authorizer is not None
    for kind, name in ((G, "g"), (T, "open"), (T, "later")):
        rule = Rule("User:ANONYMOUS", "*", Operation.READ, Permission.ALLOW)
        authorizer.add([Binding(kind, name, PatternType.LITERAL, rule)])
    asked.create("open")
    asked.create("secret")
    asked.broker.internal_topic(OFFSETS_TOPIC)

    def assigned(answer: Any) -> set[Any]:
        assert answer.error_code == 0, answer
        return {each.topic_id for each in answer.assignment.topic_partitions}

    topics = asked.broker.logs.topics
    joined = heartbeat(asked)
    assert assigned(joined) == {topics["open"].topic_id}
    asked.create("later")
    asked.create("secret-too")
    assert assigned(heartbeat(asked, joined.member_epoch)) == {topics["open"].topic_id, topics["later"].topic_id}


def test_hidden_topics_are_not_described() -> None:
    asked = Asked(authorizer_class_name=AUTHORIZER)
    asked.create("a")
    assert asked.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[]).topics == []
    (topic,) = asked.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[("none",)]).topics
    assert topic.error_code == TOPIC, "whether it exists is not to be learned"
