"""A marker that waits for its broker while its partition goes elsewhere and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from broker_lite.coordinators.transaction_messages import Markers
from broker_lite.handlers.markers_in_cluster import MarkerSender

Place = tuple[str, int]


class Coordinator:
    """The coordinator as the sender knows it: every decision is safe at once."""

    def __init__(self) -> None:
        self.left: dict[str, set[Place]] = {}
        self.completed: list[str] = []
        self.partitions = SimpleNamespace(epoch_of=lambda _: 3, when_safe=lambda _, then: then({}))

    def markers_written(self, name: str, places: Iterable[Place]) -> bool:
        self.left[name] -= set(places)
        if not self.left[name]:
            self.completed.append(name)
        return not self.left[name]

    def call_later(self, *_: object) -> None:
        """Let the test go on by itself."""


def test_a_marker_that_was_written_elsewhere_meanwhile_is_not_sent_any_more() -> None:
    """It would end the next transaction of the producer, which has the same epoch by then."""
    soon: list[Callable[[], None]] = []
    sent: list[tuple[int, Any, Callable[[Any], None]]] = []
    topic = SimpleNamespace(partitions={index: SimpleNamespace(leader=1) for index in (0, 1)})
    image = SimpleNamespace(topic=lambda _: topic)
    member = SimpleNamespace(
        on_image=[],
        image=image,
        broker_id=9,
        send=lambda broker_id, request, then: sent.append((broker_id, request, then)),
    )
    scheduler = SimpleNamespace(call_soon=soon.append, call_later=lambda *_: None)
    coordinator = Coordinator()
    sender: Any = MarkerSender(SimpleNamespace(scheduler=scheduler), coordinator, member)  # type: ignore[arg-type]

    def run() -> None:
        while soon:
            soon.pop(0)()

    def end(name: str, producer_id: int, index: int) -> None:
        coordinator.left[name] = {("t", index)}
        sender.write(Markers(name, producer_id, 0, True, 0, frozenset({("t", index)})))
        run()

    def led_by(leader: int) -> None:
        topic.partitions[0] = SimpleNamespace(leader=leader)
        for listener in member.on_image:
            listener(image)
        sender._go_on()
        run()

    end("other", 1, index=1)  # broker 1 takes its time for this one
    end("late", 7, index=0)  # so this one waits for it
    led_by(2)
    marker = SimpleNamespace(partition_index=0, error_code=0)
    answer = SimpleNamespace(producer_id=7, topics=[SimpleNamespace(name="t", partitions=[marker])])
    sent[-1][2](SimpleNamespace(markers=[answer]))
    run()
    assert coordinator.completed == ["late"]
    led_by(1)
    sent[0][2](None)  # broker 1 is free again
    run()
    assert [broker_id for broker_id, _, _ in sent[:2]] == [1, 2]
    assert all(len(request.markers) == 1 and request.markers[0][0] != 7 for _, request, _ in sent[2:])
