"""Settings of a cluster's topics: each change begins with what the controller decided last, applied here or not."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.node import config_changes


def test_changes_that_the_broker_has_not_applied_yet_are_kept_and_can_be_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = ClusterImage()
    controller = Controller(image, ControllerSettings(), 0)
    _, epoch = controller.register(1, uuid.uuid4(), "h", 1, NO_BROKER_EPOCH, 0)
    controller.heartbeat(1, epoch, image.next_offset, False, 0)
    controller.create_topic("t", uuid.uuid4(), 1, 1, {})
    applied = SimpleNamespace(settings={}, config=LogConfig())
    service = SimpleNamespace(decide=lambda decision: decision(controller)[1])
    member = SimpleNamespace(controller=service)
    broker: Any = SimpleNamespace(topic=lambda _: applied, logs=SimpleNamespace(config=LogConfig()), member=member)
    monkeypatch.setattr(config_changes, "authorized", lambda *_: True)

    def change(values: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        asked = SimpleNamespace(resource_name="t")
        config_changes._change_topic(broker, None, asked, lambda before, _: values(before), False)  # type: ignore[arg-type]

    def settings() -> Mapping[str, str]:
        found = image.topic("t")
        assert found is not None
        return found.settings

    change(lambda before: {**before, "min.insync.replicas": "2"})
    change(lambda before: {**before, "retention.ms": "1000"})
    assert settings() == {"min.insync.replicas": "2", "retention.ms": "1000"}
    offset = image.next_offset
    change(dict)
    assert image.next_offset == offset, "nothing has changed"
    change(lambda _: {})
    assert settings() == {}
