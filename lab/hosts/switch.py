"""A switch between hosts that loses and delays frames, in each direction by the quality that is set.

Theory of operation: each port is the descriptor of a TAP device, from which whole Ethernet frames are read. One thread
reads them, draws for each whether it is lost and how late it is, and writes it to the port of its receiver. Frames of
one direction stay in order. Only frames to the address of a port are forwarded: hosts know each other's addresses, so
that a network without a way back (which ARP would need) stays one that carries frames one way.
"""

from __future__ import annotations

import heapq
import itertools
import os
import random
import selectors
import threading
import time
from collections import Counter
from collections.abc import KeysView, Mapping
from dataclasses import dataclass
from typing import Final

Direction = tuple[str, str]
"""The names of the hosts from which and to which frames go."""

MAX_FRAME_BYTES: Final = 65_536
FRAMES_A_TURN: Final = 64
MAX_WAITING: Final = 20_000
"""Frames under way; more are lost."""
ADDRESS_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Quality:
    """How one direction carries frames."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Up to so much is added to the delay."""
    loss: float = 0.0
    """The share of frames that are lost; 1 is a partition."""


CUT: Final = Quality(loss=1.0)


class Switch:
    """Forwards frames from construction to `close`."""

    def __init__(self, ports: Mapping[bytes, tuple[str, int]], seed: int) -> None:
        """Start; `ports` has each host's name and descriptor by its Ethernet address. They stay the caller's."""
        self._ports = ports
        self._chance = random.Random(seed)  # noqa: S311 - to repeat it by its seed
        names = [name for name, _ in ports.values()]
        self._qualities = {each: Quality() for each in itertools.permutations(names, 2)}
        self._last_due_s = dict.fromkeys(self._qualities, 0.0)
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()
        self.passed: Counter[Direction] = Counter()
        self.lost: Counter[Direction] = Counter()
        self._closed = False
        self._waking, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="switch")
        self._thread.start()

    @property
    def directions(self) -> KeysView[Direction]:
        """Every pair of hosts, each way."""
        return self._qualities.keys()

    def set_quality(self, direction: Direction, quality: Quality) -> None:
        """Carry frames so from now on; those under way arrive."""
        assert direction in self._qualities
        self._qualities[direction] = quality

    def close(self) -> None:
        """Stop, and wait for the thread."""
        self._closed = True
        os.write(self._wake, b"!")
        self._thread.join()
        os.close(self._wake)
        os.close(self._waking)

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._waking, selectors.EVENT_READ)
            for name, port in self._ports.values():
                os.set_blocking(port, False)
                ready.register(port, selectors.EVENT_READ, name)
            while not self._closed:
                for key, _ in ready.select(self._left_s()):
                    if key.data is not None:
                        self._read(key.fd, key.data)
                self._deliver()

    def _left_s(self) -> float | None:
        return max(self._under_way[0][0] - time.monotonic(), 0) if self._under_way else None

    def _read(self, port: int, sender: str) -> None:
        for _ in range(FRAMES_A_TURN):
            try:
                frame = os.read(port, MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            receiver = self._ports.get(frame[:ADDRESS_BYTES])
            if receiver is not None:
                self._forward((sender, receiver[0]), receiver[1], frame)

    def _forward(self, direction: Direction, port: int, frame: bytes) -> None:
        quality = self._qualities[direction]
        if self._chance.random() < quality.loss or len(self._under_way) >= MAX_WAITING:
            self.lost[direction] += 1
            return
        due_s = time.monotonic() + quality.delay_s + self._chance.random() * quality.jitter_s
        due_s = self._last_due_s[direction] = max(due_s, self._last_due_s[direction])
        self.passed[direction] += 1
        heapq.heappush(self._under_way, (due_s, next(self._numbers), port, frame))

    def _deliver(self) -> None:
        now_s = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, port, frame = heapq.heappop(self._under_way)
            try:
                os.write(port, frame)
            except BlockingIOError:
                continue  # its receiver's queue is full: lost, as on any network
