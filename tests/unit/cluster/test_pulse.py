"""A thread beats for a loop that is busy, and not for one that is gone."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.server.membership import ClusterShell
from sparkonce.broker_lite.server.pulse import Pulse
from tests.unit.cluster.shared import SHARED, SharedClock, SharedStorage

DEADLINE_S = 30.0


def test_it_beats_as_long_as_the_loop_is_seen() -> None:
    clock, beats = SharedClock(), threading.Semaphore(0)
    pulse = Pulse(lambda: beats.release(), clock, 1, 100)
    pulse.loop_is_seen(needed=True)
    try:
        assert beats.acquire(timeout=DEADLINE_S)
        clock.ms += 99
        assert beats.acquire(timeout=DEADLINE_S)
        pulse.loop_is_seen(needed=True)
        clock.ms += 99
        assert beats.acquire(timeout=DEADLINE_S)
    finally:
        pulse.stop()


def test_a_broker_has_it_beat_as_soon_as_it_leads() -> None:
    """What it does in that turn of its event loop may take long: logs of a thousand partitions, say."""
    told: list[bool] = []
    pulse = SimpleNamespace(loop_is_seen=lambda *, needed: told.append(needed))
    coordination = FileCoordination(SharedStorage(), SHARED, 1, 0, 0)
    shell: Any = ClusterShell.__new__(ClusterShell)
    shell.member = SimpleNamespace(join=lambda _membership: None)
    shell._membership = SimpleNamespace(controller=SimpleNamespace(active=False))
    shell._broker = SimpleNamespace(config=BrokerConfig(), clock=None)
    shell._host = SimpleNamespace(pulse=lambda *_: pulse)
    shell.coordination = coordination
    shell.join()
    assert coordination.lead(0, 0) is not None
    assert told == [False, True]


def test_it_goes_on_after_a_beat_that_fails() -> None:
    beats = threading.Semaphore(0)

    def fail() -> None:
        beats.release()
        raise OSError("no disk")

    pulse = Pulse(fail, SharedClock(), 1, 100)
    pulse.loop_is_seen(needed=True)
    try:
        for _ in range(2):
            assert beats.acquire(timeout=DEADLINE_S)
    finally:
        pulse.stop()


def test_it_is_silent_for_a_loop_that_is_gone() -> None:
    clock, beats = SharedClock(), 0
    asked = threading.Semaphore(0)

    def now() -> int:
        asked.release()
        return clock()

    def beat() -> None:
        nonlocal beats
        beats += 1

    clock.ms += 1_000
    pulse = Pulse(beat, now, 1, 0)
    pulse.loop_is_seen(needed=True)
    try:
        for _ in range(5):
            assert asked.acquire(timeout=DEADLINE_S)
    finally:
        pulse.stop()
    assert beats == 0
