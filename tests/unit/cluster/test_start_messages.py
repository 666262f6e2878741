"""What a broker says that no controller takes in: where to look, even if there has never been a controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.server.membership import ClusterShell
from tests.unit.cluster.shared import SharedStorage


def where_to_look(controller_id: int) -> str:
    image = ClusterImage()
    image.controller_id = controller_id
    coordination = FileCoordination(SharedStorage(), "/shared", 1, 0, 0)
    shell: Any = SimpleNamespace(member=SimpleNamespace(image=image), _coordination=coordination)
    return ClusterShell._where_to_look(shell)


def test_a_broker_that_is_not_taken_in_says_whom_to_ask() -> None:
    assert "log of broker 2, the controller" in where_to_look(2)
    assert "no broker can write in /shared" in where_to_look(-1)
