"""Fetches the bytes of one range of one partition, one step ahead of the decoder.

A thread fetches the next bytes while the caller decodes the last ones and passes them to Spark; waiting for the socket
and decoding both release the GIL. Buffers are reused: the caller returns one before the thread may fill it again, so a
task holds a fixed number of them, independent of the size of its range.

Each request has the expected leader epoch, and a broker with another one rejects it (KIP-320). So data is fetched only
from the log that the range was planned from; a new leader is compared first.

The thread stops at the end of the range. A caller that stops earlier closes the iterator, which closes the connection
of the thread: otherwise the outstanding response would be read as that of the next request.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from sparkonce.connectors.kafka_source.decode import RecordDecoder, Scanned
from sparkonce.connectors.kafka_source.epochs import Divergence, LogEpochs, ask_epochs
from sparkonce.connectors.kafka_source.ranges import FetchRange, check_same_topic
from sparkonce.connectors.runtime.compiled import Bytes
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import MAX_RESPONSE_BYTES
from sparkonce.kafka.client.metadata import Leader, TopicMetadata, leader_of
from sparkonce.kafka.client.topic_ids import topic_id_from_text
from sparkonce.kafka.protocol import fetch
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparkonce.offset_store.offsets import Position, TopicPartition

BUFFERS = 2
"""One being filled and one being decoded."""
FIRST_GUESS_BYTES_PER_RECORD = 512
SMALLEST_FETCH_BYTES = 64 << 10
RESPONSE_OVERHEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches from one fetch, and the buffer they are in."""

    buffer: bytearray
    data: Bytes
    scanned: Scanned
    aborted: Sequence[AbortedTransaction]


class OffsetOutOfRangeError(LookupError):
    """The wanted offset is no longer in the log, or not yet."""

    def __init__(self, wanted: FetchRange, offset: int) -> None:
        super().__init__(f"offset {offset} is not in the log of {wanted.topic}-{wanted.partition}")
        self.offset = offset


class LogReplacedError(LookupError):
    """A new leader does not have all of the planned records."""

    def __init__(self, wanted: FetchRange, leader: Leader, divergence: Divergence) -> None:
        super().__init__(f"the log of {wanted.topic}-{wanted.partition} was replaced from {divergence.offset} on")
        self.leader = leader
        self.divergence = divergence


class RangeFetcher:
    """Fetches one range with one client; for a single use."""

    def __init__(self, client: Client, decoder: RecordDecoder, wanted: FetchRange, poll_timeout_ms: int) -> None:
        self._client = client
        self._decoder = decoder
        self._wanted = wanted
        self._poll_timeout_ms = poll_timeout_ms
        self._leader = wanted.leader
        self._compared = None if wanted.leader is None else wanted.leader.epoch
        """The leader epoch whose log has the planned records."""
        self._next = wanted.start
        self._bytes_per_record = float(FIRST_GUESS_BYTES_PER_RECORD)
        self._at_least_bytes = 0
        self._free: queue.Queue[bytearray | None] = queue.Queue()
        self._full: queue.Queue[Fetched | BaseException | None] = queue.Queue()
        self._stopped = False

    def ahead(self) -> Iterator[Fetched]:
        """Yield what is fetched; each item is invalid after the next one is requested.

        Raises:
            OffsetOutOfRangeError: if the log begins after, or ends before, the next wanted offset.
            RecreatedTopicError: if the topic is not the one that was planned for.
            MissingTopicError: if it is gone.
            LogReplacedError: if the log was truncated since the range was planned, and has other records in it.
            KafkaUnreachableError: if no broker answers in time.

        """
        first = self._fetch(bytearray())
        if self._next >= self._wanted.end:  # the usual small batch: one fetch, and no thread
            yield first
            return
        for _ in range(BUFFERS - 1):
            self._free.put(bytearray())
        thread = threading.Thread(target=self._run, name=f"fetch {self._wanted.topic}", daemon=True)
        thread.start()
        finished = False
        try:
            yield first
            self._free.put(first.buffer)
            while (item := self._full.get()) is not None:
                if isinstance(item, BaseException):
                    finished = True
                    raise item
                yield item
                self._free.put(item.buffer)
            finished = True
        finally:
            self._stop(thread, finished)

    def _stop(self, thread: threading.Thread, finished: bool) -> None:
        self._stopped = True
        self._free.put(None)
        leader = self._leader
        if not finished and leader is not None:
            self._client.interrupt(leader.address)
        thread.join()
        if not finished and leader is not None:
            self._client.drop(leader.address)

    def _run(self) -> None:
        try:
            while self._next < self._wanted.end:
                buffer = self._free.get()
                if buffer is None:
                    return
                self._full.put(self._fetch(buffer))
            self._full.put(None)
        except BaseException as error:
            self._full.put(error)

    def _fetch(self, buffer: bytearray) -> Fetched:
        """Fetch until there is at least one whole batch."""
        deadline = time.monotonic() + self._poll_timeout_ms / 1000
        what = f"fetch {self._wanted.topic}-{self._wanted.partition} at offset {self._next}"
        while True:
            size = self._request_bytes()
            if len(buffer) < size:
                buffer = bytearray(size + RESPONSE_OVERHEAD_BYTES)
            result = self._client.retry(what, partial(self._attempt, buffer, size))
            records = result.records
            if not isinstance(records, memoryview):
                records = memoryview(bytearray())
            data = np.frombuffer(records, np.uint8)
            scanned = self._decoder.scan(data, self._next)
            if scanned.next_offset is not None and scanned.next_offset > self._next:
                self._bytes_per_record = max(1.0, data.shape[0] / (scanned.next_offset - self._next))
                self._next = scanned.next_offset
                return Fetched(cast(bytearray, records.obj), data, scanned, result.aborted_transactions or ())
            if data.shape[0]:  # only the beginning of a batch that is larger than the requested size
                self._at_least_bytes = 2 * size
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"could not {what} within {self._poll_timeout_ms} ms: the broker returned no whole batch, "
                    f"though the batch was planned up to offset {self._wanted.end}; its high watermark is "
                    f"{result.high_watermark}, its last stable offset {result.last_stable_offset}"
                )

    def _request_bytes(self) -> int:
        guess = int((self._wanted.end - self._next) * self._bytes_per_record * 1.1)
        wanted = min(max(guess, SMALLEST_FETCH_BYTES), self._client.settings.fetch_max_bytes)
        return min(max(wanted, self._at_least_bytes), MAX_RESPONSE_BYTES)

    def _attempt(self, buffer: bytearray, size: int) -> FetchPartitionResult:
        if self._stopped:
            raise _StoppedError
        if self._leader is None:
            self._leader = self._find_leader()
        leader = self._leader
        try:
            connection = self._client.connection(leader.address)
            version = connection.version(ApiKey.FETCH)
            if not self._wanted.topic_id:
                version = min(version, fetch.TOPIC_ID_FROM - 1)
            connection.send(ApiKey.FETCH, version, fetch.encode_request(version, self._request(leader, size)))
            answer = fetch.decode_response(version, connection.receive(buffer))
        except (OSError, ProtocolError) as error:
            self._client.drop(leader.address)
            self._leader = None
            if self._stopped:
                raise _StoppedError from error
            raise
        try:
            return self._checked(answer)
        except KafkaError:
            self._leader = None  # so that the next attempt requests the current leader
            raise

    def _request(self, leader: Leader, size: int) -> FetchRequest:
        settings = self._client.settings
        partition = FetchPartition(self._wanted.partition, self._next, size, leader.epoch)
        topic = FetchTopic(self._wanted.topic, topic_id_from_text(self._wanted.topic_id), [partition])
        return FetchRequest(settings.fetch_max_wait_ms, 1, size, [topic], int(settings.read_committed))

    def _checked(self, answer: FetchResponse) -> FetchPartitionResult:
        where = f"fetch {self._wanted.topic}-{self._wanted.partition} at offset {self._next}"
        if answer.error_code:
            raise KafkaError(ErrorCode.of(answer.error_code), where)
        for topic in answer.topics:
            for result in topic.partitions:
                if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise OffsetOutOfRangeError(self._wanted, self._next)
                if result.error_code:
                    raise KafkaError(ErrorCode.of(result.error_code), where)
                return result
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where}: the response has no partition")

    def _find_leader(self) -> Leader:
        found = self._client.topics_now([self._wanted.topic])
        check_same_topic(self._wanted.topic, self._wanted.topic_id, found[self._wanted.topic].topic_id)
        leader = leader_of(found, self._wanted.topic, self._wanted.partition)
        return leader if leader.epoch == self._compared else self._compare(found)

    def _compare(self, found: dict[str, TopicMetadata]) -> Leader:
        """Return the leader that has the records that were planned. Raises LogReplacedError if it has others."""
        wanted = self._wanted
        tp = TopicPartition(wanted.topic, wanted.topic_id, wanted.partition)
        epochs = LogEpochs(
            lambda asked: ask_epochs(self._client, found, asked),
            lambda tp: leader_of(found, tp.topic, tp.partition).epoch,
        )
        parted = epochs.parted({tp: Position(wanted.end, wanted.end, wanted.epoch)})
        leader = leader_of(found, tp.topic, tp.partition)
        if parted:
            raise LogReplacedError(wanted, leader, parted[tp])
        self._compared = leader.epoch
        return leader


class _StoppedError(Exception):
    """The caller has stopped."""
