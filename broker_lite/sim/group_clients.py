"""What members of groups have in common, by either protocol: they live, die, ask, fetch what is committed, and commit.

Theory of operation: as Java's consumers. A member finds its coordinator by what any broker says, and looks again after
an error that requires it. Commits do not wait for each other. Each answer is checked: an error that Java's client takes
for the end is a violation (`told-known-errors`). A static member that is fenced ends, and comes back as a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkonce.broker_lite.coordinators.group_messages import NO_GENERATION, JoinAnswer, SyncAnswer
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.broker_lite.sim.clients import Client
from sparkonce.broker_lite.sim.grouping import Caller
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.node import Call
from sparkonce.broker_lite.sim.ownership import Share

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker
    from sparkonce.broker_lite.sim.plan import GroupPlan
    from sparkonce.broker_lite.sim.world import World

FIND_AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_FETCH_ERRORS = (ErrorCode.NOT_COORDINATOR, LOADING)
_BACK_MS = 300
_FETCH_EVERY = 3
"""After how many commits what is committed is fetched again."""


class GroupClient(Client):
    """One member of a group, started again and again."""

    commit_errors: tuple[ErrorCode, ...] = ()
    """The errors that a commit may get, besides those after which it is retried."""

    def __init__(self, world: World, number: int, plan: GroupPlan, index: int) -> None:
        """`index` counts the members of this group."""
        super().__init__(world, number)
        self.plan = plan
        self._index = index
        self._instance_id = f"{plan.group_id}.{index}" if index < plan.static else None
        self._round = 0
        """Rises when it is not what it was before: then answers to what it has asked before mean nothing to it."""
        self._calm = self._kept = False
        self._begin()
        self.after(1 + index * plan.apart_ms, self._join)

    def _begin(self) -> None:
        """Know nothing, as a new process."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.share: Share | None = None
        self._coordinator: SimulatedBroker | None = None
        self._commits = 0

    def _join(self) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def _commit_refused(self, error: ErrorCode) -> None:
        """Act on the error of a commit, unless it is retried."""
        raise NotImplementedError

    # What happens to it.

    def happen(self, amount: int, duration_ms: int) -> None:
        """Be paused, leave or die; mostly it comes back."""
        if not self.alive or self.paused:
            return
        self.world.trace(lambda: f"member {self.number}: {('pauses', 'leaves', 'dies')[amount % 3]}")
        if amount % 3 == 0:
            self.pause()
            self.world.scheduler.after(duration_ms, self._go_on, self.incarnation)
            return
        if amount % 3 == 1 and self.member_id:
            self._leave()
        self.ended()
        if self._index == 0 or amount % 10:
            self.world.scheduler.after(duration_ms, self._start)

    def _go_on(self, incarnation: int) -> None:
        if self.incarnation == incarnation and self.paused:
            self.resume()

    def _start(self) -> None:
        if not self.alive:
            self.world.trace(lambda: f"member {self.number} comes back")
            self.started()
            self._begin()
            self._join()

    def _restart(self, error: ErrorCode) -> None:
        """End, as another process has its instance id, and come back as a new one."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.world.mark(Mark.INSTANCE_FENCED)
        self.ended()
        self.world.scheduler.after(_BACK_MS, self._start)

    @property
    def settled(self) -> bool:
        """Whether it has been answered a commit, and has fetched what is committed, since all faults are over."""
        return self._kept or not self.share

    def calm(self) -> None:
        """Note that all faults are over: one more commit is to be answered."""
        self._calm = True
        if self.paused:
            self.resume()

    # Asking.

    @property
    def _caller(self) -> Caller:
        return Caller(self.plan.group_id, self.member_id, self._instance_id, self.generation)

    def _ask(
        self,
        ask: Callable[[SimulatedBroker, Call], None],
        then: Callable[[Any], None],
        known: Sequence[ErrorCode],
        patience_ms: int = 0,
        *,
        may_double: bool = True,
    ) -> None:
        """Ask the coordinator; `then` is called with None if it cannot be found, or does not answer."""
        if self._coordinator is None:
            self._coordinator = self.leader_of(self.world.coordinator_key(OFFSETS_TOPIC, self.plan.group_id))
        coordinator, round_number = self._coordinator, self._round
        if coordinator is None:
            self._later(self.world.plan.settings.backoff_ms, lambda: then(None))
            return

        def told(answer: Any) -> None:
            error = answer.error if isinstance(answer, (JoinAnswer, SyncAnswer)) else answer
            if isinstance(error, ErrorCode) and error is not ErrorCode.NONE and error not in known:
                raise ViolationError("told-known-errors", f"member {self.number} is told {error.name}: {answer}")
            if (error is None or error in FIND_AGAIN) and self._coordinator is coordinator:
                self._coordinator = None
            if round_number == self._round:
                then(answer)

        timeout_ms = self.world.plan.settings.timeout_ms * 2 + patience_ms
        Call(self, coordinator, lambda call: ask(coordinator, call), told, timeout_ms).send(may_double=may_double)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something later, if it is still what it is then."""
        round_number = self._round

        def act() -> None:
            if round_number == self._round:
                action()

        self.after(delay_ms, act)

    # Offsets.

    def _fetch(self, then: Callable[[], None]) -> None:
        """Fetch what is committed, for all partitions, until it is told."""

        def told(answer: dict[TopicPartition, int] | ErrorCode | None) -> None:
            if isinstance(answer, dict):
                then()
            else:
                self._later(self.world.plan.settings.backoff_ms, lambda: self._fetch(then))

        group_id, places = self.plan.group_id, self.world.places
        self._ask(lambda broker, call: broker.groups.fetch(call, group_id, places), told, _FETCH_ERRORS)

    def _commit(self) -> None:
        """Commit now and then, not waiting for the answers; at the end until there was one."""
        if self._calm and self._kept:
            return
        self._commits += 1
        was_calm = self._calm

        def told(error: ErrorCode | None) -> None:
            if error is ErrorCode.NONE and was_calm:
                self._fetch(self._settle)
            elif error in self.commit_errors:
                self._commit_refused(error)

        self._send_commit(told)
        if self._commits % _FETCH_EVERY == 0:
            self._fetch(lambda: None)
        self._later(self.plan.commit_ms, self._commit)

    def _settle(self) -> None:
        self._kept = True

    def _send_commit(self, then: Callable[[ErrorCode | None], None]) -> None:
        if not self.share:
            return
        caller = self._caller
        commit = self.world.groups.commit(self.plan.group_id, self.generation, sorted(self.share))
        known = (*FIND_AGAIN, LOADING, *self.commit_errors)
        self._ask(lambda broker, call: broker.groups.commit(call, caller, commit), then, known)


class GroupView(NamedTuple):
    """A group as its coordinator has it."""

    state: str
    generation: int
    member_ids: Iterable[str]


def ailing(group: GroupView | None, members: Sequence[GroupClient], places: Sequence[TopicPartition]) -> str | None:
    """Return what is not yet as it should be in a group of which these members live."""
    if not members:
        return None if group is None or group.state == "Empty" else "nobody lives, and it is not empty"
    if group is None or group.state != "Stable":
        return f"it is {group.state if group is not None else 'not known to its coordinator'}"
    if sorted(group.member_ids) != sorted(each.member_id for each in members):
        return f"its members are {group.member_ids}, and those that live {[each.member_id for each in members]}"
    given = sorted(place for each in members for place in each.share or ())
    if given != sorted(places) or any(each.generation != group.generation for each in members):
        return f"in generation {group.generation} its members have {given}"
    unsettled = [each.number for each in members if not each.settled]
    return f"members {unsettled} have not committed" if unsettled else None
