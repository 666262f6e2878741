"""A client of single requests, for what no library lets a test ask."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.frames import encode_request_header, read_response_header
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch

DEADLINE_S = 30.0
FETCH_VERSION = 12
PRODUCE_VERSION = 12
TRANSACTION_TIMEOUT_MS = 60_000


class PlainClient:
    """One connection, one request at a time."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), DEADLINE_S)
        self._file = self._socket.makefile("rb")
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        self._socket.close()

    def send(self, api_key: int, version: int, body: bytes | bytearray) -> None:
        self._correlation_id += 1
        frame = encode_request_header(api_key, version, self._correlation_id, "plain") + bytes(body)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, api_key: int, version: int) -> memoryview:
        (size,) = struct.unpack(">i", self._file.read(4))
        frame = self._file.read(size)
        correlation_id, position = read_response_header(api_key, version, frame)
        assert correlation_id == self._correlation_id
        return memoryview(frame)[position:]

    def ask(self, api_key: int, version: int, surplus: bytes = b"", /, **fields: Any) -> Any:
        """Send a request, and `surplus` bytes after it, and give its answer, both of kafka-python's classes."""
        body = apis.encode_request(apis.request(api_key, version, **fields), version)
        self.send(api_key, version, bytes(body) + surplus)
        return apis.decode_response(api_key, version, self.receive(api_key, version))

    # Fetch and Produce have codecs of their own.

    def send_fetch(
        self, topic: str, partition: int, offset: int, *, isolation_level: int, min_bytes: int = 0, max_wait_ms: int = 0
    ) -> None:
        wanted = fetch.FetchTopic(topic, ZERO_UUID, [fetch.FetchPartition(partition, offset, 1 << 20)])
        request = fetch.FetchRequest(max_wait_ms, min_bytes, 1 << 20, [wanted], isolation_level)
        self.send(ApiKey.FETCH, FETCH_VERSION, fetch.encode_request(FETCH_VERSION, request))

    def receive_fetch(self) -> fetch.FetchPartitionResult:
        response = fetch.decode_response(FETCH_VERSION, self.receive(ApiKey.FETCH, FETCH_VERSION))
        return response.topics[0].partitions[0]

    def fetch(self, topic: str, partition: int, offset: int, *, isolation_level: int) -> fetch.FetchPartitionResult:
        self.send_fetch(topic, partition, offset, isolation_level=isolation_level)
        return self.receive_fetch()

    def produce(
        self,
        topic: str,
        values: list[bytes],
        transactional_id: str,
        producer: tuple[int, int],
        sequence: int = 0,
        version: int = PRODUCE_VERSION,
    ) -> ErrorCode:
        """Send one transactional batch to partition 0."""
        records = [Record(None, value, 1_700_000_000_000) for value in values]
        batch = encode_batch(
            records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
        )
        wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, batch)])
        request = produce.ProduceRequest(transactional_id, -1, 30_000, [wanted])
        self.send(ApiKey.PRODUCE, version, produce.encode_request(version, request))
        response = produce.decode_response(version, self.receive(ApiKey.PRODUCE, version))
        return ErrorCode(response.topics[0].partitions[0].error_code)

    # Requests that tests send often.

    def create_topic(self, name: str, partitions: int = 1) -> None:
        answer = self.ask(
            ApiKey.CREATE_TOPICS, 5, topics=[(name, partitions, 1, [], [])], timeout_ms=30_000, validate_only=False
        )
        assert answer.topics[0].error_code == 0

    def list_offset(self, topic: str, partition: int, timestamp: int, isolation_level: int = 0) -> int:
        answer = self.ask(
            ApiKey.LIST_OFFSETS,
            6,
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[(topic, [(partition, -1, timestamp)])],
        )
        (found,) = answer.topics[0].partitions
        assert found.error_code == 0
        offset: int = found.offset
        return offset

    def find_coordinator(self, name: str, kind: int) -> None:
        """Ask who coordinates a group (kind 0) or transactional id (1), as clients do first; that makes the topic."""
        assert self.ask(ApiKey.FIND_COORDINATOR, 3, key=name, key_type=kind).error_code == 0

    def committed(
        self, group_id: str, topic: str, partition: int, require_stable: bool = False
    ) -> tuple[ErrorCode, int]:
        answer = self.ask(
            ApiKey.OFFSET_FETCH, 7, group_id=group_id, topics=[(topic, [partition])], require_stable=require_stable
        )
        (found,) = answer.topics[0].partitions
        return ErrorCode(found.error_code), found.committed_offset

    def init_producer(
        self, transactional_id: str, producer: tuple[int, int] = (-1, -1), timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> tuple[int, int]:
        self.find_coordinator(transactional_id, 1)
        answer = self.ask(
            ApiKey.INIT_PRODUCER_ID,
            5,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def end(self, transactional_id: str, producer: tuple[int, int], committed: bool) -> tuple[ErrorCode, int, int]:
        """End a transaction as clients with KIP-890 part 2 do."""
        answer = self.ask(
            ApiKey.END_TXN,
            5,
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch
