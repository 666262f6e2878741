"""The queue of spans: nobody waits for a collector that is slow, gone or absent, and what is wrong is said once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import pytest

from sparkonce.connectors.telemetry import export
from sparkonce.connectors.telemetry.export import MAX_QUEUED, QUIET_S, SpanQueue
from sparkonce.connectors.telemetry.spans import BatchTrace, Interval, Span

TIMEOUT_S = 30
TRACE = BatchTrace("q", "r", 0)
SPAN = TRACE.child("read", Interval(1, 2), {})


class Receiver:
    """Takes spans, or waits until it may."""

    def __init__(self, works: bool = True) -> None:
        self.works = works
        self.spans: list[Span] = []
        self.may_take = threading.Event()
        self.may_take.set()

    def connect(self) -> Callable[[Sequence[Span]], bool]:
        def send(spans: Sequence[Span]) -> bool:
            assert self.may_take.wait(TIMEOUT_S)
            if self.works:
                self.spans += spans
            return self.works

        return send


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_added_is_there_after_a_flush() -> None:
    receiver = Receiver()
    queue = SpanQueue(receiver.connect)
    queue.add([SPAN] * 3)
    assert queue.flush(TIMEOUT_S)
    assert receiver.spans == [SPAN] * 3


def test_a_collector_that_hangs_is_waited_for_once_and_not_again_for_a_while() -> None:
    receiver, clock = Receiver(), Clock()
    receiver.may_take.clear()
    queue = SpanQueue(receiver.connect, clock)
    queue.add([SPAN])
    assert not queue.flush(0.0)
    assert not queue.flush(float("inf")), "it does not wait"
    receiver.may_take.set()
    clock.now = QUIET_S
    assert queue.flush(TIMEOUT_S)


def test_spans_that_nobody_takes_are_dropped() -> None:
    receiver = Receiver()
    receiver.may_take.clear()
    queue = SpanQueue(receiver.connect)
    queue.add([SPAN] * (2 * MAX_QUEUED))
    receiver.may_take.set()
    assert queue.flush(TIMEOUT_S)
    assert MAX_QUEUED <= len(receiver.spans) < 2 * MAX_QUEUED


def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    receiver, clock = Receiver(works=False), Clock()
    queue = SpanQueue(receiver.connect, clock)
    for _ in range(3):
        queue.add([SPAN])
        queue.flush(TIMEOUT_S)
    assert len([each for each in caplog.records if "cannot be sent" in each.message]) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [(ImportError("No module named 'opentelemetry'"), "sparkonce[otel]"), (ValueError("only http"), "only http")],
)
def test_without_a_way_to_send_spans_are_dropped_and_it_is_said_why(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def connect() -> Callable[[Sequence[Span]], bool]:
        raise error

    with caplog.at_level(logging.WARNING):
        queue = SpanQueue(connect)
        queue.add([SPAN])
        assert queue.flush(TIMEOUT_S)
    assert [each.message for each in caplog.records if said in each.message]


def test_a_process_that_is_forked_has_a_queue_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    monkeypatch.setattr(export, "_connect", receiver.connect)
    monkeypatch.setattr(export, "_queues", {os.getpid() + 1: None})
    export.export(SPAN)
    export.flush()
    assert receiver.spans == [SPAN]


def test_nothing_of_opentelemetry_is_loaded_unless_it_is_on() -> None:
    code = (
        "import sys, sparkonce.connectors.formats.delta_once, sparkonce.connectors.formats.kafka_once as f, sparkonce\n"
        "import sparkonce.connectors.kafka_source.source, sparkonce.connectors.sinks.stream_sink\n"
        "sparkonce.LagListener\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
