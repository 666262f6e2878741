"""What tasks do: turn rows into record batches and send them, in a transaction that stays open or without one.

Every transaction gets a transactional id that is not used otherwise, and an epoch of its own. New ids for every batch
would stay in the brokers' memory for a week each (``transactional.id.expiration.ms``), so a worker process keeps the
ids it has created, and reuses one when that is safe: its earlier transaction must no longer be in the last decision, or
a recovery could not determine its outcome. A transaction that is begun after decision n is listed in n + 1 at most; so
its id is free from decision n + 2 on. A worker runs one task at a time, so no two tasks share an id, and the ids of a
worker that Spark abandoned are never reused by another.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, Protocol

import pyarrow as pa

from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.connectors.kafka_sink.producer import Producer
from sparkonce.connectors.kafka_sink.topics import Topics
from sparkonce.connectors.kafka_sink.transactions import (
    FencedProducerError,
    ProducerIdentity,
    State,
    TransactionClient,
)
from sparkonce.connectors.runtime.cache import LruCache
from sparkonce.connectors.sinks.target import Routing, Task
from sparkonce.crash_points import reach
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.errors import FencedError
from sparkonce.exactly_once.transactions import PreparedTransaction
from sparkonce.kafka.client.client import shared_client
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.offset_store.record import BatchCounts

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TransactionalIds:
    """The transactional ids that one process has created under one prefix."""

    prefix: str
    _used_at: dict[str, int] = field(default_factory=dict)
    """By id, the number of the last decision when it was used last."""

    def take(self, decided: int) -> str:
        """Return an id for a transaction that begins when ``decided`` is the number of the last decision."""
        free = (name for name, used_at in self._used_at.items() if used_at + 2 <= decided)
        name = next(free, None) or f"{self.prefix}{next(_numbers)}"
        self._used_at[name] = decided
        return name


_numbers = count()
"""Counts ids of the whole process: an id that `LruCache` has evicted must not be created again."""
_ids: LruCache[tuple[str, str], TransactionalIds] = LruCache()


def take_id(prefix: str, decided: int) -> str:
    """Return a transactional id of this process below ``prefix``."""
    worker = process_name()
    return _ids.get((worker, prefix), lambda: TransactionalIds(f"{prefix}{worker}-")).take(decided)


class Encoder(Protocol):
    """Turns the rows of one task into record batches: a `RowEncoder`, or another for what is not rows of Arrow."""

    def encode(self, batch: Any) -> Iterator[EncodedBatch]:
        """Encode rows, and yield the record batches that they fill; the iterator must be consumed to its end."""

    def finish(self) -> Iterator[EncodedBatch]:
        """Yield the open record batches."""

    def limit(self, topic: str, batch_bytes: int) -> None:
        """Make later batches for a topic no larger than so many bytes before compression."""


class Layout(Protocol):
    """How rows become records. Sent to the tasks."""

    @property
    def topic(self) -> str | None:
        """The topic of all records; None if each row names its own."""

    def encoder(
        self, partition_count: Callable[[str, int | None], int], settings: ProducerSettings, start: int
    ) -> Encoder:
        """Return an encoder; the arguments are those of `RowEncoder`."""


@dataclass(frozen=True, slots=True)
class Sending:
    """The settings with which a task sends rows."""

    client: ClientSettings
    producer: ProducerSettings
    layouts: tuple[Layout, ...]
    """How rows become records, one for each route."""
    routing: Routing | None
    """Distributes rows to the routes, if there are several."""
    app_id: str


class Outlet(Protocol):
    """Where record batches go: a `Producer`, or a file."""

    topics: Topics
    on_too_large: Callable[[str, int], None] | None
    """Called with a topic and its largest batch size, if that is less than expected."""

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Send record batches."""

    def flush(self) -> None:
        """Wait until all of them are delivered."""


class RowSender:
    """Sends the rows of one task through one outlet, which is opened with the first row."""

    def __init__(self, sending: Sending, task: Task, open_outlet: Callable[[], Outlet]) -> None:
        self._sending = sending
        self._task = task
        self._open_outlet = open_outlet
        self._outlet: Outlet | None = None
        self._encoders: list[Encoder] = []
        self._rows = [0] * len(sending.layouts)
        """By route."""
        self._bytes = 0

    @property
    def rows(self) -> int:
        """How many rows were written, dead letters included."""
        return sum(self._rows)

    @property
    def written(self) -> BatchCounts:
        """See `TaskWriter.written`: if there are two routes, the first one is that of dead letters."""
        *letters, rows = self._rows
        return BatchCounts(rows=rows, dead_letters=sum(letters), written_bytes=self._bytes)

    def write(self, rows: pa.RecordBatch) -> None:
        """Encode rows, and send the record batches that they fill."""
        for route, own in enumerate([rows] if self._sending.routing is None else self._sending.routing(rows)):
            if own.num_rows:
                outlet, encoders = self._started()
                outlet.send(self._counted(route, encoders[route].encode(own)))

    def finish(self) -> None:
        """Send what is left, and wait until everything has arrived."""
        if self._outlet is None:
            return
        reach(SinkPoint.WRITING, self._task.batch_id, self._sending.app_id)
        for route, encoder in enumerate(self._encoders):
            self._outlet.send(self._counted(route, encoder.finish()))
        self._outlet.flush()

    def _counted(self, route: int, batches: Iterable[EncodedBatch]) -> Iterator[EncodedBatch]:
        for batch in batches:
            self._rows[route] += batch.record_count
            self._bytes += len(batch.data)
            yield batch

    def _started(self) -> tuple[Outlet, list[Encoder]]:
        if self._outlet is None:
            self._outlet = outlet = self._open_outlet()
            start = self._task.partition_id + self._task.batch_id  # keyless rows of tasks and batches spread
            self._encoders = [
                layout.encoder(outlet.topics.partition_count, self._sending.producer, start)
                for layout in self._sending.layouts
            ]
            outlet.on_too_large = self._limit
        return self._outlet, self._encoders

    def _limit(self, topic: str, batch_bytes: int) -> None:
        for encoder in self._encoders:
            encoder.limit(topic, batch_bytes)


class TransactionWriter:
    """Writes the rows of one task under a transaction, and leaves it open: its part is a `PreparedTransaction`."""

    def __init__(self, sending: Sending, task: Task, driver: ProducerIdentity, prefix: str, decided: int) -> None:
        """``driver`` is the identity that the driver claimed for the batch."""
        self._sending = sending
        self._task = task
        self._driver = driver
        self._prefix = prefix
        self._decided = decided
        self._identity: ProducerIdentity | None = None
        self._producer: Producer | None = None
        self._sender = RowSender(sending, task, self._open_producer)

    def write(self, rows: pa.RecordBatch) -> None:
        """See `TaskWriter.write`."""
        self._sender.write(rows)

    def close(self) -> PreparedTransaction | None:
        """See `TaskWriter.close`."""
        self._sender.finish()
        identity, producer = self._identity, self._producer
        if identity is None or producer is None:
            return None
        producer.close()
        if not self._sender.rows:  # of batches that compaction has emptied: the transaction has not begun
            return None
        reach(SinkPoint.FILE_WRITTEN, self._task.batch_id, self._sending.app_id)
        return PreparedTransaction(identity.name, identity.producer_id, identity.epoch, self._sender.rows)

    def discard(self) -> None:
        """See `TaskWriter.discard`: the transaction is aborted, so that readers need not wait until it times out."""
        if self._identity is None:
            return
        _topics.pop(_topics_key(self._sending.client, self._sending.producer))  # the connections may be why it failed
        try:
            if self._producer is not None:
                self._producer.close()
            # A new epoch, and not EndTxn: requests still in flight must not begin another transaction.
            self._transactions().fence([self._identity.name])
        except Exception as error:
            _log.warning("kafka_once: could not abort the transaction of %s: %s", self._identity.name, error)

    @property
    def written(self) -> BatchCounts:
        """See `TaskWriter.written`."""
        return self._sender.written

    def _transactions(self) -> TransactionClient:
        return shared_transactions(self._sending.client)

    def _open_producer(self) -> Producer:
        client, settings = self._sending.client, self._sending.producer
        shared = shared_client(client, reached=True)  # by the driver, which has begun the batch
        transactions = self._transactions()
        name = take_id(self._prefix, self._decided)
        self._identity = transactions.init_producer_id(name, self._sending.producer.transaction_timeout_ms)
        self._check_in_time(transactions)
        reach(TransactionPoint.BEGUN, self._task.batch_id, self._sending.app_id)
        topics = shared_topics(client, settings)
        self._producer = Producer(shared, settings, self._identity, transactions, topics=topics)
        return self._producer

    def _check_in_time(self, transactions: TransactionClient) -> None:
        """Check that the batch still runs and is not decided.

        A driver that claims the application, or ends the batch, first changes the state of the driver's
        transactional id, and then lists ids that tasks have claimed. So either it finds ours, which was claimed before
        this check, and fences it; or it is detected here, before anything is sent.

        Raises:
            FencedError: if another driver has begun since.
            FencedProducerError: if the batch was decided without this task.
        """
        found = transactions.describe([self._driver.name]).get(self._driver.name)
        where = f"task {self._task.partition_id} of batch {self._task.batch_id} (appId {self._sending.app_id})"
        if found is None or not found.is_of(self._driver):
            raise FencedError(
                f"{where} has written nothing: the batch was aborted, or another driver has begun with the same appId "
                "since, and has fenced this one. Stop one of the two, or give each its own appId"
            )
        if found.state is not State.EMPTY:
            raise FencedProducerError(
                f"{where} comes too late, and has written nothing: the batch is decided without it"
            )


class PlainWriter:
    """Sends the rows of one task immediately; its part is the number of rows. Producers are kept from task to task."""

    def __init__(self, sending: Sending, task: Task) -> None:
        self._sending = sending
        self._task = task
        self._producer: Producer | None = None
        self._sender = RowSender(sending, task, self._open_producer)

    def write(self, rows: pa.RecordBatch) -> None:
        """See `TaskWriter.write`."""
        self._sender.write(rows)

    def close(self) -> int | None:
        """See `TaskWriter.close`."""
        self._sender.finish()
        if self._producer is None:
            return None
        reach(SinkPoint.FILE_WRITTEN, self._task.batch_id, self._sending.app_id)
        return self._sender.rows

    def discard(self) -> None:
        """See `TaskWriter.discard`: what was sent is visible, and stays."""
        if self._producer is not None:
            drop_cached_producer(self._sending.client, self._sending.producer)

    @property
    def written(self) -> BatchCounts:
        """See `TaskWriter.written`."""
        return self._sender.written

    def _open_producer(self) -> Producer:
        shared_client(self._sending.client, reached=self._task.batch_id > 0)  # by a batch before
        self._producer = cached_producer(self._sending.client, self._sending.producer)
        return self._producer


_transactions: LruCache[tuple[int, ClientSettings], TransactionClient] = LruCache()
_topics: LruCache[tuple[int, ClientSettings, int], Topics] = LruCache()
_producers: LruCache[tuple[int, ClientSettings, ProducerSettings], Producer] = LruCache()


def shared_transactions(settings: ClientSettings) -> TransactionClient:
    """Return this process's client of transaction coordinators, which remembers where they are."""
    return _transactions.get((os.getpid(), settings), lambda: TransactionClient(shared_client(settings)))


def shared_topics(client: ClientSettings, settings: ProducerSettings) -> Topics:
    """Return what this process knows of topics, from task to task, as a long-lived producer would."""
    age_ms = settings.metadata_max_age_ms
    return _topics.get(_topics_key(client, settings), lambda: Topics(shared_client(client), age_ms))


def _topics_key(client: ClientSettings, settings: ProducerSettings) -> tuple[int, ClientSettings, int]:
    return os.getpid(), client, settings.metadata_max_age_ms


def cached_producer(client: ClientSettings, settings: ProducerSettings) -> Producer:
    """Return this process's producer without transactions; call `drop_cached_producer` after a failure."""

    def make() -> Producer:
        identity = shared_transactions(client).init_producer_id(None, 0) if settings.idempotent else None
        return Producer(shared_client(client), settings, identity)

    return _producers.get((os.getpid(), client, settings), make)


def drop_cached_producer(client: ClientSettings, settings: ProducerSettings) -> None:
    """Drop a producer that has failed: which of its batches have arrived is unknown."""
    producer = _producers.pop((os.getpid(), client, settings))
    if producer is not None:
        producer.close()


def process_name() -> str:
    """Return a name for this process that no other process has or had, including the one it was forked from."""
    return _name_of(os.getpid())


@cache
def _name_of(pid: int) -> str:  # noqa: ARG001 - the key
    return uuid.uuid4().hex[:12]
