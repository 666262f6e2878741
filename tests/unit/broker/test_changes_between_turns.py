"""Requests whose work takes several turns, while the cluster moves on: each partition has its answer all the same."""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.controller.records import TopicDeleted
from sparkonce.broker_lite.handlers import produce as produce_handler
from sparkonce.broker_lite.node import turns
from sparkonce.broker_lite.protocol import apis, produce
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.primitives import ZERO_UUID
from sparkonce.broker_lite.protocol.records import Record, encode_batch
from tests.unit.broker.coordinator_cluster import Cluster
from tests.unit.broker.test_transaction_coordinator import World

TIMEOUT_MS = 1_000


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return brokers that do a partition in each turn, and a topic with two of them that broker 1 leads."""
    monkeypatch.setattr(turns, "MAX_UNITS_PER_TURN", 1)
    monkeypatch.setattr(produce_handler, "MAX_PARTITIONS_AT_ONCE", 0)
    made = Cluster(World())
    made.create_topic("t", [1, 1])
    return made


def test_records_are_deleted_where_another_broker_leads_by_now(cluster: Cluster) -> None:
    client, kind = cluster.client(1), apis.request_class(ApiKey.DELETE_RECORDS).DeleteRecordsTopic
    partitions = [kind.DeleteRecordsPartition(version=1, partition_index=index, offset=0) for index in (0, 1)]
    topics = [kind(version=1, name="t", partitions=partitions)]
    assert client.ask(ApiKey.DELETE_RECORDS, 1, topics=topics, timeout_ms=TIMEOUT_MS) is None
    cluster.elect("t", 0, 2)
    cluster.world.pass_time(TIMEOUT_MS)
    ((answered,),) = [each.topics for each in client.later]
    codes = [each.error_code for each in answered.partitions]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]


def test_records_are_written_to_a_topic_that_is_deleted_meanwhile(cluster: Cluster) -> None:
    client = cluster.client(1)
    batch = encode_batch([Record(None, b"v", client.broker.clock.now_ms())])
    wanted = produce.ProduceTopic("t", ZERO_UUID, [produce.ProducePartition(index, batch) for index in (0, 1)])
    body = produce.encode_request(9, produce.ProduceRequest(None, -1, TIMEOUT_MS, [wanted]))
    assert client.send(ApiKey.PRODUCE, 9, body) is None
    while not client.broker.partition("t", 0).log_end_offset:
        cluster.world.do_next()
    cluster._apply(TopicDeleted(cluster.image.topic_ids["t"]))
    cluster._tell()
    cluster.world.pass_time(TIMEOUT_MS)
    ((answered,),) = [each.topics for each in client.later]
    assert [each.error_code for each in answered.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
