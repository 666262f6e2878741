"""A broker without sockets, for frames that nobody should send."""

from __future__ import annotations

import gc
import heapq
import itertools
import random
import struct
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.log import topics_file
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.request import Body, CloseConnectionError, Endpoint, Request, frame_response
from sparkonce.broker_lite.node.standalone import StandaloneMode
from sparkonce.broker_lite.waiting import begin
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.fetch import parts_size
from sparkonce.kafka.protocol.frames import read_request_header
from tests.fuzz import corpus

MS_PER_FRAME = 100
INTERESTING = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\xff\xff", b"\x7f\xff", b"\0")


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """A clock and a scheduler that only move when told to."""

    def __init__(self) -> None:
        self.now_ms = corpus.NOW_MS
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Timer, Callable[[], object]]] = []

    def call_soon(self, callback: Callable[[], object]) -> object:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        timer = Timer()
        heapq.heappush(self._due, (self.now_ms + delay * 1000, next(self._numbers), timer, callback))
        return timer

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        while self._due and self._due[0][0] <= self.now_ms:
            _, _, timer, callback = heapq.heappop(self._due)
            if not timer.cancelled:
                callback()


class Target:
    """A broker that is fed frames; what it answers is framed and counted."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.time = Time()
        self.answered = self.refused = 0
        self._failure: Exception | None = None
        config = BrokerConfig.of({"num.partitions": 2, "transaction.max.timeout.ms": 60_000})
        clock = Clock(lambda: self.time.now_ms, lambda: self.time.now_ms)
        new_uuid = lambda: uuid.UUID(int=self.rng.getrandbits(128))  # noqa: E731
        self.broker = Broker(config, SimulatedDisk(), "/log", clock, self.time, StandaloneMode(), new_uuid)
        topic = self.broker.create_topic(corpus.TOPIC, 2, {})
        self.frames = [frame for _, _, frame in corpus.frames(self.rng, topic.topic_id)]

    def feed(self, frame: bytes) -> None:
        """Do as a connection does; anything but a ProtocolError comes through."""
        try:
            header = read_request_header(frame)
            request = Request(
                header.api_key,
                header.api_version,
                header.correlation_id,
                header.client_id or "",
                "127.0.0.1",
                memoryview(bytearray(frame))[header.body_position :],
                "User:fuzz",
                Endpoint("localhost", 9092),
            )
        except ProtocolError:
            self.refused += 1
            return
        begin(dispatch.handle(self.broker, request), partial(self._ended, request))
        if self._failure is not None:
            raise self._failure
        self.time.advance(MS_PER_FRAME)

    def _ended(self, request: Request, body: Body | None, error: Exception | None) -> None:
        if isinstance(error, (ProtocolError, CloseConnectionError)):
            self.refused += 1
        elif error is not None:
            self._failure = error
        else:
            self.answered += 1
            if body is not None:
                assert parts_size(frame_response(request, body)) >= 8

    def mutated(self) -> bytes:
        """Return a frame of the corpus with one to four things wrong in it."""
        frame = bytearray(self.rng.choice(self.frames))
        for _ in range(self.rng.randint(1, 4)):
            _MUTATIONS[self.rng.randrange(len(_MUTATIONS))](self, frame)
        return bytes(frame)


def _flip_bit(target: Target, frame: bytearray) -> None:
    if frame:
        frame[target.rng.randrange(len(frame))] ^= 1 << target.rng.randrange(8)


def _set_number(target: Target, frame: bytearray) -> None:
    number = target.rng.choice(INTERESTING)
    at = target.rng.randrange(len(frame) + 1)
    frame[at : at + len(number)] = number


def _cut(target: Target, frame: bytearray) -> None:
    del frame[target.rng.randrange(len(frame) + 1) :]


def _remove(target: Target, frame: bytearray) -> None:
    at = target.rng.randrange(len(frame) + 1)
    del frame[at : at + target.rng.randint(1, 8)]


def _insert(target: Target, frame: bytearray) -> None:
    at = target.rng.randrange(len(frame) + 1)
    frame[at:at] = target.rng.randbytes(target.rng.randint(1, 8))


def _repeat(target: Target, frame: bytearray) -> None:
    at = target.rng.randrange(len(frame) + 1)
    piece = frame[at : at + target.rng.randint(1, 40)]
    frame[at:at] = piece * target.rng.randint(1, 20)


def _splice(target: Target, frame: bytearray) -> None:
    other = target.rng.choice(target.frames)
    frame[target.rng.randrange(len(frame) + 1) :] = other[target.rng.randrange(len(other)) :]


def _other_version(target: Target, frame: bytearray) -> None:
    if len(frame) >= 4:
        struct.pack_into(">h", frame, 2, target.rng.randint(0, 18))


_MUTATIONS: list[Callable[[Target, bytearray], Any]] = [
    _flip_bit,
    _flip_bit,
    _set_number,
    _cut,
    _remove,
    _insert,
    _repeat,
    _splice,
    _other_version,
]


def fuzz(seed: int, frames: int, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Feed a new broker mutated frames, then whole ones, which it must still serve."""
    monkeypatch.setattr(topics_file, "MAX_PARTITIONS", 200)  # a mutated number of partitions is a large one
    target = Target(seed)
    for number in range(frames):
        frame = target.mutated()
        try:
            target.feed(frame)
        except Exception as error:
            error.add_note(f"seed {seed}, frame {number}: {frame.hex()}")
            raise
    before = target.refused
    for frame in target.frames:
        target.feed(frame)
    assert target.refused == before, "a frame of the corpus is refused"
    gc.collect()
    return target
