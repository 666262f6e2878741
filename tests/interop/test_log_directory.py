"""What clients see of retention, compaction, other compressions and messages from an old broker's log directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from sparkonce import EmbeddedBroker
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.legacy_records import encode_message_set
from sparkonce.kafka.protocol.records import Record
from tests.reading import AT_ONCE, assign

NOW = 1_700_000_000_000
DEADLINE_S = 30.0


def make(broker: EmbeddedBroker, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result(DEADLINE_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    settings = {"log.retention.check.interval.ms": 50, "log.cleaner.backoff.ms": 50}
    with EmbeddedBroker(tmp_path / "data", config=settings) as embedded:
        yield embedded


class Reader:
    """Reads one partition from its beginning on, and tells where it begins."""

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.partition.eof": True}
        self._consumer = Consumer({**settings, **AT_ONCE})
        self._topic = topic

    def start_offset(self) -> int:
        offset, _ = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=DEADLINE_S)
        return int(offset)

    def records(self) -> list[tuple[int, bytes, bytes]]:
        assign(self._consumer, [TopicPartition(self._topic, 0, self.start_offset())])
        found: list[tuple[int, bytes, bytes]] = []
        while True:
            message = self._consumer.poll(DEADLINE_S)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found
            found.append((message.offset(), message.key(), message.value()))

    def close(self) -> None:
        self._consumer.close()


def produce(broker: EmbeddedBroker, topic: str, count: int, **settings: Any) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1, **config})
    for index in range(count):
        producer.produce(topic, b"%d" % index, b"%d" % (index % 4))
    assert producer.flush(DEADLINE_S) == 0


def test_a_topic_is_compacted_while_clients_use_it(broker: EmbeddedBroker) -> None:
    make(broker, "t", cleanup_policy="compact", segment_bytes="1000", min_cleanable_dirty_ratio="0.01")
    produce(broker, "t", 100)
    reader = Reader(broker, "t")
    for _ in range(1000):  # each round asks the broker, which has a slice of compaction in between
        found = reader.records()
        if len(found) < 30:
            break
    reader.close()
    assert len(found) < 30
    assert {key: value for _, key, value in found} == {b"%d" % key: b"%d" % (96 + key) for key in range(4)}
    assert all(int(value) == offset for offset, _, value in found)
    with pytest.raises(KafkaException) as caught:
        _produce_without_key(broker, "t")
    assert caught.value.args[0].code() == KafkaError.INVALID_RECORD


def _produce_without_key(broker: EmbeddedBroker, topic: str) -> None:
    failures = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"v", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    if failures[0] is not None:
        raise KafkaException(failures[0])


def test_old_segments_go_and_the_log_starts_later(broker: EmbeddedBroker) -> None:
    make(broker, "t", retention_bytes="2000", segment_bytes="1000")
    produce(broker, "t", 100)
    reader = Reader(broker, "t")
    starts = [0]
    for _ in range(100_000):
        starts.append(reader.start_offset())
        if starts[-1] > 60:
            break
    assert starts[-1] > 60
    assert starts == sorted(starts)
    found = reader.records()
    reader.close()
    assert [offset for offset, _, _ in found] == list(range(found[0][0], 100))


@pytest.mark.parametrize("kept", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_clients_read_what_the_broker_has_compressed(broker: EmbeddedBroker, kept: str) -> None:
    make(broker, "t", compression_type=kept)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(broker, "t", 5, compression_type=codec)
    reader = Reader(broker, "t")
    assert [value for _, _, value in reader.records()] == [b"%d" % index for index in range(5)] * 5
    reader.close()


def test_messages_of_an_old_brokers_directory_are_read(tmp_path: Path) -> None:
    old = [Record(b"k%d" % index, b"%d" % index, NOW + index, (), index) for index in range(40)]
    # These clients read the formats, but not every old codec without more packages.
    codecs = [Compression.NONE, Compression.GZIP]
    data = b"".join(
        bytes(encode_message_set(old[start : start + 5], magic=start // 20, compression=codecs[start // 5 % 2]))
        for start in range(0, 40, 5)
    )
    directory = tmp_path / "old-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(data)
    with EmbeddedBroker(tmp_path) as broker:
        produce(broker, "old", 3)
        expected = [*(each.value for each in old), b"0", b"1", b"2"]
        reader = Reader(broker, "old")
        assert [value for _, _, value in reader.records()] == expected
        reader.close()
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        place = PythonTopicPartition("old", 0)
        consumer.assign([place])
        assert consumer.offsets_for_times({place: NOW + 31})[place][:2] == (31, NOW + 31)
        consumer.seek(place, 27)
        values = []
        while len(values) < 16:
            for batch in consumer.poll(timeout_ms=1000).values():
                values += [each.value for each in batch]
        consumer.close()
        assert values == expected[27:]
