"""What a client reports of a ZooKeeper that it cannot reach."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from sparkonce.broker_lite.server.zookeeper_client import ZooKeeperClient


def test_a_host_that_cannot_be_resolved_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def resolve(host: str, port: int, *_: object) -> list[Any]:
        if host == "unknown":
            raise socket.gaierror("no such host")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    loop = asyncio.new_event_loop()
    try:
        client = ZooKeeperClient("known:1,unknown:2/chroot", 1000, loop)
        for _ in range(2):
            assert client._kazoo._connection._expand_client_hosts() == [("known", "127.0.0.1", 1)]
    finally:
        loop.close()
    assert [each.message for each in caplog.records] == [
        "ZooKeeper: the host unknown cannot be resolved; it is tried again"
    ]
