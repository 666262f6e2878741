"""An application that writes batches into an embedded broker, without Spark: its processes, and what befalls them.

Theory of operation. `Machine` plays the computer: it gives every simulated process a pid, under which our code keeps
its connections and ids, and it counts their requests. A process may die before or after any request, lose a request or
an answer, or be held while others run: whoever holds it is a function that is called at that request, so everything
happens in one thread, in a known order. `Application` plays Spark's driver: begin, tasks, finish, and abort.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event as Signal
from typing import Any

import pyarrow as pa
import pytest

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink import driver as driver_module
from sparkonce.connectors.kafka_sink import tasks as tasks_module
from sparkonce.connectors.kafka_sink.decisions import DecisionLog
from sparkonce.connectors.kafka_sink.driver import Driver, Scope
from sparkonce.connectors.kafka_sink.producer import pool
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.connectors.kafka_sink.target import KafkaPlan, KafkaTarget
from sparkonce.connectors.kafka_sink.transactions import State, TransactionClient
from sparkonce.connectors.kafka_source.decode import RecordDecoder
from sparkonce.connectors.kafka_source.fetch import RangeFetcher
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.connectors.sinks.target import Task
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client import client as client_module
from sparkonce.kafka.client.client import LATEST, Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey

SOURCE = "kafka"
INPUT = "input"
"""The topic that batches are said to be read from; it holds nothing, but groups keep offsets of topics that exist."""
INPUT_PARTITIONS = 2
OUTPUT_PARTITIONS = 2
TASK_ATTEMPTS = 2
"""Spark's own default is 4."""
FIRST_PID = 10_000_000
"""Above any real pid."""


class Death(BaseException):
    """The process is dead: nothing of it runs any more, handlers of errors neither."""


class WorkerDeath(Death):
    """A death that Spark gets over if it is a task's: the task runs again elsewhere."""


Event = Callable[[], None]
"""What happens right before a request is sent, or right after it was answered."""


@dataclass(slots=True)
class Happening:
    """What befalls the process that makes the request of this number."""

    at: int
    after_effect: bool
    event: Event
    happened: str = ""
    """The request, once it has come to it."""


def die() -> None:
    raise Death


def die_as_worker() -> None:
    raise WorkerDeath


def lose() -> None:
    raise ConnectionResetError("lost, by the test")


class Machine:
    """Runs simulated processes; counts their requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pids = itertools.count(FIRST_PID)
        self._pid = os.getpid()
        self.requests = 0
        self.happenings: list[Happening] = []
        self._send, self._receive = BrokerConnection.send, BrokerConnection.receive
        self._ahead: dict[int, list[memoryview]] = {}
        self._connections: list[BrokerConnection] = []
        monkeypatch.setattr(os, "getpid", lambda: self._pid)
        machine = self

        def send(connection: BrokerConnection, api_key: int, version: int, body: Any, *, answered: bool = True) -> None:
            machine._request(connection, api_key, version, body, answered)

        def receive(connection: BrokerConnection, buffer: bytearray) -> memoryview:
            ahead = machine._ahead.get(id(connection))
            return ahead.pop(0) if ahead else machine._receive(connection, buffer)

        monkeypatch.setattr(BrokerConnection, "send", send)
        monkeypatch.setattr(BrokerConnection, "receive", receive)

    def new_pid(self) -> int:
        return next(self._pids)

    @contextmanager
    def process(self, pid: int) -> Iterator[None]:
        """Run what follows as the process ``pid``."""
        before, self._pid = self._pid, pid
        try:
            yield
        finally:
            self._pid = before

    def plan(self, at: int, event: Event, *, after_effect: bool = False) -> Happening:
        """Let something happen at the request that is ``at`` requests from now; 0 is the next one."""
        happening = Happening(self.requests + at, after_effect, event)
        self.happenings.append(happening)
        return happening

    def forget(self) -> None:
        """Close what processes have left behind, and forget them and what was to happen."""
        self.happenings.clear()
        self._ahead.clear()
        for kept in (driver_module._drivers, tasks_module._ids, tasks_module._transactions):
            kept.clear()
        for kept in (tasks_module._producers, tasks_module._topics):
            kept.clear()
        tasks_module._name_of.cache_clear()
        for key in [key for key in client_module._shared if key[0] >= FIRST_PID]:
            client_module._shared.pop(key).close()
        pool.close()
        for connection in self._connections:  # those of producers that died
            connection.close()
        self._connections.clear()

    def _request(self, connection: BrokerConnection, api_key: int, version: int, body: Any, answered: bool) -> None:
        if api_key == ApiKey.API_VERSIONS:  # of a new connection
            if self._pid >= FIRST_PID:
                self._connections.append(connection)
            return self._send(connection, api_key, version, body, answered=answered)
        number, self.requests = self.requests, self.requests + 1
        due = [each for each in self.happenings if each.at == number]
        for each in due:
            self.happenings.remove(each)
            each.happened = ApiKey(api_key).name
            if not each.after_effect:
                each.event()
        self._send(connection, api_key, version, body, answered=answered)
        for each in due:
            if each.after_effect:
                ahead = self._ahead.setdefault(id(connection), [])
                ahead += [self._receive(connection, bytearray()) for _ in range(len(connection._pending))]
                try:
                    each.event()
                except BaseException:
                    del self._ahead[id(connection)]
                    raise
        return None


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One run of an application: the two processes that its driver keeps, under one checkpoint."""

    begins: int
    commits: int
    query_id: str


@dataclass(frozen=True, slots=True)
class Written:
    """A batch between its tasks and its end."""

    batch: Batch
    plan: KafkaPlan
    parts: list[object]


@dataclass(slots=True)
class Application:
    """One application with output of its own on a shared broker."""

    machine: Machine
    broker: EmbeddedBroker
    name: str
    transaction_timeout_ms: int = 60_000
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    tasks: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    """Further fields of `KafkaTarget`."""
    twice: bool = False
    """Whether every task is run twice, as speculation does; the second attempt's answer counts."""
    reuses_workers: bool = False
    _workers: dict[int, int] = field(default_factory=dict)
    _busy: set[int] = field(default_factory=set)
    """Workers that run a task, perhaps held up in the middle of a request: they run no other."""
    _attempts: Iterator[int] = field(default_factory=itertools.count)

    @property
    def topic(self) -> str:
        return f"out-{self.name}"

    @property
    def decision_topic(self) -> str:
        return f"decisions-{self.name}"

    @property
    def target(self) -> KafkaTarget:
        producer = ProducerSettings(batch_bytes=200, transaction_timeout_ms=self.transaction_timeout_ms)
        made = KafkaTarget(
            client=settings_of(self.broker),
            producer=producer,
            layouts=(RowLayout(self.topic, value=0),),
            guarantee=self.guarantee,
            app_id=self.name,
            offset_store=f"group:{self.name}",
            decision_topic=self.decision_topic,
        )
        return replace(made, **self.options)

    @property
    def scope(self) -> Scope:
        return Scope(settings_of(self.broker), self.name, self.decision_topic, self.name)

    def start(self, query_id: str = "query") -> Incarnation:
        """Start the two processes of a driver."""
        return Incarnation(self.machine.new_pid(), self.machine.new_pid(), query_id)

    def batch(self, incarnation: Incarnation, batch_id: int, start: int, end: int, **more: Any) -> Batch:
        """Return the batch that covers ``[start, end)`` of each partition of the input."""
        ranges = {key: OffsetRange(start, end) for key in input_keys()}
        attempt = f"{incarnation.query_id}-{batch_id}-{next(self._attempts)}"
        fingerprint = Fingerprint.of([batch_id, start, end], [])
        record = BatchRecord(self.name, incarnation.query_id, batch_id, attempt, ranges, fingerprint)
        return Batch(record, False, **more)

    def write(self, incarnation: Incarnation, batch: Batch, rows: Sequence[str] | None = None) -> Written:
        """Begin a batch, and run its tasks, each in a worker of its own."""
        with self.machine.process(incarnation.begins):
            plan = self.target.begin(batch)
        values = rows_of(batch) if rows is None else rows
        parts = [self._run_until_done(plan, number, values[number :: self.tasks]) for number in range(self.tasks)]
        return self.written(batch, plan, parts)

    @staticmethod
    def written(batch: Batch, plan: KafkaPlan, parts: Sequence[object | None]) -> Written:
        return Written(batch, plan, [part for part in parts if part is not None])

    def _run_until_done(self, plan: KafkaPlan, number: int, values: Sequence[str]) -> object | None:
        for attempt in range(TASK_ATTEMPTS - 1):
            try:
                part = self._run_on_worker(plan, number, attempt, values)
            except WorkerDeath:
                self._workers.pop(number, None)
            except Exception as error:
                if isinstance(error, AssertionError | LookupError | TypeError | AttributeError):
                    raise
            else:
                if not self.twice:
                    return part
        return self._run_on_worker(plan, number, TASK_ATTEMPTS - 1, values)

    def _run_on_worker(self, plan: KafkaPlan, number: int, attempt: int, values: Sequence[str]) -> object | None:
        worker = self.machine.new_pid()
        if self.reuses_workers and self._workers.get(number) not in self._busy:
            worker = self._workers.setdefault(number, worker)
        self._busy.add(worker)
        try:
            return self.run_task(plan, Task(plan.batch_id, number, attempt, attempt), values, worker)
        finally:
            self._busy.discard(worker)

    def run_task(self, plan: KafkaPlan, task: Task, values: Sequence[str], worker: int | None = None) -> object | None:
        """Run one attempt of a task, in ``worker`` or in a new process; a failed one discards what it has written."""
        with self.machine.process(self.machine.new_pid() if worker is None else worker):
            writer = self.target.open(plan, task)
            if writer is None:
                return None
            try:
                if values:
                    writer.write(record_batch(values))
                return writer.close()
            except Exception:
                writer.discard()
                raise

    def finish(self, incarnation: Incarnation, written: Written) -> None:
        """Finish a batch; abort it if that fails, as Spark does."""
        with self.machine.process(incarnation.commits):
            try:
                self.target.finish(written.batch, written.plan, written.parts)
            except Exception:
                self.abort(incarnation, written)
                raise

    def abort(self, incarnation: Incarnation, written: Written) -> None:
        with self.machine.process(incarnation.commits):
            self.target.abort(written.batch, written.plan, written.parts, every_task_answered=True)

    def run(self, incarnation: Incarnation, batch: Batch, rows: Sequence[str] | None = None) -> Written:
        """Run a whole batch."""
        written = self.write(incarnation, batch, rows)
        self.finish(incarnation, written)
        return written

    def driver(self, client: Client) -> Driver:
        """Return a driver of the application that is in no process of its."""
        return Driver(self.scope, client)


def settings_of(broker: EmbeddedBroker, **more: Any) -> ClientSettings:
    """Short pauses, and a deadline that is for what never comes."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return ClientSettings(((host, int(port)),), retry_backoff_ms=2, retry_backoff_max_ms=20, **more)


def impatient_client(broker: EmbeddedBroker) -> Client:
    """Return a client that has connected, and from now on tries again for a moment only."""
    client = Client(settings_of(broker))
    client.topics([])
    client.settings = replace(client.settings, api_timeout_ms=50)
    return client


def input_keys() -> list[PartitionKey]:
    return [(SOURCE, TopicPartition(INPUT, "", partition)) for partition in range(INPUT_PARTITIONS)]


def rows_of(batch: Batch) -> list[str]:
    """One row for each record of the input."""
    moved = sorted(batch.record.moved.items())
    return [f"{tp.partition}:{offset}" for (_, tp), extent in moved for offset in range(extent.start, extent.end)]


def rows_of_range(start: int, end: int) -> list[str]:
    return [f"{tp.partition}:{offset}" for _, tp in input_keys() for offset in range(start, end)]


def all_rows(end: int) -> list[str]:
    return sorted(rows_of_range(0, end))


def record_batch(values: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [value.encode() for value in values]})


def create_topics(client: Client, *names: str, partitions: int = OUTPUT_PARTITIONS, **config: str) -> None:
    connection = client.any_connection()
    version = connection.version(ApiKey.CREATE_TOPICS)
    codec = apis.request_class(ApiKey.CREATE_TOPICS).CreatableTopic
    configs = [
        codec.CreatableTopicConfig(version=version, name=name.replace("_", "."), value=value)
        for name, value in config.items()
    ]
    topics = [
        codec(
            version=version,
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=configs,
        )
        for name in names
    ]
    answer = client.ask(
        connection, ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=30_000, validate_only=False
    )
    assert {topic.error_code for topic in answer.topics} == {0}


def committed_rows(client: Client, topic: str) -> list[str]:
    """What readers of committed records see, sorted."""
    reader = Client(replace(client.settings, read_committed=True))
    try:
        known = reader.topics([topic])
        ends = reader.offsets({(topic, partition): LATEST for partition in known[topic].partitions}, known)
        found: list[str] = []
        for (_, partition), end in ends.items():
            decoder = RecordDecoder(topic, partition)
            wanted = FetchRange(topic, known[topic].topic_id, partition, 0, end)
            for fetched in RangeFetcher(reader, decoder, wanted, 10_000).ahead() if end else ():
                for batch in decoder.rows(fetched.data, fetched.scanned, 0, end, fetched.aborted):
                    found += [value.decode() for value in batch.column("value").to_pylist()]
        return sorted(found)
    finally:
        reader.close()


def held_back(client: Client, topic: str) -> dict[int, tuple[int, int]]:
    """Partitions whose last stable offset is not the end of the log, with both."""
    reader = Client(replace(client.settings, read_committed=True))
    try:
        known = client.topics([topic])
        wanted = {(topic, partition): LATEST for partition in known[topic].partitions}
        stable, ends = reader.offsets(wanted, known), client.offsets(wanted, known)
        return {key[1]: (stable[key], ends[key]) for key in wanted if stable[key] != ends[key]}
    finally:
        reader.close()


def group_offsets(client: Client, group_id: str) -> dict[int, int]:
    committed = KafkaGroupOffsets(client, group_id).fetch()
    return {partition: entry.offset for (topic, partition), entry in committed.items() if topic == INPUT}


def check_whole(client: Client, application: Application, end: int) -> None:
    """See that each record below ``end`` is there once, that the group says so, and that nothing is left open."""
    check_nothing_open(client, application)
    assert committed_rows(client, application.topic) == all_rows(end)
    assert group_offsets(client, application.name) == dict.fromkeys(range(INPUT_PARTITIONS), end)


def check_nothing_open(client: Client, application: Application) -> None:
    """See that nothing is left open: nothing is ongoing, and what has ended gets its markers."""
    transactions, prefix = TransactionClient(client), application.scope.prefix
    assert transactions.open_transactions(prefix, (State.ONGOING,)) == []
    for _ in range(3000):  # Apache Kafka answers EndTxn before it has written the markers
        if not (transactions.open_transactions(prefix) or held_back(client, application.topic)):
            break
        Signal().wait(0.01)
    assert held_back(client, application.topic) == {}
    assert held_back(client, application.decision_topic) == {}
    assert DecisionLog(client, application.decision_topic, application.name).read().unfinished is None
