"""Every API for a client that may do nothing, then for one that may do just what Kafka asks for, then by topic id."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import AMONG_BROKERS, APIS, ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.cases import each_case
from tests.unit.security.test_connections import Client

USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a";'
TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
CLUSTER = ResourceType.CLUSTER
REFUSALS = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TXN: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPEN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER}
HIDING = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""APIs that leave out what the client may not see."""

# What each API needs, one after the other, and a request that asks for it: of the topic "t", the group "g", the
# transactional id "x". See KafkaApis and ControllerApis.
CASES: dict[ApiKey, tuple[list[tuple[ResourceType, Operation]], int, dict[str, Any]]] = {
    ApiKey.LIST_OFFSETS: (
        [(TOPIC, Operation.DESCRIBE)],
        6,
        {"replica_id": -1, "isolation_level": 0, "topics": [("t", [(0, -1, -1, {})], {})]},
    ),
    ApiKey.METADATA: (
        [(TOPIC, Operation.DESCRIBE)],
        8,
        {"topics": [("t",)], "allow_auto_topic_creation": False},
    ),
    ApiKey.OFFSET_COMMIT: (
        [(GROUP, Operation.READ), (TOPIC, Operation.READ)],
        2,
        {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1,
         "topics": [("t", [(0, 1, "")])]},
    ),
    ApiKey.OFFSET_FETCH: (
        [(GROUP, Operation.DESCRIBE), (TOPIC, Operation.DESCRIBE)],
        2,
        {"group_id": "g", "topics": [("t", [0])]},
    ),
    ApiKey.FIND_COORDINATOR: ([(GROUP, Operation.DESCRIBE)], 1, {"key": "g", "key_type": 0}),
    ApiKey.JOIN_GROUP: (
        [(GROUP, Operation.READ)],
        3,
        {"group_id": "joined", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
         "protocol_type": "consumer", "protocols": [("range", b"")]},
    ),
    ApiKey.HEARTBEAT: ([(GROUP, Operation.READ)], 1, {"group_id": "g", "generation_id": 1, "member_id": "m"}),
    ApiKey.LEAVE_GROUP: ([(GROUP, Operation.READ)], 1, {"group_id": "g", "member_id": "m"}),
    ApiKey.SYNC_GROUP: (
        [(GROUP, Operation.READ)],
        1,
        {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []},
    ),
    ApiKey.DESCRIBE_GROUPS: (
        [(GROUP, Operation.DESCRIBE)],
        3,
        {"groups": ["g"], "include_authorized_operations": True},
    ),
    ApiKey.CREATE_TOPICS: (
        [(TOPIC, Operation.CREATE)],
        2,
        {"topics": [("t", 1, 1, [], [])], "timeout_ms": 1000, "validate_only": True},
    ),
    ApiKey.DELETE_TOPICS: ([(TOPIC, Operation.DELETE)], 1, {"topic_names": ["t"], "timeout_ms": 1000}),
    ApiKey.DELETE_RECORDS: (
        [(TOPIC, Operation.DELETE)],
        0,
        {"topics": [("t", [(0, 0)])], "timeout_ms": 1000},
    ),
    ApiKey.INIT_PRODUCER_ID: ([(TXN, Operation.WRITE)], 0, {"transactional_id": "x", "transaction_timeout_ms": 60_000}),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        [(TOPIC, Operation.DESCRIBE)],
        3,
        {"replica_id": -1, "topics": [("t", [(0, -1, 0)])]},
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        [(TXN, Operation.WRITE), (TOPIC, Operation.WRITE)],
        0,
        {"v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 0, "v3_and_below_producer_epoch": 0,
         "v3_and_below_topics": [("t", [0])]},
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        [(TXN, Operation.WRITE), (GROUP, Operation.READ)],
        0,
        {"transactional_id": "x", "producer_id": 0, "producer_epoch": 0, "group_id": "g"},
    ),
    ApiKey.END_TXN: (
        [(TXN, Operation.WRITE)],
        0,
        {"transactional_id": "x", "producer_id": 0, "producer_epoch": 0, "committed": True},
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        [(CLUSTER, Operation.CLUSTER_ACTION)],
        1,
        {"markers": [(0, 0, True, [("t", [0], {})], 0, {})]},
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        [(TXN, Operation.WRITE), (GROUP, Operation.READ), (TOPIC, Operation.READ)],
        0,
        {"transactional_id": "x", "group_id": "g", "producer_id": 0, "producer_epoch": 0,
         "topics": [("t", [(0, 1, "")])]},
    ),
    ApiKey.DESCRIBE_ACLS: (
        [(CLUSTER, Operation.DESCRIBE)],
        1,
        {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
         "host_filter": None, "operation": 1, "permission_type": 1},
    ),
    ApiKey.CREATE_ACLS: ([(CLUSTER, Operation.ALTER)], 1, {"creations": [(2, "t", 3, "User:bob", "*", 3, 3)]}),
    ApiKey.DELETE_ACLS: ([(CLUSTER, Operation.ALTER)], 1, {"filters": [(2, "none", 3, None, None, 1, 1)]}),
    ApiKey.DESCRIBE_CONFIGS: ([(TOPIC, Operation.DESCRIBE_CONFIGS)], 1, {"resources": [(2, "t", None)]}),
    ApiKey.ALTER_CONFIGS: (
        [(TOPIC, Operation.ALTER_CONFIGS)],
        0,
        {"resources": [(2, "t", [])], "validate_only": True},
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        [(TOPIC, Operation.ALTER_CONFIGS)],
        0,
        {"resources": [(2, "t", [("retention.ms", 0, "1000")])], "validate_only": True},
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ([(CLUSTER, Operation.ALTER)], 2, {"dirs": [("/d", [("t", [0])])]}),
    ApiKey.DESCRIBE_LOG_DIRS: ([(CLUSTER, Operation.DESCRIBE)], 3, {"topics": None}),
    ApiKey.DESCRIBE_QUORUM: ([(CLUSTER, Operation.DESCRIBE)], 2, {"topics": [("__cluster_metadata", [(0,)])]}),
    ApiKey.CREATE_PARTITIONS: (
        [(TOPIC, Operation.ALTER)],
        0,
        {"topics": [("t", 2, None)], "timeout_ms": 1000, "validate_only": True},
    ),
    ApiKey.DELETE_GROUPS: ([(GROUP, Operation.DELETE)], 0, {"groups_names": ["g"]}),
    ApiKey.ELECT_LEADERS: ([(CLUSTER, Operation.ALTER)], 1, {"election_type": 0, "topic_partitions": None,
                                                              "timeout_ms": 1000}),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        [(CLUSTER, Operation.ALTER)],
        0,
        {"timeout_ms": 1000, "topics": [("t", [(0, None, {})], {})]},
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ([(CLUSTER, Operation.DESCRIBE)], 0, {"timeout_ms": 1000, "topics": None}),
    ApiKey.OFFSET_DELETE: (
        [(GROUP, Operation.DELETE), (TOPIC, Operation.READ)],
        0,
        {"group_id": "g", "topics": [("t", [(0,)])]},
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ([(CLUSTER, Operation.DESCRIBE_CONFIGS)], 0, {"components": [], "strict": False}),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ([(CLUSTER, Operation.DESCRIBE)], 0, {"users": None}),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        [(CLUSTER, Operation.ALTER)],
        0,
        {"deletions": [("nobody", 1, {})], "upsertions": []},
    ),
    ApiKey.DESCRIBE_PRODUCERS: ([(TOPIC, Operation.READ)], 0, {"topics": [("t", [0], {})]}),
    ApiKey.DESCRIBE_TRANSACTIONS: ([(TXN, Operation.DESCRIBE)], 0, {"transactional_ids": ["x"]}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        [(GROUP, Operation.READ), (TOPIC, Operation.DESCRIBE)],
        1,
        {"group_id": "new", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
         "rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "subscribed_topic_regex": None,
         "server_assignor": None, "topic_partitions": []},
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        [(GROUP, Operation.DESCRIBE)],
        0,
        {"group_ids": ["g"], "include_authorized_operations": False},
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        [(TOPIC, Operation.DESCRIBE)],
        0,
        {"topics": [("t", {})], "response_partition_limit": 10, "cursor": None},
    ),
    ApiKey.LIST_CONFIG_RESOURCES: ([(CLUSTER, Operation.DESCRIBE_CONFIGS)], 1, {"resource_types": []}),
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedBroker(config=settings) as embedded:
        yield embedded


@pytest.fixture
def root(broker: EmbeddedBroker) -> Iterator[Client]:
    """A super user's connection, to a broker without rules, with the topic "t" and offsets of the group "g"."""
    with Client(broker.listeners["PLAINTEXT"]) as client:
        client.ask(ApiKey.METADATA, 4, topics=[("t",)], allow_auto_topic_creation=True)
        for key, kind in (("g", 0), ("x", 1)):  # which makes the topics that keep them
            client.ask(ApiKey.FIND_COORDINATOR, 1, key=key, key_type=kind)
        client.ask(ApiKey.OFFSET_COMMIT, 2, **CASES[ApiKey.OFFSET_COMMIT][2])
        client.ask(ApiKey.DELETE_ACLS, 1, filters=[(1, None, 1, None, None, 1, 1)])
        yield client


@pytest.fixture
def alice(broker: EmbeddedBroker, root: Client) -> Iterator[Client]:
    with Client(broker.listeners["SASL_PLAINTEXT"]) as client:
        assert client.authenticate("a").error_code == 0
        yield client


def allow(root: Client, kind: ResourceType, operation: Operation) -> None:
    name = {TOPIC: "t", GROUP: "*", TXN: "x", CLUSTER: CLUSTER_NAME}[kind]
    rule = (kind, name, PatternType.LITERAL, "User:alice", "127.0.0.1", operation, Permission.ALLOW)
    assert [each.error_code for each in root.ask(ApiKey.CREATE_ACLS, 1, creations=[rule]).results] == [0]


def codes(said: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    found: set[int] = set()
    stack = [said.to_dict()]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            found |= {value for name, value in each.items() if name.endswith("error_code")}
            stack += each.values()
        elif isinstance(each, (list, tuple)):
            stack += each
    return found


REFUSED = {int(code) for code in REFUSALS.values()}


def test_the_table_is_whole() -> None:
    assert set(APIS) == set(CASES) | OPEN | HIDING | AMONG_BROKERS | {ApiKey.PRODUCE, ApiKey.FETCH}


@pytest.mark.parametrize("key", CASES)
def test_what_each_api_needs(root: Client, alice: Client, key: ApiKey) -> None:
    needs, version, fields = CASES[key]
    for kind, operation in needs:
        assert codes(alice.ask(key, version, **fields)) & REFUSED == {REFUSALS[kind]}, (kind, operation)
        allow(root, kind, operation)
    assert codes(alice.ask(key, version, **fields)) & REFUSED == set()


@each_case("key", CASES)
def test_bytes_after_a_request_are_ignored(root: Client, key: ApiKey) -> None:
    _, version, fields = CASES[key]
    if key is ApiKey.JOIN_GROUP:  # where nobody else is waited for
        fields = {**fields, "group_id": "another"}
    root.send(key, version, bytes(apis.encode_request(apis.request(key, version, **fields), version)) + b"\0\xff")
    apis.decode_response(key, version, root.receive(key, version))


def test_transactional_ids_have_coordinators_of_their_own_to_find(root: Client, alice: Client) -> None:
    wanted = {"key": "x", "key_type": 1}
    assert alice.ask(ApiKey.FIND_COORDINATOR, 1, **wanted).error_code == REFUSALS[TXN]
    allow(root, TXN, Operation.DESCRIBE)
    assert alice.ask(ApiKey.FIND_COORDINATOR, 1, **wanted).error_code == 0


def test_an_idempotent_producer_needs_a_topic_to_write_to_or_the_cluster(root: Client, alice: Client) -> None:
    wanted = {"transactional_id": None, "transaction_timeout_ms": 0}
    assert alice.ask(ApiKey.INIT_PRODUCER_ID, 0, **wanted).error_code == REFUSALS[CLUSTER]
    allow(root, TOPIC, Operation.WRITE)
    assert alice.ask(ApiKey.INIT_PRODUCER_ID, 0, **wanted).error_code == 0


def test_lists_leave_out_what_a_client_may_not_see(root: Client, alice: Client) -> None:
    assert "g" in [group.group_id for group in root.ask(ApiKey.LIST_GROUPS, 0).groups]
    assert alice.ask(ApiKey.LIST_GROUPS, 0).groups == []
    assert alice.ask(ApiKey.METADATA, 1, topics=None).topics == []
    allow(root, GROUP, Operation.DESCRIBE)
    allow(root, TOPIC, Operation.READ)
    assert "g" in [group.group_id for group in alice.ask(ApiKey.LIST_GROUPS, 0).groups]
    seen = alice.ask(ApiKey.METADATA, 8, topics=None, include_topic_authorized_operations=True,
                     include_cluster_authorized_operations=True)  # fmt: skip
    assert [topic.name for topic in seen.topics] == ["t"]
    assert set(seen.topics[0].authorized_operations) == {Operation.READ, Operation.DESCRIBE}
    assert set(seen.authorized_operations) == set()
    unasked = alice.ask(ApiKey.METADATA, 8, topics=None)
    assert (unasked.topics[0].authorized_operations, unasked.authorized_operations) == (None, None)
    root.ask(ApiKey.INIT_PRODUCER_ID, 0, transactional_id="x", transaction_timeout_ms=60_000)
    everything = {"state_filters": [], "producer_id_filters": []}
    assert alice.ask(ApiKey.LIST_TRANSACTIONS, 0, **everything).transaction_states == []
    allow(root, TXN, Operation.DESCRIBE)
    (listed,) = alice.ask(ApiKey.LIST_TRANSACTIONS, 0, **everything).transaction_states
    assert listed.transactional_id == "x"


def test_offsets_of_topics_that_a_client_may_not_see_are_left_out(root: Client, alice: Client) -> None:
    allow(root, GROUP, Operation.DESCRIBE)
    assert alice.ask(ApiKey.OFFSET_FETCH, 2, group_id="g", topics=None).topics == []
    allow(root, TOPIC, Operation.DESCRIBE)
    (topic,) = alice.ask(ApiKey.OFFSET_FETCH, 2, group_id="g", topics=None).topics
    assert (topic.name, topic.partitions[0].committed_offset) == ("t", 1)


def test_topics_are_made_on_first_use_only_by_whom_may_make_them(root: Client, alice: Client) -> None:
    made = f"made-{uuid.uuid4()}"
    wanted = {"topics": [(made,)], "allow_auto_topic_creation": True}
    rule = (TOPIC, "made-", PatternType.PREFIXED, "User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)
    root.ask(ApiKey.CREATE_ACLS, 1, creations=[rule])
    assert alice.ask(ApiKey.METADATA, 4, **wanted).topics[0].error_code == REFUSALS[TOPIC]
    assert root.ask(ApiKey.METADATA, 4, topics=[(made,)], allow_auto_topic_creation=False).topics[0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    allow(root, CLUSTER, Operation.CREATE)
    for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE):  # which is Kafka's answer while it is made
        assert alice.ask(ApiKey.METADATA, 4, **wanted).topics[0].error_code == code


def produced(client: Client, version: int, topic_id: uuid.UUID) -> int:
    batch = bytearray(encode_batch([Record(None, b"x", 1)]))
    by_id = version >= produce.TOPIC_ID_FROM
    topic = produce.ProduceTopic(None if by_id else "t", topic_id, [produce.ProducePartition(0, batch)])
    client.send(ApiKey.PRODUCE, version,
                bytes(produce.encode_request(version, produce.ProduceRequest(None, -1, 1000, [topic]))))  # fmt: skip
    answer = produce.decode_response(version, client.receive(ApiKey.PRODUCE, version))
    return answer.topics[0].partitions[0].error_code


def fetched(client: Client, version: int, topic_id: uuid.UUID) -> int:
    by_id = version >= fetch.TOPIC_ID_FROM
    topic = fetch.FetchTopic(None if by_id else "t", topic_id, [fetch.FetchPartition(0, 0, 1000)])
    client.send(ApiKey.FETCH, version, bytes(fetch.encode_request(version, fetch.FetchRequest(0, 1, 1000, [topic]))))
    answer = fetch.decode_response(version, client.receive(ApiKey.FETCH, version))
    return answer.topics[0].partitions[0].error_code


@pytest.mark.parametrize("by_id", [False, True])
def test_records(root: Client, alice: Client, by_id: bool) -> None:
    topic_id = root.ask(ApiKey.METADATA, 12, topics=[(ZERO_UUID, "t", {})]).topics[0].topic_id if by_id else ZERO_UUID
    unknown = uuid.UUID(int=77)
    for call, version, operation in ((produced, 13 if by_id else 9, Operation.WRITE),
                                     (fetched, 13 if by_id else 12, Operation.READ)):  # fmt: skip
        if by_id:
            assert call(alice, version, unknown) == ErrorCode.UNKNOWN_TOPIC_ID
        assert call(alice, version, topic_id) == REFUSALS[TOPIC]
        allow(root, TOPIC, operation)
        assert call(alice, version, topic_id) == 0


def test_topics_that_are_deleted_by_id_are_named_only_to_those_who_may_see_them(root: Client, alice: Client) -> None:
    topic_id = root.ask(ApiKey.METADATA, 12, topics=[(ZERO_UUID, "t", {})]).topics[0].topic_id
    wanted = {"topics": [(None, topic_id, {})], "timeout_ms": 1000}
    (said,) = alice.ask(ApiKey.DELETE_TOPICS, 6, **wanted).responses
    assert (said.name, said.error_code) == (None, REFUSALS[TOPIC])
    allow(root, TOPIC, Operation.DESCRIBE)
    (said,) = alice.ask(ApiKey.DELETE_TOPICS, 6, **wanted).responses
    assert (said.name, said.error_code) == ("t", REFUSALS[TOPIC])
    allow(root, TOPIC, Operation.DELETE)
    (said,) = alice.ask(ApiKey.DELETE_TOPICS, 6, **wanted).responses
    assert (said.name, said.error_code) == ("t", 0)


def test_a_transactional_batch_needs_the_transactional_id(root: Client, alice: Client) -> None:
    allow(root, TOPIC, Operation.WRITE)
    batch = bytearray(encode_batch([Record(None, b"x", 1)], producer_id=1, producer_epoch=0, base_sequence=0,
                                   transactional=True))  # fmt: skip
    topic = produce.ProduceTopic("t", ZERO_UUID, [produce.ProducePartition(0, batch)])
    body = bytes(produce.encode_request(9, produce.ProduceRequest("x", -1, 1000, [topic])))
    alice.send(ApiKey.PRODUCE, 9, body)
    answer = produce.decode_response(9, alice.receive(ApiKey.PRODUCE, 9))
    assert answer.topics[0].partitions[0].error_code == REFUSALS[TXN]


def test_the_users_passwords_are_not_among_the_settings_that_are_told(root: Client) -> None:
    said = root.ask(ApiKey.DESCRIBE_CONFIGS, 1, resources=[(4, "0", None)])
    told = {each.name: (each.is_sensitive, each.config_value if hasattr(each, "config_value") else each.value)
            for each in said.results[0].configs}  # fmt: skip
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    assert told.get(name, (True, None)) == (True, None)
    assert all(value is None for sensitive, value in told.values() if sensitive)
    assert "user_alice" not in str(said.to_dict())
