"""What the tests of replicated partitions share: a topic, records that are acknowledged or not, what the files hold."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite.handlers.list_offsets import EARLIEST
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch, scan
from tests.interop.plain_client import PlainClient
from tests.reading import AT_ONCE, assign

DEADLINE_S = 60.0
PRODUCE_VERSION = 12


def create_topic(cluster: EmbeddedCluster, name: str, partitions: int = 1, **settings: str) -> None:
    """Make a topic with a replica on every broker, and wait until all of them know of it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    replicas = len(cluster.brokers)
    admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(DEADLINE_S)
    for index in range(partitions):
        cluster.wait_until(partial(_is_known, cluster, name, index), f"{name} is not known to all", DEADLINE_S)


def client_of(cluster: EmbeddedCluster, broker_id: int) -> PlainClient:
    """Connect to one broker."""
    return PlainClient(cluster.brokers[broker_id].bootstrap_servers)


def write(
    client: PlainClient, topic: str, values: list[bytes], acks: int, timeout_ms: int = 30_000
) -> produce.ProducePartitionResult:
    """Send one batch to partition 0; returns the answer."""
    send(client, topic, values, acks, timeout_ms)
    body = client.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
    return produce.decode_response(PRODUCE_VERSION, body).topics[0].partitions[0]


def send(client: PlainClient, topic: str, values: list[bytes], acks: int, timeout_ms: int = 30_000) -> None:
    """Send one batch to partition 0, and wait for nothing."""
    batch = encode_batch([Record(None, value, 1_700_000_000_000) for value in values])
    wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, batch)])
    request = produce.ProduceRequest(None, acks, timeout_ms, [wanted])
    client.send(ApiKey.PRODUCE, PRODUCE_VERSION, produce.encode_request(PRODUCE_VERSION, request))


def _is_known(cluster: EmbeddedCluster, topic: str, partition: int) -> bool:
    leader = cluster.leader(topic, partition)
    for broker_id in cluster.brokers:
        with client_of(cluster, broker_id) as client:
            expected = ErrorCode.NONE if broker_id == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            if ask_offset(client, topic, EARLIEST, partition).error_code != expected:
                return False
    return True


def ask_offset(client: PlainClient, topic: str, timestamp: int, partition: int = 0) -> Any:
    """Ask for an offset; returns the whole answer."""
    answer = client.ask(
        ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[(topic, [(partition, -1, timestamp)])]
    )
    return answer.topics[0].partitions[0]


def read_all(cluster: EmbeddedCluster, topic: str, partitions: int, count: int) -> list[list[bytes]]:
    """Consume from the beginning until there are `count` records at least, and no more come; by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **AT_ONCE,
        }
    )
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, index), DEADLINE_S)[1] for index in range(partitions)]
    assign(consumer, [TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    while any(len(values) < end for values, end in zip(found, ends, strict=True)):
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{[len(each) for each in found]} of {ends} after {DEADLINE_S} s"
        assert message.error() is None
        found[message.partition()].append(message.value())
    consumer.close()
    assert sum(map(len, found)) >= count
    return found


def stored(cluster: EmbeddedCluster, broker_id: int, partition: str) -> bytes:
    """Return what the log files of one replica hold, to the byte."""
    directory = Path(cluster.data_dir) / str(broker_id) / partition
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def wait_for_equal_logs(cluster: EmbeddedCluster, partition: str) -> bytes:
    """Wait until all replicas hold the same bytes; returns them."""

    def equal() -> bool:
        return len({stored(cluster, broker_id, partition) for broker_id in cluster.brokers}) == 1

    cluster.wait_until(equal, f"the logs of {partition} differ", DEADLINE_S)
    return stored(cluster, next(iter(cluster.brokers)), partition)


def epochs_of(log: bytes) -> list[int]:
    """Return the leader epochs of a log's batches, each once."""
    return sorted({header.partition_leader_epoch for _, header in scan(log)})


class Writer:
    """A producer in a thread: numbered records, round the partitions, until the end; knows what was acknowledged."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, partitions: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        )
        self._topic, self._partitions = topic, partitions
        self.acknowledged: list[list[bytes]] = [[] for _ in range(partitions)]
        self.failed: list[object] = []
        self.progress = threading.Condition()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, self.acknowledged))

    def wait_for(self, more: int) -> None:
        """Wait until so many more records have been acknowledged, and some of each partition since the beginning."""
        wanted = self.count + more
        with self.progress:
            enough = self.progress.wait_for(lambda: self.count >= wanted and all(self.acknowledged), DEADLINE_S)
        assert enough, f"{self.count} of {wanted}, by partition {[len(each) for each in self.acknowledged]}"

    def _run(self) -> None:
        number = 0
        while not self._ends.is_set():
            value = b"%08d" % number
            self._producer.produce(
                self._topic, value, partition=number % self._partitions, on_delivery=self._on_delivery
            )
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(DEADLINE_S)

    def _on_delivery(self, error: Any, message: Any) -> None:
        with self.progress:
            if error is not None:
                self.failed.append(error)
            else:
                self.acknowledged[message.partition()].append(message.value())
            self.progress.notify_all()
