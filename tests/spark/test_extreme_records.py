"""Records at the edges of the format, from topic to topic: ten thousand headers, and timestamps of all kinds."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkonce.broker_lite.protocol import produce
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.primitives import ZERO_UUID
from sparkonce.broker_lite.protocol.records import Record, encode_batch
from tests.interop.plain_client import PlainClient
from tests.spark.source_support import DEADLINE_S, Topics, batch

pytestmark = pytest.mark.spark

HEADERS = 10_000
LARGEST_MS = (2**63 - 1) // 1_000
"""The latest that fits into Spark's microseconds; year 294247."""
TIMES_MS = (-1, -2, -62_135_596_800_000, -LARGEST_MS, 0, LARGEST_MS)
ANY_TIME: dict[str, Any] = {"message_timestamp_after_max_ms": str(2**63 - 1), "retention_ms": "-1"}
OUT_OF_RANGE_MS = (LARGEST_MS + 1, -LARGEST_MS - 2, 2**63 - 1)


def send(topics: Topics, topic: str, records: list[Record]) -> None:
    with PlainClient(topics.bootstrap_servers) as client:
        wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, encode_batch(records))])
        code, until = ErrorCode.NOT_LEADER_OR_FOLLOWER, time.monotonic() + DEADLINE_S
        while code == ErrorCode.NOT_LEADER_OR_FOLLOWER and time.monotonic() < until:  # the topic is new to its leader
            request = produce.ProduceRequest(None, -1, 30_000, [wanted])
            client.send(ApiKey.PRODUCE, 9, produce.encode_request(9, request))
            answer = produce.decode_response(9, client.receive(ApiKey.PRODUCE, 9))
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
        assert code == ErrorCode.NONE


def test_ten_thousand_headers(spark: SparkSession, topics: Topics) -> None:
    source, copy = topics.create(), topics.create()
    headers = tuple((f"h{number % 7}", None if number % 3 == 0 else b"%d" % number) for number in range(HEADERS))
    send(
        topics, source, [Record(b"k", b"v", 0, headers), Record(b"k", b"w", 0, ()), Record(b"k", b"x", 0, headers[:1])]
    )
    frame = batch(spark, topics, source, includeHeaders="true").select("key", "value", "headers")
    given = {"kafka.bootstrap.servers": topics.bootstrap_servers, "topic": copy}
    frame.write.format("kafka_once").mode("append").options(**given).save()
    for topic in (source, copy):
        rows = batch(spark, topics, topic, includeHeaders="true").orderBy("offset").collect()
        assert [bytes(row.value) for row in rows] == [b"v", b"w", b"x"]
        found = [[(each.key, each.value and bytes(each.value)) for each in row.headers or ()] for row in rows]
        assert found == [list(headers), [], list(headers[:1])]


def test_timestamps_at_the_edges_of_what_spark_holds(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(**ANY_TIME)
    send(topics, topic, [Record(None, b"%d" % time, time) for time in TIMES_MS])
    rows = batch(spark, topics, topic).selectExpr("CAST(value AS STRING) AS v", "unix_micros(timestamp) AS t").collect()
    assert {int(row.v): row.t for row in rows} == {time: 1_000 * time for time in TIMES_MS}


@pytest.mark.parametrize("time_ms", OUT_OF_RANGE_MS)
def test_a_timestamp_that_spark_cannot_hold_is_refused(spark: SparkSession, topics: Topics, time_ms: int) -> None:
    topic = topics.create(**ANY_TIME)
    send(topics, topic, [Record(None, b"v", time_ms)])
    with pytest.raises(PySparkException, match=rf"offset 0 has the timestamp {time_ms}, which does not fit"):
        batch(spark, topics, topic).collect()
    assert [bytes(row.value) for row in batch(spark, topics, topic, columns="value").collect()] == [b"v"]
