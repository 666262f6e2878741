"""A client without any opinion of its own: one connection that sends the Produce and Fetch requests it is told to."""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType

from broker_lite.protocol import apis, fetch, frames, produce
from broker_lite.protocol.apis import ApiKey
from broker_lite.protocol.errors import ErrorCode
from broker_lite.protocol.primitives import ZERO_UUID
from broker_lite.protocol.records import Record, encode_batch

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CREATE_TOPICS_VERSION = 5
TIMEOUT_S = 30.0
DEFAULT_FETCH_BYTES = 1 << 20
"""The default of `max.partition.fetch.bytes`."""

NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""What a real Kafka answers between the creation of a topic and the election of its leader."""


def batch_of(*values: bytes) -> bytes:
    """Give one record batch, uncompressed, with one record for each value."""
    return bytes(encode_batch([Record(None, value, 1_700_000_000_000) for value in values]))


class RawClient:
    """One connection; a context manager."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._file = self._socket.makefile("rb")
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        self._socket.close()

    def create_topic(self, name: str) -> None:
        """Make a topic of one partition."""
        message = apis.request(
            ApiKey.CREATE_TOPICS,
            CREATE_TOPICS_VERSION,
            topics=[(name, 1, 1, [], [])],
            timeout_ms=10_000,
            validate_only=False,
        )
        body = self._ask(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, apis.encode_request(message, 5))
        (topic,) = apis.decode_response(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, body).topics
        assert topic.error_code == ErrorCode.NONE, topic

    def produce(self, topic: str, batch: bytes) -> None:
        """Send one batch to partition 0 and wait for its acknowledgement."""
        wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, batch)])
        body = produce.encode_request(PRODUCE_VERSION, produce.ProduceRequest(None, -1, 10_000, [wanted]))
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            answer = produce.decode_response(PRODUCE_VERSION, self._ask(ApiKey.PRODUCE, PRODUCE_VERSION, body))
            error = answer.topics[0].partitions[0].error_code
            if error not in NOT_YET or time.monotonic() > deadline_s:
                break
        assert error == ErrorCode.NONE, answer

    def fetch(
        self, topic: str, offset: int, *, max_bytes: int, max_partition_bytes: int = DEFAULT_FETCH_BYTES
    ) -> bytes:
        """Give the bytes that partition 0 answers from `offset` on; the two limits are those of the request."""
        partition = fetch.FetchPartition(0, offset, max_partition_bytes)
        request = fetch.FetchRequest(0, 0, max_bytes, [fetch.FetchTopic(topic, ZERO_UUID, [partition])])
        body = self._ask(ApiKey.FETCH, FETCH_VERSION, fetch.encode_request(FETCH_VERSION, request))
        (answer,) = fetch.decode_response(FETCH_VERSION, body).topics[0].partitions
        assert answer.error_code == ErrorCode.NONE, answer
        return bytes(answer.records or b"")

    def _ask(self, api_key: ApiKey, version: int, body: bytes | bytearray) -> bytes:
        self._correlation_id += 1
        frame = bytes(frames.encode_request_header(api_key, version, self._correlation_id, "raw")) + bytes(body)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._file.read(4))
        answer = self._file.read(size)
        _, position = frames.read_response_header(api_key, version, answer)
        return answer[position:]
