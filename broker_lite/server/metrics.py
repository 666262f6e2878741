"""Prometheus metrics over HTTP, if `metrics.port` is set.

Theory of operation: names and labels are those of Prometheus' JMX exporter, without rules, for Apache Kafka's own
beans, so that queries written for Kafka work. Counters come from `Broker.metrics`; all else is looked up on request.
A connection serves one small request and is then closed; there is no authentication, so the port belongs on the same
networks as the broker's own.

The text is written here, since prometheus-client appends ``_total`` to the names of counters; the exporter does not.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sparkonce.broker_lite.coordinators.group_messages import GroupState
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.metrics import TopicMetrics
from sparkonce.broker_lite.server.host import Usage
from sparkonce.kafka.protocol.apis import APIS
from sparkonce.kafka.protocol.errors import KafkaError

MAX_REQUEST_BYTES: Final = 8 * 1024
MAX_CONNECTIONS: Final = 16
LATE_TRANSACTION_MS: Final = 300_000
"""How long after `transaction.max.timeout.ms` a transaction that is still open counts as late (KIP-664)."""
TIMEOUT_S: Final = 10.0
"""The timeout of a connection, from accept to response."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = dict[str, str]
Sample = tuple[Labels, float]
Family = tuple[str, str, str, Iterable[Sample]]
"""Name, type, a line of help, and the samples."""

_TOPIC_METRICS: Final[tuple[tuple[str, Callable[[TopicMetrics], int]], ...]] = (
    ("MessagesInPerSec", lambda of: of.messages_in),
    ("BytesInPerSec", lambda of: of.bytes_in),
    ("BytesOutPerSec", lambda of: of.bytes_out),
    ("TotalProduceRequestsPerSec", lambda of: of.produce_requests),
    ("TotalFetchRequestsPerSec", lambda of: of.fetch_requests),
    ("FailedProduceRequestsPerSec", lambda of: of.failed_produce_requests),
    ("FailedFetchRequestsPerSec", lambda of: of.failed_fetch_requests),
)


def render(broker: Broker, connections: Counter[str], usage: Usage) -> str:
    """Return all metrics in Prometheus' text format; `connections` counts those open by listener."""
    lines = []
    for name, kind, text, samples in _families(broker, connections, usage):
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(broker: Broker, connections: Counter[str], usage: Usage) -> Iterator[Family]:
    yield (
        "kafka_server_BrokerTopicMetrics_Count",
        "counter",
        "What went in and out, in all and by topic.",
        _topics(broker),
    )
    yield "kafka_network_RequestMetrics_Count", "counter", "Requests answered, by API and version.", _requests(broker)
    yield from _times(broker)
    yield "kafka_log_Log_Value", "gauge", "Size in bytes, offsets and segments of each partition.", _logs(broker)
    yield "kafka_cluster_Partition_Value", "gauge", "Records that open transactions hold back.", _held_back(broker)
    yield "kafka_server_ReplicaManager_Value", "gauge", "Partitions of this broker.", _named(_replicas(broker))
    controller = _controller(broker)
    yield "kafka_controller_KafkaController_Value", "gauge", "Topics and partitions of the cluster.", _named(controller)
    yield from _groups(broker)
    yield (
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Open connections by listener.",
        [({"listener": name, "networkProcessor": "0"}, count) for name, count in sorted(connections.items())],
    )
    text = "Processor time of this process in seconds."
    yield "process_cpu_seconds_total", "counter", text, [({}, usage.processor_s)]
    yield "process_resident_memory_bytes", "gauge", "Memory of this process.", [({}, usage.resident_bytes)]


def _replicas(broker: Broker) -> dict[str, int]:
    logs = {(topic.topic_id, index): log for topic in broker.topics() for index, log in topic.logs.items()}
    us = broker.member.broker_id
    led = {key: state for key, state in broker.member.image.partitions() if state.leader == us}
    late_since_ms = broker.clock.now_ms() - broker.config.transaction_max_timeout_ms - LATE_TRANSACTION_MS
    written = [logs[key].producers.oldest_transaction_written_ms for key in led if key in logs]
    return {
        "PartitionCount": len(logs),
        "LeaderCount": len(led),
        "UnderReplicatedPartitions": sum(len(each.in_sync_replicas) < len(each.replicas) for each in led.values()),
        "PartitionsWithLateTransactionsCount": sum(at_ms is not None and at_ms < late_since_ms for at_ms in written),
        "OfflineReplicaCount": 0,
    }


def _held_back(broker: Broker) -> Iterator[Sample]:
    for topic in broker.topics():
        for index, log in topic.logs.items():
            try:
                lag = max(log.high_watermark - log.last_stable_offset, 0)
            except KafkaError:  # the disk has failed: the other figures matter all the more
                continue
            yield {"name": "LastStableOffsetLag", "partition": str(index), "topic": topic.name}, lag


def _controller(broker: Broker) -> dict[str, int]:
    """Return the controller's counts; 0 on a broker that is not the controller, so that sums are right."""
    image, active = broker.member.image, int(broker.member.controller.active)
    states = [state for _, state in image.partitions()]
    offline = sum(state.leader < 0 for state in states)
    fenced = sum(each.fenced for each in image.brokers.values())
    return {
        "ActiveControllerCount": active,
        "OfflinePartitionsCount": offline * active,
        "GlobalPartitionCount": len(states) * active,
        "GlobalTopicCount": len(image.topics) * active,
        "ActiveBrokerCount": (len(image.brokers) - fenced) * active,
        "FencedBrokerCount": fenced * active,
    }


def _topics(broker: Broker) -> Iterator[Sample]:
    assert broker.metrics is not None
    by_name: dict[str, list[TopicMetrics]] = {}
    for key, counted in broker.metrics.topics.items():
        topic = broker.topic_by_id(key) if isinstance(key, uuid.UUID) else broker.topic(key)
        if topic is not None:
            by_name.setdefault(topic.name, []).append(counted)
    for name, value in _TOPIC_METRICS:
        yield {"name": name}, value(broker.metrics.all_topics)
        for topic_name, parts in sorted(by_name.items()):
            yield {"name": name, "topic": topic_name}, sum(value(part) for part in parts)


def _requests(broker: Broker) -> Iterator[Sample]:
    assert broker.metrics is not None
    for key, counted in sorted(broker.metrics.requests.items()):
        for version, count in sorted(counted.by_version.items()):
            labels = {"name": "RequestsPerSec", "request": APIS[key].codec_name, "version": str(version)}
            yield labels, count
    for key, counted in sorted(broker.metrics.requests.items()):
        yield {"name": "TotalTimeMs", "request": APIS[key].codec_name}, counted.count


def _times(broker: Broker) -> Iterator[Family]:
    assert broker.metrics is not None
    labelled = [
        ({"name": "TotalTimeMs", "request": APIS[key].codec_name}, counted)
        for key, counted in sorted(broker.metrics.requests.items())
    ]
    text = "Milliseconds from the first look at a request to its answer, since the start."
    mean = [(labels, counted.total_ns / counted.count / 1e6) for labels, counted in labelled]
    yield "kafka_network_RequestMetrics_Mean", "gauge", f"Mean. {text}", mean
    longest = [(labels, counted.longest_ns / 1e6) for labels, counted in labelled]
    yield "kafka_network_RequestMetrics_Max", "gauge", f"Longest. {text}", longest


def _logs(broker: Broker) -> Iterator[Sample]:
    for topic in broker.topics():
        for index, log in topic.logs.items():
            where = {"partition": str(index), "topic": topic.name}
            yield {"name": "Size", **where}, log.size
            yield {"name": "LogStartOffset", **where}, log.log_start_offset
            yield {"name": "LogEndOffset", **where}, log.log_end_offset
            yield {"name": "NumLogSegments", **where}, log.segment_count


def _groups(broker: Broker) -> Iterator[Family]:
    ids = broker.groups.all_ids()
    consumer = [group for each in ids if (group := broker.groups.consumer_group(each)) is not None]
    # A group unknown to the coordinator has committed offsets only: Kafka calls it empty.
    classic = Counter(
        found.state if (found := broker.groups.group(each)) is not None else GroupState.EMPTY
        for each in ids
        if broker.groups.consumer_group(each) is None
    )
    numbers = {"NumGroups": classic.total()}
    numbers |= {f"NumGroups{state.value}": classic[state] for state in GroupState}
    text = "Classic groups, in all and by state."
    yield "kafka_coordinator_group_GroupMetadataManager_Value", "gauge", text, _named(numbers)
    by_protocol = [({"protocol": "classic"}, classic.total()), ({"protocol": "consumer"}, len(consumer))]
    yield "kafka_server_group_coordinator_metrics_group_count", "gauge", "Groups by protocol.", by_protocol
    states = Counter(group.state.value.lower() for group in consumer)
    by_state = [({"state": state}, count) for state, count in sorted(states.items())]
    text = "KIP-848 groups by state."
    yield "kafka_server_group_coordinator_metrics_consumer_group_count", "gauge", text, by_state


def _named(values: dict[str, int]) -> list[Sample]:
    return [({"name": name}, value) for name, value in values.items()]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    # No name of a topic, listener or state needs escaping.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"


class MetricsProtocol(asyncio.Protocol):
    """One connection: one request, one answer."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, page: Callable[[], str], open_ones: set[MetricsProtocol]
    ) -> None:
        self._loop = loop
        self._page = page
        self._open = open_ones
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout, unless there are too many connections."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._open) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._open.add(self)
        self._timer = self._loop.call_later(TIMEOUT_S, transport.abort)

    def connection_lost(self, _error: Exception | None) -> None:
        """Remove the connection."""
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer once the request's head is complete."""
        assert self._transport is not None
        self._received += data
        if len(self._received) > MAX_REQUEST_BYTES:
            self._answer("431 Request Header Fields Too Large", "")
        elif b"\r\n\r\n" in self._received:
            method, _, rest = self._received.partition(b" ")
            path = rest.partition(b" ")[0].partition(b"?")[0]
            if method not in (b"GET", b"HEAD"):
                self._answer("405 Method Not Allowed", "only GET\n")
            elif path != b"/metrics":
                self._answer("404 Not Found", "metrics are at /metrics\n")
            else:
                self._answer("200 OK", self._page(), head_only=method == b"HEAD")

    def close(self) -> None:
        """Close without waiting."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, status: str, text: str, head_only: bool = False) -> None:
        assert self._transport is not None
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        )
        self._transport.write(f"{head}\r\n".encode() + (b"" if head_only else body))
        self._transport.close()


class MetricsServer:
    """The listening socket and its connections."""

    def __init__(self, server: asyncio.Server, open_ones: set[MetricsProtocol]) -> None:
        """Private: use `start`."""
        self._server = server
        self._open = open_ones

    @classmethod
    async def start(cls, host: str, port: int, page: Callable[[], str]) -> MetricsServer:
        """Listen; `page` returns the text. Raises OSError if the address cannot be listened on."""
        loop = asyncio.get_running_loop()
        open_ones: set[MetricsProtocol] = set()
        server = await loop.create_server(lambda: MetricsProtocol(loop, page, open_ones), host, port)
        return cls(server, open_ones)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the listening socket."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def stop(self) -> None:
        """Close the socket and all connections."""
        self._server.close()
        for each in list(self._open):
            each.close()
