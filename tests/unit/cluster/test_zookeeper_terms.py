"""What a broker takes for true of ZooKeeper: until when its session lasts, in which it decides, who is there."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from lab.sim.zookeeper.tree import Transaction, Tree
from sparkonce.broker_lite.cluster import zookeeper_nodes
from sparkonce.broker_lite.cluster.zookeeper_nodes import ANY_VERSION, Delete, Head, Operation, StateNodes, first_nodes
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import ControllerElected, DocumentChanged
from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination, _Term
from sparkonce.broker_lite.server.zookeeper_reading import load, read_state
from sparkonce.broker_lite.server.zookeeper_session import NO_SESSION, ConnectionGoneError, Node, NoNodeError
from tests.cases import each_case


class Session:
    """A client whose session another one follows before its broker has looked."""

    on_event: Any = None
    session = 7
    timeout_ms = 600

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


def test_a_sign_of_life_counts_when_the_next_one_is_answered() -> None:
    """A server tells its leader of it up to half a tick later, and may have been cut off by then."""

    async def test() -> None:
        client: Any = Session()
        now_ms = 1_000
        coordination = ZooKeeperCoordination("h:1", client, 1, asyncio.get_running_loop(), lambda: now_ms, uuid.uuid4)
        coordination._own.held_in = coordination._read_in = client.session
        coordination._known_ms = 1_000
        now_ms = 1_010
        coordination._shown(1_005)
        assert coordination._lease_until_ms == 1_000 + 600
        now_ms = 1_170
        coordination._shown(1_160)  # half a tick after the one before, and the leader may ask a little later
        assert coordination._lease_until_ms == 1_000 + 600
        now_ms = 1_220
        coordination._shown(1_210)
        assert coordination._lease_until_ms == 1_005 + 600
        # Held up for nearly as long as the session lasts: its leader may not have heard of this one before that ends.
        now_ms = 1_600
        coordination._shown(1_598)
        assert coordination._lease_until_ms == 1_210 + 600
        now_ms = 1_650
        coordination._shown(1_640)  # too soon after the one before
        assert coordination._lease_until_ms == 1_210 + 600
        assert coordination.in_session
        now_ms = 1_810
        assert not coordination.in_session

    asyncio.run(test())


def test_who_is_announced_is_not_known_from_before() -> None:
    async def test() -> None:
        client: Any = Session()
        coordination = ZooKeeperCoordination("h:1", client, 1, asyncio.get_running_loop(), lambda: 0, uuid.uuid4)
        former, later = uuid.uuid4(), uuid.uuid4()
        coordination._incarnations[2] = str(former)
        assert coordination.is_announced(2, former)
        assert not coordination.is_announced(2, later)
        assert not coordination.is_announced(2, former), "the one that asked last may be the one that is there"
        coordination._incarnations[2] = str(former)
        coordination._term = _Term(7, 3, 1, Head(0, 5, 1, 3), 1, StateNodes({}, ClusterImage()))
        coordination._elected = ClusterImage()
        assert coordination.lead(0, 0) is not None
        assert not coordination.is_announced(2, former), "it was looked up in a former term"

    asyncio.run(test())


class Removed(Session):
    """A client whose node of the controller an operator removes just before its broker does."""

    async def get(self, _path: str, *, watch: bool = False) -> Node:
        return Node(Head().encode(), 0, NO_SESSION)

    async def find(self, _path: str, *, watch: bool = False) -> Node:
        return Node(b"", 0, self.session)

    async def children(self, _path: str, *, watch: bool = False) -> list[str]:
        return []

    def commit(self, operations: list[Operation]) -> asyncio.Future[object]:
        future = super().commit(operations)
        future.set_exception(NoNodeError())
        return future


def test_a_controller_that_resigns_stays_in_session_if_its_node_is_gone_already() -> None:
    """A look that fails takes the broker out of its session, and so from all that it leads."""

    async def test() -> None:
        client: Any = Removed()
        coordination = ZooKeeperCoordination("h:1", client, 1, asyncio.get_running_loop(), lambda: 0, uuid.uuid4)
        coordination._number = 0
        await coordination._look(7)
        assert client.sent == [[Delete("/controller", ANY_VERSION)]]

    asyncio.run(test())


PARTS = 5
"""Into how many transactions the first decision below is divided: the log's, and one for each document."""


class Losing(Session):
    """A client that loses one transaction with its connection, and sends what follows over the next one."""

    def __init__(self, lost: int | None) -> None:
        super().__init__()
        self.lost = lost
        self.tree = Tree()
        self.tree.apply(Transaction(self.session, tuple(first_nodes("abc"))))

    async def get(self, path: str, *, watch: bool = False) -> Node:
        return self.tree.get(path)

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        return self.tree.children(path)

    def commit(self, operations: list[Operation]) -> asyncio.Future[object]:
        future = super().commit(operations)
        if len(self.sent) - 1 == self.lost:
            future.set_exception(ConnectionGoneError())
        elif (error := self.tree.apply(Transaction(self.session, tuple(operations)))[0]) is not None:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future


@each_case("lost", [None, *range(PARTS)])
def test_no_part_of_a_decision_counts_after_one_that_was_lost(lost: int | None) -> None:
    """The state never has what is not in the log: kazoo may end a connection between two parts."""

    async def test() -> None:
        client: Any = Losing(lost)
        coordination = ZooKeeperCoordination("h:1", client, 1, asyncio.get_running_loop(), lambda: 0, uuid.uuid4)
        image = ClusterImage()
        coordination._term = _Term(7, 1, 0, Head(), 0, StateNodes({}, image))
        for names in ("abcd", "e"):  # the second decision before the controller knows of the first
            changed = [DocumentChanged(name, name * 100) for name in names]
            base_offset = image.next_offset
            for each in changed:
                image.apply(each)
            coordination.append(changed, base_offset, 0)
        assert len(client.sent) == PARTS + 2
        loaded = await load(client)
        written = {path: node.data for path, node in (await read_state(client)).items() if path.startswith("/config/d")}
        await asyncio.sleep(0)
        if lost is None:
            assert loaded.image.documents == image.documents
            assert written == {f"/config/documents/{name}": name.encode() * 100 for name in "abcde"}
            assert coordination.durable_offset == 5
            assert coordination._term is not None
            return
        assert "".join(sorted(loaded.image.documents)) == ("abcd" if lost else "")
        assert set(written) == {f"/config/documents/{name}" for name in "abcd"[: max(lost - 1, 0)]}
        assert coordination.durable_offset == 0
        assert coordination._term is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zookeeper_nodes, "MAX_TRANSACTION_BYTES", 100)
        asyncio.run(test())
