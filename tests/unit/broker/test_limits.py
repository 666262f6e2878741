"""What a client that is too slow, too greedy or too many runs into."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.log import topics_file
from sparkonce.broker_lite.node import refusal_log
from sparkonce.broker_lite.server import limits, log_rate
from sparkonce.broker_lite.server.connections import BulkTurns, ConnectionTable, Memory, MemoryBoundError, Watch
from sparkonce.broker_lite.server.server import Server
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.frames import encode_request_header
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.unit.broker.test_connection import (
    API_VERSIONS,
    Client,
    batch_of,
    fetch_body,
    make_topic,
    produce_body,
    serves,
)

# Watching, with the time passed in.


@dataclass
class Seen:
    requests: int = 0
    is_served: bool = False
    frame_bytes: int | None = None
    unsent_bytes: int = 0
    here_bytes: int = 0


def test_a_frame_has_its_time_by_its_size() -> None:
    watch = Watch(0)
    allowed_ms = limits.FRAME_TIMEOUT_MS + 10_000
    begun = Seen(frame_bytes=10 * limits.MIN_RECEIVED_BYTES_PER_S)
    assert [watch.look(begun, now_ms) is None for now_ms in (5, 5 + allowed_ms, 6 + allowed_ms)] == [True, True, False]


def test_another_frame_has_its_own_time() -> None:
    watch = Watch(0)
    for number in range(5):
        assert watch.look(Seen(requests=number, frame_bytes=10), number * limits.FRAME_TIMEOUT_MS) is None


def test_the_brokers_own_time_does_not_count() -> None:
    watch = Watch(0)
    assert watch.look(Seen(frame_bytes=10), 0) is None
    assert watch.look(Seen(frame_bytes=10, is_served=True), 10**6) is None
    assert watch.look(Seen(frame_bytes=10), 2 * 10**6) is None


def test_a_reader_must_read_something() -> None:
    watch = Watch(0)
    late_ms = limits.SEND_TIMEOUT_MS + 1
    assert watch.look(Seen(unsent_bytes=100), 0) is None
    assert watch.look(Seen(unsent_bytes=99), late_ms) is None
    assert watch.look(Seen(unsent_bytes=120), late_ms + 1) is None
    assert "has not read any of 130 bytes" in str(watch.look(Seen(unsent_bytes=130), 2 * late_ms))
    assert watch.look(Seen(), 2 * late_ms + 1) is None


def test_idle_is_who_asks_for_nothing() -> None:
    watch = Watch(0)
    for seen in (Seen(requests=1), Seen(requests=1, is_served=True), Seen(requests=1, unsent_bytes=5)):
        watch.look(seen, 500)
        assert watch.idle_ms(seen, 500) == 0
    watch.look(Seen(requests=1), 900)
    assert watch.idle_ms(Seen(requests=1), 900) == 400


@pytest.mark.parametrize(
    ("size", "expected"),
    [(limits.BULK_BYTES_PER_ROUND, ["a", "ab", "abc"]), (limits.BULK_BYTES_PER_ROUND // 3, ["abc"])],
)
def test_large_requests_come_a_few_in_a_round(size: int, expected: list[str]) -> None:
    rounds: list[Callable[[], None]] = []

    class Loop:
        def call_soon(self, callback: Callable[[], None]) -> None:
            rounds.append(callback)

    turns, done = BulkTurns(Loop()), []
    for name in "abc":
        turns.book(name, size, lambda name=name: done.append(name))  # type: ignore[misc]
        assert not turns.is_alone(name)
    for so_far in expected:
        assert len(rounds) == 1
        rounds.pop()()
        assert "".join(done) == so_far
    assert rounds == []


def test_who_loads_alone_for_a_while_need_not_book_turns() -> None:
    rounds: list[Callable[[], None]] = []

    class Loop:
        def call_soon(self, callback: Callable[[], None]) -> None:
            rounds.append(callback)

    turns = BulkTurns(Loop())

    def load(owner: str, count: int) -> None:
        for _ in range(count):
            assert not turns.is_alone(owner)
            turns.book(owner, 1, lambda: None)
            rounds.pop()()

    load("a", limits.BULK_TURNS_ALONE + 1)
    assert turns.is_alone("a")
    assert not turns.is_alone("b")
    turns.small_request()
    load("a", limits.BULK_TURNS_ALONE)
    assert turns.is_alone("a")
    turns.book("b", 1, lambda: None)
    assert not turns.is_alone("a")
    rounds.pop()()
    load("a", limits.BULK_TURNS_ALONE + 1)
    assert turns.is_alone("a")
    turns.forget("a")
    assert not turns.is_alone("a")


def test_memory_is_counted_until_it_is_given_back() -> None:
    memory = Memory(100)
    memory.change(100, memory)
    with pytest.raises(MemoryBoundError, match="more than 100 bytes"):
        memory.change(1, memory)
    memory.change(-101, memory)
    assert memory.used == 0


def test_connections_are_counted_by_address() -> None:
    refused: list[str] = []

    class Member:
        def __init__(self, host: str) -> None:
            self.host = host

    config = BrokerConfig.of({"max.connections.per.ip": 2, "max.connections": 4})
    no_loop: Any = Any
    table = ConnectionTable(config, no_loop, lambda: 0, refused.append)
    members = [Member(host) for host in "aaabbb"]
    assert [table.admit(each) for each in members] == [True, True, False, True, True, False]  # type: ignore[arg-type]
    assert [line.split(":")[0] for line in refused] == ["connection from a refused", "connection refused"]
    for each in members:
        table.discard(each)  # type: ignore[arg-type]
    assert len(table) == 0
    assert table.admit(members[0])  # type: ignore[arg-type]


# The same over sockets.


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FRAME_TIMEOUT_MS", "SEND_TIMEOUT_MS", "SHRINK_AFTER_MS"):
        monkeypatch.setattr(limits, name, 50)
    monkeypatch.setattr("sparkonce.broker_lite.server.server.SWEEP_INTERVAL_S", 0.01)


@pytest.fixture
def client(kafka_broker: EmbeddedBroker) -> Iterator[Client]:
    connected = Client(kafka_broker)
    yield connected
    connected.close()


def server_of(broker: EmbeddedBroker) -> Server:
    server: Server = broker._runner._server  # type: ignore[union-attr]
    return server


def table_of(broker: EmbeddedBroker) -> ConnectionTable:
    table = server_of(broker)._connections
    assert table is not None
    return table


def lines(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_a_trickling_writer_is_cut_off(impatient: None, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def trickle() -> None:
        try:
            client.socket.sendall(struct.pack(">i", 10_000))
            while True:
                client.socket.sendall(b"x")
                stop.wait(0.005)
        except OSError:
            pass

    stop = threading.Event()
    writer = threading.Thread(target=trickle)
    writer.start()
    assert client.is_closed()
    writer.join()
    assert "its frame of 10004 bytes did not get whole" in lines(caplog)


def test_half_a_size_is_a_frame_too(impatient: None, client: Client) -> None:
    client.socket.sendall(b"\0\0")
    assert client.is_closed()


def test_a_reader_that_does_not_read_is_cut_off(
    impatient: None, kafka_broker: EmbeddedBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(client, "t")
    for _ in range(8):
        client.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x" * 900_000)))
        client.answer(ApiKey.PRODUCE, 9)
    slow = Client(kafka_broker)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    topic = fetch.FetchTopic("t", ZERO_UUID, [fetch.FetchPartition(0, 0, 1 << 30)])
    slow.request(ApiKey.FETCH, 12, bytes(fetch.encode_request(12, fetch.FetchRequest(0, 1, 1 << 30, [topic]))))
    wait_until(kafka_broker, lambda: "has not read any of" in lines(caplog))
    slow.close()


def wait_until(broker: EmbeddedBroker, true: Callable[[], bool]) -> None:
    """Ask again on the broker's loop until it is so, or for half a minute."""
    loop = broker._runner._loop  # type: ignore[union-attr]
    assert loop is not None
    reached = threading.Event()

    def look() -> None:
        if true():
            reached.set()
        else:
            loop.call_later(0.005, look)

    loop.call_soon_threadsafe(look)
    assert reached.wait(30)


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkonce.broker_lite.server.server.SWEEP_INTERVAL_S", 0.01)
    with EmbeddedBroker(config={"connections.max.idle.ms": 50}) as broker:
        client = Client(broker)
        assert serves(client)
        assert client.is_closed()
        client.close()


def test_a_grown_buffer_is_given_back(impatient: None, kafka_broker: EmbeddedBroker, client: Client) -> None:
    memory = table_of(kafka_broker).memory
    client.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x" * 900_000)))
    client.answer(ApiKey.PRODUCE, 9)
    wait_until(kafka_broker, lambda: memory.used == 0)
    assert serves(client)


def test_connections_share_a_buffer_until_something_stays_in_theirs(kafka_broker: EmbeddedBroker) -> None:
    """Whole requests of many leave nothing behind; parts of their frames do not meet."""
    memory = table_of(kafka_broker).memory
    clients = [Client(kafka_broker) for _ in range(20)]
    make_topic(clients[0], "t")
    assert all(serves(each) for each in clients)
    assert memory.used == 0
    frames = []
    for number in range(len(clients)):
        header = bytes(encode_request_header(ApiKey.PRODUCE, 9, number, "test"))
        frame = header + produce_body(batch_of(bytes([number]) * 10_000))
        frames.append(struct.pack(">i", len(frame)) + frame)
    for part in (slice(0, 3), slice(3, 5_000), slice(5_000, None)):
        for each, frame in zip(clients, frames, strict=True):
            each.socket.sendall(frame[part])
        wait_until(kafka_broker, lambda: memory.used == len(clients) * limits.READ_BUFFER_BYTES)
    for number, each in enumerate(clients):
        correlation_id, body = each.answer(ApiKey.PRODUCE, 9)
        (topic,) = produce.decode_response(9, body).topics
        assert (correlation_id, topic.partitions[0].error_code) == (number, ErrorCode.NONE)
        each.close()
    wait_until(kafka_broker, lambda: memory.used == 0)


def test_requests_that_do_not_get_whole_hold_a_bounded_memory(
    kafka_broker: EmbeddedBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert serves(client)
    table_of(kafka_broker).memory.limit = 4 * limits.MAX_IDLE_READ_BUFFER_BYTES
    greedy = Client(kafka_broker)
    with contextlib.suppress(OSError):
        greedy.socket.sendall(struct.pack(">i", 50 << 20) + b"x" * (50 << 20))
    assert greedy.is_closed()
    greedy.close()
    assert "all connections together hold more than" in lines(caplog)
    assert serves(client)
    wait_until(kafka_broker, lambda: table_of(kafka_broker).memory.used == 0)


def test_memory_is_taken_from_those_who_hold_it(
    impatient: None, kafka_broker: EmbeddedBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Many connections announce 99 MiB, send a part of it and stand still; a new client needs a megabyte."""
    assert serves(client)
    table = table_of(kafka_broker)
    holders = [Client(kafka_broker) for _ in range(20)]
    for each in holders:
        each.socket.sendall(struct.pack(">i", 99 << 20) + b"x" * 300_000)
    wait_until(kafka_broker, lambda: table.memory.used >= 20 * limits.MAX_IDLE_READ_BUFFER_BYTES)
    table.memory.limit = table.memory.used
    for _ in range(3):
        new = Client(kafka_broker)
        new.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x" * 900_000)))
        new.answer(ApiKey.PRODUCE, 9)
        new.close()
    assert serves(client)
    assert "all connections together hold more than" in lines(caplog)
    assert table.memory.used <= table.memory.limit
    for each in holders:
        each.close()


def test_a_large_request_that_waits_keeps_its_bytes_and_gives_back_their_memory(
    kafka_broker: EmbeddedBroker, client: Client
) -> None:
    """What the client sends behind it is read meanwhile, into another buffer."""
    names = [f"kept-{number:02}-{'x' * 220}" for number in range(32)]
    fields = {"topics": [(name, 1, 1, [], []) for name in names], "timeout_ms": 1000, "validate_only": False}
    body = bytes(apis.encode_request(apis.request(ApiKey.CREATE_TOPICS, 4, **fields), 4))
    assert len(body) > limits.COPIED_BYTES
    assert serves(client)
    table = table_of(kafka_broker)
    before = table.memory.used
    with kafka_broker.faults.pause(api="CreateTopics") as fault:
        client.request(ApiKey.CREATE_TOPICS, 4, body)
        fault.wait()
        for _ in range(20):
            client.send_frame(API_VERSIONS + bytes(1000))
        wait_until(kafka_broker, lambda: table.memory.used >= before + 2 * limits.READ_BUFFER_BYTES)
    answer = apis.decode_response(ApiKey.CREATE_TOPICS, 4, client.answer(ApiKey.CREATE_TOPICS, 4)[1])
    assert [(each.name, each.error_code) for each in answer.topics] == [(name, 0) for name in names]
    assert all(client.answer(ApiKey.API_VERSIONS, 0)[0] == 7 for _ in range(20))
    wait_until(kafka_broker, lambda: table.memory.used == before)


def test_a_request_whose_client_has_gone_holds_no_memory_of_others(
    kafka_broker: EmbeddedBroker, client: Client
) -> None:
    """A member waits for its group's rebalance; the limit would close others for bytes that no connection holds."""
    client.request(ApiKey.FIND_COORDINATOR, 1, bytes(apis.encode_request(apis.request(10, 1, key="g", key_type=0), 1)))
    client.answer(ApiKey.FIND_COORDINATOR, 1)
    table, broker = table_of(kafka_broker), server_of(kafka_broker).broker
    assert broker is not None
    join = apis.request(
        ApiKey.JOIN_GROUP,
        3,
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[("p", b"x" * 1_000_000)],
    )
    for count in (1, 2, 3):
        leaving = Client(kafka_broker)
        leaving.request(ApiKey.JOIN_GROUP, 3, bytes(apis.encode_request(join, 3)))
        wait_until(kafka_broker, lambda: len(getattr(broker.groups.group("g"), "members", ())) == count)  # noqa: B023
        leaving.close()
        wait_until(kafka_broker, lambda: table.memory.used == 0)


@pytest.mark.parametrize("api", ["Fetch", "ApiVersions"])
def test_a_small_request_that_waits_keeps_no_read_buffer(
    kafka_broker: EmbeddedBroker, client: Client, api: str
) -> None:
    make_topic(client, "t")
    table = table_of(kafka_broker)
    before = table.memory.used
    with kafka_broker.faults.pause(api=api) as fault:
        client.request(ApiKey.FETCH, 12, fetch_body(0, 0)) if api == "Fetch" else client.send_frame(API_VERSIONS)
        fault.wait()
        wait_until(kafka_broker, lambda: table.memory.used == before)
        fault.release()


def test_one_byte_of_a_frame_is_no_hold_on_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that each sent one byte, and stand still, fill what all may hold; a part of a frame gets in."""
    monkeypatch.setattr("sparkonce.broker_lite.server.server.SWEEP_INTERVAL_S", 0.01)
    with EmbeddedBroker() as broker:
        table = table_of(broker)
        table.memory.limit = 20 * limits.READ_BUFFER_BYTES
        holders = [Client(broker) for _ in range(20)]
        for each in holders:
            each.socket.sendall(b"\0")
        wait_until(broker, lambda: table.memory.used == table.memory.limit)
        wait_until(broker, lambda: all(each.watch.stands_still(each) for each in table))
        new = Client(broker)
        new.socket.sendall(struct.pack(">i", len(API_VERSIONS)))
        wait_until(broker, lambda: len(table) < 21)
        new.socket.sendall(API_VERSIONS)
        assert new.answer(ApiKey.API_VERSIONS, 0)[0] == 7
        for each in (new, *holders):
            each.close()


def test_who_stands_still_is_cut_off_before_who_sends() -> None:
    """A large request that comes as fast as it can is not what others' idle bytes are paid with."""
    no_loop: Any = Any
    table = ConnectionTable(BrokerConfig.of({}), no_loop, lambda: 0, str)
    table.memory.limit = 1_000_000

    class Member(Seen):
        __hash__ = object.__hash__

        def __init__(self, host: str, held_bytes: int) -> None:
            super().__init__(frame_bytes=99)
            self.host = host
            self.held_bytes = held_bytes
            self.watch = Watch(0)
            self.reason = ""

        def cut_off(self, reason: str) -> None:
            self.reason = reason
            table.memory.change(-self.held_bytes, self)
            self.held_bytes = 0

        def shrink(self) -> None:
            """Give back nothing."""

    held = (("a", 600_000), ("b", 150_000), ("c", 250_000), ("d", 0))
    sending, standing, still, new = (Member(*each) for each in held)
    for each in (sending, standing, still, new):
        assert table.admit(each)  # type: ignore[arg-type]
        table.memory.change(each.held_bytes, each)
    table.sweep()
    sending.here_bytes += 1
    table.sweep()
    table.memory.change(50_000, new)
    assert [bool(each.reason) for each in (sending, standing, still, new)] == [False, False, True, False]
    table.memory.change(500_000, new)  # what stands still is not enough
    assert [bool(each.reason) for each in (sending, standing, still, new)] == [True, True, True, False]
    new.held_bytes = 550_000
    with pytest.raises(MemoryBoundError, match="more than 1000000 bytes"):
        table.memory.change(500_000, new)


def test_answers_that_are_not_read_hold_a_bounded_memory(
    kafka_broker: EmbeddedBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(300):
        make_topic(client, f"a-topic-with-a-rather-long-name-so-that-its-metadata-is-large-{number:04}")
    table = table_of(kafka_broker)
    table.memory.limit = 2 * limits.READ_BUFFER_BYTES + 50_000
    slow = Client(kafka_broker)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = bytes(apis.encode_request(apis.request(ApiKey.METADATA, 8, topics=None), 8))
    with contextlib.suppress(OSError):
        for _ in range(1000):
            slow.request(ApiKey.METADATA, 8, body)
    wait_until(kafka_broker, lambda: "all connections together hold more than" in lines(caplog))
    slow.close()
    assert serves(client)
    wait_until(kafka_broker, lambda: table.memory.used == 0)


def test_the_frame_limit_is_a_setting_which_is_named_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(config={"socket.request.max.bytes": 1024}) as broker:
        for _ in range(3):
            client = Client(broker)
            client.socket.sendall(struct.pack(">i", 1025))
            assert client.is_closed()
            client.close()
    (line,) = [each for each in lines(caplog).splitlines() if "closing connection" in each]
    assert line.startswith("closing connection from 127.0.0.1:"), line
    assert line.endswith(": frame of 1025 bytes; at most 1024 are accepted (socket.request.max.bytes)"), line


def test_lines_that_are_left_out_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = [0]
    log = refusal_log.RefusalLog(lambda: now_ms[0])
    assert [log.note(f"{subject} {number}", subject) for number in range(2) for subject in "ab"] == [True] * 2 + [
        False
    ] * 2
    now_ms[0] = 60_000
    assert log.note("a 2", "a")
    assert lines(caplog).splitlines() == ["a 0", "b 0", "2 more lines like these", "a 2"]


def test_connections_of_one_address_are_bounded() -> None:
    with EmbeddedBroker(config={"max.connections.per.ip": 1}) as broker:
        first, second = Client(broker), Client(broker)
        assert serves(first)
        assert second.is_closed()
        first.close()
        wait_until(broker, lambda: len(table_of(broker)) == 0)
        third = Client(broker)
        assert serves(third)
        second.close()
        third.close()


def test_log_lines_are_bounded(
    kafka_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(refusal_log, "MAX_REFUSALS_LOGGED_PER_MINUTE", 3)
    for _ in range(10):
        bad = Client(kafka_broker)
        bad.socket.sendall(struct.pack(">ib", 1, 0))  # too short for a header
        assert bad.is_closed()
        bad.close()
    assert lines(caplog).count("closing connection") == 3


def test_lines_of_one_kind_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rate, "MAX_LOG_LINES_PER_MINUTE", 2)
    now_s = [0.0]
    rate = log_rate.LogRate(lambda: now_s[0])

    def passes(text: str, number: int) -> str | None:
        record = logging.LogRecord("broker", logging.INFO, "file", 1, text, (number,), None)
        return record.getMessage() if rate.filter(record) else None

    assert [passes("a %d", number) for number in range(4)] == ["a 0", "a 1", None, None]
    assert passes("b %d", 0) == "b 0"
    now_s[0] = 60.0
    assert [passes("a %d", 4), passes("a %d", 5)] == ["a 4 (2 lines like this were left out)", "a 5"]


def test_topics_and_partitions_are_bounded(
    kafka_broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_file, "MAX_PARTITIONS", 5)
    types = apis.request_class(ApiKey.CREATE_TOPICS)

    def create(name: str, partitions: int) -> int:
        topic = types.CreatableTopic(
            version=7, name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        body = apis.encode_request(apis.request(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000), 7)
        client.request(ApiKey.CREATE_TOPICS, 7, bytes(body))
        answer = apis.decode_response(ApiKey.CREATE_TOPICS, 7, client.answer(ApiKey.CREATE_TOPICS, 7)[1])
        code: int = answer.topics[0].error_code
        return code

    assert [create("a", 3), create("b", 3), create("c", 2)] == [0, ErrorCode.INVALID_PARTITIONS, 0]


def test_small_requests_are_served_beside_large_ones(kafka_broker: EmbeddedBroker, client: Client) -> None:
    loader = Client(kafka_broker)
    make_topic(loader, "t")
    for _ in range(20):
        loader.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x" * 60_000)))
        loader.send_frame(API_VERSIONS)
    assert serves(client)
    for _ in range(20):
        loader.answer(ApiKey.PRODUCE, 9)
        assert loader.answer(ApiKey.API_VERSIONS, 0)[0] == 7
    loader.close()
