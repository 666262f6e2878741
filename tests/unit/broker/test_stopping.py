"""A server that stops while clients are connecting."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from broker_lite.config import BrokerConfig
from broker_lite.server.server import Server


async def _connect_and_stop(data_dir: Path, turns: int) -> socket.socket:
    """Give a client's socket that was connected so many turns of the loop before the server stopped."""
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
