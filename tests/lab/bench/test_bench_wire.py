"""The clients of the benchmarks, tried on our broker in a thread: what they count has really been stored."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.bench import ready
from lab.bench.load import LoadError, create_topic, delete_topic, records_in
from lab.bench.ready import await_records, start_ours
from lab.bench.requests import TRANSACTION_RECORDS, transactions_per_second
from lab.bench.scale import group_per_second
from lab.bench.wire import BrokerConnection, api_versions, produce_frame, requests_per_second, round_trip_s
from sparkonce import EmbeddedBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        yield broker.bootstrap_servers


def test_a_broker_that_answers_is_ready(servers: str) -> None:
    api_versions(servers)


@pytest.mark.parametrize("connections", [1, 8])
def test_every_request_that_is_counted_was_stored_once(servers: str, connections: int) -> None:
    topic = f"requests-{connections}"
    create_topic(servers, topic, 2)
    frames = [produce_frame(topic, index % 2, 3, 10) for index in range(connections)]
    assert requests_per_second(servers, frames, 20) > 0
    assert records_in(servers, topic, 2) == 60


def test_more_connections_than_requests_send_one_each(servers: str) -> None:
    create_topic(servers, "few", 1)
    requests_per_second(servers, [produce_frame("few", 0, 1, 10)] * 4, 1)
    assert records_in(servers, "few", 1) == 4


def test_a_refused_batch_fails_the_benchmark(servers: str) -> None:
    with BrokerConnection(servers) as connection, pytest.raises(LoadError, match="error 3"):
        round_trip_s(connection, produce_frame("absent", 0, 1, 10))


def test_an_answer_may_come_in_pieces() -> None:
    connection = BrokerConnection.__new__(BrokerConnection)
    connection._received = bytearray()

    class Pieces:
        def __init__(self, *pieces: bytes) -> None:
            self.left = list(pieces)

        def recv(self, _: int) -> bytes:
            return self.left.pop(0)

    connection.socket = Pieces(b"\0\0", struct.pack(">h", 3) + b"a", b"bc")  # type: ignore[assignment]
    assert [connection.receive() for _ in range(3)] == [None, None, b"abc"]
    connection.socket = Pieces(b"")  # type: ignore[assignment]
    with pytest.raises(LoadError, match="closed a connection"):
        connection.receive()


def test_a_transaction_holds_five_hundred_records(servers: str) -> None:
    create_topic(servers, "transactions", 4)
    assert transactions_per_second(servers, "transactions", 2) > 0
    # Each transaction leaves a marker in each of the four partitions.
    assert records_in(servers, "transactions", 4) == 2 * (TRANSACTION_RECORDS + 4)


@pytest.mark.parametrize("members", [1, 2])
def test_a_group_reads_everything_together(servers: str, members: int) -> None:
    topic = f"group-{members}"
    create_topic(servers, topic, 8)
    requests_per_second(servers, [produce_frame(topic, index, 5, 10) for index in range(8)], 8)
    assert group_per_second(servers, topic, 40, members, topic) > 0


def test_waiting_for_records_finds_too_few(servers: str) -> None:
    create_topic(servers, "short", 1)
    with pytest.raises(LoadError, match="holds 0 records; 1 were acknowledged"):
        await_records(servers, "short", 1, 1)


def test_a_topic_that_was_removed_can_be_made_again(servers: str) -> None:
    create_topic(servers, "again", 1)
    with pytest.raises(LoadError, match="again"):
        create_topic(servers, "again", 1)
    delete_topic(servers, "again")
    create_topic(servers, "again", 1)
    with pytest.raises(LoadError, match="absent"):
        delete_topic(servers, "absent")


def test_a_start_is_a_process_that_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "_IDLE_S", 0)
    start = start_ours(tmp_path / "data", api_versions)
    assert start.ready_s > 0
    assert 1 < start.rss_mb < 1000


def test_a_broker_that_cannot_start_is_told_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LoadError, match="did not start"):
        start_ours(tmp_path / "file", api_versions)
