"""A mirror's tasks between real topics: what brokers accept of batches that were moved, and what readers see then."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lab.bench.load import create_topic, read_to_end
from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason
from sparkonce import EmbeddedBroker
from sparkonce.connectors.direct.source import DirectReading
from sparkonce.connectors.kafka_sink.options import KafkaSinkOptions
from sparkonce.connectors.kafka_sink.producer import pool
from sparkonce.connectors.kafka_sink.spool import Spool
from sparkonce.connectors.kafka_sink.target import KafkaTarget
from sparkonce.connectors.kafka_sink.tasks import PlainWriter, Sending, drop_cached_producer
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.connectors.mirror import copying
from sparkonce.connectors.mirror.source import MirrorLayout, MirrorReading
from sparkonce.connectors.sinks.target import Task
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.client import READING, shared_client
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord
from tests.unit.mirror import test_copying as logs

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
PER_CODEC = 300
FIRST_MS = 1_600_000_000_000


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param(
            "apache-kafka",
            marks=[
                pytest.mark.lab,  # the same tests, on another broker
                pytest.mark.java,
                pytest.mark.skipif(missing_kafka_reason() is not None, reason=str(missing_kafka_reason())),
            ],
        ),
    ],
)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    broker: Any = EmbeddedBroker() if request.param == "embedded" else RealKafka(java_options=QUICK_JVM)
    with broker:
        create_topic(broker.bootstrap_servers, "source", PARTITIONS)
        for codec in CODECS:
            _fill(broker.bootstrap_servers, codec, abort=False)
            _fill(broker.bootstrap_servers, codec, abort=True)
        yield broker.bootstrap_servers
        pool.close()


def _fill(bootstrap_servers: str, codec: str, *, abort: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 50,
            "transactional.id": f"fill-{codec}",
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(PER_CODEC):
        key = None if number % 5 == 0 else f"key-{number % 7}".encode()
        value = None if number % 11 == 10 else (b"aborted " if abort else b"") + f"{codec}-{number} ".encode() * 20
        headers: Any = [("h", b"1"), ("n", None)] if number % 3 == 0 else None
        producer.produce(
            "source", value, key, number % PARTITIONS, headers=headers, timestamp=FIRST_MS + number % 13 * 1000
        )
    producer.flush(60)
    (producer.abort_transaction if abort else producer.commit_transaction)(60)


def _content(servers: str, topic: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {number: [] for number in range(PARTITIONS)}
    for message in read_to_end(servers, topic, PARTITIONS, "read_committed"):
        record = message.key(), message.value(), message.headers(), message.timestamp()
        found[message.partition()].append(record)
    return found


def _reading(servers: str, ranges: list[tuple[int, int, int]]) -> MirrorReading:
    given = {"kafka.bootstrap.servers": servers, "subscribe": "source", "kafka.isolation.level": "read_committed"}
    wanted = [FetchRange("source", "", partition, start, end) for partition, start, end in ranges]
    return MirrorReading(DirectReading(SourceOptions.read(given), wanted))


def _mirror(servers: str, topic: str, ranges: list[tuple[int, int, int]], *, keep: bool = True) -> int:
    """Copy ranges, each of a partition, in one task; return how many records it wrote."""
    sink = KafkaSinkOptions.read({"kafka.bootstrap.servers": servers, "appId": "a", "checkpointLocation": "/c"})
    sending = Sending(sink.client, sink.producer, (MirrorLayout(topic, keep, None),), None, "a")
    writer = PlainWriter(sending, Task(0, 0, 0, 0))
    try:
        for fetched in _reading(servers, ranges).rows():
            writer.write(fetched)
        return writer.close() or 0
    finally:
        drop_cached_producer(sink.client, sink.producer)


def _ends(servers: str) -> list[int]:
    """Return the end offsets of the source, whose transactions end with a marker in each partition."""
    with_marker = PER_CODEC // PARTITIONS + 1
    return [2 * len(CODECS) * with_marker] * PARTITIONS


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["moved", "packed"])
@pytest.mark.parametrize("config", [{}, {"max.message.bytes": "3000"}], ids=["", "small messages"])
def test_the_copy_is_the_same(
    servers: str, monkeypatch: pytest.MonkeyPatch, least: int, config: dict[str, str]
) -> None:
    monkeypatch.setattr(copying, "LEAST_PLAIN_BYTES", least)
    monkeypatch.setattr(copying, "LEAST_COMPRESSED_BYTES", least)
    topic = f"copy-{least}-{len(config)}"
    create_topic(servers, topic, PARTITIONS, settings=config)
    cuts = [0, 7, 444, _ends(servers)[0]]
    ranges = [(partition, *cut) for partition in range(PARTITIONS) for cut in pairwise(cuts)]
    written = _mirror(servers, topic, ranges)
    expected = _content(servers, "source")
    assert sum(map(len, expected.values())) == written == PER_CODEC * len(CODECS)
    assert _content(servers, topic) == expected


def test_partitions_are_chosen_by_keys_as_java_does(servers: str) -> None:
    create_topic(servers, "by-key", PARTITIONS)
    _mirror(servers, "by-key", [(partition, 0, end) for partition, end in enumerate(_ends(servers))], keep=False)
    partition_of: dict[bytes, set[int]] = {}
    copied = _content(servers, "by-key")
    for partition, records in copied.items():
        for key, *_ in records:
            if key is not None:
                partition_of.setdefault(key, set()).add(partition)
    assert all(len(found) == 1 for found in partition_of.values())
    everything = [record for records in copied.values() for record in records]
    expected = [record for records in _content(servers, "source").values() for record in records]
    assert sorted(everything, key=repr) == sorted(expected, key=repr)


def _target(servers: str, topic: str, tmp_path: Path, *, at_once: bool) -> KafkaTarget:
    given = {"kafka.bootstrap.servers": servers, "appId": topic, "checkpointLocation": str(tmp_path)}
    sink = KafkaSinkOptions.read(given)
    return KafkaTarget(
        client=sink.client,
        producer=sink.producer,
        layouts=(MirrorLayout(topic, True, None),),
        guarantee=Guarantee.EXACTLY_ONCE,
        app_id=topic,
        offset_store=f"group:{topic}",
        decision_topic=f"decisions-{topic}",
        spool=Spool(str(tmp_path)) if at_once else None,
    )


@pytest.mark.parametrize("at_once", [False, True], ids=["task by task", "at once"])
@pytest.mark.parametrize("least", [0, 1 << 30], ids=["moved", "packed"])
def test_a_batch_is_copied_exactly_once_though_tasks_fail(
    servers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at_once: bool, least: int
) -> None:
    monkeypatch.setattr(copying, "LEAST_PLAIN_BYTES", least)
    monkeypatch.setattr(copying, "LEAST_COMPRESSED_BYTES", least)
    topic, end = f"once-{at_once}-{least}", _ends(servers)[0]
    create_topic(servers, topic, PARTITIONS)
    target = _target(servers, topic, tmp_path, at_once=at_once)
    for number, (start, to) in enumerate([(0, 700), (700, end)]):
        moved = {("kafka", TopicPartition("source", "", each)): OffsetRange(start, to) for each in range(PARTITIONS)}
        record = BatchRecord(topic, "query", number, f"attempt-{number}", moved, Fingerprint.of([number], []))
        batch = Batch(record, False)
        plan = target.begin(batch)
        parts = []
        for partition in range(PARTITIONS):
            for attempt in range(2):  # the first one fails, when all of its records are sent
                writer = target.open(plan, Task(number, partition, attempt, attempt))
                assert writer is not None
                for fetched in _reading(servers, [(partition, start, to)]).rows():
                    writer.write(fetched)
                part = writer.close()
                if attempt == 0:
                    writer.discard()
                else:
                    parts.append(part)
        target.finish(batch, plan, parts)
    assert _content(servers, topic) == _content(servers, "source")


@pytest.mark.parametrize("at_once", [False, True], ids=["task by task", "at once"])
def test_a_task_whose_batches_compaction_has_emptied_writes_nothing(
    servers: str, tmp_path: Path, at_once: bool
) -> None:
    topic = f"emptied-{at_once}"
    create_topic(servers, topic, 3)
    target = _target(servers, topic, tmp_path, at_once=at_once)
    moved = {("kafka", TopicPartition("orders", "", 2)): OffsetRange(0, 5)}
    batch = Batch(BatchRecord(topic, "query", 0, "attempt", moved, Fingerprint.of([0], [])), False)
    plan = target.begin(batch)
    writer = target.open(plan, Task(0, 0, 0, 0))
    assert writer is not None
    writer.write(logs.fetched(logs.Stored(logs.plain(5), frozenset(range(5))).encoded(0), 0, 5))
    part = writer.close()
    target.finish(batch, plan, [] if part is None else [part])
    assert writer.written.rows == 0
    assert list(read_to_end(servers, topic, 3, "read_committed")) == []


def test_what_reads_ahead_and_what_writes_share_no_connection(servers: str) -> None:
    given = {"kafka.bootstrap.servers": servers, "kafka.client.id": "both"}
    options = SourceOptions.read({**given, "subscribe": "source"})
    sink = KafkaSinkOptions.read({**given, "appId": "a", "checkpointLocation": "/c"})
    assert options.settings == sink.client
    reading = MirrorReading(DirectReading(options, [FetchRange("source", "", 0, 0, _ends(servers)[0])])).rows()
    next(reading)
    assert not shared_client(sink.client)._connections
    assert shared_client(options.settings, READING)._connections
