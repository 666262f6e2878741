"""A controller on ZooKeeper decides in the session in which it was elected, and in no other."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from sparkonce.broker_lite.cluster.zookeeper_nodes import Head, Operation, StateNodes
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import ControllerElected
from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination, _Term


class Session:
    """A client whose session another one follows before its broker has looked."""

    on_event: Any = None
    session = 7

    def __init__(self) -> None:
        self.sent: list[list[Operation]] = []

    def commit(self, operations: list[Operation]) -> asyncio.Future[object]:
        self.sent.append(operations)
        return asyncio.get_running_loop().create_future()


def test_a_controller_of_a_session_that_is_over_decides_nothing_in_the_next_one() -> None:
    async def test() -> None:
        client: Any = Session()
        coordination = ZooKeeperCoordination("h:1", client, 1, asyncio.get_running_loop(), lambda: 0, uuid.uuid4)
        coordination._term = _Term(7, 3, 1, Head(0, 5, 1, 3), 1, StateNodes({}, ClusterImage()))
        coordination.append([ControllerElected(1, 3)], 5, 0)
        assert len(client.sent) == 1
        client.session = 8
        with pytest.raises(OSError, match="session with ZooKeeper is over"):
            coordination.append([ControllerElected(1, 3)], 6, 0)
        assert len(client.sent) == 1

    asyncio.run(test())
