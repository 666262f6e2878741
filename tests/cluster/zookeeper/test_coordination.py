"""Brokers' access to a real ZooKeeper: who leads there, what counts of what is decided, and what the others read."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

from sparkonce.broker_lite.cluster import zookeeper_nodes
from sparkonce.broker_lite.cluster.coordination import OvertakenError
from sparkonce.broker_lite.cluster.metadata_log import taken
from sparkonce.broker_lite.cluster.zookeeper_nodes import (
    ANY_VERSION,
    BROKER_IDS,
    CHANGES,
    CONTROLLER,
    CONTROLLER_EPOCH,
    RETAINED,
    Create,
    Delete,
    Operation,
    SetData,
    nodes_of,
)
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import (
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    TopicCreated,
    TopicDeleted,
)
from sparkonce.broker_lite.server import zookeeper_observer
from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination
from sparkonce.broker_lite.server.zookeeper_client import ZooKeeperClient
from sparkonce.broker_lite.server.zookeeper_reading import ChrootError, load, read_state
from sparkonce.broker_lite.server.zookeeper_session import ConnectionGoneError
from tests.zookeeper import ZooKeeper

SESSION_MS = 2_000
PATIENCE_S = 30.0
STATE = PartitionState((1,), (1,), 1, 0, 0)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Candidate:
    """A broker that follows the log, and may lead."""

    def __init__(self, connect: str, broker_id: int, session_ms: int = SESSION_MS) -> None:
        loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        client = ZooKeeperClient(connect, session_ms, loop)
        self.coordination = ZooKeeperCoordination(connect, client, broker_id, loop, monotonic_ms, uuid.uuid4)
        self.coordination.on_change.append(self.changed.set)
        self.incarnation = uuid.uuid4()
        self.image = ClusterImage()
        self.led = ClusterImage()

    async def start(self, directory: str = "", cluster_id: str = "") -> str:
        found = await self.coordination.start(cluster_id, PATIENCE_S, create=True)
        self.coordination.announce(self.incarnation, [("L", "localhost", 1)], directory)
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is looked at often."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def lead(self) -> ClusterImage:
        def leads() -> bool:
            image = self.coordination.lead(monotonic_ms(), 0)
            if image is not None:
                self.led = image
            return image is not None

        await self.until(leads)
        return self.led

    def decide(self, *records: MetadataRecord) -> None:
        base_offset = self.led.next_offset
        for record in records:
            self.led.apply(record)
        self.coordination.append(records, base_offset, 0)

    async def written(self) -> None:
        await self.until(lambda: self.coordination.durable_offset >= self.led.next_offset)

    async def read(self) -> ClusterImage:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.coordination.refresh()
                    break
                except OSError:  # its session has ended, say, and a new one begins
                    await asyncio.sleep(0.01)
        for step in self.coordination.poll():
            self.image = taken(self.image, step)
        return self.image


@asynccontextmanager
async def candidates(connect: str, count: int, **more: Any) -> AsyncIterator[list[Candidate]]:
    async with AsyncExitStack() as stack:
        made = [Candidate(connect, broker_id, **more) for broker_id in range(1, count + 1)]
        for each in made:
            stack.callback(each.coordination.close)
            await each.start()
        yield made


@pytest.fixture
def place(zookeeper: ZooKeeper) -> str:
    return f"{zookeeper.address}/{uuid.uuid4()}"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def close_session(candidate: Candidate) -> None:
    """End a session from outside, as its time-out would: by its id and password."""
    client: Any = candidate.coordination._client
    kazoo = client._kazoo
    host, port = next(iter(kazoo.hosts))
    other = KazooClient(f"{host}:{port}", client_id=kazoo.client_id)
    other.start()
    other.stop()
    other.close()


def created(number: int, name: str = "t") -> tuple[MetadataRecord, ...]:
    topic_id = uuid.UUID(int=number)
    return TopicCreated(f"{name}{number}", topic_id), PartitionChanged(topic_id, 0, STATE)


def test_one_leads_and_all_read_what_it_decides(place: str) -> None:
    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.lead()
            first.decide(*created(1))
            first.decide(*created(2))
            await first.written()
            assert second.coordination.lead(monotonic_ms(), 0) is None
            assert set((await second.read()).topic_ids) == {"t1", "t2"}
            assert await first.read() == second.image == first.led
            assert second.image.controller_id == 1
            first.coordination.resign()
            image = await second.lead()
            assert second.coordination.epoch == first.coordination.epoch + 1
            assert set(image.topic_ids) == {"t1", "t2"}
            assert image.controller_id == 2

    run(test())


def test_a_controller_whose_session_is_over_decides_in_vain(place: str) -> None:
    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.lead()
            first.decide(*created(1))
            await first.written()
            await asyncio.to_thread(close_session, first)
            await second.lead()
            # The first one's version of everything is that of its own epoch, whatever session it has by now.
            await first.until(lambda: first.coordination.in_session)
            try:
                first.decide(*created(2))
                await first.until(lambda: _is_over(first))
            except (OvertakenError, OSError):
                pass
            assert _is_over(first)
            second.decide(*created(3))
            await second.written()
            assert set((await first.read()).topic_ids) == {"t1", "t3"}

    run(test())


def _is_over(candidate: Candidate) -> bool:
    try:
        return not candidate.coordination.keep_leading(monotonic_ms(), 0)
    except OSError:
        return True


def test_a_controller_that_does_not_know_that_it_was_replaced_is_refused_by_the_versions(place: str) -> None:
    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.lead()
            await first.written()
            # As if ZooKeeper had ended the session, and the news did not come.
            assert first.coordination._task is not None
            first.coordination._task.cancel()
            await first.coordination._client.commit([Delete(CONTROLLER, ANY_VERSION)])
            await second.lead()
            first.decide(*created(1))
            await first.until(lambda: _is_over(first))
            second.decide(*created(2))
            await second.written()
            assert set((await first.read()).topic_ids) == {"t2"}
            assert set((await second.read()).topic_ids) == {"t2"}

    run(test())


def test_a_term_that_is_over_is_followed_by_none_that_the_controller_does_not_know_of(place: str) -> None:
    """Its image would be the one of the former term, and another broker may have decided in between."""

    async def test() -> None:
        async with candidates(place, 1) as (first,):
            await first.lead()
            await first.written()
            epoch, client = first.coordination.epoch, first.coordination._client
            await client.commit([Delete(CONTROLLER, ANY_VERSION)])
            await first.until(lambda: _is_over(first))
            await first.coordination._look(client.session)
            assert await client.find(CONTROLLER) is None
            assert first.coordination.epoch == epoch
            first.coordination.resign()
            await first.lead()
            assert first.coordination.epoch == epoch + 1

    run(test())


def test_a_controller_whose_decision_is_not_answered_makes_way_at_once(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing changes in ZooKeeper that would make it look there: its node would last with its session."""

    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.lead()
            await first.written()
            lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            lost.set_exception(ConnectionGoneError())
            with monkeypatch.context() as unanswered:
                unanswered.setattr(first.coordination._client, "commit", lambda _: lost)
                first.decide(*created(1))
            await first.until(lambda: _is_over(first))
            first.coordination.resign()
            await second.lead()

    run(test())


def test_who_is_far_behind_or_comes_late_reads_the_state(place: str) -> None:
    async def test() -> None:
        async with candidates(place, 1) as (first,):
            await first.lead()
            for number in range(RETAINED + 20):
                first.decide(*created(number))
                if number % 3 == 0:
                    first.decide(TopicDeleted(uuid.UUID(int=number)))
            await first.written()
            late = Candidate(place, 2)
            try:
                await late.start()
                assert await late.read() == first.led
            finally:
                late.coordination.close()
            kept = await first.coordination._client.children("/changes")
            assert len(kept) == RETAINED

    run(test())


def test_a_decision_too_long_for_one_transaction_is_finished_by_the_next_controller(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the log counts as a whole, also where the nodes of the state lack a part of it."""

    monkeypatch.setattr(zookeeper_nodes, "MAX_TRANSACTION_BYTES", 10_000)

    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.lead()
            topic_id = uuid.UUID(int=1)
            partitions = [PartitionChanged(topic_id, index, STATE) for index in range(300)]
            commit, sent = first.coordination._client.commit, 0

            def first_part_only(operations: Any) -> Any:
                nonlocal sent
                sent += 1
                return commit(operations) if sent == 1 else asyncio.get_running_loop().create_future()

            first.coordination._client.commit = first_part_only  # type: ignore[method-assign]
            first.decide(TopicCreated("t", topic_id), *partitions)
            assert sent > 1
            await second.until(lambda: bool(second.coordination._number > 1))
            await asyncio.to_thread(close_session, first)
            image = await second.lead()
            assert len(image.topics[topic_id].partitions) == 300
            await second.written()
            found = await read_state(second.coordination._client)
            assert {path: each.data for path, each in found.items()} == nodes_of(image)
            assert len((await second.read()).topics[topic_id].partitions) == 300

    run(test())


def test_a_broker_takes_the_place_of_its_own_former_start_and_of_no_other(place: str) -> None:
    async def test() -> None:
        first, again, other = Candidate(place, 1), Candidate(place, 1), Candidate(place, 1)
        try:
            await first.start("lock")
            await first.until(lambda: first.coordination.in_session)
            await other.start("lock of a copy")
            await other.until(lambda: "another broker with node.id=1" in other.coordination.advice)
            assert not other.coordination.in_session
            assert first.coordination.in_session
            assert first.coordination._task is not None
            first.coordination._task.cancel()  # it is dead, and its session has not ended
            await again.start("lock")
            await again.until(lambda: again.coordination.in_session)
            again.coordination.close()
            await other.until(lambda: other.coordination.in_session)
        finally:
            for each in (first, again, other):
                each.coordination.close()

    run(test())


def test_the_start_of_a_broker_that_is_there_is_known_from_its_node(place: str) -> None:
    async def test() -> None:
        first, again, controller = Candidate(place, 1), Candidate(place, 1), Candidate(place, 2)
        try:
            await controller.start()
            await first.start("lock")
            await first.until(lambda: first.coordination.in_session)
            await controller.until(lambda: controller.coordination.is_announced(1, first.incarnation))
            assert not controller.coordination.is_announced(1, again.incarnation)
            assert first.coordination._task is not None
            first.coordination._task.cancel()  # it is dead, and its session has not ended
            await again.start("lock")
            await controller.until(lambda: controller.coordination.is_announced(1, again.incarnation))
            assert not controller.coordination.is_announced(1, first.incarnation)
            assert not controller.coordination.is_announced(3, first.incarnation)
        finally:
            for each in (first, again, controller):
                each.coordination.close()

    run(test())


def test_a_broker_whose_node_is_removed_leads_nothing_until_it_is_there_again(place: str) -> None:
    """Others count it as dead, so it must know; it makes the node again."""

    async def test() -> None:
        async with candidates(place, 1) as (broker,):
            await broker.lead()
            epoch, node = broker.coordination.epoch, f"{BROKER_IDS}/1"
            client = broker.coordination._client
            before = await client.get(node)
            others: list[Any] = [Delete(node, ANY_VERSION), Create(node, b"{}"), Create(f"{BROKER_IDS}/rubbish")]
            await client.commit(others)
            await broker.until(lambda: not broker.coordination.in_session)
            await broker.until(lambda: _is_over(broker))
            await broker.until(lambda: "another broker with node.id=1" in broker.coordination.advice)
            await client.commit([Delete(node, ANY_VERSION)])
            await broker.until(lambda: broker.coordination.in_session)
            assert (await client.get(node)).data == before.data
            broker.coordination.resign()
            await broker.lead()
            assert broker.coordination.epoch > epoch

    run(test())


def test_an_epoch_that_was_set_back_is_not_used_again(place: str) -> None:
    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.lead()
            await first.written()
            client, epoch = first.coordination._client, first.coordination.epoch
            await client.commit([SetData(CONTROLLER_EPOCH, b"0", ANY_VERSION)])
            first.coordination.close()
            await second.lead()
            assert second.coordination.epoch > epoch

    run(test())


def test_who_is_gone_is_seen_by_the_end_of_its_session(place: str) -> None:
    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.until(lambda: not first.coordination.is_gone(2))
            second.coordination.close()
            await first.until(lambda: first.coordination.is_gone(2))
            assert not first.coordination.is_gone(1)

    run(test())


def test_a_sign_of_life_that_was_lost_with_a_connection_is_not_the_last(place: str) -> None:
    """A busy event loop sees a connection go and come at once; what was under way has failed all the same."""

    async def test() -> None:
        async with candidates(place, 1) as (first,):
            await first.until(lambda: first.coordination.in_session)
            client = first.coordination._client
            commit, lost = client.commit, False

            def commit_once_in_vain(operations: Sequence[Operation]) -> asyncio.Future[Any]:
                nonlocal lost
                if [each.path for each in operations] == [CHANGES] and not lost:
                    lost = True
                    raise ConnectionGoneError
                return commit(operations)

            client.commit = commit_once_in_vain  # type: ignore[method-assign]
            await first.until(lambda: lost)
            known_ms = first.coordination._lease_until_ms
            await first.until(lambda: first.coordination._lease_until_ms > known_ms)

    run(test())


def test_the_terms_of_controllers_end_with_one_of_a_version_that_keeps_none(place: str) -> None:
    """A position in its part of the log must not be taken for one in the part of the controller before."""

    async def test() -> None:
        async with candidates(place, 1) as (first,):
            await first.lead()
            await first.written()
            client = first.coordination._client
            loaded = await load(client)
            (term,) = loaded.image.terms
            assert (term.controller_epoch, term.incarnation) == (first.coordination.epoch, first.incarnation)
            later = loaded.head._replace(controller_epoch=term.controller_epoch + 1)
            await client.commit([SetData(CHANGES, later.encode(), ANY_VERSION)])
            assert (await load(client)).image.terms == ()

    run(test())


def test_a_zookeeper_that_has_lost_decisions_is_not_followed(place: str) -> None:
    """As when it was given back an older copy of its data."""

    async def test() -> None:
        async with candidates(place, 2) as (first, second):
            await first.lead()
            client = second.coordination._client
            older = await client.get(CHANGES)
            first.decide(*created(1))
            await first.written()
            await second.read()
            await first.until(lambda: second.coordination.in_session)
            await client.commit([SetData(CHANGES, older.data, ANY_VERSION)])
            await first.until(lambda: not second.coordination.in_session)
            assert "decisions are lost" in second.coordination.advice
            await first.until(lambda: _is_over(first))

    run(test())


def test_a_controller_whose_event_loop_is_stuck_is_replaced(place: str) -> None:
    leads, replaced = threading.Event(), threading.Event()

    async def stuck() -> None:
        async with candidates(place, 1) as (first,):
            await first.lead()
            leads.set()
            assert replaced.wait(PATIENCE_S)  # the loop does nothing meanwhile
            await first.until(lambda: _is_over(first))

    async def other() -> None:
        second = Candidate(place, 2)
        try:
            await second.start()
            await second.lead()
        finally:
            replaced.set()
            second.coordination.close()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asyncio.run, stuck())
        assert leads.wait(PATIENCE_S)
        run(other())
        done.result(PATIENCE_S)


def test_who_only_looks_has_all_of_the_cluster_at_first(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_observer, "POLL_TIMEOUT_S", 0)  # a cluster that takes longer to read than a look

    def look() -> ClusterImage:
        observer = zookeeper_observer.ZooKeeperObserver(place)
        try:
            (image,) = observer.poll()
        finally:
            observer.close()
        assert isinstance(image, ClusterImage)
        return image

    async def test() -> None:
        async with candidates(place, 1) as (first,):
            await first.lead()
            first.decide(*created(1))
            await first.written()
            assert await asyncio.to_thread(look) == first.led

    run(test())


def test_a_place_of_another_cluster_is_refused(zookeeper: ZooKeeper, place: str) -> None:
    async def test() -> None:
        async def refused(connect: str, cluster_id: str = "") -> str:
            candidate = Candidate(connect, 1)
            try:
                with pytest.raises(ChrootError) as error:
                    await candidate.start(cluster_id=cluster_id)
            finally:
                candidate.coordination.close()
            return str(error.value)

        client = KazooClient(zookeeper.address)
        await asyncio.to_thread(client.start)
        try:
            chroot = f"/{uuid.uuid4()}"
            client.create(f"{chroot}/brokers/ids", makepath=True)
            assert "nodes of something else" in await refused(f"{zookeeper.address}{chroot}")
            client.create(f"{chroot}/cluster/id", b'{"version":"1","id":"kafkas"}', makepath=True)
            assert "Apache Kafka" in await refused(f"{zookeeper.address}{chroot}")
        finally:
            client.stop()
            client.close()
        async with candidates(place, 1) as (first,):
            assert f"that of cluster.id={first.coordination.cluster_id}, not mine" in await refused(place, "mine")

    run(test())
