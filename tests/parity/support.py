"""What the tests of this folder share: a cluster to act on, and a stream driven as Spark's micro-batch execution does.

Most of what Spark's suites ask of a source is about offsets, options and rows, and needs no JVM: `Stream` asks the
reader what Spark asks, in the same order, by way of the same JSON and the same pickles, in milliseconds for a batch.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from pyspark import cloudpickle
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from sparkonce.connectors.direct.source import DirectSource, find_source
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.source import KafkaOnceReader, KafkaOnceStreamReader
from sparkonce.exactly_once.batch import Batch as LoggedBatch
from sparkonce.exactly_once.coverage import check_coverage
from sparkonce.offset_store.offsets import HAND_OVER, SourceOffset, batch_ranges
from sparkonce.offset_store.record import BatchRecord
from sparkonce.options import SOURCE_PREFIX

DEADLINE_S = 60
QUERY_DEADLINE_S = 200
"""A query that ends by itself has as long as a busy machine takes."""
Row = dict[str, Any]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until ``condition`` holds; brokers do some things after they have answered."""
    deadline, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come true within {DEADLINE_S} s"
        pause.wait(0.01)


class Cluster:
    """The broker that `KAFKA` names, and topics of this module's own on it.

    ``hand_over`` says what streams pass to Spark: records, or with ``ranges`` what a sink reads itself.
    """

    def __init__(self, bootstrap_servers: str, hand_over: str = "rows") -> None:
        self.bootstrap_servers = bootstrap_servers
        self.hand_over = hand_over
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def name(self, prefix: str = "parity") -> str:
        """Return a name that no topic has."""
        return f"{prefix}-{uuid.uuid4().hex[:12]}"

    def create(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        topic = name or self.name()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(DEADLINE_S)
        wait_for(lambda: self.partitions(topic) == partitions, f"topic {topic}")
        return topic

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(DEADLINE_S)
        wait_for(lambda: self.partitions(topic) == 0, f"the deletion of {topic}")

    def recreate(self, topic: str, partitions: int = 1) -> None:
        self.delete(topic)
        self.create(partitions, topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, so that there are ``partitions``."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_S)
        wait_for(lambda: self.partitions(topic) == partitions, f"the new partitions of {topic}")

    def partitions(self, topic: str) -> int:
        """Return the number of partitions, 0 for a topic that is not there. Asking for all creates none."""
        found = self._admin.list_topics(timeout=DEADLINE_S).topics.get(topic)
        return len(found.partitions) if found and not found.error else 0

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.list_consumer_groups().result(DEADLINE_S).valid}

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(DEADLINE_S).topic_partitions
        return {(each.topic, each.partition): each.offset for each in found}

    def forget_records(self, topic: str, before: dict[int, int]) -> None:
        """Move the start of logs as retention does, at once: partition to its first offset."""
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for answer in self._admin.delete_records(wanted).values():
            answer.result(DEADLINE_S)

    def end(self, topic: str, partition: int = 0, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        where = TopicPartition(topic, partition)
        answer = self._admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=isolation)
        return int(answer[where].result(DEADLINE_S).offset)

    def wait_for_end(self, topic: str, offset: int, partition: int = 0) -> None:
        """Wait until readers of committed records may read up to ``offset``: markers come after their answer."""
        level = IsolationLevel.READ_COMMITTED
        wait_for(lambda: self.end(topic, partition, level) >= offset, f"offset {offset} of {topic}-{partition}")

    def send(
        self,
        topic: str,
        values: Iterable[object],
        partition: int | None = None,
        *,
        timestamp_ms: int | None = None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Write values as text, in order, to one partition, or in turns to all of them."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 2})
        count = 1 if partition is not None else self.partitions(topic)
        failures: list[object] = []
        for index, value in enumerate(values):
            producer.produce(
                topic,
                None if value is None else str(value).encode(),
                key,
                index % count if partition is None else partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                headers=list(headers) if headers else None,
                **({} if timestamp_ms is None else {"timestamp": timestamp_ms}),
            )
        assert producer.flush(DEADLINE_S) == 0
        assert failures == []

    @contextmanager
    def transactional(self) -> Iterator[Transactional]:
        """Yield a producer whose transactions the test begins and ends."""
        producer = Transactional(self)
        producer.connect()
        yield producer

    def source_options(self, **options: Any) -> dict[str, str]:
        """Return options as Spark hands them over: strings."""
        given = {"kafka.bootstrap.servers": self.bootstrap_servers, **options}
        return {name: str(value) for name, value in given.items()}

    def stream(self, **options: Any) -> Stream:
        return Stream(self.source_options(**{HAND_OVER: self.hand_over, **options}))

    def batch(self, **options: Any) -> list[Row]:
        """Run a batch query, and give its rows."""
        return Batch(self.source_options(**options)).rows()


class Transactional:
    """A transactional producer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": cluster.name("writer")}
        self._producer = Producer(settings)

    def connect(self) -> None:
        self._producer.init_transactions(DEADLINE_S)

    def begin(self, topic: str, values: Iterable[object], *, keys: Iterable[object] | None = None) -> None:
        """Begin a transaction, and write to partition 0, so that all of it has arrived."""
        self._producer.begin_transaction()
        values = list(values)
        for key, value in zip(keys or [None] * len(values), values, strict=True):
            self._producer.produce(topic, _text(value), _text(key), 0)
        assert self._producer.flush(DEADLINE_S) == 0

    def commit(self, topic: str) -> None:
        self._producer.commit_transaction(DEADLINE_S)
        self._wait(topic)

    def abort(self, topic: str) -> None:
        self._producer.abort_transaction(DEADLINE_S)
        self._wait(topic)

    def _wait(self, topic: str) -> None:
        """Wait until the marker is there: nothing of this transaction is open any more."""
        self._cluster.wait_for_end(topic, self._cluster.end(topic))

    def write(self, topic: str, values: Iterable[object]) -> None:
        self.begin(topic, values)
        self.commit(topic)


def _text(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


class Batch:
    """A batch query, as Spark runs it: planned once for each action."""

    def __init__(self, options: dict[str, str]) -> None:
        self._reader = KafkaOnceReader(SourceOptions.read(options))

    def tasks(self) -> list[list[Row]]:
        """Plan, and give the rows of each task."""
        return [_read(self._reader, each) for each in self._reader.partitions()]

    def rows(self) -> list[Row]:
        return [row for task in self.tasks() for row in task]

    def numbers(self) -> list[int]:
        return numbers(self.rows())


class Stream:
    """A streaming query over the reader alone, with the checkpoint that Spark would keep for it."""

    def __init__(self, options: dict[str, str], offset_log: Sequence[str] = (), committed: int | None = None) -> None:
        self.options = dict(options)
        self.offset_log = list(offset_log)
        """A line for each planned batch."""
        self.committed = len(self.offset_log) if committed is None else committed
        """How many of them are done."""
        self.batches: list[list[Row]] = []
        """The rows of each batch that ran here."""
        self._reader: KafkaOnceStreamReader | None = None
        self._limit: ReadLimit | None = None
        self.start()

    def start(self) -> None:
        """Start the query, or start it again: what it knows is in the checkpoint."""
        self.stop()
        options = SourceOptions.read(self.options)
        self._hand_over = HandOver.of(self.options) if options.hands_over_ranges else None
        self._reader = KafkaOnceStreamReader(options, self._hand_over)
        limit: Any = self._reader.getDefaultReadLimit()
        self._limit = ReadLimitRegistry().get({**dataclasses.asdict(limit), "_type": type(limit).__name__})

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def reader(self) -> KafkaOnceStreamReader:
        assert self._reader is not None, "the stream is stopped"
        return self._reader

    def plan(self) -> bool:
        """Ask for the end of the next batch, as one trigger does, and note it if there is anything new."""
        start = self._start_of(len(self.offset_log))
        end = _json(self.reader.latestOffset(json.loads(start), self._limit))
        if self.offset_log and end == start:
            return False
        self.offset_log.append(end)
        return True

    def tasks(self, between: Callable[[], None] = lambda: None) -> list[list[Row]]:
        """Run the first batch that is not done, and give the rows of each of its tasks.

        ``between`` is called before the first Arrow batch is read, between any two, and after the last.
        """
        number = self.committed
        start, handed_over = json.loads(self._start_of(number)), self.handed_over()
        between()
        if self._hand_over is None:
            rows = [_rows(batches, between) for batches in handed_over]
        else:
            rows = self._read_as_sink(number, self._hand_over, handed_over, between)
        self.batches.append([row for task in rows for row in task])
        self.committed = number + 1
        if number:
            self.reader.commit(start)
        return rows

    def handed_over(self) -> list[Iterable[pa.RecordBatch]]:
        """Plan the first batch that is not done, and give what Spark gets of each task."""
        number = self.committed
        start, end = json.loads(self._start_of(number)), json.loads(self.offset_log[number])
        planned = cloudpickle.loads(cloudpickle.dumps(self.reader.partitions(start, end)))
        reader = cloudpickle.loads(cloudpickle.dumps(self.reader))
        return [reader.read(each) for each in planned]

    def _read_as_sink(
        self,
        number: int,
        hand_over: HandOver,
        handed_over: Iterable[Iterable[pa.RecordBatch]],
        between: Callable[[], None],
    ) -> list[list[Row]]:
        """Read the records of each task as a sink does, except of tasks in which all is lost; check that none lacks."""
        source = source_of(hand_over, self.options)
        readings = [source.open(batches) for batches in handed_over]
        start, end = (SourceOffset.from_json(text) for text in (self._start_of(number), self.offset_log[number]))
        ranges = {(end.source, tp): extent for tp, extent in batch_ranges(start, end).items()}
        batch = LoggedBatch(BatchRecord("", "", number, "", ranges), stateful=False)
        check_coverage(batch, [part for each in readings for part in each.parts])
        rows = [_rows(each.rows(), between) for each in readings]
        kept = [not all(wanted.lost for wanted in each.wanted) for each in readings]
        assert not any(found for found, keep in zip(rows, kept, strict=True) if not keep), "a lost range has no rows"
        return [found for found, keep in zip(rows, kept, strict=True) if keep]

    def trigger(self) -> list[int]:
        """Do what one trigger does, and give the numbers read, sorted; none if nothing is new."""
        before = len(self.batches)
        if self.committed == len(self.offset_log) and not self.plan():
            return []
        self.tasks()
        return sorted(numbers(row for batch in self.batches[before:] for row in batch))

    def process_all(self) -> list[int]:
        """Trigger until nothing is new, and give the numbers read by all of it, sorted."""
        before = len(self.batches)
        while self.committed < len(self.offset_log) or self.plan():
            self.tasks()
        return sorted(numbers(row for batch in self.batches[before:] for row in batch))

    def once(self) -> list[int]:
        """Run with Trigger.Once: one batch of all there is, whatever limits the options set."""
        self._limit = ReadAllAvailable()
        return self.trigger()

    def available_now(self) -> list[list[int]]:
        """Run with Trigger.AvailableNow to its end, and give the numbers of each batch."""
        before = len(self.batches)
        if self.committed < len(self.offset_log):
            self.reader.prepareForTriggerAvailableNow()
            self.tasks()
        else:
            self.reader.prepareForTriggerAvailableNow()
        while self.plan():
            self.tasks()
        return [sorted(numbers(batch)) for batch in self.batches[before:]]

    def numbers(self) -> list[int]:
        """Return the numbers of every batch so far, sorted."""
        return sorted(numbers(row for batch in self.batches for row in batch))

    def _start_of(self, number: int) -> str:
        return self.offset_log[number - 1] if number else _json(self.reader.initialOffset())


def source_of(hand_over: HandOver, options: Mapping[str, str]) -> DirectSource:
    """Return what a sink reads with, that gets the schema of a source with these options, and the secrets."""
    secrets = {SOURCE_PREFIX + name: text for name, text in options.items() if name.lower() in hand_over.secrets}
    source = find_source("delta_once", hand_over.schema(), secrets)
    assert source is not None
    return source


def _json(offset: Any) -> str:
    """Return an offset as PySpark's runner hands it to the JVM, which compares the text."""
    return json.dumps(offset)


def _read(
    reader: KafkaOnceReader | KafkaOnceStreamReader, partition: Any, between: Callable[[], None] = lambda: None
) -> list[Row]:
    return _rows(reader.read(cloudpickle.loads(cloudpickle.dumps(partition))), between)


def _rows(batches: Iterable[pa.RecordBatch], between: Callable[[], None]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches:
        rows += batch.to_pylist()
        between()
    return rows


def numbers(rows: Iterable[Row]) -> list[int]:
    """Return the values of rows, which these tests write as decimal numbers."""
    return [int(row["value"]) for row in rows]


def offsets_json(topic: str, offsets: dict[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})
