"""Record batches to the leaders of their partitions, each once and in order, through errors and broken connections.

Theory of operation. `Producer.send` numbers batches (idempotence, KIP-98), gathers them into requests, one batch of a
partition in each, and keeps up to `max_in_flight` requests in flight to each broker; responses are read when the
window is full, and by `flush`. One thread, blocking sockets: while a request is in flight, the caller encodes.

A partition's unacknowledged batches are queued. After any retriable failure no new request is sent; all outstanding
responses are read; metadata is refreshed; and everything unacknowledged is sent again in the original order. A broker
recognizes a duplicate batch by its sequence number, so it is stored once. A later batch may be rejected because an
earlier one is missing; that is an error only for the first batch of a queue.

The connections are not those of the client that is passed in: responses to other requests there would be mixed with
ours. Each producer has a client of its own as long as it lives; then the next one takes it over from `pool`, with its
connections.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch, split_batch
from sparkonce.connectors.kafka_sink.topics import Topics
from sparkonce.connectors.kafka_sink.transactions import (
    FENCED,
    FencedProducerError,
    Partition,
    ProducerIdentity,
    TransactionClient,
)
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.outage import Outage
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import RETRIABLE, ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
)
from sparkonce.kafka.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

REQUEST_BYTES = 512 * 1024
"""A request is sent when its batches reach this size; larger ones leave the broker idle between them."""
MAX_PRODUCE_VERSION = 11
"""The last before KIP-890's second part: partitions join a transaction by AddPartitionsToTxn, not by Produce."""

_LANDED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_ENDED = FENCED | {ErrorCode.INVALID_TXN_STATE}
_NOT_ALLOWED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

_log = logging.getLogger(__name__)
_Address = tuple[str, int]


class DeliveryTimeoutError(TimeoutError):
    """A batch was not acknowledged in time; the message names topic, partition and the last failure."""


class RecordTooLargeError(ValueError):
    """A single record is larger than its topic accepts."""


class DeliveryRefusedError(RuntimeError):
    """A broker rejects a batch permanently; the message names topic, partition and reason."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A batch that is not acknowledged: its sequence, its place in the order of sending, and when it was accepted."""

    batch: EncodedBatch
    sequence: int
    order: tuple[int, ...]
    since_s: float
    failure: str = ""

    @property
    def place(self) -> Partition:
        return self.batch.topic, self.batch.partition


@dataclass(frozen=True, slots=True)
class _Request:
    """A request without a response."""

    version: int
    batches: list[_Waiting]


class Producer:
    """Sends the record batches of one producer. After an error that it raises, only `close` may be called.

    Args:
        client: where the cluster is; used for metadata.
        settings: how records are sent.
        identity: the producer's identity at the broker; None without idempotence. Its sequences must be unused.
        transactions: needed if the identity has a transactional id; partitions are added when they are first written.
        on_too_large: called with a topic and the size in bytes that its batches should not exceed.
        topics: what is known of topics; None: nothing yet.
    """

    def __init__(
        self,
        client: Client,
        settings: ProducerSettings,
        identity: ProducerIdentity | None = None,
        transactions: TransactionClient | None = None,
        on_too_large: Callable[[str, int], None] | None = None,
        topics: Topics | None = None,
    ) -> None:
        self.topics = Topics(client, settings.metadata_max_age_ms) if topics is None else topics
        self.rows = 0
        """Acknowledged records (with acks 0: records passed to the socket)."""
        self._settings = settings
        self._retry = client.settings
        self._identity = identity
        self._transactions = transactions
        self.on_too_large = on_too_large
        self._is_transactional = identity is not None and identity.transactional_id is not None
        assert not self._is_transactional or transactions is not None
        timeout_ms = min(client.settings.request_timeout_ms, settings.delivery_timeout_ms)
        self._sender = pool.take(replace(client.settings, request_timeout_ms=timeout_ms))
        # `cached_producer` drops producers without closing them, since a task may still send with one.
        self._when_lost = weakref.finalize(self, self._sender.close)
        self._when_lost.atexit = False
        self._is_closed = False
        self._sequences: dict[Partition, int] = defaultdict(int)
        self._joined: set[Partition] = set()
        self._known_at: set[Partition] = set()
        self._taken = 0
        self._pauses_s: Iterator[float] | None = None
        self._outage = Outage(client.settings.servers_text, client.named)
        self._lines: dict[Partition, deque[_Waiting]] = defaultdict(deque)
        self._routes: dict[Partition, _Address] = {}
        self._ready: dict[_Address, dict[Partition, _Waiting]] = {}
        self._in_flight: dict[_Address, deque[_Request]] = defaultdict(deque)
        self._failed: list[_Waiting] = []

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Send batches as they fill requests; the next batch is not pulled before there is room for it.

        Raises:
            DeliveryTimeoutError: if a batch was not acknowledged within `delivery_timeout_ms`.
            RecordTooLargeError: if a record is larger than its topic accepts.
            FencedProducerError: if another process ended the transaction.
            DeliveryRefusedError, PermissionError: if the broker refuses a batch.
            MissingTopicError: if a topic does not exist.
            KafkaUnreachableError: if no broker answers in time.
        """
        for batch in batches:
            self._queue(self._numbered(batch))
            self._recover()

    def flush(self) -> None:
        """Send all accepted batches, and wait until they are acknowledged; raises as `send` does."""
        while self._ready or self._failed or any(self._in_flight.values()):
            self._recover()
            for address in list(self._ready):
                self._dispatch(address)
            self._drain()

    def close(self) -> None:
        """Release the connections: to a later producer of this process, if no response is outstanding on them."""
        if self._is_closed:
            return
        self._is_closed = True
        self._when_lost.detach()
        for address, requests in self._in_flight.items():
            if requests:
                self._sender.drop(address)
        pool.put_back(self._sender)

    def _numbered(self, batch: EncodedBatch) -> _Waiting:
        place = batch.topic, batch.partition
        sequence = NO_SEQUENCE
        if self._identity is not None:
            sequence = self._sequences[place]
            self._sequences[place] = batch.sequence_after(sequence)
        self._taken += 1
        waiting = _Waiting(batch, sequence, (self._taken,), time.monotonic())
        self._stamp(waiting)
        self._lines[place].append(waiting)
        return waiting

    def _stamp(self, waiting: _Waiting) -> None:
        identity = self._identity
        producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if identity is not None:
            producer_id, epoch = identity.producer_id, identity.epoch
        waiting.batch.stamp(producer_id, epoch, waiting.sequence, transactional=self._is_transactional)

    def _queue(self, waiting: _Waiting) -> None:
        """Put a batch into the request for its leader, which is sent when full; after a failure keep the order."""
        if not self._failed:
            try:
                address = self._address(waiting)
            except KafkaError as error:
                self._fail([waiting], str(error))
                return
            if waiting.place in self._ready.get(address, ()):
                self._dispatch(address)
        if self._failed:
            self._failed.append(waiting)
            return
        request = self._ready.setdefault(address, {})
        request[waiting.place] = waiting
        if sum(len(each.batch.data) for each in request.values()) >= REQUEST_BYTES:
            self._dispatch(address)

    def _address(self, waiting: _Waiting) -> _Address:
        """Return the broker for a batch: the leader, but that of earlier unacknowledged batches if there are any."""
        place = waiting.place
        if self._lines[place][0] is waiting or place not in self._routes:
            self._routes[place] = self.topics.leader(*place).address
        return self._routes[place]

    def _dispatch(self, address: _Address) -> None:
        """Send the request that is ready for a broker, once the window has room for it."""
        self._join()
        batches = list(self._ready.pop(address).values())
        requests = self._in_flight[address]
        while len(requests) >= self._settings.max_in_flight:
            self._receive(address)
        if any(self._is_too_early(waiting) for waiting in batches):
            self._drain()
        if self._failed:
            self._failed += batches
            return
        try:
            connection = self._sender.connection(address)
            version = min(connection.version(ApiKey.PRODUCE), MAX_PRODUCE_VERSION)
            body = produce.encode_request_parts(version, self._request(batches))
            connection.send(ApiKey.PRODUCE, version, body, answered=self._settings.acks != 0)
        except (OSError, ProtocolError) as error:
            self._break(address, error)
            self._fail(batches, _text(error))
            if isinstance(error, PermissionError):  # of the authentication: not retriable
                raise
            return
        except BaseException:  # a part of the request may be sent
            self._sender.drop(address)
            raise
        if self._settings.acks:
            requests.append(_Request(version, batches))
        else:
            for waiting in batches:
                self._landed(waiting)

    def _is_too_early(self, waiting: _Waiting) -> bool:
        """Whether a batch must wait for its partition's first one to be acknowledged.

        A broker that does not know a producer accepts any sequence from it: a second batch would be accepted after the
        first one was rejected, and then the first one never.
        """
        place = waiting.place
        return self._identity is not None and place not in self._known_at and self._lines[place][0] is not waiting

    def _request(self, batches: Iterable[_Waiting]) -> ProduceRequest:
        by_topic: dict[str, list[ProducePartition]] = defaultdict(list)
        for waiting in batches:
            by_topic[waiting.batch.topic].append(ProducePartition(waiting.batch.partition, waiting.batch.data))
        return ProduceRequest(
            self._identity.transactional_id if self._identity is not None else None,
            self._settings.acks,
            self._sender.settings.request_timeout_ms,
            [ProduceTopic(topic, ZERO_UUID, partitions) for topic, partitions in by_topic.items()],
        )

    def _join(self) -> None:
        """Add the partitions to the transaction that will be written and are not in it yet."""
        if not self._is_transactional:
            return
        new = {place for request in self._ready.values() for place in request} - self._joined
        if new:
            assert self._transactions is not None
            assert self._identity is not None
            self._transactions.add_partitions(self._identity, new)
            self._joined |= new

    def _receive(self, address: _Address) -> None:
        """Read the response to the oldest request to a broker."""
        requests = self._in_flight[address]
        try:
            body = self._sender.connection(address).receive(bytearray())
            answer = produce.decode_response(requests[0].version, body)
        except (OSError, ProtocolError) as error:
            self._break(address, error)
            return
        except BaseException:  # a part of the response may be read
            self._sender.drop(address)
            raise
        results = {(topic.name, each.partition): each for topic in answer.topics for each in topic.partitions}
        for waiting in requests.popleft().batches:
            result = results.get(waiting.place)
            if result is None:
                self._fail([waiting], "the broker's response does not name the partition")
            else:
                self._settle(waiting, result)

    def _settle(self, waiting: _Waiting, result: ProducePartitionResult) -> None:
        """Handle the result of one batch."""
        code = ErrorCode.of(result.error_code)
        if code in _LANDED:
            self._landed(waiting)
        elif code in _TOO_LARGE:
            self._split(waiting)
        elif code in RETRIABLE or (
            code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._lines[waiting.place][0] is not waiting
        ):
            self._fail([waiting], code.name)
        else:
            raise self._refused(waiting, code, result.error_message)

    def _refused(self, waiting: _Waiting, code: ErrorCode, said: str | None) -> Exception:
        where = f"{waiting.batch.topic}-{waiting.batch.partition}"
        what = f"kafka_once: the broker refused records for {where}: {code.name}" + (f" ({said})" if said else "")
        if code in _ENDED:
            return FencedProducerError(
                f"{what}. The transaction {self._transactional_id!r} was ended by another client: another attempt took "
                "its place, or transaction.timeout.ms has passed (kafka.transaction.timeout.ms makes it longer)"
            )
        if code in _NOT_ALLOWED:
            return PermissionError(f"{what}: ask for WRITE on the topic, and on the transactional id if there is one")
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            what += ". The broker has lost records that it had acknowledged, or kept none of this producer's state"
        if code is ErrorCode.INVALID_TIMESTAMP:
            clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            what += (
                f". Records carry the time of this machine's clock, now {clock}, which is further from the broker's "
                "than message.timestamp.after.max.ms or message.timestamp.before.max.ms allow: set it, or have the "
                f"broker set the time, by message.timestamp.type=LogAppendTime of the topic {waiting.batch.topic}"
            )
        return DeliveryRefusedError(f"{what}. What this task wrote is incomplete; it must be run again")

    @property
    def _transactional_id(self) -> str | None:
        return self._identity.transactional_id if self._identity is not None else None

    def _landed(self, waiting: _Waiting) -> None:
        self._lines[waiting.place].remove(waiting)
        self._known_at.add(waiting.place)
        self.rows += waiting.batch.record_count
        self._pauses_s = None
        self._outage.note_answer()

    def _fail(self, batches: Iterable[_Waiting], reason: str) -> None:
        for waiting in batches:
            waiting.failure = reason
            self._failed.append(waiting)

    def _break(self, address: _Address, error: Exception) -> None:
        """Drop a connection; whether its requests have arrived is unknown."""
        self._sender.drop(address)
        requests = self._in_flight[address]
        while requests:
            self._fail(requests.popleft().batches, _text(error))

    def _split(self, waiting: _Waiting) -> None:
        """Replace a batch that is too large by two, which take up its sequence numbers together."""
        topic, partition = waiting.place
        if waiting.batch.record_count == 1:
            raise RecordTooLargeError(
                f"kafka_once: a record for {topic}-{partition} takes {len(waiting.batch.data)} bytes, more than the "
                "broker accepts: raise max.message.bytes of the topic (and message.max.bytes, replica.fetch.max.bytes "
                "of the brokers), set kafka.compression.type, or write smaller values"
            )
        parts, size = split_batch(waiting.batch)
        if self.on_too_large is not None:
            self.on_too_large(topic, size)
        sequence, line = waiting.sequence, self._lines[waiting.place]
        position = line.index(waiting)
        line.remove(waiting)
        for index, part in enumerate(parts):
            half = _Waiting(part, sequence, (*waiting.order, index), waiting.since_s)
            self._stamp(half)
            line.insert(position + index, half)
            self._fail([half], ErrorCode.MESSAGE_TOO_LARGE.name)
            if self._identity is not None:
                sequence = part.sequence_after(sequence)

    def _drain(self) -> None:
        """Read all outstanding responses."""
        for address, requests in list(self._in_flight.items()):
            while requests:
                self._receive(address)

    def _recover(self) -> None:
        """Send everything again that is not acknowledged, in order, if something has failed."""
        while self._failed:
            self._drain()
            self._failed += [waiting for request in self._ready.values() for waiting in request.values()]
            self._ready.clear()
            self._routes.clear()
            batches = sorted(self._failed, key=lambda waiting: waiting.order)
            self._pause(batches)
            try:
                self.topics.look_again({waiting.batch.topic for waiting in batches})
            except PermissionError:
                raise
            except (OSError, ProtocolError, KafkaError, MissingTopicError) as error:
                left_s = batches[0].since_s + self._settings.delivery_timeout_ms / 1000 - time.monotonic()
                self._outage.note_failure(f"send records for topic {batches[0].batch.topic}", error, left_s)
                self._failed = []
                self._fail(batches, _text(error))
                continue
            self._failed = []
            for waiting in batches:
                self._queue(waiting)

    def _pause(self, batches: list[_Waiting]) -> None:
        """Wait before another attempt, with growing back-off, unless it is too late for one.

        The first attempt is immediate: a leader that has moved is known by now, and so is a connection that was closed
        while nothing was sent.
        """
        failed = next((waiting for waiting in batches if waiting.failure), batches[0])
        where = f"{failed.batch.topic}-{failed.batch.partition}"
        if time.monotonic() - batches[0].since_s > self._settings.delivery_timeout_ms / 1000:
            raise DeliveryTimeoutError(
                f"kafka_once: records for {where} were not acknowledged within kafka.delivery.timeout.ms="
                f"{self._settings.delivery_timeout_ms}; the last failure: {failed.failure}. Check the partition's "
                "leader and its in-sync replicas, or allow more time"
            )
        _log.info("kafka_once: %d batches are sent again, since %s failed: %s", len(batches), where, failed.failure)
        if self._pauses_s is None:
            self._pauses_s = self._retry.pauses_s()
        else:
            time.sleep(next(self._pauses_s))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class ClientPool:
    """Clients that no producer uses just now."""

    def __init__(self) -> None:
        self._idle: dict[tuple[int, ClientSettings], list[Client]] = {}

    def take(self, settings: ClientSettings) -> Client:
        """Return a client; a forked child gets none of its parent's."""
        idle = self._idle.get((os.getpid(), settings))
        return idle.pop() if idle else Client(settings)

    def put_back(self, client: Client) -> None:
        """Keep a client on which no answer is due."""
        self._idle.setdefault((os.getpid(), client.settings), []).append(client)

    def close(self) -> None:
        """Close the connections of all idle clients."""
        for idle in self._idle.values():
            for client in idle:
                client.close()
        self._idle.clear()


pool = ClientPool()
"""That of this process."""
