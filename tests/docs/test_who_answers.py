"""docs/apis.md says who answers what in a cluster: a real one is asked, and the code's own lists are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite.handlers.envelope import FORWARDED
from sparkonce.broker_lite.handlers.list_offsets import LATEST
from sparkonce.kafka.protocol.apis import AMONG_BROKERS, APIS, ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.cluster.partitions.support import create_topic, write
from tests.docs.test_apis import rows
from tests.interop.plain_client import PlainClient

GROUP, TRANSACTION = 0, 1
"""Kinds of keys, for FindCoordinator."""

OF_LEADERS: dict[ApiKey, tuple[int, dict[str, Any]]] = {
    ApiKey.LIST_OFFSETS: (7, {"replica_id": -1, "isolation_level": 0, "topics": [("t", [(0, -1, LATEST)])]}),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, {"replica_id": -1, "topics": [("t", [(0, -1, 0)])]}),
    ApiKey.DELETE_RECORDS: (2, {"topics": [("t", [(0, 0)])], "timeout_ms": 1000}),
    ApiKey.DESCRIBE_PRODUCERS: (0, {"topics": [("t", [0])]}),
    ApiKey.WRITE_TXN_MARKERS: (1, {"markers": [(1, 0, True, [("t", [0])], 0)]}),
}
"""Requests about partition 0 of t; Produce and Fetch have codecs of their own."""

OF_GROUPS: dict[ApiKey, tuple[int, dict[str, Any]]] = {
    ApiKey.OFFSET_COMMIT: (8, {"group_id": "g", "topics": [("t", [(0, 1, -1, "")])]}),
    ApiKey.OFFSET_FETCH: (8, {"groups": [("g", [("t", [0])])], "require_stable": True}),
    ApiKey.JOIN_GROUP: (5, {"group_id": "g", "session_timeout_ms": 9000, "rebalance_timeout_ms": 9000, "member_id": "",
                            "group_instance_id": None, "protocol_type": "consumer", "protocols": [("r", b"")]}),
    ApiKey.HEARTBEAT: (3, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}),
    ApiKey.LEAVE_GROUP: (3, {"group_id": "g", "members": [("m", None)]}),
    ApiKey.SYNC_GROUP: (3, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None,
                            "assignments": []}),
    ApiKey.DESCRIBE_GROUPS: (4, {"groups": ["g"], "include_authorized_operations": False}),
    ApiKey.DELETE_GROUPS: (1, {"groups_names": ["g"]}),
    ApiKey.OFFSET_DELETE: (0, {"group_id": "g", "topics": [("t", [0])]}),
    ApiKey.TXN_OFFSET_COMMIT: (2, {"transactional_id": "x", "group_id": "g", "producer_id": 1, "producer_epoch": 0,
                                   "topics": [("t", [(0, 1, -1, "")])]}),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, {"group_ids": ["g"], "include_authorized_operations": False}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, {"group_id": "g", "member_id": "", "member_epoch": 0,
                                          "rebalance_timeout_ms": 9000, "subscribed_topic_names": ["t"],
                                          "topic_partitions": []}),
}  # fmt: skip

OF_TRANSACTIONS: dict[ApiKey, tuple[int, dict[str, Any]]] = {
    ApiKey.INIT_PRODUCER_ID: (3, {"transactional_id": "x", "transaction_timeout_ms": 9000, "producer_id": -1,
                                  "producer_epoch": -1}),
    ApiKey.ADD_PARTITIONS_TO_TXN: (2, {"v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 1,
                                       "v3_and_below_producer_epoch": 0, "v3_and_below_topics": [("t", [0])]}),
    ApiKey.ADD_OFFSETS_TO_TXN: (2, {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "group_id": "g"}),
    ApiKey.END_TXN: (2, {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "committed": True}),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, {"transactional_ids": ["x"]}),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        create_topic(cluster, "t")
        yield cluster


def listed(about: str) -> set[int]:
    """Return the APIs that the page names in the row about somebody."""
    (cells,) = (apis for who, apis in rows("In a cluster") if about in who)
    numbers = {api.codec_name: int(api.key) for api in APIS.values()}
    return {numbers[name] for name in re.sub(r"\([^)]*\)", "", cells).replace(" ", "").split(",")}


def errors_of(answer: Any) -> set[int]:
    """Return all error codes in an answer, but those that say nothing."""
    return {int(code) for code in re.findall(r"error_code=(-?\d+)", repr(answer))} - {0}


def coordinator(cluster: EmbeddedCluster, key: str, kind: int) -> int:
    """Find who coordinates, once its topic is there."""
    found = []

    def is_known() -> bool:
        with PlainClient(cluster.brokers[1].bootstrap_servers) as client:
            (answer,) = client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key]).coordinators
        found[:] = [answer.node_id]
        return int(answer.error_code) == 0

    cluster.wait_until(is_known, f"nobody coordinates {key}")
    return int(found[0])


def other_than(cluster: EmbeddedCluster, broker_id: int) -> PlainClient:
    return PlainClient(cluster.brokers[3 - broker_id].bootstrap_servers)


def test_what_goes_to_the_controller_is_listed() -> None:
    assert listed("the controller") == set(FORWARDED)


def test_what_is_among_brokers_is_listed() -> None:
    said = {
        int(key)
        for _, key, _, _, covers in rows("Served")
        if "Among brokers of a cluster only: not advertised." in covers
    }
    assert said == AMONG_BROKERS


def test_what_is_the_leaders_others_refuse(cluster: EmbeddedCluster) -> None:
    assert listed("leader of the partition;") == {*OF_LEADERS, ApiKey.PRODUCE, ApiKey.FETCH}
    with other_than(cluster, cluster.leader("t", 0)) as client:
        for key, (version, fields) in OF_LEADERS.items():
            answer = client.ask(key, version, **fields)
            assert errors_of(answer) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}, answer
        assert write(client, "t", [b"v"], acks=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert client.fetch("t", 0, 0, isolation_level=0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("about", "key", "kind", "requests"),
    [("group's partition", "g", GROUP, OF_GROUPS), ("transactional id's", "x", TRANSACTION, OF_TRANSACTIONS)],
)
def test_what_is_a_coordinators_others_refuse(
    cluster: EmbeddedCluster, about: str, key: str, kind: int, requests: dict[ApiKey, tuple[int, dict[str, Any]]]
) -> None:
    assert listed(about) == set(requests)
    with other_than(cluster, coordinator(cluster, key, kind)) as client:
        for api, (version, fields) in requests.items():
            answer = client.ask(api, version, **fields)
            assert errors_of(answer) == {ErrorCode.NOT_COORDINATOR}, (api, answer)
