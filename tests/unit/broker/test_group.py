"""The group state machine: the paths that clients walk, and every state with every input."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkonce.broker_lite.coordinators.group import TRANSITIONS, ClassicGroup
from sparkonce.broker_lite.coordinators.group_messages import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Answer,
    GroupSettings,
    GroupState,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
)
from sparkonce.broker_lite.coordinators.group_storage import check_invariants, restore, store
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.chance import examples

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def new_group(initial_delay_ms: int = 0, max_size: int = 100) -> ClassicGroup:
    return ClassicGroup("g", GroupSettings(6_000, 60_000, initial_delay_ms, max_size))


def join(token: object, member_id: str = "", new_id: str = "m1", **changes: Any) -> Join:
    fields: dict[str, Any] = {
        "token": token,
        "member_id": member_id,
        "new_member_id": new_id,
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": (("range", b"r"), ("roundrobin", b"rr")),
    }
    return Join(**{**fields, **changes})


def sync(token: object, member_id: str, generation: int, assignments: tuple[tuple[str, bytes], ...] = ()) -> Sync:
    return Sync(token, generation, member_id, None, "consumer", "range", assignments)


def stable(*member_ids: str) -> ClassicGroup:
    """A group in which these members are stable, the first one leading."""
    group = new_group(initial_delay_ms=1)
    for member_id in member_ids:
        group.join(join(member_id, new_id=member_id), 0)
    group.expire(1)
    while group.state is GroupState.PREPARING_REBALANCE:
        assert group.next_deadline_ms is not None
        group.expire(group.next_deadline_ms)
    shares = tuple((member_id, member_id.encode()) for member_id in member_ids)
    for member_id in reversed(member_ids):
        group.sync(sync(member_id, member_id, group.generation, shares if member_id == group.leader_id else ()), 1)
    assert group.state is GroupState.STABLE
    return group


def errors(answers: list[Answer]) -> dict[object, ErrorCode]:
    return {answer.token: answer.error for answer in answers}


def test_one_member_joins_and_syncs() -> None:
    group = new_group()
    (joined,) = group.join(join("j"), 0)
    assert isinstance(joined, JoinAnswer)
    assert (joined.error, joined.generation, joined.protocol_name, joined.leader) == (0, 1, "range", "m1")
    assert joined.members == (("m1", None, b"r"),)
    (synced,) = group.sync(sync("s", "m1", 1, (("m1", b"all"),)), 1)
    assert isinstance(synced, SyncAnswer)
    assert (synced.error, synced.assignment) == (0, b"all")
    assert group.state is GroupState.STABLE
    assert group.heartbeat("m1", None, 1, 2) is ErrorCode.NONE


def test_a_new_member_is_asked_to_come_again_with_its_id() -> None:
    group = new_group()
    assert errors(group.join(join("j", require_known_member_id=True), 0)) == {"j": ErrorCode.MEMBER_ID_REQUIRED}
    assert group.heartbeat("m1", None, 0, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert errors(group.join(join("j2", member_id="m1"), 0)) == {"j2": ErrorCode.NONE}


def test_a_second_member_makes_the_first_join_again() -> None:
    group = stable("a")
    assert group.join(join("b1", new_id="b"), 10) == []
    assert group.heartbeat("a", None, group.generation, 11) is ErrorCode.REBALANCE_IN_PROGRESS
    answers = group.join(join("a1", member_id="a"), 12)
    assert errors(answers) == {"a1": ErrorCode.NONE, "b1": ErrorCode.NONE}
    leaders = [answer for answer in answers if isinstance(answer, JoinAnswer) and answer.members]
    assert [answer.member_id for answer in leaders] == ["a"]
    assert group.sync(sync("b2", "b", group.generation), 13) == []
    answers = group.sync(sync("a2", "a", group.generation, (("a", b"1"), ("b", b"2"))), 14)
    assert {a.token: a.assignment for a in answers if isinstance(a, SyncAnswer)} == {"a2": b"1", "b2": b"2"}


def test_a_member_that_does_not_join_again_is_left_behind() -> None:
    group = stable("a", "b")
    assert group.join(join("a1", member_id="a"), 100) == []
    group.heartbeat("b", None, group.generation, 9_000)
    group.heartbeat("b", None, group.generation, 18_000)
    group.heartbeat("b", None, group.generation, 27_000)
    assert errors(group.expire(100 + REBALANCE_MS)) == {"a1": ErrorCode.NONE}
    assert set(group.members) == {"a"}


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    group = stable("a", "b")
    group.heartbeat("a", None, group.generation, 5_000)
    assert group.expire(SESSION_MS + 1) == []
    assert set(group.members) == {"a"}
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_waits_is_not_silent() -> None:
    group = stable("a", "b")
    group.join(join("a1", member_id="a"), 0)
    group.heartbeat("b", None, group.generation, 9_000)
    assert group.expire(SESSION_MS + 5) == []
    assert set(group.members) == {"a", "b"}


def test_leaving_starts_a_rebalance_and_the_last_one_empties_the_group() -> None:
    group = stable("a", "b")
    assert group.leave("b", None, 5) == (ErrorCode.NONE, [])
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.leave("a", None, 6) == (ErrorCode.NONE, [])
    assert group.state is GroupState.EMPTY
    assert group.leave("a", None, 7)[0] is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.next_deadline_ms is None


def test_followers_of_a_leader_that_never_syncs_are_told() -> None:
    group = stable("a", "b")
    group.join(join("a1", member_id="a"), 0)
    group.join(join("b1", member_id="b"), 0)
    assert group.sync(sync("b2", "b", group.generation), 1) == []
    group.heartbeat("a", None, group.generation, SESSION_MS - 1)
    group.heartbeat("a", None, group.generation, 2 * SESSION_MS - 2)
    group.heartbeat("a", None, group.generation, 3 * SESSION_MS - 3)
    assert errors(group.expire(REBALANCE_MS)) == {"b2": ErrorCode.REBALANCE_IN_PROGRESS}
    assert set(group.members) == {"b"}


def test_the_first_rebalance_waits_for_more_members() -> None:
    group = new_group(initial_delay_ms=3_000)
    assert group.join(join("a1", new_id="a"), 0) == []
    assert group.next_deadline_ms == 3_000
    assert group.join(join("b1", new_id="b"), 1_000) == []
    assert group.expire(3_000) == []
    assert group.next_deadline_ms == 6_000
    assert errors(group.expire(6_000)) == {"a1": ErrorCode.NONE, "b1": ErrorCode.NONE}


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    group = new_group()
    group.join(join("a1", new_id="a", group_instance_id="i"), 0)
    group.sync(Sync("a2", 1, "a", "i", None, None, (("a", b"all"),)), 0)
    (answer,) = group.join(join("b1", new_id="b", group_instance_id="i", supports_skip_assignment=True), 5)
    assert isinstance(answer, JoinAnswer)
    assert (answer.error, answer.member_id, answer.generation, answer.skip_assignment) == (0, "b", 1, True)
    assert group.heartbeat("a", "i", 1, 6) is ErrorCode.FENCED_INSTANCE_ID
    (synced,) = group.sync(Sync("b2", 1, "b", "i", None, None, ()), 7)
    assert isinstance(synced, SyncAnswer)
    assert synced.assignment == b"all"


def test_what_is_refused() -> None:
    group = stable("a")
    assert errors(group.join(join("j", session_timeout_ms=1), 0)) == {"j": ErrorCode.INVALID_SESSION_TIMEOUT}
    assert errors(group.join(join("j", protocols=()), 0)) == {"j": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    other = join("j", new_id="b", protocols=(("sticky", b""),))
    assert errors(group.join(other, 0)) == {"j": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    assert errors(group.join(join("j", member_id="who"), 0)) == {"j": ErrorCode.UNKNOWN_MEMBER_ID}
    assert errors(group.sync(sync("s", "a", 99), 0)) == {"s": ErrorCode.ILLEGAL_GENERATION}
    assert group.heartbeat("a", None, 99, 0) is ErrorCode.ILLEGAL_GENERATION
    assert group.delete() is ErrorCode.NON_EMPTY_GROUP
    full = new_group(max_size=1)
    full.join(join("a1", new_id="a"), 0)
    assert errors(full.join(join("b1", new_id="b"), 0)) == {"b1": ErrorCode.GROUP_MAX_SIZE_REACHED}


def test_a_member_that_no_longer_fits_is_out() -> None:
    """KIP-389: in a rebalance those who join first stay, when the bound was lowered before."""
    group = stable("a", "b")
    group.settings = GroupSettings(6_000, 60_000, 0, 1)
    assert group.join(join("a1", member_id="a"), 0) == []
    answers = group.join(join("b1", member_id="b"), 1)
    assert errors(answers) == {"b1": ErrorCode.GROUP_MAX_SIZE_REACHED, "a1": ErrorCode.NONE}
    assert set(group.members) == {"a"}


def test_a_member_may_not_change_to_a_protocol_that_the_group_does_not_share() -> None:
    group = stable("a")
    answers = group.join(join("j", member_id="a", protocols=(("sticky", b""),)), 0)
    assert errors(answers) == {"j": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}


def static(group: ClassicGroup, token: str, new_id: str, **changes: Any) -> JoinAnswer:
    (answer,) = group.join(join(token, new_id=new_id, group_instance_id="i", **changes), 5)
    assert isinstance(answer, JoinAnswer)
    return answer


def static_group() -> ClassicGroup:
    group = new_group()
    static(group, "a1", "a")
    group.sync(Sync("a2", 1, "a", "i", None, None, (("a", b"all"),)), 0)
    group.unwritten = False
    return group


def test_an_heir_of_the_leader_that_cannot_skip_is_told_of_the_old_leader() -> None:
    """KIP-814: else it would assign, and its sync would be ignored."""
    group = static_group()
    answer = static(group, "b1", "b")
    assert (answer.leader, answer.skip_assignment, answer.members, answer.generation) == ("a", False, (), 1)
    assert group.state is GroupState.STABLE
    assert group.unwritten
    assert group.leader_id == "b"


def test_an_heir_with_another_subscription_does_not_make_a_rebalance() -> None:
    group = static_group()
    answer = static(group, "b1", "b", protocols=(("range", b"more"),), supports_skip_assignment=True)
    assert (answer.skip_assignment, answer.members) == (True, (("b", "i", b"more"),))
    assert group.state is GroupState.STABLE


def test_an_heir_by_which_the_group_chooses_another_protocol_makes_a_rebalance() -> None:
    group = static_group()
    answer = static(group, "b1", "b", protocols=(("roundrobin", b""), ("range", b"r")))
    assert (answer.generation, answer.protocol_name) == (2, "roundrobin")


def test_silent_static_members_are_waited_for_until_their_sessions_end() -> None:
    """KIP-345: nobody has joined, so there is nobody to give their share to."""
    group = static_group()
    group.members["a"].session_timeout_ms = 3 * REBALANCE_MS
    group.heartbeat("a", "i", 1, 0)
    group.join(join("b1", new_id="b"), 0)
    group.leave("b", None, 1)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.expire(REBALANCE_MS) == []
    assert set(group.members) == {"a"}
    assert group.state is GroupState.PREPARING_REBALANCE
    group.expire(3 * REBALANCE_MS)
    assert group.state is GroupState.EMPTY


def test_a_member_that_never_syncs_is_removed_even_if_it_sends_heartbeats() -> None:
    group = stable("a", "b")
    group.join(join("a1", member_id="a"), 0)
    group.join(join("b1", member_id="b"), 0)
    group.sync(sync("a2", "a", group.generation, (("a", b"1"), ("b", b"2"))), 0)
    assert group.state is GroupState.STABLE
    for now_ms in range(0, REBALANCE_MS, 5_000):
        for member_id in ("a", "b"):
            assert group.heartbeat(member_id, None, group.generation, now_ms) is ErrorCode.NONE
    group.expire(REBALANCE_MS)
    assert set(group.members) == {"a"}
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_new_member_is_not_waited_for_without_end() -> None:
    group = stable("a")
    group.members["a"].rebalance_timeout_ms = 10 * NEW_MEMBER_JOIN_TIMEOUT_MS
    group.members["a"].session_timeout_ms = 10 * NEW_MEMBER_JOIN_TIMEOUT_MS
    group.heartbeat("a", None, 1, 0)
    group.join(join("b1", new_id="b"), 0)
    answers = group.expire(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert errors(answers) == {"b1": ErrorCode.UNKNOWN_MEMBER_ID}


def test_what_could_not_be_written_is_taken_back() -> None:
    group = stable("a")
    group.join(join("a1", member_id="a"), 0)
    answers = group.sync(sync("a2", "a", group.generation, (("a", b"1"),)), 0)
    assert group.unwritten
    assert errors(group.not_written(answers, 1)) == {"a2": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert group.heartbeat("a", None, group.generation, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_is_read_back_as_it_was_written() -> None:
    group = stable("a", "b")
    again = restore("g", group.settings, store(group, 77), 1_000)
    check_invariants(again)
    assert (again.state, again.generation, again.leader_id) == (GroupState.STABLE, group.generation, group.leader_id)
    assert again.heartbeat("a", None, group.generation, 1_001) is ErrorCode.NONE
    (synced,) = again.sync(sync("s", "b", group.generation), 1_002)
    assert isinstance(synced, SyncAnswer)
    assert synced.assignment == b"b"
    again.expire(1_001 + SESSION_MS)
    assert set(again.members) == {"b"}
    assert store(again, 99) != store(group, 99)


def test_a_transaction_may_commit_without_a_member() -> None:
    group = stable("a")
    assert group.commit_error("", None, -1, 0, transactional=True) is ErrorCode.NONE
    assert group.commit_error("a", None, 9, 0, transactional=True) is ErrorCode.ILLEGAL_GENERATION


def test_who_may_commit() -> None:
    group = new_group()
    assert group.commit_error("", None, -1, 0) is ErrorCode.NONE
    group = stable("a")
    assert group.commit_error("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_error("a", None, group.generation, 0) is ErrorCode.NONE
    assert group.commit_error("a", None, group.generation + 1, 0) is ErrorCode.ILLEGAL_GENERATION
    group.join(join("a1", member_id="a"), 0)
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert group.commit_error("a", None, group.generation, 0) is ErrorCode.REBALANCE_IN_PROGRESS


class Everything(RuleBasedStateMachine):
    """Every state with every input: no assertion fails, each request is answered once, generations only grow."""

    ids = st.sampled_from(["", "m1", "m2", "m3", "nobody"])
    instances = st.sampled_from([None, None, "i1", "i2"])
    generations = st.integers(-1, 1)
    protocol_sets = st.sampled_from([(("range", b"r"),), (("rr", b""), ("range", b"r")), (("sticky", b""),), ()])

    def __init__(self) -> None:
        super().__init__()
        self.group = new_group(initial_delay_ms=500, max_size=3)
        self.now_ms = 0
        self.tokens = 0
        self.open: set[object] = set()
        self.generation = 0
        self.state = self.group.state

    def token(self) -> int:
        self.tokens += 1
        self.open.add(self.tokens)
        return self.tokens

    def take(self, answers: list[Answer]) -> None:
        for answer in answers:
            assert answer.token in self.open, "answered twice, or never asked"
            self.open.remove(answer.token)

    @rule(
        member_id=ids,
        new=st.sampled_from(["m1", "m2", "m3"]),
        instance=instances,
        protocols=protocol_sets,
        required=st.booleans(),
    )
    def on_join(self, member_id: str, new: str, instance: str | None, protocols: Any, required: bool) -> None:
        if new in self.group.members or new in self.group.pending_members:
            new = f"{new}-{self.tokens}"  # the shell never makes up an id twice
        request = join(
            self.token(),
            member_id,
            new,
            group_instance_id=instance,
            protocols=protocols,
            require_known_member_id=required,
        )
        self.take(self.group.join(request, self.now_ms))

    @rule(index=st.integers(0, 3), same=st.booleans())
    def on_join_again(self, index: int, same: bool) -> None:
        for member in list(self.group.members.values())[index : index + 1]:
            protocols = member.protocols if same else (("range", b"changed"),)
            request = join(
                self.token(), member.member_id, "x", group_instance_id=member.group_instance_id, protocols=protocols
            )
            self.take(self.group.join(request, self.now_ms))

    @rule(index=st.integers(0, 3), shift=generations)
    def on_sync(self, index: int, shift: int) -> None:
        for member in list(self.group.members.values())[index : index + 1]:
            generation = self.group.generation + shift
            request = Sync(self.token(), generation, member.member_id, member.group_instance_id, None, None, ())
            self.take(self.group.sync(request, self.now_ms))

    @rule(member_id=ids, instance=instances, shift=generations)
    def on_heartbeat(self, member_id: str, instance: str | None, shift: int) -> None:
        self.group.heartbeat(member_id, instance, self.group.generation + shift, self.now_ms)

    @rule(member_id=ids, instance=instances, shift=generations)
    def on_commit(self, member_id: str, instance: str | None, shift: int) -> None:
        self.group.commit_error(member_id, instance, self.group.generation + shift, self.now_ms)

    @rule(index=st.integers(0, 4), instance=instances)
    def on_leave(self, index: int, instance: str | None) -> None:
        members = [*self.group.members, *self.group.pending_members, "nobody"]
        self.take(self.group.leave(members[index % len(members)], instance, self.now_ms)[1])

    @rule(ms=st.sampled_from([0, 1, 500, 5_000, 10_000, 30_000]))
    def on_time(self, ms: int) -> None:
        self.now_ms += ms
        self.take(self.group.expire(self.now_ms))

    @rule()
    def on_deadline(self) -> None:
        deadline_ms = self.group.next_deadline_ms
        if deadline_ms is not None:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.expire(self.now_ms))

    @rule()
    def on_restart(self) -> None:
        """A written group comes back as it is; requests that waited were lost with their connections."""
        if self.group.unwritten and self.group.state in (GroupState.STABLE, GroupState.EMPTY):
            stored = store(self.group, 5)
            again = restore("g", self.group.settings, stored, self.now_ms)
            check_invariants(again)
            assert (again.state, again.generation) == (self.group.state, self.group.generation)
            assert store(again, 5) == stored

    @rule()
    def on_delete(self) -> None:
        if self.group.state is GroupState.EMPTY and self.tokens % 5 == 0:
            assert self.group.delete() is ErrorCode.NONE

    @invariant()
    def holds(self) -> None:
        check_invariants(self.group)
        held = [m.awaiting_join or m.awaiting_sync for m in self.group.members.values()]
        assert self.open == {token for token in held if token is not None}
        assert self.group.generation >= self.generation
        self.generation = self.group.generation
        if self.open:
            assert self.group.next_deadline_ms is not None, "requests wait and nothing will wake the group"

    def teardown(self) -> None:
        """Left alone, every group comes to rest and every request to its answer."""
        for _ in range(50):
            deadline_ms = self.group.next_deadline_ms
            if deadline_ms is None:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.expire(self.now_ms))
            check_invariants(self.group)
        assert not self.open
        assert self.group.state in (GroupState.EMPTY, GroupState.DEAD)


TestEverything = Everything.TestCase
TestEverything.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(GroupState)
