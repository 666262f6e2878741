"""Coordination by ZooKeeper, for a cluster on several machines: it elects the controller, and stores its decisions.

Theory of operation: `cluster/zookeeper_nodes.py` describes the nodes, and how they fence a controller that has been
replaced. Here is one broker's part. A task reads three nodes whenever one of them has changed: the head of the log, the
controller, and the brokers. Another task shows several times in a session's timeout that this broker is alive, by a
transaction that changes nothing: it needs a majority of ZooKeeper's servers, while a server that is cut off from the
others still answers reads. ZooKeeper's leader restarts the timeout of a session when a server reports a sign of life to
it. Servers report when the leader pings them, twice a tick; a timeout is two ticks at least. So each sign is sent a
third of the timeout after the last one was answered, which leaves a sixth of a tick for a late ping: its answer shows
that the leader knows of the sign *before* it, and the session is valid for one timeout after that one was sent. After
that, without another answer, ZooKeeper may count this broker as dead. So it is outside its session and leads nothing,
until it gets an answer again and has caught up with the log.

The controller sends its decisions without waiting for the answers. If one fails, its term is over: later ones fail
too, as the head of the log has another version than they expect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from sparkonce.broker_lite.cluster import zookeeper_nodes as nodes
from sparkonce.broker_lite.cluster.coordination import OvertakenError, Step
from sparkonce.broker_lite.cluster.record_format import MetadataFormatError
from sparkonce.broker_lite.cluster.zookeeper_nodes import Check, Create, Delete, Head, Operation, SetData, StateNodes
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import ControllerElected, MetadataRecord
from sparkonce.broker_lite.server.zookeeper_own_node import OwnNode, incarnation_of
from sparkonce.broker_lite.server.zookeeper_reading import (
    ChrootError,
    find_cluster,
    find_cluster_id,
    load,
    read_changes,
)
from sparkonce.broker_lite.server.zookeeper_session import (
    NO_SESSION,
    BadVersionError,
    ConnectionGoneError,
    Node,
    NodeExistsError,
    NoNodeError,
    ZooKeeperError,
    ZooKeeperSession,
)

BEATS_PER_TIMEOUT: Final = 3
"""How often a broker shows that it is alive; less often than ZooKeeper's servers report to their leader."""
RETRY_S: Final = 0.5
"""The delay after a failed read on an open connection: this broker is outside its session until one succeeds."""
_SESSION_OVER: Final = "its session with ZooKeeper is over"
NOBODY: Final = -1
"""The id of an observer."""

logger = logging.getLogger(__name__)


class _Term:
    """One term as the controller."""

    def __init__(
        self, session: int, epoch: int, epoch_version: int, head: Head, head_version: int, state: StateNodes
    ) -> None:
        self.session = session
        self.epoch = epoch
        self.epoch_check = Check(nodes.CONTROLLER_EPOCH, epoch_version)
        self.head = head
        self.head_version = head_version
        self.state = state
        self.repairs: list[Operation] = []
        """Writes that the former controller left undone: its last decision was too long for one transaction."""


class ZooKeeperCoordination:
    """See `Coordination`."""

    is_log_long = False
    """The log is trimmed at each change."""

    def __init__(
        self,
        connect: str,
        client: ZooKeeperSession,
        broker_id: int,
        loop: asyncio.AbstractEventLoop,
        monotonic_ms: Callable[[], int],
        new_uuid: Callable[[], uuid.UUID],
    ) -> None:
        """Prepare for `start`.

        Args:
            connect: `host:port,host:port/chroot`, as Kafka's `zookeeper.connect`; for messages.
            client: the session with that ZooKeeper, not yet started.
            broker_id: this broker's id; `NOBODY` to observe only.
            loop: the event loop.
            monotonic_ms: a monotonic clock.
            new_uuid: returns unique ids.
        """
        self._place = connect
        self._broker_id = broker_id
        self._loop = loop
        self._monotonic_ms = monotonic_ms
        self._new_uuid = new_uuid
        self._client = client
        client.on_event = self._wake
        self._event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.cluster_id = ""
        self._waits_for = ""
        """What this broker waits for, as last logged."""
        self.on_change: list[Callable[[], None]] = []
        self.on_report: Callable[[], None] = self._wake
        self.on_lead: Callable[[], None] = self._wake
        """Never called, nor is `on_report`: the client shows that this process is alive."""
        # This broker.
        self._own = OwnNode(client, broker_id)
        self._incarnation: uuid.UUID | None = None
        self._read_in = NO_SESSION
        """The session in which it has read everything."""
        self._lease_until_ms = 0
        self._known_ms = 0
        """When the last sign of life was sent, or the client was started: no session's timeout began earlier."""
        self._told_ms = 0
        """By when ZooKeeper's leader has pinged for it."""
        self._there: set[int] | None = None
        self._incarnations: dict[int, str] = {}
        """The incarnations of brokers that `is_announced` was asked about, as far as they have been read."""
        self._asked: set[int] = set()
        # The log.
        self._steps: list[Step] = []
        self._number = -1
        """The number of the last change that was read; -1 before the first."""
        # The controller.
        self.epoch = -1
        self.durable_offset = 0
        self._wants_to_lead = False
        self._term: _Term | None = None
        self._elected: ClusterImage | None = None
        """The image of a new term, until `lead` returns it."""
        self._failure: str | None = None

    async def start(self, wanted_id: str, timeout_s: float, *, create: bool) -> str:
        """Connect, and begin to follow the log; return the cluster's id.

        If there is no cluster yet and `create` is set, it is created.

        Raises:
            ChrootError: if the chroot belongs to another cluster.
            OSError: if no ZooKeeper answers in time, or it rejects the client.
        """
        self._known_ms = self._monotonic_ms()
        self._client.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected()
                self.cluster_id = await find_cluster(
                    self._client, self._place, wanted_id, self._new_uuid, create=create
                )
        except TimeoutError:
            raise OSError(f"no ZooKeeper has answered within {timeout_s:.0f} s") from None
        except ZooKeeperError as error:
            raise OSError(str(error)) from error
        self._task = self._loop.create_task(self._run())
        return self.cluster_id

    # Leadership.

    def lead(self, monotonic_ms: int, now_ms: int) -> ClusterImage | None:  # noqa: ARG002
        """See `Coordination`."""
        elected, self._elected = self._elected, None
        if elected is None:
            if not self._wants_to_lead:
                self._wants_to_lead = True
                self._wake()
            return None
        self._incarnations.clear()  # entries of an earlier term may be outdated
        self._wants_to_lead = False  # else another term would begin when this one ends
        base_offset = elected.next_offset
        record = ControllerElected(self._broker_id, self.epoch, self._incarnation, base_offset)
        elected.apply(record)
        self.append([record], base_offset, now_ms)
        return elected

    def keep_leading(self, monotonic_ms: int, now_ms: int) -> bool:  # noqa: ARG002
        """See `Coordination`."""
        if self._term is not None and not self.in_session:
            self._end_term(_SESSION_OVER)
        if self._term is None and self._failure is not None:
            raise OSError(self._failure)
        return self._term is not None

    def resign(self) -> None:
        """See `Coordination`: the next round removes the controller's node."""
        self._wants_to_lead = False
        self._elected = None
        self._failure = None
        if self._term is not None:
            self._term = None
            self._wake()

    def _end_term(self, failure: str | None) -> None:
        """End a term that the controller does not know has ended; without a failure, another broker has begun one.

        The next read removes the controller's node, if it is still this broker's: `resign` finds no term any more.
        """
        self._term, self._elected, self._failure = None, None, failure
        self._wake()
        self._notify()

    # The log.

    def append(self, records: Sequence[MetadataRecord], base_offset: int, now_ms: int) -> None:  # noqa: ARG002
        """See `Coordination`: it is committed when ZooKeeper has acknowledged all of it."""
        if self._term is not None and self._term.session != self._client.session:
            self._end_term(_SESSION_OVER)  # the expired session had won the election
        term = self._term
        if term is None:
            if self._failure is not None:
                raise OSError(self._failure)
            raise OvertakenError("another broker has become the controller")
        number = term.head.number + 1
        head = Head(number, base_offset + len(records), self._broker_id, term.epoch)
        change = nodes.encode_change(term.epoch, base_offset, records)
        log: list[Operation] = [Create(nodes.change_path(number), change)]
        if head.first > term.head.first:
            log.append(Delete(nodes.change_path(term.head.first), nodes.ANY_VERSION))
        state = [*term.repairs, *term.state.following(records)]
        term.repairs = []
        _check_sizes([*log, *state])
        move = SetData(nodes.CHANGES, head.encode(), term.head_version)
        *parts, last = nodes.transactions(term.epoch_check, move, log, state)
        term.head, term.head_version = head, term.head_version + len(parts) + 1
        for part in parts:
            self._client.commit(part).add_done_callback(lambda future: self._committed(term, future, None, []))
        done = self._client.commit(last)
        done.add_done_callback(lambda future: self._committed(term, future, head, list(records)))

    def _committed(
        self, term: _Term, future: asyncio.Future[object], head: Head | None, records: list[MetadataRecord]
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if term is not self._term or future.cancelled():
            return
        if error is None and head is not None:
            self.durable_offset = head.next_offset
            if self._number == head.number - 1:  # as the reader would find it
                self._number = head.number
                self._steps.append(records)
            self._notify()
        elif isinstance(error, BadVersionError | NodeExistsError | NoNodeError):
            logger.info("broker %d has been replaced as the controller: %r", self._broker_id, error)
            self._end_term(None)
        elif error is not None:
            self._end_term(f"it is not known whether ZooKeeper has taken the last decision: {error!r}")

    def poll(self) -> list[Step]:
        """See `Coordination`."""
        steps, self._steps = self._steps, []
        return steps

    # Brokers.

    def announce(self, incarnation: uuid.UUID, addresses: Sequence[tuple[str, str, int]], lock_id: str) -> None:
        """See `Coordination`."""
        self._incarnation = incarnation
        self._own.announce(incarnation, addresses, lock_id)
        self._wake()

    @property
    def in_session(self) -> bool:
        """See `Coordination`."""
        return self._is_in_time and self._own.held_in == self._read_in == self._client.session

    @property
    def _is_in_time(self) -> bool:
        return self._monotonic_ms() < self._lease_until_ms

    may_rest = False
    """Not all changes in ZooKeeper are reported by callbacks."""

    def is_gone(self, broker_id: int) -> bool:
        """See `Coordination`."""
        return self._there is not None and broker_id not in self._there

    def is_announced(self, broker_id: int, incarnation: uuid.UUID) -> bool:
        """See `Coordination`: the next round reads it; a broker that registers retries."""
        if self._incarnations.get(broker_id) == str(incarnation):
            return True
        self._incarnations.pop(broker_id, None)  # another start may be there by now
        self._asked.add(broker_id)
        self._wake()
        return False

    def touch(self, now_ms: int) -> None:
        """See `Coordination`: the client does so."""

    @property
    def advice(self) -> str:
        """See `Coordination`."""
        if self._waits_for:
            return f"it waits for {self._waits_for}"
        return f"no broker leads the cluster of zookeeper.connect={self._place}; look at their logs"

    def close(self) -> None:
        """See `Coordination`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._term = None
        self._lease_until_ms = 0
        self._client.close()

    async def refresh(self) -> None:
        """Read the log up to its current end. Raises OSError if ZooKeeper does not answer."""
        try:
            await self._client.sync()
            known = self._number
            await self._follow(await self._client.get(nodes.CHANGES), known)
        except ZooKeeperError as error:
            raise OSError(f"ZooKeeper at {self._place} does not answer: {error!r}") from error

    # The task.

    def _wake(self) -> None:
        self._event.set()

    def _notify(self) -> None:
        for listener in self.on_change:
            listener()

    async def _connected(self) -> None:
        while not self._client.connected:
            self._event.clear()
            await self._event.wait()

    async def _run(self) -> None:
        while True:
            try:
                await self._look_until_lost()
            except ConnectionGoneError:  # the client notices it, too
                await asyncio.sleep(0)
            except (ChrootError, MetadataFormatError, ZooKeeperError) as error:
                self._read_in = NO_SESSION
                self._say_what_is_waited_for(f"the right data in ZooKeeper at {self._place}: {error or error!r}")
                await asyncio.sleep(RETRY_S)
            except Exception:
                self._read_in = NO_SESSION
                logger.exception("the look at ZooKeeper has failed; it is tried again")
                await asyncio.sleep(RETRY_S)

    async def _look_until_lost(self) -> None:
        if not self._client.connected:
            self._say_what_is_waited_for(f"ZooKeeper at {self._place}, which does not answer")
            await self._connected()
        session = self._client.session
        await self._client.sync()  # a new session may be with a server that is behind the last one
        found = await find_cluster_id(self._client)
        if found != self.cluster_id:
            raise ChrootError(
                f"it has {found or 'nothing'} in the place of cluster.id={self.cluster_id}: "
                "stop all brokers, and give ZooKeeper its data back"
            )
        beats = self._loop.create_task(self._beat(session))
        beats.add_done_callback(self._beats_ended)
        try:
            while self._client.connected and self._client.session == session:
                if beats.done():  # for example, the connection was lost and restored before this task has seen that
                    beats.result()
                    return
                self._event.clear()
                await self._look(session)
                self._read_in = session
                if self._own.held_in == session:
                    self._say_what_is_waited_for("")
                await self._event.wait()
        finally:
            beats.cancel()

    async def _beat(self, session: int) -> None:
        """Show that this broker is alive, and note until when that is valid."""
        while True:
            sent_ms = self._monotonic_ms()
            await self._show_life()
            if self._client.session != session:
                return
            self._shown(sent_ms)
            await asyncio.sleep(self._client.timeout_ms / 1000 / BEATS_PER_TIMEOUT)

    async def _show_life(self) -> None:
        await self._client.commit([Check(nodes.CHANGES, nodes.ANY_VERSION)])

    def _shown(self, sent_ms: int) -> None:
        """Extend the lease: the sign of life of `sent_ms` is answered, so the leader knows of the one before it."""
        if sent_ms < self._told_ms:
            return
        if not self._is_in_time:
            self._wake()
        timeout_ms = self._client.timeout_ms
        self._lease_until_ms = self._known_ms + timeout_ms
        self._known_ms, self._told_ms = sent_ms, self._monotonic_ms() + timeout_ms // BEATS_PER_TIMEOUT

    def _beats_ended(self, beats: asyncio.Task[None]) -> None:
        if not beats.cancelled():
            beats.exception()  # retrieved here, or asyncio would log it although the next round handles it
        self._wake()

    def _say_what_is_waited_for(self, what: str) -> None:
        if what == self._waits_for:
            return
        self._waits_for = what
        if self._broker_id == NOBODY:
            return
        if not what:
            logger.info("ZooKeeper at %s answers, in session 0x%x", self._place, self._client.session)
            return
        left_ms = self._lease_until_ms - self._monotonic_ms()
        until = f"what it leads is served for {left_ms / 1000:.1f} s more" if left_ms > 0 else "it leads nothing"
        logger.warning("broker %d waits for %s; until then %s", self._broker_id, what, until)

    async def _look(self, session: int) -> None:
        """Read everything that others may have changed, and act on it."""
        client = self._client
        if self._own.is_missing(session):
            waits_for = await self._own.make(session)
            if waits_for:
                self._say_what_is_waited_for(waits_for)
            elif self._own.is_missing(session):
                self._wake()
        known = self._number
        head, controller, there, own = await asyncio.gather(
            client.get(nodes.CHANGES, watch=True),
            client.find(nodes.CONTROLLER, watch=True),
            client.children(nodes.BROKER_IDS, watch=True),
            client.find(self._own.path),
        )
        if self._own.is_lost(own, session):
            self._wake()
        before, self._there = self._there, {int(each) for each in there if each.isdecimal()}
        await self._look_up_incarnations()
        await self._follow(head, known)
        is_ours = controller is not None and controller.session == session
        if self._term is not None and not is_ours:
            self._end_term(None)
        if is_ours and self._term is None:
            # Left by a term that has resigned, or by a claim without an answer.
            with contextlib.suppress(NoNodeError):  # removed meanwhile
                await client.commit([Delete(nodes.CONTROLLER, nodes.ANY_VERSION)])
            controller = None
        if controller is None and self._wants_to_lead and self._own.held_in == session and self._is_in_time:
            await self._claim(session, Head.decode(head.data).controller_epoch)
        if before != self._there:
            self._notify()

    async def _look_up_incarnations(self) -> None:
        while self._asked:
            broker_id = self._asked.pop()
            self._incarnations.pop(broker_id, None)
            with contextlib.suppress(NoNodeError):
                node = await self._client.get(f"{nodes.BROKER_IDS}/{broker_id}")
                self._incarnations[broker_id] = incarnation_of(node.data)

    async def _claim(self, session: int, known_epoch: int) -> None:
        """Become the controller, unless another broker is faster, in an epoch above all in the log."""
        client = self._client
        last = await client.get(nodes.CONTROLLER_EPOCH)
        epoch = max(nodes.epoch_of(last.data), known_epoch) + 1
        value = json.dumps({"brokerId": self._broker_id, "controllerEpoch": epoch}).encode()
        try:
            await client.commit(
                [
                    Create(nodes.CONTROLLER, value, ephemeral=True),
                    SetData(nodes.CONTROLLER_EPOCH, b"%d" % epoch, last.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            return
        loaded = await load(self._client)
        if client.session != session or not self._wants_to_lead:
            self._wake()  # the next round removes the node again
            return
        found = {path: node.version for path, node in loaded.found.items()}
        state = StateNodes(found, loaded.image)
        term = _Term(session, epoch, last.version + 1, loaded.head, loaded.head_version, state)
        term.repairs = term.state.becoming(loaded.missing())
        self.epoch, self._term, self._elected, self._failure = epoch, term, loaded.image, None
        self.durable_offset = loaded.head.next_offset

    async def _follow(self, node: Node, known: int) -> None:
        """Read the changes up to a head of the log, which was requested when this broker had read `known` changes."""
        head = Head.decode(node.data)
        if head.number < known:
            raise ChrootError(
                f"it has {head.number} changes, of which this broker has read {known}: "
                "decisions are lost. Stop all brokers, and give ZooKeeper its latest data back"
            )
        if self._number < head.first - 1 or self._number < 0:
            await self._start_over()
        numbers = range(self._number + 1, head.number + 1)
        if not numbers:
            return
        try:
            found = await read_changes(self._client, numbers)
        except NoNodeError:  # more of them were removed than this broker was behind
            await self._start_over()
            found = []
        for number, change in zip(numbers, found, strict=False):
            if number == self._number + 1:  # else it was already read
                self._number = number
                self._steps.append(change.records)
        self._notify()

    async def _start_over(self) -> None:
        loaded = await load(self._client)
        if loaded.head.number > self._number:
            self._number = loaded.head.number
            self._steps = [loaded.image]
            self._notify()


def _check_sizes(operations: Sequence[Operation]) -> None:
    """Reject a node that is too large: ZooKeeper would close the connection, without an answer. Raises OSError."""
    for each in operations:
        if isinstance(each, Create | SetData) and len(each.data) > nodes.MAX_CHANGE_BYTES:
            raise OSError(
                f"{each.path} would have {len(each.data)} bytes, and ZooKeeper takes a megabyte: make fewer topics or "
                "partitions at a time, or keep fewer access control lists"
            )
