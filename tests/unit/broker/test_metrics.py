"""Prometheus' metrics: what is counted, under which names, and what the endpoint does with odd clients."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from lab.network import free_port
from sparkonce import BrokerStartError, EmbeddedBroker
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.server import metrics as endpoint
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

TIMEOUT_S = 30
PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def broker(port: int) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"metrics.port": port}) as embedded:
        yield embedded


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        assert answer.headers["Content-Type"] == endpoint.CONTENT_TYPE
        text = answer.read().decode()
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert re.fullmatch(r'[a-zA-Z_]+(\{\w+="[^"]*"(,\w+="[^"]*")*\})?', name), line
            assert name not in found
            found[name] = float(value)
    return found


def test_what_goes_in_and_out_is_counted(broker: EmbeddedBroker, port: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce("t", b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    got = 0
    while got < 10:
        got += len(consumer.consume(10, TIMEOUT_S))
    seen = scrape(port)
    consumer.close()
    size = sum(path.stat().st_size for path in broker.data_dir.glob("t-0/*.log"))
    for topic in ("", ',topic="t"'):

        def counted(name: str, topic: str = topic) -> float:
            return seen[f'kafka_server_BrokerTopicMetrics_Count{{name="{name}"{topic}}}']

        assert counted("MessagesInPerSec") == 10
        assert counted("BytesInPerSec") == size
        assert counted("BytesOutPerSec") >= size
        assert counted("FailedProduceRequestsPerSec") == 0
    where = 'partition="0",topic="t"'
    assert seen[f'kafka_log_Log_Value{{name="Size",{where}}}'] == size
    assert seen[f'kafka_log_Log_Value{{name="LogEndOffset",{where}}}'] == 10
    assert seen[f'kafka_log_Log_Value{{name="NumLogSegments",{where}}}'] == 1
    assert seen['kafka_server_group_coordinator_metrics_group_count{protocol="classic"}'] == 1
    assert seen['kafka_coordinator_group_GroupMetadataManager_Value{name="NumGroupsStable"}'] == 1
    assert seen['kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT",networkProcessor="0"}'] >= 2
    versions = [name for name in seen if 'name="RequestsPerSec",request="Produce"' in name]
    assert sum(seen[name] for name in versions) >= 1
    assert seen['kafka_network_RequestMetrics_Max{name="TotalTimeMs",request="Produce"}'] > 0
    assert seen["process_resident_memory_bytes"] > 1 << 20
    assert seen['kafka_controller_KafkaController_Value{name="GlobalTopicCount"}'] == 2  # t, __consumer_offsets


def test_the_page_lists_every_metric(broker: EmbeddedBroker, port: int) -> None:
    page = PAGE.read_text()
    for name in scrape(port):
        metric, _, labels = name.partition("{")
        assert f"`{metric}`" in page
        for value in re.findall(r'name="([^"]+)"', labels):
            assert value in page


def test_open_transactions_and_what_they_hold_back(broker: EmbeddedBroker, port: int) -> None:
    """One that began now holds records back; one in which nothing was written for a day is late, too."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}
    producer = Producer({**settings, "enable.idempotence": True})
    producer.init_transactions(TIMEOUT_S)
    held_back = 'kafka_cluster_Partition_Value{name="LastStableOffsetLag",partition="0",topic="%s"}'
    late = 'kafka_server_ReplicaManager_Value{name="PartitionsWithLateTransactionsCount"}'
    producer.begin_transaction()
    producer.produce("new", b"v")
    producer.produce("new", b"v")
    assert producer.flush(TIMEOUT_S) == 0
    seen = scrape(port)
    assert (seen[held_back % "new"], seen[late]) == (2, 0)
    producer.produce("old", b"v", timestamp=int((time.time() - 86_400) * 1000))
    assert producer.flush(TIMEOUT_S) == 0
    seen = scrape(port)
    assert (seen[held_back % "old"], seen[late]) == (1, 1)
    producer.commit_transaction(TIMEOUT_S)
    seen = scrape(port)
    assert (seen[held_back % "new"], seen[held_back % "old"], seen[late]) == (0, 0, 0)


def test_a_deleted_topic_stays_in_the_totals(broker: EmbeddedBroker, port: int) -> None:
    from confluent_kafka.admin import AdminClient

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"v")
    assert producer.flush(TIMEOUT_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
    seen = scrape(port)
    assert seen['kafka_server_BrokerTopicMetrics_Count{name="MessagesInPerSec"}'] == 1
    assert not any('topic="t"' in name for name in seen)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET / HTTP/1.1", "404"), ("POST /metrics HTTP/1.1", "405"), ("HEAD /metrics HTTP/1.1", "200"), ("x", "405")],
)
def test_only_metrics_are_served(broker: EmbeddedBroker, port: int, request_line: str, status: str) -> None:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
        client.sendall(request_line.encode() + b"\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"kafka_" not in answer


def test_a_head_without_an_end_is_cut_off(broker: EmbeddedBroker, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
        client.sendall(b"x" * (endpoint.MAX_REQUEST_BYTES + 1))
        assert client.recv(65536).startswith(b"HTTP/1.1 431 ")
    assert scrape(port)


def test_a_log_that_cannot_be_read_hides_nothing_else(
    broker: EmbeddedBroker, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: PartitionLog) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.directory)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"v")
    assert producer.flush(TIMEOUT_S) == 0
    lag, end = (f'{{name="{name}",partition="0",topic="t"}}' for name in ("LastStableOffsetLag", "LogEndOffset"))
    assert scrape(port)[f"kafka_cluster_Partition_Value{lag}"] == 0
    with monkeypatch.context() as failing:
        failing.setattr(PartitionLog, "last_stable_offset", property(fail))
        seen = scrape(port)
    assert f"kafka_cluster_Partition_Value{lag}" not in seen
    assert seen[f"kafka_log_Log_Value{end}"] == 1


def test_too_many_connections_are_refused(broker: EmbeddedBroker, port: int) -> None:
    waiting = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(endpoint.MAX_CONNECTIONS)]
    try:
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            scrape(port)
    finally:
        for each in waiting:
            each.close()


def test_a_port_that_is_taken_is_named(port: int) -> None:
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(BrokerStartError, match=rf"metrics\.port={port}: cannot listen"),
    ):
        EmbeddedBroker(config={"metrics.port": port})


def test_without_a_port_nothing_is_counted(kafka_broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce("t", b"v")
    assert producer.flush(TIMEOUT_S) == 0
    runner = kafka_broker._runner
    assert runner is not None
    assert runner._server.broker.metrics is None  # type: ignore[union-attr]
