"""Connections that end while there is something to do: the server stops, or the client goes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from pathlib import Path

import pytest

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.server.server import Server
from sparkonce.kafka.protocol import fetch
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.frames import encode_request_header
from sparkonce.kafka.protocol.primitives import ZERO_UUID

DEADLINE_S = 30.0


async def _connect_and_stop(data_dir: Path, turns: int) -> socket.socket:
    """Return a client's socket that was connected so many turns of the loop before the server stopped."""
    server = Server(BrokerConfig.of({}), str(data_dir))
    await server.start()
    host, _, port = next(iter(server.addresses.values())).rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=10)
    for _ in range(turns):
        await asyncio.sleep(0)
    await server.stop()
    return client


@pytest.mark.parametrize("turns", range(8))
def test_no_connection_outlives_the_server(tmp_path: Path, turns: int) -> None:
    with asyncio.run(_connect_and_stop(tmp_path, turns)) as client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


async def _fetch_and_leave(data_dir: Path) -> None:
    """Let a client wait in a fetch for as long as it can ask for, and leave; returns when the fetch is forgotten."""
    server = Server(BrokerConfig.of({}), str(data_dir))
    await server.start()
    server.broker.create_topic("t", 1, {})
    host, _, port = next(iter(server.addresses.values())).rpartition(":")
    topic = fetch.FetchTopic("t", ZERO_UUID, [fetch.FetchPartition(0, 0, 1 << 20)])
    body = fetch.encode_request(12, fetch.FetchRequest(2**31 - 1, 2**31 - 1, 2**31 - 1, [topic]))
    frame = bytes(encode_request_header(ApiKey.FETCH, 12, 1, "test")) + bytes(body)
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(struct.pack(">i", len(frame)) + frame)
    while not server.broker.cluster.purgatory.size:
        await asyncio.sleep(0)
    writer.close()
    while server.broker.cluster.purgatory.size:
        await asyncio.sleep(0)
    await server.stop()


def test_a_fetch_whose_client_has_gone_is_forgotten(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_fetch_and_leave(tmp_path), DEADLINE_S))


async def _fail_at_first(data_dir: Path, failures: list[Exception]) -> int:
    """Return how often what the server does by the clock was done, when it has succeeded once."""
    server = Server(BrokerConfig.of({}), str(data_dir))
    await server.start()
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context.get("exception")))
    done, times = asyncio.Event(), 0

    def work() -> None:
        nonlocal times
        times += 1
        if failures:
            raise failures.pop()
        done.set()

    server._every(0.0, work)
    await done.wait()
    await server.stop()
    assert all(isinstance(each, ValueError) for each in told)
    return times


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("a mistake")])
def test_what_is_done_by_the_clock_goes_on_after_a_failure(tmp_path: Path, error: Exception) -> None:
    assert asyncio.run(asyncio.wait_for(_fail_at_first(tmp_path, [error, error]), DEADLINE_S)) >= 3
