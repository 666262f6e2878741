"""A broker without sockets, files or a clock of its own, asked by whole requests."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.request import Endpoint, Request
from sparkonce.broker_lite.node.standalone import StandaloneMode
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.handling import handle

NODE = 3
NOW_MS = 1_700_000_000_000


class NoTimer:
    def cancel(self) -> None:
        pass


class Asked:
    """`ask` sends a request through codecs and handlers; `restart` begins anew on the same storage."""

    def __init__(self, **settings: object) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self._config = BrokerConfig.of({"node.id": NODE, **given})
        self._storage = SimulatedDisk()
        self._ids = iter(range(1, 1_000_000))
        self.broker = self._open()

    def restart(self) -> None:
        self.broker.close()
        self.broker = self._open()

    def crash(self) -> None:
        """Start the broker again after one that ended with nothing more written."""
        self.broker.logs.abandon()
        self.broker = self._open()

    def lose_power(self, seed: int) -> None:
        """Start the broker again after a loss of power, which of what was not flushed keeps some, by the seed."""
        self.broker.logs.abandon()
        self._storage.lose_power(random.Random(seed))
        self.broker = self._open()

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        body = apis.encode_request(apis.request(key, version, **fields), version)
        endpoint = Endpoint("127.0.0.1", 9092)
        request = Request(key, version, 1, "tests", "127.0.0.1", memoryview(body), "User:ANONYMOUS", endpoint)
        answer = handle(self.broker, request)
        assert answer is not None
        (part,) = answer
        assert isinstance(part, bytearray)
        return apis.decode_response(key, version, part)

    def create(self, name: str, partitions: int = 1, **settings: str) -> None:
        self.broker.create_topic(name, partitions, {key.replace("_", "."): value for key, value in settings.items()})

    def append(self, topic: str, *values: bytes, partition: int = 0) -> None:
        batch = encode_batch([Record(None, value, NOW_MS) for value in values])
        self.broker.partition(topic, partition).append(bytearray(batch), 0, NOW_MS)

    def _open(self) -> Broker:
        clock = Clock(lambda: NOW_MS, lambda: NOW_MS)
        return Broker(
            self._config, self._storage, "/log", clock, self, StandaloneMode(), lambda: uuid.UUID(int=next(self._ids))
        )

    def call_soon(self, callback: Callable[[], object]) -> object:
        raise AssertionError("no admin request waits")

    def call_later(self, delay: float, callback: Callable[[], object]) -> NoTimer:
        return NoTimer()
