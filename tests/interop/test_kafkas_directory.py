"""A log directory of Apache Kafka: used by the broker for a while, and then by Kafka again, which finds its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason
from sparkonce import BrokerStartError, EmbeddedBroker
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.interop.answers import play_topics
from tests.interop.plain_client import PlainClient

pytestmark = [pytest.mark.java, pytest.mark.soak]
METADATA_LOG = "__cluster_metadata-0"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_kafka_starts_again_on_the_directory_that_the_broker_has_used(tmp_path: Path) -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    directory = tmp_path / "data"
    with RealKafka(tmp_path, heap="300m", java_options=QUICK_JVM) as kafka:
        with PlainClient(kafka.bootstrap_servers) as client:
            client.create_topic("kept", 2)
        with pytest.raises(BrokerStartError, match="in use by another broker"):
            EmbeddedBroker(directory, config={"node.id": 1})
        port = kafka.node
    metadata = contents(directory / METADATA_LOG)
    with EmbeddedBroker(directory, config={"node.id": 1}) as broker:
        play_topics(broker.bootstrap_servers)
        with PlainClient(broker.bootstrap_servers) as client:
            client.create_topic("ours")
            for name in ("ours", METADATA_LOG.removesuffix("-0")):
                client.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=30_000)
        assert contents(directory / METADATA_LOG) == metadata
    assert contents(directory / METADATA_LOG) == metadata
    with RealKafka(tmp_path, heap="300m", java_options=QUICK_JVM, node=port) as kafka:
        kafka.await_ready()
        with PlainClient(kafka.bootstrap_servers) as client:
            (topic,) = client.ask(ApiKey.METADATA, 1, topics=[("kept",)]).topics
            assert (ErrorCode(topic.error_code), len(topic.partitions)) == (ErrorCode.NONE, 2)
            assert [client.list_offset("kept", index, -1) for index in range(2)] == [0, 0]
