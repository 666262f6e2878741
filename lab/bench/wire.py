"""Single requests over plain sockets: a cheap client, so that the broker is measured.

A request's bytes are made once and sent again and again; a response is checked for its error code.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from lab.bench.load import LoadError
from sparkonce.kafka.protocol import apis, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.frames import encode_request_header, read_response_header
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch

DEADLINE_S = 60.0
_PRODUCE_VERSION = 12
_LIST_OFFSETS_VERSION = 7
_LATEST = -1
_RECEIVE_BYTES = 65536
_TIMESTAMP_MS = 1_700_000_000_000


class BrokerConnection:
    """One connection to a broker; requests are answered in their order."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, frame: bytes) -> None:
        """Send a whole request with its size."""
        self.socket.sendall(frame)

    def receive(self) -> bytes | None:
        """Read what has arrived; return a response's frame without its size once it is complete, else None.

        Raises:
            LoadError: if the broker has closed the connection.
        """
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise LoadError("the broker closed a connection in the middle of a benchmark")
        self._received += data
        if len(self._received) < 4:
            return None
        (size,) = struct.unpack_from(">i", self._received)
        if len(self._received) < 4 + size:
            return None
        frame = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        return frame

    def ask(self, frame: bytes) -> bytes:
        """Send a request and wait for its response.

        Raises:
            LoadError: if the broker closes the connection.
        """
        self.send(frame)
        while True:
            answer = self.receive()
            if answer is not None:
                return answer


def api_versions(bootstrap_servers: str) -> None:
    """Connect, send ApiVersions, and wait for the response: the first request of every client.

    Raises:
        LoadError: if the answer is an error.
        OSError: if there is no connection.
    """
    with BrokerConnection(bootstrap_servers) as connection:
        answer = connection.ask(_sized(encode_request_header(ApiKey.API_VERSIONS, 0, 1, "bench")))
    (error_code,) = struct.unpack_from(">h", answer, 4)
    if error_code:
        raise LoadError(f"ApiVersions on {bootstrap_servers}: error {error_code}")


def end_offsets(bootstrap_servers: str, topic: str, partitions: int) -> list[int] | None:
    """Request the end offsets of all partitions at once; None where a partition is not served yet.

    An admin client requests metadata first, and librdkafka's waits up to three seconds if its first connection
    is lost meanwhile, as it is here: that would measure the client.

    Raises:
        LoadError: if the broker closes the connection.
        OSError: if there is no connection.
    """
    asked = [(index, -1, _LATEST) for index in range(partitions)]
    request = apis.request(
        ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, replica_id=-1, isolation_level=0, topics=[(topic, asked)]
    )
    header = encode_request_header(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, 1, "bench")
    with BrokerConnection(bootstrap_servers) as connection:
        answer = connection.ask(_sized(header + apis.encode_request(request, _LIST_OFFSETS_VERSION)))
    _, position = read_response_header(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, answer)
    said = apis.decode_response(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, memoryview(answer)[position:])
    found = said.topics[0].partitions
    return None if any(each.error_code for each in found) else [each.offset for each in found]


def produce_frame(topic: str, partition: int, records: int, value_bytes: int) -> bytes:
    """Return a Produce request of one batch with acks=all, with its size."""
    batch = encode_batch([Record(None, bytes(value_bytes), _TIMESTAMP_MS)] * records)
    wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(partition, batch)])
    request = produce.ProduceRequest(None, -1, 30_000, [wanted])
    header = encode_request_header(ApiKey.PRODUCE, _PRODUCE_VERSION, 1, "bench")
    return _sized(header + produce.encode_request(_PRODUCE_VERSION, request))


def check_produced(answer: bytes) -> None:
    """Check the response to a request of `produce_frame`.

    Raises:
        LoadError: if the batch was rejected.
    """
    _, position = read_response_header(ApiKey.PRODUCE, _PRODUCE_VERSION, answer)
    result = produce.decode_response(_PRODUCE_VERSION, memoryview(answer)[position:]).topics[0].partitions[0]
    if result.error_code:
        raise LoadError(f"Produce to partition {result.partition}: error {result.error_code}")


def round_trip_s(connection: BrokerConnection, frame: bytes) -> float:
    """Return the seconds from sending a Produce request to its response.

    Raises:
        LoadError: if the batch was rejected.
    """
    began = time.perf_counter()
    answer = connection.ask(frame)
    took_s = time.perf_counter() - began
    check_produced(answer)
    return took_s


def requests_per_second(bootstrap_servers: str, frames: Sequence[bytes], requests: int) -> float:
    """Send a frame over and over on each connection, the next when the last one is answered.

    Raises:
        LoadError: if a batch was rejected, or no response arrived for a minute.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        connections = [stack.enter_context(BrokerConnection(bootstrap_servers)) for _ in frames]
        for connection, frame in zip(connections, frames, strict=True):
            selector.register(connection.socket, selectors.EVENT_READ, (connection, frame))
        sent, answered = 0, 0
        began = time.perf_counter()
        for connection, frame in zip(connections, frames, strict=True):
            connection.send(frame)
            sent += 1
        while answered < sent:
            ready = selector.select(DEADLINE_S)
            if not ready:
                raise LoadError(f"{bootstrap_servers} answered nothing for {DEADLINE_S:.0f} s")
            for key, _ in ready:
                connection, frame = key.data
                answer = connection.receive()
                if answer is None:
                    continue
                check_produced(answer)
                answered += 1
                if sent < requests:
                    connection.send(frame)
                    sent += 1
        return answered / (time.perf_counter() - began)


def _sized(frame: bytes | bytearray) -> bytes:
    return struct.pack(">i", len(frame)) + bytes(frame)
