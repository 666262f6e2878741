"""Members of groups, of the classic protocol and of KIP-848: they join, assign, fetch committed offsets, and commit.

They behave as Java's consumers. Responses are checked against what the other members have, as far as clients see it:

    told-known-errors    a member receives only errors after which Java's consumer continues
    one-owner            in one generation of a classic group no partition is assigned to two members
    one-holder           in a group of KIP-848 no partition is assigned while another member in touch with the
                         coordinator still uses it
    commits-kept         OffsetFetch returns nothing older than what was acknowledged before the request

The last two hold for responses of the broker that is coordinator by the durable log, before and after: one that does
not know yet that it was replaced may repeat what was true in its epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from lab.sim.clients.client import GROUP, Client, UnreachableError
from lab.sim.judges.ownership import KNOWS_BETTER, Share, decode_share, encode_share
from lab.sim.marks import Mark
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, partition_of
from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from lab.sim.plan import GroupPlan
    from lab.sim.world import World
    from sparkonce.broker_lite.controller.image import PartitionKey

NO_GENERATION: Final = -1
_FIND_AGAIN: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_WAIT: Final = (*_FIND_AGAIN, _LOADING)
_FENCED: Final = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)
_REJOIN: Final = (*_FENCED, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
_BACK_MS: Final = 300
_FETCH_EVERY: Final = 3
"""Committed offsets are fetched again after this many commits."""


class AgainError(Exception):
    """The member has to join again."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error)
        self.error = error


class GroupClient(Client):
    """One member of a group, restarted again and again."""

    def __init__(self, world: World, members: Sequence[GroupClient], plan: GroupPlan, index: int) -> None:
        """`members` is the growing list of the members of all groups; `index` counts those of this group."""
        super().__init__(world)
        self.members = members
        self.member = len(members)
        self.plan = plan
        self.alive = False
        self._index = index
        self.instance_id = f"{plan.group_id}.{index}" if index < plan.static else None
        self._life: asyncio.Task[None] | None = None
        self.lives = 0
        self.pauses = 0
        self._is_calm = self._is_settled = False
        self._know_nothing()
        world.scheduler.after(1 + index * plan.apart_ms, self._start)

    def _know_nothing(self) -> None:
        """Reset all state, as a new process."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.share: Share | None = None
        self._commits = 0
        self.touched_ms = -1
        """When it has sent the last KIP-848 heartbeat that the coordinator has accepted."""

    async def _live(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        raise NotImplementedError

    # Steps.

    def _start(self) -> None:
        if self.alive:
            return
        self.world.trace(lambda: f"member {self.member} begins")
        self.alive = True
        self.lives += 1
        self._know_nothing()
        self.loop.call_soon(self._begin_life)

    def _begin_life(self) -> None:
        self._life = self.loop.create_task(self._live())
        self._life.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._done(task)
        elif task is self._life:
            self._on_error({"message": "a member's life was cancelled"})

    def happen(self, amount: int, duration_ms: int) -> None:
        """Pause, leave or die; mostly return later."""
        if not self.alive or self.loop.paused:
            return
        self.world.trace(lambda: f"member {self.member}: {('pauses', 'leaves', 'dies')[amount % 3]}")
        if amount % 3 == 0:
            self.pauses += 1
            self.loop.pause()
            self.world.scheduler.after(duration_ms, self._go_on)
            return
        if amount % 3 == 1 and self.member_id:
            self.run(self._leave())
        self._die()
        if self._index == 0 or amount % 10:
            self.world.scheduler.after(duration_ms, self._start)

    def _go_on(self) -> None:
        if self.loop.paused:
            self.loop.resume()

    def _die(self) -> None:
        self.alive, self.share = False, None
        life, self._life = self._life, None
        if life is not None:
            self.loop.call_soon(life.cancel)

    def restart(self, error: ErrorCode) -> None:
        """End, as another process has its instance id, and start again as that process."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.world.mark(Mark.INSTANCE_FENCED)
        self._die()
        self.world.scheduler.after(_BACK_MS, self._start)

    @property
    def settled(self) -> bool:
        """Whether a commit and a fetch of committed offsets have succeeded since all faults are over."""
        return self._is_settled or not self.share

    def calm(self) -> None:
        """Note that all faults are over: one more commit must succeed."""
        self._is_calm = True
        self._go_on()

    # Requests.

    async def coordinate(
        self, api_key: ApiKey, version: int, known: Collection[ErrorCode], patience_ms: int = 0, **fields: Any
    ) -> Any:
        """Ask the coordinator; check the error that it returns.

        Raises:
            UnreachableError: if it is not found, or does not answer.
        """
        sent_ms = self.world.scheduler.now_ms
        try:
            address = await self.coordinator(GROUP, self.plan.group_id)
            answer = await self.ask(address, api_key, version, patience_ms=patience_ms, **fields)
        except UnreachableError:
            self.forget_coordinator(GROUP, self.plan.group_id)
            raise
        error = _error_of(answer)
        if error in _FIND_AGAIN:
            self.forget_coordinator(GROUP, self.plan.group_id)
        if error is ErrorCode.NONE:
            if api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:  # nothing else extends a session there
                self.touched_ms = sent_ms
        elif error not in (*_WAIT, *known):
            text = f"member {self.member} is told {error.name} by {api_key.name}"
            self.world.violated(ViolationError("told-known-errors", text))
        return answer

    def coordinator_now(self) -> tuple[int, int]:
        """Return the coordinator of the group and its leader epoch, by the durable log."""
        state = self.world.image.partition(self.offsets_key())
        assert state is not None
        return state.leader, state.leader_epoch

    def offsets_key(self) -> PartitionKey:
        """Return the partition of `__consumer_offsets` that stores the group."""
        image = self.world.image
        topic_id = image.topic_ids[OFFSETS_TOPIC]
        return topic_id, partition_of(self.plan.group_id, len(image.topics[topic_id].partitions))

    # Offsets.

    async def fetch(self) -> bool:
        """Fetch committed offsets of all partitions; return whether that succeeded."""
        world, group_id = self.world, self.plan.group_id
        before, asked_ms = self.coordinator_now(), world.scheduler.now_ms
        try:
            answer = await self.coordinate(
                ApiKey.OFFSET_FETCH, 7, (), group_id=group_id, topics=self.topics(), require_stable=True
            )
        except UnreachableError:
            return False
        if answer.error_code:
            return False
        if before != self.coordinator_now() or before[0] == NO_LEADER or not self.is_asked(before[0]):
            return True
        for topic in answer.topics:
            for each in topic.partitions:
                place, number = (topic.name, each.partition_index), each.committed_offset
                world.judge(lambda: world.commits.check(group_id, place, number, asked_ms))  # noqa: B023
        return True

    def is_asked(self, broker_id: int) -> bool:
        """Whether this member takes a broker for its coordinator."""
        found, broker = self._coordinators.get((GROUP, self.plan.group_id)), self.world.brokers.get(broker_id)
        return found is not None and broker is not None and found.host == broker.address

    def topics(self) -> list[tuple[str, list[int]]]:
        """Return all topics that clients use, with their partitions."""
        topics: dict[str, list[int]] = {}
        for name, partition in self.world.places:
            topics.setdefault(name, []).append(partition)
        return list(topics.items())

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics that it subscribes to."""
        return frozenset(name for name, _ in self.topics())

    async def commit_regularly(self, refused: Callable[[ErrorCode], None]) -> None:
        """Commit from time to time; once all faults are over, until one commit is acknowledged."""
        while not await self.fetch():
            await self.back_off()
        while not (self._is_calm and self._is_settled):
            self._commits += 1
            was_calm = self._is_calm
            error = await self.commit()
            if error is ErrorCode.NONE and was_calm:
                self._is_settled = await self.fetch()
            elif error is not None and error is not ErrorCode.NONE and error not in _WAIT:
                refused(error)
            if self._commits % _FETCH_EVERY == 0:
                await self.fetch()
            await self.pause(self.plan.commit_ms)

    commit_errors: tuple[ErrorCode, ...] = ()

    async def commit(self) -> ErrorCode | None:
        """Commit for the assigned partitions; None if there is no response, or nothing to commit."""
        if not self.share:
            return None
        world, places = self.world, sorted(self.share)
        commit = world.commits.send(self.plan.group_id, places, world.scheduler.now_ms)
        known = world.groups.commit(self.plan.group_id, self.generation, places)
        assert known.number == commit.number
        topics: dict[str, list[tuple[int, int, int, str]]] = {}
        for name, partition in places:
            topics.setdefault(name, []).append((partition, commit.number, -1, ""))
        commit.is_stray = True
        try:
            answer = await self.coordinate(
                ApiKey.OFFSET_COMMIT,
                8 if not self.plan.by_heartbeats else 9,
                self.commit_errors,
                group_id=self.plan.group_id,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=list(topics.items()),
            )
        except UnreachableError:
            return None
        commit.is_stray = False
        commit.answered_ms = world.scheduler.now_ms
        error = _error_of(answer)
        if error is ErrorCode.NONE:
            commit.acknowledged_ms = world.scheduler.now_ms
        return error


class ClassicMember(GroupClient):
    """A member of a classic group."""

    commit_errors = _REJOIN

    async def _live(self) -> None:
        while True:
            try:
                await self._be_member()
            except AgainError as again:
                error = again.error
            except UnreachableError:
                error = None
            self.share = None
            if error is ErrorCode.FENCED_INSTANCE_ID:
                self.restart(error)
                return
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id, self.generation = "", NO_GENERATION
            await self.back_off()

    async def _be_member(self) -> None:
        """Join, and stay a member until it has to join again."""
        joined = await self._join()
        self.member_id, self.generation = joined.member_id, joined.generation_id
        self.share = share = await self._sync(joined)
        generation = self.generation
        self.world.trace(lambda: f"member {self.member} ({self.member_id}) has {sorted(share)} in {generation}")
        await together(self._heartbeat(), self.commit_regularly(_again))

    async def _join(self) -> Any:
        plan = self.plan
        while True:
            answer = await self.coordinate(
                ApiKey.JOIN_GROUP,
                self.rng.choice((5, 9)),
                (*_REJOIN, ErrorCode.MEMBER_ID_REQUIRED),
                plan.rebalance_ms + plan.session_ms,
                group_id=plan.group_id,
                session_timeout_ms=plan.session_ms,
                rebalance_timeout_ms=plan.rebalance_ms,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[(name, name.encode()) for name in plan.protocols],
            )
            error = ErrorCode.of(answer.error_code)
            if error is ErrorCode.NONE:
                return answer
            if error is not ErrorCode.MEMBER_ID_REQUIRED:
                raise AgainError(error)
            self.member_id = answer.member_id

    async def _sync(self, joined: Any) -> Share:
        pauses = self.pauses
        leads = joined.leader == self.member_id and not getattr(joined, "skip_assignment", False)
        answer = await self.coordinate(
            ApiKey.SYNC_GROUP,
            3,
            _REJOIN,
            self.plan.rebalance_ms,
            group_id=self.plan.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=self._assign(joined) if leads else [],
        )
        if answer.error_code:
            raise AgainError(ErrorCode.of(answer.error_code))
        share = decode_share(answer.assignment)
        owner, world, generation = self.instance_id or self.member_id, self.world, self.generation
        # While it was paused its session may have ended, and the group gone on without it: then it hears of the former
        # generation late, as of any that was answered before. What was answered is judged where that is done.
        if self.pauses == pauses:
            world.judge(lambda: world.groups.synced(self.plan.group_id, KNOWS_BETTER, generation, owner, share))
        return share

    def _assign(self, joined: Any) -> list[tuple[str, bytes]]:
        """Assign the partitions, differently in each generation."""
        members, places = [each.member_id for each in joined.members], self.world.places
        return [
            (member_id, encode_share(places[(index + joined.generation_id) % len(members) :: len(members)]))
            for index, member_id in enumerate(members)
        ]

    async def _heartbeat(self) -> None:
        while True:
            await self.pause(self.plan.session_ms // 3)
            try:
                answer = await self.coordinate(
                    ApiKey.HEARTBEAT,
                    self.rng.choice((3, 4)),
                    _REJOIN,
                    group_id=self.plan.group_id,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                )
            except UnreachableError:
                continue
            error = ErrorCode.of(answer.error_code)
            if error is ErrorCode.REBALANCE_IN_PROGRESS and self._commits % 2:
                await self.commit()
            if error is not ErrorCode.NONE and error not in _WAIT:
                raise AgainError(error)

    async def _leave(self) -> None:
        member_id, instance_id = self.member_id, self.instance_id
        try:
            await self.coordinate(
                ApiKey.LEAVE_GROUP, 4, _REJOIN, group_id=self.plan.group_id, members=[(member_id, instance_id)]
            )
        except UnreachableError:
            return


def group_problem(members: list[GroupClient], places: Collection[TopicPartition]) -> str | None:
    """Return what is still wrong in a group whose live members are these; None if nothing is."""
    if not members:
        return "nobody has come back to it"
    given = sorted(place for each in members for place in each.share or ())
    wanted = frozenset().union(*(each.subscribed for each in members))
    if given != sorted(place for place in places if place[0] in wanted):
        return f"its members have {given}"
    beyond = [each.member for each in members if any(place[0] not in each.subscribed for place in each.share or ())]
    if beyond:
        return f"members {beyond} have what they are not subscribed to"
    if not members[0].plan.by_heartbeats and len({each.generation for each in members}) > 1:
        return f"its members are in generations {[each.generation for each in members]}"
    unsettled = [each.member for each in members if not each.settled]
    return f"members {unsettled} have not committed" if unsettled else None


async def together(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until they have ended or one fails; then cancel the others."""
    # Not a TaskGroup: state that it leaves in its task breaks asyncio.timeout in Python 3.11.
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()


def _again(error: ErrorCode) -> None:
    raise AgainError(error)


def _error_of(answer: Any) -> ErrorCode:
    """Return the error of a response, or the first of its partitions'."""
    code = getattr(answer, "error_code", None)
    if code is None:
        code = next((each.error_code for topic in answer.topics for each in topic.partitions), 0)
    return ErrorCode.of(code)
