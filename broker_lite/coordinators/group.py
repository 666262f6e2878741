"""One classic consumer group as a state machine: events and time in, answers out.

Theory of operation: members join, the group waits until all known members have rejoined (or the rebalance timeout
has passed), answers all joins at once in a new generation, then waits for the leader's assignment and distributes it.
The caller calls `expire` at `next_deadline_ms` and sends the answers that each call returns; a request's token is
returned in exactly one answer. When `unwritten` is set, the group must be written (`group_storage.py`) before the
answers are sent; if that fails, `not_written` returns the answers to send instead.
The transitions (Kafka's ClassicGroup and GroupMetadataManager are the model):

    from                 event                                             to
    Empty                a member joins                                    PreparingRebalance
    PreparingRebalance   all joined, or time is up and someone joined      CompletingRebalance
    PreparingRebalance   no member is left                                 Empty
    CompletingRebalance  the leader syncs                                  Stable
    CompletingRebalance  join with other protocols, leave, time is up      PreparingRebalance
    PreparingRebalance   time is up, only silent static members are left   PreparingRebalance, until their sessions end
    Stable               leader joins again, join with other protocols,    PreparingRebalance
                         new member, leave, session expired,
                         a member has not synced in time
    Empty                the group is deleted                              Dead
"""

from __future__ import annotations

from dataclasses import replace

from sparkonce.broker_lite.coordinators.group_messages import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Answer,
    GroupSettings,
    GroupState,
    Join,
    JoinAnswer,
    Member,
    Sync,
    SyncAnswer,
    refused,
)
from sparkonce.kafka.protocol.errors import ErrorCode

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}


class ClassicGroup:
    """A group's members, generation and state. Times are milliseconds of one monotonic clock."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id (KIP-345)."""
        self.pending_members: dict[str, int] = {}
        """Ids assigned with MEMBER_ID_REQUIRED (KIP-394) -> when they expire."""
        self.rebalance_deadline_ms: int | None = None
        """In PreparingRebalance the deadline to join; afterwards, the deadline to sync."""
        self.unwritten = False
        self.state_timestamp_ms = -1
        """When the group entered its state, in milliseconds since 1970, as last written."""
        self._initial_delay_left_ms = 0
        self._in_initial_delay = False
        self._joined_in_delay = False

    def not_written(self, answers: list[Answer], now_ms: int) -> list[Answer]:
        """Revert answers that depend on a failed write, and let the members retry."""
        self.unwritten = False
        taken_back = [refused(each) if each.error is ErrorCode.NONE else each for each in answers]
        if self.state is GroupState.STABLE:
            taken_back += self._start_rebalance(now_ms)
        return taken_back

    def join(self, request: Join, now_ms: int) -> list[Answer]:
        """Handle JoinGroup; the answer comes now or when the rebalance completes."""
        error = self._join_error(request)
        if error is not ErrorCode.NONE:
            refusal = JoinAnswer(request.token, error, request.member_id)
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED and request.member_id in self.members:
                # The group has grown beyond its maximum size: members that join again too late are removed (KIP-389).
                return [refusal, *self._remove([request.member_id], now_ms)]
            return [refusal]
        if not request.member_id:
            return self._join_unknown(request, now_ms)
        if self.pending_members.pop(request.member_id, None) is not None:
            return self._add_member(request, request.member_id, now_ms)
        member = self.members[request.member_id]
        if self._may_keep_generation(member, request):
            member.session_deadline_ms = now_ms + member.session_timeout_ms
            # A join of the same member may already wait: its connection was lost, and it retries.
            return [self._join_answer(member, request.token)]
        answers = self._replace_waiting(member)
        self._update_member(member, request, now_ms)
        return answers + self._start_rebalance(now_ms)

    def sync(self, request: Sync, now_ms: int) -> list[Answer]:
        """Handle SyncGroup; a follower's answer waits for the leader's assignment."""
        error = self._sync_error(request)
        if error is not ErrorCode.NONE:
            return [SyncAnswer(request.token, error)]
        member = self.members[request.member_id]
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        member.synced = True
        if self.state is GroupState.STABLE:
            self._stop_waiting_for_syncs()
            return [self._sync_answer(member, request.token)]
        answers = self._replace_waiting(member)
        member.awaiting_sync = request.token
        if request.member_id != self.leader_id:
            return answers
        assignments = dict(request.assignments)
        self._move_to(GroupState.STABLE)
        self._stop_waiting_for_syncs()
        self.unwritten = True
        for each in self.members.values():
            each.assignment = assignments.get(each.member_id, b"")
            if each.awaiting_sync is not None:
                answers.append(self._sync_answer(each, each.awaiting_sync))
                each.awaiting_sync = None
                each.session_deadline_ms = now_ms + each.session_timeout_ms
        # Members that have not synced yet still may, until the rebalance timeout has passed.
        return answers

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Handle Heartbeat; REBALANCE_IN_PROGRESS is how a member learns that it must join again."""
        if member_id in self.pending_members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._member_error(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        member = self.members[member_id]
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        rebalancing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Answer]]:
        """Handle one member of LeaveGroup; an empty member id with an instance id removes that static member."""
        if instance_id is not None and not member_id:
            member_id = self.static_members.get(instance_id, "")
        if self.pending_members.pop(member_id, None) is not None:
            return ErrorCode.NONE, self._maybe_complete_join(now_ms)
        error = self._member_error(member_id, instance_id, None)
        if error is not ErrorCode.NONE:
            return error, []
        return ErrorCode.NONE, self._remove([member_id], now_ms)

    def commit_error(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, transactional: bool = False
    ) -> ErrorCode:
        """Decide whether offsets may be written; an OffsetCommit counts as a heartbeat of the member.

        A transaction's commit need not name a member (before KIP-447 none did), and a member's may arrive before its
        assignment.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._member_error(member_id, instance_id, generation)
        if error is not ErrorCode.NONE or transactional:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members[member_id]
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        return ErrorCode.NONE

    def delete(self) -> ErrorCode:
        """Handle DeleteGroups: only a group without members may be deleted."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._move_to(GroupState.DEAD)
        self.pending_members.clear()
        return ErrorCode.NONE

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do, if nothing else happens before."""
        deadlines = [m.session_deadline_ms for m in self.members.values() if not m.waits]
        deadlines.extend(self.pending_members.values())
        if self.rebalance_deadline_ms is not None:
            deadlines.append(self.rebalance_deadline_ms)
        return min(deadlines, default=None)

    def expire(self, now_ms: int) -> list[Answer]:
        """Do what is due: expire sessions and unused member ids, stop waiting for slow members."""
        for member_id in [each for each, until in self.pending_members.items() if until <= now_ms]:
            del self.pending_members[member_id]
        answers: list[Answer] = []
        gone = [m.member_id for m in self.members.values() if not m.waits and m.session_deadline_ms <= now_ms]
        if gone:
            answers += self._remove(gone, now_ms)
        if self.rebalance_deadline_ms is not None and self.rebalance_deadline_ms <= now_ms:
            answers += self._rebalance_time_is_up(now_ms)
        return answers + self._maybe_complete_join(now_ms)

    # Checks of requests.

    def _join_error(self, request: Join) -> ErrorCode:
        settings = self.settings
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self._is_full(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not request.protocols or not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id and request.member_id not in self.pending_members:
            return self._member_error(request.member_id, request.group_instance_id, None)
        return ErrorCode.NONE

    def _is_full(self, request: Join) -> bool:
        """Whether the group is full for a joining member; in a rebalance, the first to join are accepted (KIP-389)."""
        member = self.members.get(request.member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            joined = sum(each.awaiting_join is not None for each in self.members.values())
            return (member is None or member.awaiting_join is None) and joined >= self.settings.max_size
        # A new member with the same instance id replaces the static member. Kafka rejects it in a full group.
        known = member is not None or request.group_instance_id in self.static_members
        return not known and len(self.members) >= self.settings.max_size

    def _supports(self, request: Join) -> bool:
        """Whether the offered protocols and those of all members, including the joining one, have one in common."""
        if not request.protocol_type:
            return False
        if not self.members:
            return True
        offered = {name for name, _ in request.protocols}
        common = set.intersection(*({name for name, _ in m.protocols} for m in self.members.values()))
        return self.protocol_type == request.protocol_type and bool(offered & common)

    def _sync_error(self, request: Sync) -> ErrorCode:
        error = self._member_error(request.member_id, request.group_instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return error
        other_type = request.protocol_type not in (None, self.protocol_type)
        if other_type or request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        rebalancing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE

    def _member_error(self, member_id: str, instance_id: str | None, generation: int | None) -> ErrorCode:
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _may_keep_generation(self, member: Member, request: Join) -> bool:
        if member.protocols != request.protocols:
            return False
        if self.state is GroupState.COMPLETING_REBALANCE:
            return True
        return self.state is GroupState.STABLE and member.member_id != self.leader_id

    # Membership.

    def _join_unknown(self, request: Join, now_ms: int) -> list[Answer]:
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in self.static_members:
            return self._replace_static(request, instance_id, now_ms)
        if instance_id is None and request.require_known_member_id:
            self.pending_members[request.new_member_id] = now_ms + request.session_timeout_ms
            return [JoinAnswer(request.token, ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)]
        return self._add_member(request, request.new_member_id, now_ms)

    def _add_member(self, request: Join, member_id: str, now_ms: int) -> list[Answer]:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            session_deadline_ms=now_ms + request.session_timeout_ms,
            is_new=True,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if request.group_instance_id is not None:
            self.static_members[request.group_instance_id] = member_id
        if self.leader_id is None:
            self.leader_id = member_id
        self._update_member(member, request, now_ms)
        self._joined_in_delay = True
        return self._start_rebalance(now_ms)

    def _replace_static(self, request: Join, instance_id: str, now_ms: int) -> list[Answer]:
        """Return a new id for a static member that rejoins without its own, and fence the old one (KIP-345)."""
        old_id = self.static_members[instance_id]
        member = self.members.pop(old_id)
        answers = self._replace_waiting(member, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
        leader_before = self.leader_id
        member.member_id = request.new_member_id
        self.members[member.member_id] = member
        self.static_members[instance_id] = member.member_id
        was_leader = self.leader_id == old_id
        if was_leader:
            self.leader_id = member.member_id
        self._update_member(member, request, now_ms)
        if self.state is not GroupState.STABLE or self._select_protocol() != self.protocol_name:
            return answers + self._start_rebalance(now_ms)
        # The group is unchanged, even if the member's subscription changed: a leader would see that (KIP-814).
        member.awaiting_join = None
        self.unwritten = True
        answer = self._join_answer(member, request.token, skip_assignment=was_leader)
        if was_leader and not request.supports_skip_assignment:
            # It must not assign again, for its sync would be ignored; the old leader's id prevents that.
            answer = replace(answer, leader=leader_before or "", skip_assignment=False, members=())
        return [*answers, answer]

    def _update_member(self, member: Member, request: Join, now_ms: int) -> None:
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        patience_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else request.session_timeout_ms
        member.session_deadline_ms = now_ms + patience_ms
        member.supports_skip_assignment = request.supports_skip_assignment
        member.awaiting_join = request.token

    def _remove(self, member_ids: list[str], now_ms: int) -> list[Answer]:
        answers: list[Answer] = []
        for member_id in member_ids:
            member = self.members[member_id]
            self._forget(member)
            answers += self._replace_waiting(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return answers + self._start_rebalance(now_ms)
        return answers + self._maybe_complete_join(now_ms)

    def _forget(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def _replace_waiting(
        self,
        member: Member,
        join_error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
        sync_error: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS,
    ) -> list[Answer]:
        """Answer a request that has been superseded: the member has sent another one, or is removed."""
        answers: list[Answer] = []
        if member.awaiting_join is not None:
            answers.append(JoinAnswer(member.awaiting_join, join_error, member.member_id))
        if member.awaiting_sync is not None:
            answers.append(SyncAnswer(member.awaiting_sync, sync_error))
        member.awaiting_join = member.awaiting_sync = None
        return answers

    # The rebalance.

    def _start_rebalance(self, now_ms: int) -> list[Answer]:
        """Go to PreparingRebalance from any state, or check whether it is complete."""
        answers: list[Answer] = []
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._maybe_complete_join(now_ms)
        for member in self.members.values():
            if member.awaiting_sync is not None:
                answers.append(SyncAnswer(member.awaiting_sync, ErrorCode.REBALANCE_IN_PROGRESS))
                member.awaiting_sync = None
                member.session_deadline_ms = now_ms + member.session_timeout_ms
        timeout_ms = max((m.rebalance_timeout_ms for m in self.members.values()), default=0)
        delay_ms = self.settings.initial_rebalance_delay_ms
        self._in_initial_delay = self.state is GroupState.EMPTY and delay_ms > 0
        self._move_to(GroupState.PREPARING_REBALANCE)
        if self._in_initial_delay:
            self._joined_in_delay = False
            self._initial_delay_left_ms = max(timeout_ms - delay_ms, 0)
            timeout_ms = delay_ms
        self.rebalance_deadline_ms = now_ms + timeout_ms
        return answers + self._maybe_complete_join(now_ms)

    def _maybe_complete_join(self, now_ms: int) -> list[Answer]:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return []
        if self.members and (self._in_initial_delay or self.pending_members):
            return []
        if any(member.awaiting_join is None for member in self.members.values()):
            return []
        return self._complete_join(now_ms)

    def _rebalance_time_is_up(self, now_ms: int) -> list[Answer]:
        if self.state is not GroupState.PREPARING_REBALANCE:
            late = [m.member_id for m in self.members.values() if not m.synced]
            assert late, "who syncs last ends the wait"
            return self._remove(late, now_ms)
        if self._in_initial_delay and self._joined_in_delay and self._initial_delay_left_ms > 0:
            # Members keep joining: wait for more of them, within the rebalance timeout.
            wait_ms = min(self.settings.initial_rebalance_delay_ms, self._initial_delay_left_ms)
            self._initial_delay_left_ms -= wait_ms
            self._joined_in_delay = False
            self.rebalance_deadline_ms = now_ms + wait_ms
            return []
        return self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> list[Answer]:
        self._in_initial_delay = False
        joined = [m for m in self.members.values() if m.awaiting_join is not None]
        for member in [m for m in self.members.values() if m.awaiting_join is None and m.group_instance_id is None]:
            self._forget(member)
        # A static member keeps its membership and assignment until its session expires (KIP-345).
        if self.members and not joined:
            timeout_ms = max(m.rebalance_timeout_ms for m in self.members.values())
            first_end_ms = min(m.session_deadline_ms for m in self.members.values())
            self.rebalance_deadline_ms = max(now_ms + timeout_ms, first_end_ms)
            return []
        self.rebalance_deadline_ms = None
        if joined and all(m.member_id != self.leader_id for m in joined):
            self.leader_id = joined[0].member_id
        self.generation += 1
        if not self.members:
            self.protocol_name = None
            self._move_to(GroupState.EMPTY)
            self.unwritten = True
            return []
        self.protocol_name = self._select_protocol()
        self._move_to(GroupState.COMPLETING_REBALANCE)
        self.rebalance_deadline_ms = now_ms + max(m.rebalance_timeout_ms for m in self.members.values())
        answers: list[Answer] = []
        for member in self.members.values():
            member.synced = member.is_new = False
            member.assignment = b""
            member.session_deadline_ms = now_ms + member.session_timeout_ms
            if member.awaiting_join is not None:
                answers.append(self._join_answer(member, member.awaiting_join))
                member.awaiting_join = None
        return answers

    def _stop_waiting_for_syncs(self) -> None:
        if all(member.synced for member in self.members.values()):
            self.rebalance_deadline_ms = None

    def _select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; the most votes win."""
        common = set.intersection(*({name for name, _ in m.protocols} for m in self.members.values()))
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _join_answer(self, member: Member, token: object, skip_assignment: bool = False) -> JoinAnswer:
        leads = member.member_id == self.leader_id
        everyone = tuple(
            (m.member_id, m.group_instance_id, m.metadata(self.protocol_name)) for m in self.members.values()
        )
        return JoinAnswer(
            token,
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            skip_assignment,
            everyone if leads else (),
        )

    def _sync_answer(self, member: Member, token: object) -> SyncAnswer:
        return SyncAnswer(token, ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _move_to(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.state = state
