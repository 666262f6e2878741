"""One application of the sink without Spark: tasks that leave transactions open, and a driver that decides."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from sparkonce.connectors.kafka_sink.decisions import DEFAULT_TOPIC
from sparkonce.connectors.kafka_sink.driver import Driver, Scope
from sparkonce.connectors.kafka_sink.transactions import ProducerIdentity
from sparkonce.exactly_once.transactions import Decision, PreparedTransaction, following
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import leader_of
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from sparkonce.kafka.protocol.records import Record, encode_batch
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.group import Committed, GroupSnapshot
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.offsets import TopicPartition as SourcePartition
from sparkonce.offset_store.record import BatchRecord

DEADLINE_S = 20
PRODUCE_VERSION = 9
QUERY = "1b8f7ad4-query"
SOURCE_TOPIC, OUTPUT_TOPIC = "orders", "results"


@dataclass
class Pipeline:
    """An application, ten records of a source's partition a batch."""

    client: Client
    app_id: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")
    decision_topic: str = DEFAULT_TOPIC
    batch_id: int = 0
    query_id: str = QUERY

    def __post_init__(self) -> None:
        self.incarnation = uuid.uuid4().hex[:12]
        self.driver = self.another_driver()
        self.identity = self.driver.recover()

    def another_driver(self) -> Driver:
        """Return what another process would have."""
        return Driver(Scope(self.client.settings, self.app_id, self.decision_topic, self.app_id), self.client)

    def task(
        self, number: int, rows: int = 3, *, timeout_ms: int = 60_000, topic: str = OUTPUT_TOPIC
    ) -> PreparedTransaction:
        """Write rows in a transaction, and leave it open."""
        name = f"{self.driver.scope.prefix}{self.incarnation}/worker-{number}"
        identity = self.driver.transactions.init_producer_id(name, timeout_ms)
        self.driver.transactions.add_partitions(identity, [(topic, 0)])
        send(self.client, topic, identity, [f"{self.app_id}/{self.batch_id}/{number}/{row}" for row in range(rows)])
        return PreparedTransaction(name, identity.producer_id, identity.epoch, rows)

    def decide(self, *prepared: PreparedTransaction) -> Decision:
        """Decide about a batch, and commit none of its transactions yet; as another process of the same driver."""
        self.driver = self.another_driver()
        extent = OffsetRange(10 * self.batch_id, 10 * self.batch_id + 10)
        ranges = {("kafka", SourcePartition(SOURCE_TOPIC, "", 0)): extent}
        record = BatchRecord(self.app_id, self.query_id, self.batch_id, uuid.uuid4().hex, ranges)
        decision = following(self.driver.log.read().last, record, prepared, self.app_id, 1_700_000_000_000)
        group = self.driver.group
        self.driver.decide(
            decision, GroupSnapshot(group, self.app_id, group.fetch(), now_ms).entries(record), self.identity
        )
        return decision

    def next_batch(self) -> None:
        """Begin the next batch, as a running query does."""
        self.batch_id += 1
        self.identity = self.driver.claim()

    def commit(self, prepared: PreparedTransaction) -> None:
        """Commit one transaction only."""
        identity = ProducerIdentity(prepared.transactional_id, prepared.producer_id, prepared.epoch)
        self.driver.transactions.end(identity, commit=True)

    def lose(self, prepared: PreparedTransaction) -> None:
        """Let somebody else claim the transactional id, which aborts the transaction."""
        self.driver.transactions.init_producer_id(prepared.transactional_id, 60_000)

    def offsets(self) -> Committed:
        """Return what the group has committed."""
        return self.driver.group.fetch()

    def visible(self) -> list[str]:
        """Return the rows of this application that readers of committed records see, sorted."""
        return [row for row in committed_rows(self.client, OUTPUT_TOPIC) if row.startswith(f"{self.app_id}/")]


def settings_of(bootstrap_servers: str) -> ClientSettings:
    """Return the settings of a client that does not wait long before it tries again."""
    host, _, port = bootstrap_servers.rpartition(":")
    return ClientSettings(((host, int(port)),), retry_backoff_ms=5, retry_backoff_max_ms=50)


def send(client: Client, topic: str, identity: ProducerIdentity, values: list[str]) -> None:
    """Write one record batch within a transaction."""
    records = [Record(None, value.encode(), 1_700_000_000_000) for value in values]
    batch = encode_batch(
        records,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        transactional=True,
    )
    request = ProduceRequest(
        identity.name, -1, 10_000, [ProduceTopic(topic, uuid.UUID(int=0), [ProducePartition(0, batch)])]
    )
    connection = client.connection(leader_of(client.topics([topic]), topic, 0).address)
    body = connection.request(ApiKey.PRODUCE, PRODUCE_VERSION, produce.encode_request(PRODUCE_VERSION, request))
    (answer,) = produce.decode_response(PRODUCE_VERSION, body).topics[0].partitions
    assert answer.error_code == 0, answer


def committed_rows(client: Client, topic: str) -> list[str]:
    """Read partition 0 of a topic with librdkafka, as far as read_committed goes; sorted."""
    return sorted(_read(client, topic, eof=True))


def wait_for_a_row(client: Client, topic: str) -> str:
    """Wait until readers of committed records see a row of partition 0."""
    return next(_read(client, topic, eof=False))


def _read(client: Client, topic: str, *, eof: bool) -> Iterator[str]:
    ((host, port), *_) = client.settings.bootstrap_servers
    consumer = Consumer(
        {
            "bootstrap.servers": f"{host}:{port}",
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": eof,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "no answer in time"
            if message.error():
                return
            yield message.value().decode()
    finally:
        consumer.close()
