"""Topics of a cluster are deleted by their ids: a name may be another topic's by the time the controller hears it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH
from sparkonce.broker_lite.handlers import delete_topics
from sparkonce.broker_lite.node.turns import Turns
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.handling import run

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


class Deleting:
    """A broker that knows topic t as `OLD`, while its controller has made it anew as `NEW`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.image = ClusterImage()
        controller = Controller(self.image, ControllerSettings(), 0)
        _, epoch = controller.register(1, uuid.uuid4(), "h", 1, NO_BROKER_EPOCH, 0)
        controller.heartbeat(1, epoch, self.image.next_offset, False, 0)
        controller.create_topic("t", NEW, 1, 1, {})

        def decide_together(decisions: list[Any]) -> Iterator[int]:
            yield from (len(decision(controller)[0]) for decision in decisions)

        applied = SimpleNamespace(name="t", topic_id=OLD)
        self.broker: Any = SimpleNamespace(
            topic={"t": applied}.get,
            topic_by_id={OLD: applied}.get,
            is_internal=lambda _: False,
            config=SimpleNamespace(delete_topic_enable=True),
            member=SimpleNamespace(controller=SimpleNamespace(decide_together=decide_together)),
            deleted=SimpleNamespace(clean_up=lambda _: (unit for unit in ())),
            turns=Turns(None),  # type: ignore[arg-type]  # no turn is needed
        )
        monkeypatch.setattr(delete_topics, "_may_delete", lambda *_: True)

    def delete(self, name: str | None, topic_id: uuid.UUID) -> ErrorCode:
        request: Any = SimpleNamespace(
            units=0, api_key=ApiKey.DELETE_TOPICS, version=apis.APIS[ApiKey.DELETE_TOPICS].max_version
        )
        found = delete_topics._find(self.broker, request, name, topic_id)
        assert found.topic is not None
        failures: Any = run(delete_topics._drop(self.broker, request, [found.topic]))  # type: ignore[arg-type]
        return ErrorCode(delete_topics._answer(request, found, failures).error_code)


def test_a_topic_that_was_made_anew_in_between_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    deleting = Deleting(monkeypatch)
    assert deleting.delete("t", ZERO_UUID) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleting.delete(None, OLD) is ErrorCode.UNKNOWN_TOPIC_ID
    assert list(deleting.image.topics) == [NEW]
