"""Markers that wait for their broker while their partition goes elsewhere and comes back, or that nobody takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.transaction_messages import Markers
from sparkonce.broker_lite.node.markers import MAX_RETRY_S, RETRY_S, MarkerSender
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode

Place = tuple[str, int]


class Coordinator:
    """The coordinator as the sender knows it: every decision is safe at once."""

    def __init__(self) -> None:
        self.left: dict[str, set[Place]] = {}
        self.completed: list[str] = []
        self.partitions = SimpleNamespace(epoch_of=lambda _: 3, safe=self.safe)
        self.timers: dict[str, tuple[float, Callable[[], None]]] = {}

    async def safe(self, _: Iterable[str]) -> dict[str, ErrorCode]:
        return {}

    def markers_written(self, name: str, places: Iterable[Place]) -> bool:
        self.left[name] -= set(places)
        if not self.left[name]:
            self.completed.append(name)
        return not self.left[name]

    def call_later(self, what: str, delay_s: float, do: Callable[[], None]) -> None:
        self.timers.setdefault(what, (delay_s, do))

    def call_off(self, what: str) -> None:
        self.timers.pop(what, None)


class Sender:
    """A sender of markers to the leaders of topic t's two partitions, both led by broker 1 at first."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.sent: list[tuple[int, Any, Promise[Any]]] = []
        self.topic = SimpleNamespace(partitions={index: SimpleNamespace(leader=1) for index in (0, 1)})
        self.member = SimpleNamespace(
            on_image=[],
            image=SimpleNamespace(topic=lambda _: self.topic),
            broker_id=9,
            ask=self.ask,
        )
        self.coordinator = Coordinator()
        scheduler: Any = SimpleNamespace(call_soon=self.soon.append, call_later=lambda *_: None)
        member: Any = self.member
        coordinator: Any = self.coordinator
        self.sender = MarkerSender(member, scheduler, coordinator)

    def ask(self, broker_id: int, request: Any) -> Promise[Any]:
        self.sent.append((broker_id, request, Promise()))
        return self.sent[-1][2]

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def end(self, name: str, producer_id: int, index: int) -> None:
        self.coordinator.left[name] = {("t", index)}
        self.sender.write(Markers(name, producer_id, 0, True, 0, frozenset({("t", index)})))
        self.run()

    def led_by(self, leader: int) -> None:
        """Let another broker lead partition 0."""
        self.topic.partitions[0] = SimpleNamespace(leader=leader)
        for listener in self.member.on_image:
            listener(self.member.image)

    def pass_time(self) -> None:
        """Do all that is due later, once."""
        timers = list(self.coordinator.timers.values())
        self.coordinator.timers.clear()
        for _, do in timers:
            do()
        self.run()

    def delays(self) -> list[float]:
        return sorted(delay_s for delay_s, _ in self.coordinator.timers.values())


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_a_marker_that_was_written_elsewhere_meanwhile_is_not_sent_any_more(sender: Sender) -> None:
    """It would end the next transaction of the producer, which has the same epoch by then."""
    sender.end("other", 1, index=1)  # broker 1 takes its time for this one
    sender.end("late", 7, index=0)  # so this one waits for it
    sender.led_by(2)
    sender.pass_time()
    marker = SimpleNamespace(partition_index=0, error_code=0)
    answer = SimpleNamespace(producer_id=7, topics=[SimpleNamespace(name="t", partitions=[marker])])
    sender.sent[-1][2].complete(SimpleNamespace(markers=[answer]))
    sender.run()
    assert sender.coordinator.completed == ["late"]
    sender.led_by(1)
    sender.pass_time()
    sender.sent[0][2].complete(None)  # broker 1 is free again
    sender.run()
    assert [broker_id for broker_id, _, _ in sender.sent[:2]] == [1, 2]
    assert all(len(request.markers) == 1 and request.markers[0][0] != 7 for _, request, _ in sender.sent[2:])


def test_a_partition_that_nobody_leads_holds_up_no_other_transaction(sender: Sender) -> None:
    sender.led_by(NO_LEADER)
    sender.end("stuck", 1, index=0)
    for _ in range(10):
        sender.pass_time()
    assert sender.delays() == [MAX_RETRY_S]
    sender.end("other", 7, index=1)
    sender.sent[-1][2].complete(None)  # its leader does not answer, this once
    sender.run()
    assert sender.delays() == [RETRY_S, MAX_RETRY_S]


def test_the_next_transaction_of_an_id_does_not_wait_as_long_as_the_last_one_did(sender: Sender) -> None:
    sender.led_by(NO_LEADER)
    sender.end("x", 1, index=0)
    for _ in range(10):
        sender.pass_time()
    sender.sender.forget("x")
    assert sender.delays() == []
    sender.end("x", 1, index=1)
    sender.sent[-1][2].complete(None)
    sender.run()
    assert sender.delays() == [RETRY_S]


def test_a_marker_goes_to_a_new_leader_soon_however_long_it_has_been_tried(sender: Sender) -> None:
    sender.end("x", 1, index=0)
    for _ in range(10):
        sender.sent[-1][2].complete(None)
        sender.pass_time()
    sender.led_by(2)
    assert sender.delays() == [RETRY_S]
    sender.pass_time()
    assert sender.sent[-1][0] == 2
