"""How often a small batch waits for a broker: what is asked at once is waited for once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkonce.connectors.sinks.target import Task
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.protocol.apis import ApiKey
from tests.unit.kafka_sink.conftest import Applications
from tests.unit.kafka_sink.pipeline import Application, Incarnation, Machine, check_whole, rows_of

WARM_UP = 3
"""Batches until every process knows its brokers and topics, and workers take their ids again."""


@dataclass
class Wire:
    """What was sent, and how often somebody then waited."""

    sent: list[str] = field(default_factory=list)
    waits: int = 0
    _is_sending: bool = False

    def clear(self) -> None:
        self.sent.clear()
        self.waits = 0


@pytest.fixture
def wire(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Wire:
    watched = Wire()
    send, receive = BrokerConnection.send, BrokerConnection.receive

    def sending(connection: BrokerConnection, api_key: int, *arguments: Any, **more: Any) -> None:
        watched.sent.append(ApiKey(api_key).name)
        watched._is_sending = True
        send(connection, api_key, *arguments, **more)

    def receiving(connection: BrokerConnection, buffer: bytearray) -> memoryview:
        watched.waits += watched._is_sending
        watched._is_sending = False
        return receive(connection, buffer)

    monkeypatch.setattr(BrokerConnection, "send", sending)
    monkeypatch.setattr(BrokerConnection, "receive", receiving)
    return watched


def count(wire: Wire, step: Callable[[], Any]) -> tuple[Any, int, Counter[str]]:
    wire.clear()
    result = step()
    return result, wire.waits, Counter(wire.sent)


@dataclass(frozen=True)
class Counted:
    """The waits of each step of one batch, and the requests of its end."""

    begin: int
    task: int
    finish: int
    ending: Counter[str]


def run(application: Application, incarnation: Incarnation, batch_id: int, wire: Wire) -> Counted:
    batch = application.batch(incarnation, batch_id, 8 * batch_id, 8 * batch_id + 8)
    rows = rows_of(batch)

    def begin() -> Any:
        with application.machine.process(incarnation.begins):
            return application.target.begin(batch)

    def task(number: int) -> Any:
        own = rows[number :: application.tasks]
        return application.run_task(plan, Task(batch_id, number, 0, 0), own, 20_000_000 + number)

    plan, of_begin, _ = count(wire, begin)
    parts, of_tasks = zip(
        *(count(wire, lambda n=number: task(n))[:2] for number in range(application.tasks)), strict=True
    )
    written = application.written(batch, plan, parts)
    _, of_finish, ending = count(wire, lambda: application.finish(incarnation, written))
    return Counted(of_begin, max(of_tasks), of_finish, ending)


@pytest.mark.parametrize("tasks", [1, 8])
def test_a_micro_batch(tasks: int, new_application: Applications, wire: Wire, observer: Client) -> None:
    application = new_application(tasks=tasks)
    incarnation = application.start()
    for batch_id in range(WARM_UP + 1):
        found = run(application, incarnation, batch_id, wire)
    print(found)
    assert found.ending["END_TXN"] == 1 + tasks
    # claim, read the log; read the group.
    assert found.begin <= 3
    # claim, look at the driver, add partitions; send, in one request or two.
    assert found.task <= 5
    assert found.finish <= 13
    check_whole(observer, application, 8 * (WARM_UP + 1))
