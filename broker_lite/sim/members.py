"""Members of groups: they join, share the partitions out, commit, leave or die now and then, and come back.

Theory of operation: as Java's consumer of the classic protocol. A member finds its coordinator by what any broker says,
and asks anew after an error that tells it to. It joins; the first of all assigns; with its share it fetches what is
committed, then commits and sends heartbeats until it hears that the group rebalances, or that it is no member any more.
Some commit once more before they join again. Each answer is looked at: an error that Java's client takes for the end
is a violation (`told-known-errors`). A static member that is fenced ends, and comes back as a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from broker_lite.coordinators.group import ClassicGroup
from broker_lite.coordinators.group_messages import NO_GENERATION, GroupState, Join, JoinAnswer, Sync, SyncAnswer
from broker_lite.coordinators.offsets import OFFSETS_TOPIC
from broker_lite.coordinators.transaction_messages import TopicPartition
from broker_lite.protocol.errors import ErrorCode
from broker_lite.replication.invariants import ViolationError
from broker_lite.sim.clients import Client
from broker_lite.sim.grouping import Caller
from broker_lite.sim.marks import Mark
from broker_lite.sim.node import Call
from broker_lite.sim.ownership import Share, decode_share, encode_share

if TYPE_CHECKING:
    from broker_lite.sim.broker import SimulatedBroker
    from broker_lite.sim.plan import GroupPlan
    from broker_lite.sim.world import World

_PROTOCOL_TYPE = "consumer"
_FIND_AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_FENCED = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)
_REJOIN = (*_FENCED, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_JOIN_ERRORS = (*_FIND_AGAIN, *_FENCED, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED, _LOADING)
_FETCH_ERRORS = (ErrorCode.NOT_COORDINATOR, _LOADING)
_BACK_MS = 300
_FETCH_EVERY = 3
"""After how many commits what is committed is fetched again."""


class Member(Client):
    """One member of a group, started again and again."""

    def __init__(self, world: World, number: int, plan: GroupPlan, index: int) -> None:
        """`index` counts the members of this group."""
        super().__init__(world, number)
        self.plan = plan
        self._index = index
        self._instance_id = f"{plan.group_id}.{index}" if index < plan.static else None
        self._round = 0
        """Rises when it is not what it was before: then answers to what it has asked before mean nothing to it."""
        self._calm = False
        self.settled = False
        """Whether it has been answered a commit, and has fetched what is committed, since all faults are over."""
        self._begin()
        self.after(1 + index * plan.apart_ms, self._join)

    def _begin(self) -> None:
        """Know nothing, as a new process."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.share: Share | None = None
        self._coordinator: SimulatedBroker | None = None
        self._commits = 0

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
            caller = self._caller
            self._ask(lambda broker, call: broker.groups.leave(call, caller), lambda _: None)
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
        patience_ms: int = 0,
        known: Sequence[ErrorCode] = (*_FIND_AGAIN, *_REJOIN),
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
            if (error is None or error in _FIND_AGAIN) and self._coordinator is coordinator:
                self._coordinator = None
            if round_number == self._round:
                then(answer)

        timeout_ms = self.world.plan.settings.timeout_ms * 2 + patience_ms
        Call(self, coordinator, lambda call: ask(coordinator, call), told, timeout_ms).send()

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something later, if it is still what it is then."""
        round_number = self._round

        def act() -> None:
            if round_number == self._round:
                action()

        self.after(delay_ms, act)

    # Joining.

    def _join(self) -> None:
        self._round += 1
        self.share = None
        plan, caller = self.plan, self._caller
        join = Join(
            token=None,
            member_id=self.member_id,
            new_member_id="",
            group_instance_id=self._instance_id,
            client_id="c",
            client_host="/h",
            session_timeout_ms=plan.session_ms,
            rebalance_timeout_ms=plan.rebalance_ms,
            protocol_type=_PROTOCOL_TYPE,
            protocols=tuple((name, name.encode()) for name in plan.protocols),
            require_known_member_id=True,
            supports_skip_assignment=self._index % 2 == 0,
        )
        patience_ms = plan.rebalance_ms + plan.session_ms
        self._ask(lambda broker, call: broker.groups.join(call, caller, join), self._joined, patience_ms, _JOIN_ERRORS)

    def _joined(self, answer: JoinAnswer | None) -> None:
        if answer is None:
            self._failed(None)
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif answer.error is not ErrorCode.NONE:
            self._failed(answer.error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            self._sync(answer)

    def _sync(self, joined: JoinAnswer) -> None:
        leads = joined.leader == self.member_id and not joined.skip_assignment
        caller = self._caller
        sync = Sync(
            token=None,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=self._assign(joined) if leads else (),
        )
        patience_ms = self.plan.rebalance_ms
        self._ask(lambda broker, call: broker.groups.sync(call, caller, sync), self._synced, patience_ms)

    def _assign(self, joined: JoinAnswer) -> tuple[tuple[str, bytes], ...]:
        """Share the partitions out, in each generation another way."""
        members = [member_id for member_id, _, _ in joined.members]
        places = self.world.places
        return tuple(
            (member_id, encode_share(places[(index + joined.generation) % len(members) :: len(members)]))
            for index, member_id in enumerate(members)
        )

    def _synced(self, answer: SyncAnswer | None) -> None:
        if answer is None or answer.error is not ErrorCode.NONE:
            self._failed(None if answer is None else answer.error)
            return
        self.share = share = decode_share(answer.assignment)
        self.world.trace(lambda: f"member {self.number} ({self.member_id}) has {sorted(share)} in {self.generation}")
        self._heartbeat()
        self._fetch(self._commit)

    def _failed(self, error: ErrorCode | None) -> None:
        """Join again, as what it is by then."""
        self._round += 1
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.world.mark(Mark.INSTANCE_FENCED)
            self.ended()
            self.world.scheduler.after(_BACK_MS, self._start)
            return
        if error is ErrorCode.REBALANCE_IN_PROGRESS and self.share and self._commits % 2:
            self._send_commit(lambda _: None)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", NO_GENERATION
        self.share = None
        self._later(self.world.plan.settings.backoff_ms, self._join)

    # While it is a member.

    def _heartbeat(self) -> None:
        caller = self._caller

        def told(error: ErrorCode | None) -> None:
            if error in _REJOIN:
                self._failed(error)
            else:
                self._later(self.plan.session_ms // 3, self._heartbeat)

        self._ask(lambda broker, call: broker.groups.heartbeat(call, caller), told)

    def _fetch(self, then: Callable[[], None]) -> None:
        """Fetch what is committed, for all partitions, until it is told."""

        def told(answer: dict[TopicPartition, int] | ErrorCode | None) -> None:
            if isinstance(answer, dict):
                then()
            else:
                self._later(self.world.plan.settings.backoff_ms, lambda: self._fetch(then))

        group_id, places = self.plan.group_id, self.world.places
        self._ask(lambda broker, call: broker.groups.fetch(call, group_id, places), told, known=_FETCH_ERRORS)

    def _commit(self) -> None:
        """Commit now and then, not waiting for the answers; at the end until there was one."""
        if self._calm and (self.settled or not self.share):
            self.settled = True
            return
        self._commits += 1
        was_calm = self._calm

        def told(error: ErrorCode | None) -> None:
            if error in _REJOIN:
                self._failed(error)
            elif error is ErrorCode.NONE and was_calm:
                self._fetch(self._settle)

        self._send_commit(told)
        if self._commits % _FETCH_EVERY == 0:
            self._fetch(lambda: None)
        self._later(self.plan.commit_ms, self._commit)

    def _settle(self) -> None:
        self.settled = True

    def _send_commit(self, then: Callable[[ErrorCode | None], None]) -> None:
        caller = self._caller
        commit = self.world.groups.commit(self.plan.group_id, self.generation, sorted(self.share or ()))
        known = (*_FIND_AGAIN, *_REJOIN, _LOADING)
        if commit.places:
            self._ask(lambda broker, call: broker.groups.commit(call, caller, commit), then, known=known)


def ailing(group: ClassicGroup | None, members: Sequence[Member], places: Sequence[TopicPartition]) -> str | None:
    """Give what is not yet as it should be in a group of which these members live."""
    if not members:
        quiet = group is None or group.state is GroupState.EMPTY
        return None if quiet else "nobody lives, and it is not empty"
    if group is None or group.state is not GroupState.STABLE:
        return f"it is {group.state.value if group is not None else 'not known to its coordinator'}"
    if sorted(group.members) != sorted(each.member_id for each in members):
        return f"its members are {sorted(group.members)}, and those that live {[each.member_id for each in members]}"
    given = sorted(place for each in members for place in each.share or ())
    if given != sorted(places) or any(each.generation != group.generation for each in members):
        return f"in generation {group.generation} its members have {given}"
    unsettled = [each.number for each in members if not each.settled]
    return f"members {unsettled} have not committed" if unsettled else None
