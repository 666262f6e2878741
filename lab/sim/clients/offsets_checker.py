"""A client that commits offsets in groups without members, for a topic of its own that it deletes and creates again.

It commits plainly or in transactions, deletes offsets or a whole group, and fetches what is committed. As its groups
have no members, their offsets expire: at the end all clocks are put forward by `offsets.retention.minutes`.

    offsets-kept    OffsetFetch returns an offset that fits what was acknowledged, and none once it has expired
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lab.sim.clients.belief import Belief
from lab.sim.clients.client import GROUP, TRANSACTION, Address, Guest, UnreachableError
from lab.sim.machine.settings import RETENTION_MS
from lab.sim.marks import Mark
from lab.sim.scheduler import stream
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.sim.machine.machine import Machine
    from lab.sim.world import World

_SEEDS: Final = 0.35
"""The share of seeds that have one, where there can be one."""
_PAUSE_MS: Final = 120
_LOOKS: Final = 60
_NOTHING: Final = -1
_ID: Final = "lodger"
_TIMEOUT_MS: Final = 1_500
_MOVED: Final = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip

Change = Callable[[int], int]


def has_offsets_checker(seed: int, *node_id: int) -> bool:
    """Whether a seed has one; this is drawn separately for its standalone broker."""
    return stream("lodger", seed, *node_id).random() < _SEEDS


class OffsetsChecker(Guest):
    """Commits offsets until all faults are over."""

    def __init__(self, world: World, machines: Sequence[Machine] | None = None) -> None:
        """`machines`: see `Client`; a single one is that of a standalone broker."""
        super().__init__(world, machines)
        self._alone = len(self.machines) == 1
        self._topic = f"lodging-{self.number}"
        self._groups = (f"lodger-{self.number}", f"lodger-{self.number}-too")
        self._offsets = {(group, partition): Belief(_NOTHING) for group in self._groups for partition in (0, 1)}
        self._count = 0

    async def work(self) -> None:
        """See `Guest`."""
        actions = [
            self._commit,
            self._commit,
            self._commit,
            self._remove,
            self._remove_group,
            self._remake,
            self._fetch,
        ]
        planned = {topic.name for topic in self.world.plan.topics}
        if self._alone or {OFFSETS_TOPIC, TRANSACTIONS_TOPIC} <= planned:
            actions += [self._transact, self._transact]
        await self._make()
        while not self.is_over:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            try:
                await self.rng.choice(actions)()
            except UnreachableError:
                self._coordinators.clear()

    async def _of_group(self, group: str, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask a group's coordinator.

        Raises:
            UnreachableError: if it is not found, or does not answer.
        """
        return await self.ask(await self.coordinator(GROUP, group), api_key, version, **fields)

    async def _change(
        self, group: str, partitions: Sequence[int], change: Change, api_key: ApiKey, version: int, **fields: Any
    ) -> ErrorCode:
        """Request a change of a group's offsets, and note the response.

        Raises:
            UnreachableError: if there is no response.
        """
        beliefs = [self._offsets[group, each] for each in partitions]
        await self.coordinator(GROUP, group)
        try:
            answer = await self._of_group(group, api_key, version, **fields)
        except UnreachableError:
            for belief in beliefs:
                belief.unanswered(change)
            raise
        error = _error_of(answer)
        self.world.trace(lambda: f"offsets checker: {api_key.name} of {group} {error.name}")
        for belief in beliefs:
            (belief.refused if error else belief.done)(change)
        if error in _MOVED:
            self._coordinators.clear()
        return error

    # Its topic.

    async def _make(self) -> None:
        replicas = min(len(self.machines), 3)
        topics: list[Any] = [(self._topic, 2, replicas, [], [])]
        while not self.is_over:
            try:
                answer = await self.ask(
                    self.some_broker(), ApiKey.CREATE_TOPICS, 5, topics=topics, timeout_ms=2_000, validate_only=False
                )
            except UnreachableError:
                await self.back_off()
                continue
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await self.back_off()

    async def _remake(self) -> None:
        """Delete the topic, and with it its committed offsets; then create it again."""
        if self.rng.random() < 0.5:
            return
        try:
            answer = await self.ask(
                self.some_broker(), ApiKey.DELETE_TOPICS, 4, topic_names=[self._topic], timeout_ms=2_000
            )
            is_done = self._alone and not answer.responses[0].error_code
        except UnreachableError:
            is_done = False
        for belief in self._offsets.values():
            if is_done:
                belief.done(_removed)
            else:  # coordinators learn of it later, unless it exists again by then
                belief.unanswered(_removed)
        await self._make()

    # Offsets.

    async def _commit(self) -> None:
        self._count += 1
        group, number = self.rng.choice(self._groups), self._count
        partitions = self.rng.choice(((0,), (1,), (0, 1)))
        version = self.rng.choice((6, 8))
        instance = {"group_instance_id": None} if version >= 7 else {}
        error = await self._change(
            group, partitions, lambda _: number, ApiKey.OFFSET_COMMIT, version, group_id=group,
            generation_id_or_member_epoch=-1, member_id="", **instance,
            topics=[(self._topic, [(each, number, -1, "") for each in partitions])],
        )  # fmt: skip
        if not error:
            self.world.mark(Mark.LODGED)

    async def _remove(self) -> None:
        group, partition = self.rng.choice(self._groups), self.rng.choice((0, 1))
        await self._change(
            group, (partition,), _removed, ApiKey.OFFSET_DELETE, 0, group_id=group,
            topics=[(self._topic, [(partition,)])],
        )  # fmt: skip

    async def _remove_group(self) -> None:
        group = self.rng.choice(self._groups)
        await self._change(group, (0, 1), _removed, ApiKey.DELETE_GROUPS, 1, groups_names=[group])

    async def _transact(self) -> None:
        """Commit offsets in a transaction, or abort it."""
        self._count += 1
        group, number, commits = self.rng.choice(self._groups), self._count, self.rng.random() < 0.7
        address = await self.coordinator(TRANSACTION, _ID)
        producer = await self._new_producer(address)
        if producer is None or not await self._add(address, producer, group, number):
            return
        beliefs = [self._offsets[group, each] for each in (0, 1)] if commits else []

        def committed(_: int) -> int:
            return number

        try:
            ended = await self.ask(address, ApiKey.END_TXN, 3, transactional_id=_ID, **producer, committed=commits)
        except UnreachableError:
            for belief in beliefs:
                belief.unanswered(committed)
            raise
        error = ErrorCode.of(ended.error_code)
        self.world.trace(lambda: f"offsets checker: transaction {number} in {group}, {commits}: {error.name}")
        for belief in beliefs:
            if error is ErrorCode.NONE:
                belief.done(committed)
            else:
                belief.unanswered(committed)  # it may be decided while its markers are still to be written

    async def _new_producer(self, address: Address) -> dict[str, int] | None:
        """Return a new producer id and epoch, if the coordinator assigns one."""
        answer = await self.ask(
            address, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=_ID, transaction_timeout_ms=_TIMEOUT_MS,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        if answer.error_code:
            self._coordinators.clear()
            return None
        return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    async def _add(self, address: Address, producer: dict[str, int], group: str, number: int) -> bool:
        """Add a group's offsets to the transaction; return whether all of them were added."""
        added = await self.ask(address, ApiKey.ADD_OFFSETS_TO_TXN, 3, transactional_id=_ID, **producer, group_id=group)
        if added.error_code:
            return False
        answer = await self._of_group(
            group, ApiKey.TXN_OFFSET_COMMIT, 3, transactional_id=_ID, group_id=group, **producer, generation_id=-1,
            member_id="", group_instance_id=None, topics=[(self._topic, [(each, number, -1, "") for each in (0, 1)])],
        )  # fmt: skip
        if _error_of(answer) in _MOVED:
            self._coordinators.clear()
        return _error_of(answer) is ErrorCode.NONE

    async def _fetch(self) -> None:
        """Fetch committed offsets and compare; only a standalone broker cannot have been replaced as coordinator."""
        group = self.rng.choice(self._groups)
        wrong = await self._wrong(group)
        if wrong is not None and self._alone:
            self._violated(wrong)

    async def _wrong(self, group: str) -> str | None:
        """Return what is impossible in the offsets of a group; None if nothing is.

        Raises:
            UnreachableError: if there is no response.
        """
        before = [frozenset(self._offsets[group, each].states) for each in (0, 1)]
        answer = await self._of_group(
            group, ApiKey.OFFSET_FETCH, 7, group_id=group, topics=[(self._topic, [0, 1])], require_stable=True
        )
        if answer.error_code:
            self._coordinators.clear()
            raise UnreachableError(ErrorCode.of(answer.error_code).name)
        for each in answer.topics[0].partitions:
            if each.error_code:
                raise UnreachableError(ErrorCode.of(each.error_code).name)
            told, expected = each.committed_offset, before[each.partition_index]
            if told not in expected:
                return f"{group}: {told} is told of {each.partition_index}, and it may be {sorted(expected)}"
        return None

    # Checks at the end.

    async def look(self) -> None:
        """See `Guest`."""
        await self._agree()
        self.world.commits.have_aged |= not self._alone
        for machine in self.machines:
            machine.clock_ahead_ms += 2 * RETENTION_MS
        for belief in self._offsets.values():
            belief.expire(_NOTHING)
        await self._agree()

    async def _agree(self) -> None:
        """Fetch until the response is possible."""
        wrong: str | None = None
        for _ in range(_LOOKS):
            try:
                told = [await self._wrong(group) for group in self._groups]
                wrong = next((each for each in told if each is not None), None)
                if wrong is None:
                    return
            except UnreachableError as error:
                self._coordinators.clear()
                wrong = f"nothing is told of its groups: {error}"
            await self.back_off()
        self._violated(f"the brokers have recovered, and {wrong}")

    def _violated(self, text: str) -> None:
        self.world.violated(ViolationError("offsets-kept", text))


def _removed(_: int) -> int:
    return _NOTHING


def _error_of(answer: Any) -> ErrorCode:
    """Return the error of a response about one group, or the first of its partitions'."""
    code = getattr(answer, "error_code", 0) or 0
    for each in (*(getattr(answer, "results", None) or ()), *(getattr(answer, "topics", None) or ())):
        code = code or getattr(each, "error_code", 0)
        for partition in getattr(each, "partitions", None) or ():
            code = code or partition.error_code
    return ErrorCode.of(code)
