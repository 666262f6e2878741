"""What brokers ask each other: whoever asked is told something, whatever comes back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce.broker_lite.node.request import Endpoint
from sparkonce.broker_lite.server.peers import PeerNetwork
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\xff" * 40])
def test_an_answer_that_makes_no_sense_is_none(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who asked, as a write that waits for its transaction's coordinator, would wait for ever."""
    loop = asyncio.new_event_loop()
    try:
        broker: Any = SimpleNamespace(config=SimpleNamespace(node_id=1))
        network = PeerNetwork(loop, broker, Endpoint("here", 1))
        peer = SimpleNamespace(request=lambda _api, _version, _body, then: then(memoryview(body)))
        monkeypatch.setattr(network, "connection", lambda _broker_id, _purpose: peer)
        told: list[Any] = []
        network.send(2, apis.request(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[]), told.append)
        assert told == [None]
    finally:
        loop.close()
