"""What a hostile or clumsy peer can do: end its own connection, and no more."""

from __future__ import annotations

import logging
import queue
import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.node.request import CloseConnectionError, Request
from sparkonce.broker_lite.server.limits import MAX_UNANSWERED_WRITES
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol import apis, fetch, frames, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, decode_all, encode_batch

DEADLINE_S = 30.0
API_VERSIONS = bytes.fromhex("0012 0000 00000007 ffff")


class Client:
    """A socket that speaks frames."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), DEADLINE_S)
        self.file = self.socket.makefile("rb")
        self.correlation_id = 0

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def request(self, key: int, version: int, body: bytes) -> int:
        self.correlation_id += 1
        self.send_frame(bytes(frames.encode_request_header(key, version, self.correlation_id, "test")) + body)
        return self.correlation_id

    def answer(self, key: int, version: int) -> tuple[int, bytes]:
        (size,) = struct.unpack(">i", self.file.read(4))
        frame = self.file.read(size)
        correlation_id, position = frames.read_response_header(key, version, frame)
        return correlation_id, frame[position:]

    def is_closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture
def clients(kafka_broker: EmbeddedBroker) -> Iterator[list[Client]]:
    connected = [Client(kafka_broker), Client(kafka_broker)]
    yield connected
    for client in connected:
        client.close()


def serves(client: Client) -> bool:
    client.send_frame(API_VERSIONS)
    return client.answer(ApiKey.API_VERSIONS, 0)[0] == 7


def make_topic(client: Client, name: str) -> None:
    body = apis.encode_request(apis.request(ApiKey.METADATA, 1, topics=[(name,)]), 1)
    client.request(ApiKey.METADATA, 1, bytes(body))
    client.answer(ApiKey.METADATA, 1)


def produce_body(batch: bytes, acks: int = -1, index: int = 0) -> bytes:
    topic = produce.ProduceTopic("t", ZERO_UUID, [produce.ProducePartition(index, batch)])
    return bytes(produce.encode_request(9, produce.ProduceRequest(None, acks, 1000, [topic])))


def fetch_body(offset: int, max_wait_ms: int, min_bytes: int = 1, max_bytes: int = 1 << 20) -> bytes:
    topic = fetch.FetchTopic("t", ZERO_UUID, [fetch.FetchPartition(0, offset, 1 << 20)])
    return bytes(fetch.encode_request(12, fetch.FetchRequest(max_wait_ms, min_bytes, max_bytes, [topic])))


def batch_of(*values: bytes) -> bytes:
    return bytes(encode_batch([Record(None, value, 1_700_000_000_000) for value in values]))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        pytest.param(struct.pack(">i", -1), "frame of -1 bytes", id="negative size"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01", "frame of 369295618 bytes", id="TLS on a plain port"),
        pytest.param(struct.pack(">i", 3) + b"abc", "too short for a request header", id="short frame"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), "API 999 version 0 is not served", id="unknown API"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), "API 3 version 99 is not served", id="unknown version"),
        pytest.param(struct.pack(">ihhih", 10, 3, 5, 1, -1), "Metadata v5", id="no body"),
        pytest.param(struct.pack(">ihhihi", 14, 0, 3, 1, -1, 5), "bytes are needed", id="torn Produce"),
    ],
)
def test_malformed_bytes_end_their_own_connection(
    clients: list[Client], caplog: pytest.LogCaptureFixture, sent: bytes, said: str
) -> None:
    bad, good = clients
    assert serves(bad)
    assert serves(good)
    bad.socket.sendall(sent)
    assert bad.is_closed()
    assert serves(good)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    host, port = bad.socket.getsockname()
    assert f"{host}:{port}" in line
    assert said in line


def test_a_frame_that_is_cut_off_is_noted(clients: list[Client], caplog: pytest.LogCaptureFixture) -> None:
    bad, good = clients
    bad.socket.sendall(struct.pack(">i", 100) + b"only this")
    bad.socket.shutdown(socket.SHUT_WR)
    assert bad.is_closed()
    assert serves(good)
    assert any("91 bytes before its frame" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("count", "size"), [(200, 10), (20, 200_000)])
def test_what_a_client_says_last_is_handled(clients: list[Client], count: int, size: int) -> None:
    """With acks=0 there is no answer to wait for, so a client may close as soon as its socket has taken everything."""
    leaving, staying = clients
    make_topic(staying, "t")
    frame = bytes(frames.encode_request_header(ApiKey.PRODUCE, 9, 1, "test")) + produce_body(batch_of(b"v" * size), 0)
    leaving.socket.sendall((struct.pack(">i", len(frame)) + frame) * count)
    leaving.socket.shutdown(socket.SHUT_WR)
    assert leaving.is_closed()
    staying.request(ApiKey.FETCH, 12, fetch_body(count - 1, 0))
    (topic,) = fetch.decode_response(12, staying.answer(ApiKey.FETCH, 12)[1]).topics
    assert topic.partitions[0].high_watermark == count


def test_a_frame_may_come_byte_by_byte(clients: list[Client]) -> None:
    for byte in struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS:
        clients[0].socket.sendall(bytes([byte]))
    assert clients[0].answer(ApiKey.API_VERSIONS, 0)[0] == 7


def test_an_unknown_api_versions_is_answered_in_version_0(clients: list[Client]) -> None:
    clients[0].send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, -1) + b"whatever")
    correlation_id, body = clients[0].answer(ApiKey.API_VERSIONS, 0)
    assert correlation_id == 5
    answer = apis.decode_response(ApiKey.API_VERSIONS, 0, body)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
    assert serves(clients[0])


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(clients: list[Client], version: int) -> None:
    fields = {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
    body = apis.encode_request(apis.request(ApiKey.API_VERSIONS, version, **fields), version)
    clients[0].request(ApiKey.API_VERSIONS, version, bytes(body))
    answer = apis.decode_response(ApiKey.API_VERSIONS, version, clients[0].answer(ApiKey.API_VERSIONS, version)[1])
    assert answer.error_code == 0
    assert {each.api_key for each in answer.api_keys} == set(apis.APIS) - apis.AMONG_BROKERS


def test_pipelined_requests_are_answered_in_order_behind_a_long_poll(clients: list[Client]) -> None:
    reader, writer = clients
    make_topic(reader, "t")
    polled = reader.request(ApiKey.FETCH, 12, fetch_body(0, 20_000))
    reader.send_frame(API_VERSIONS)
    writer.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x")))
    assert produce.decode_response(9, writer.answer(ApiKey.PRODUCE, 9)[1]).topics[0].partitions[0].error_code == 0
    correlation_id, body = reader.answer(ApiKey.FETCH, 12)
    assert correlation_id == polled
    records = fetch.decode_response(12, body).topics[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert [record.value for record in decode_all(records)] == [b"x"]
    assert reader.answer(ApiKey.API_VERSIONS, 0)[0] == 7


def test_a_fetch_gives_up_when_its_time_is_over(clients: list[Client]) -> None:
    make_topic(clients[0], "t")
    clients[0].request(ApiKey.FETCH, 12, fetch_body(0, 20))
    (result,) = fetch.decode_response(12, clients[0].answer(ApiKey.FETCH, 12)[1]).topics[0].partitions
    assert (result.error_code, bytes(result.records or b"")) == (0, b"")  # type: ignore[arg-type]


def test_a_fetch_waits_for_its_least_bytes(clients: list[Client]) -> None:
    reader, writer = clients
    make_topic(reader, "t")
    batch = batch_of(b"x" * 100)
    reader.request(ApiKey.FETCH, 12, fetch_body(0, 20_000, min_bytes=len(batch) + 1))
    for _ in range(2):
        writer.request(ApiKey.PRODUCE, 9, produce_body(batch))
        writer.answer(ApiKey.PRODUCE, 9)
    (result,) = fetch.decode_response(12, reader.answer(ApiKey.FETCH, 12)[1]).topics[0].partitions
    assert len(result.records) == 2 * len(batch)  # type: ignore[arg-type]


def test_a_large_answer_to_a_slow_reader_comes_whole(clients: list[Client]) -> None:
    reader, writer = clients
    make_topic(reader, "t")
    for number in range(40):
        writer.request(ApiKey.PRODUCE, 9, produce_body(batch_of(bytes([number]) * 500_000)))
        writer.answer(ApiKey.PRODUCE, 9)
    reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    topic = fetch.FetchTopic("t", ZERO_UUID, [fetch.FetchPartition(0, 0, 1 << 30)])
    body = bytes(fetch.encode_request(12, fetch.FetchRequest(0, 1, 1 << 30, [topic])))
    reader.request(ApiKey.FETCH, 12, body)
    reader.send_frame(API_VERSIONS)
    assert serves(writer)
    (result,) = fetch.decode_response(12, reader.answer(ApiKey.FETCH, 12)[1]).topics[0].partitions
    assert isinstance(result.records, memoryview)
    values = [record.value or b"" for record in decode_all(result.records)]
    assert [value[:1] for value in values] == [bytes([number]) for number in range(40)]
    assert reader.answer(ApiKey.API_VERSIONS, 0)[0] == 7


def test_a_corrupt_batch_is_refused_and_the_connection_lives(clients: list[Client]) -> None:
    make_topic(clients[0], "t")
    batch = bytearray(batch_of(b"x"))
    batch[-1] ^= 1
    clients[0].request(ApiKey.PRODUCE, 9, produce_body(bytes(batch)))
    (result,) = produce.decode_response(9, clients[0].answer(ApiKey.PRODUCE, 9)[1]).topics[0].partitions
    assert result.error_code == ErrorCode.CORRUPT_MESSAGE
    clients[0].request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x"), index=5))
    (result,) = produce.decode_response(9, clients[0].answer(ApiKey.PRODUCE, 9)[1]).topics[0].partitions
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    clients[0].request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x"), acks=7))
    (result,) = produce.decode_response(9, clients[0].answer(ApiKey.PRODUCE, 9)[1]).topics[0].partitions
    assert result.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert serves(clients[0])


def test_without_acks_there_is_no_answer_and_failure_closes(clients: list[Client]) -> None:
    make_topic(clients[0], "t")
    clients[0].request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x"), acks=0))
    assert serves(clients[0])
    clients[0].request(ApiKey.PRODUCE, 9, produce_body(b"rubbish", acks=0))
    assert clients[0].is_closed()


def test_a_fetch_out_of_range_is_told(clients: list[Client]) -> None:
    make_topic(clients[0], "t")
    clients[0].request(ApiKey.FETCH, 12, fetch_body(7, 20_000))
    (result,) = fetch.decode_response(12, clients[0].answer(ApiKey.FETCH, 12)[1]).topics[0].partitions
    assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_session_that_is_not_there_is_told(clients: list[Client]) -> None:
    request = fetch.FetchRequest(0, 1, 100, [], session_id=5, session_epoch=3)
    clients[0].request(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, request)))
    answer = fetch.decode_response(12, clients[0].answer(ApiKey.FETCH, 12)[1])
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_session_tells_only_what_is_new(clients: list[Client]) -> None:
    reader, writer = clients
    make_topic(reader, "t")
    topics = [fetch.FetchTopic("t", ZERO_UUID, [fetch.FetchPartition(0, 0, 1 << 20)])]
    reader.request(
        ApiKey.FETCH, 12, bytes(fetch.encode_request(12, fetch.FetchRequest(0, 1, 100, topics, session_epoch=0)))
    )
    session_id = fetch.decode_response(12, reader.answer(ApiKey.FETCH, 12)[1]).session_id
    assert session_id > 0
    answers = []
    for epoch in (1, 2):
        wanted = fetch.FetchRequest(0, 1, 1 << 20, [], session_id=session_id, session_epoch=epoch)
        reader.request(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, wanted)))
        answers.append(fetch.decode_response(12, reader.answer(ApiKey.FETCH, 12)[1]))
        writer.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x")))
        writer.answer(ApiKey.PRODUCE, 9)
    assert [len(answer.topics) for answer in answers] == [0, 1]
    assert {answer.session_id for answer in answers} == {session_id}


def test_connections_beyond_the_limit_are_closed() -> None:
    with EmbeddedBroker(config={"max.connections": 1}) as broker:
        first, second = Client(broker), Client(broker)
        assert serves(first)
        assert second.is_closed()
        first.close()
        second.close()


def test_a_disk_that_fails_is_told_in_the_log(
    clients: list[Client], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    assert serves(clients[0])
    monkeypatch.setattr(dispatch, "handle", fail)
    clients[0].send_frame(API_VERSIONS)
    assert clients[0].is_closed()
    assert "No space left on device; closing its connection" in caplog.text
    assert "API_VERSIONS from 127.0.0.1" in caplog.text


@pytest.mark.parametrize(("seed", "faulty"), [*((seed, False) for seed in range(4)), (0, True)])
def test_answers_keep_the_order_of_their_requests(
    kafka_broker: EmbeddedBroker, clients: list[Client], monkeypatch: pytest.MonkeyPatch, seed: int, faulty: bool
) -> None:
    """Writes that wait for followers overlap, and may be ready in any order; some are ready at once, some unanswered.

    So they do while a fault looks at them.
    The last one fails at once in a way that closes the connection, which is its turn like any response.
    """
    rng = random.Random(seed)
    count = MAX_UNANSWERED_WRITES + 4
    promises: list[Promise[None]] = [Promise() for _ in range(count)]
    at_once = {number for number in range(count) if rng.random() < 0.3} | {count - 1}
    silent = {number for number in range(count) if rng.random() < 0.2}
    begun: queue.SimpleQueue[int] = queue.SimpleQueue()

    async def handle(_: object, request: Request) -> list[bytes] | None:
        number = request.correlation_id
        begun.put(number)
        if number == count - 1:
            raise CloseConnectionError("the last one fails")
        if number not in at_once:
            request.overlaps = True
            await promises[number]
        return None if number in silent else [b"%d" % number]

    monkeypatch.setattr(dispatch, "handle", handle)
    if faulty:
        kafka_broker.faults.throttle(bytes_per_s=1 << 40, api="Produce")
    client = clients[0]
    for number in range(count):
        client.correlation_id = number - 1
        client.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"v")))
    loop = kafka_broker._runner._loop  # type: ignore[union-attr]
    assert loop is not None
    first_waiting = min(set(range(count)) - at_once)
    ahead = range(min(first_waiting + MAX_UNANSWERED_WRITES, count))
    assert [begun.get(timeout=30) for _ in ahead] == list(ahead)
    rounds = threading.Semaphore(0)
    for _ in range(3):
        loop.call_soon_threadsafe(rounds.release)
        rounds.acquire()
    assert begun.empty(), "no more begin before the first is answered"
    order = list(range(count))
    rng.shuffle(order)
    for number in order:
        loop.call_soon_threadsafe(promises[number].complete, None)
    answers = [client.answer(ApiKey.PRODUCE, 9) for number in range(count - 1) if number not in silent]
    assert answers == [(number, b"%d" % number) for number in range(count - 1) if number not in silent]
    assert client.is_closed()


@pytest.mark.parametrize(("topics", "partitions"), [(1, 120), (2, 20)])
def test_all_partitions_of_a_write_are_written_though_the_client_ends(
    kafka_broker: EmbeddedBroker, clients: list[Client], topics: int, partitions: int
) -> None:
    """With acks=0 it may end as soon as it has sent them; they are appended in turns."""
    names = [f"many-{number}" for number in range(topics)]
    fields = {"topics": [(name, partitions, 1, [], []) for name in names], "timeout_ms": 1000, "validate_only": False}
    clients[0].request(ApiKey.CREATE_TOPICS, 4, bytes(apis.encode_request(apis.request(19, 4, **fields), 4)))
    clients[0].answer(ApiKey.CREATE_TOPICS, 4)
    data = [
        produce.ProduceTopic(
            name, ZERO_UUID, [produce.ProducePartition(index, batch_of(b"v")) for index in range(partitions)]
        )
        for name in names
    ]
    leaving = Client(kafka_broker)
    leaving.request(ApiKey.PRODUCE, 9, bytes(produce.encode_request(9, produce.ProduceRequest(None, 0, 1000, data))))
    leaving.close()
    wanted = fetch.FetchRequest(
        10_000,
        topics * partitions * len(batch_of(b"v")),
        1 << 20,
        [
            fetch.FetchTopic(name, ZERO_UUID, [fetch.FetchPartition(each, 0, 1000) for each in range(partitions)])
            for name in names
        ],
    )
    clients[1].request(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, wanted)))
    answered = fetch.decode_response(12, clients[1].answer(ApiKey.FETCH, 12)[1]).topics
    assert sum(each.high_watermark for topic in answered for each in topic.partitions) == topics * partitions
