"""Groups whose coordinator changes: what is kept, who is told what, and when."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from lab.sim.machine.machine import Machine
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, partition_of
from sparkonce.broker_lite.node.coordinated import LOAD_RETRY_S, SAFE_TIMEOUT_MS
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.unit.broker.script import REPLICAS, Call, PlantedError, Script, error_of

GROUP = "g"
LOAD_RETRY_MS = int(LOAD_RETRY_S * 1000)


@pytest.fixture
def script() -> Iterator[Script]:
    """Return brokers of which the first coordinates all groups."""
    with Script(offsets_topic_num_partitions=1) as script:
        script.create_topic("t", [1])
        script.create_topic(OFFSETS_TOPIC, [1])
        yield script


@pytest.fixture
def halves() -> Iterator[tuple[Script, list[str]]]:
    """Return the same with two partitions, and the names of groups that are in the first and in the second."""
    with Script(offsets_topic_num_partitions=2) as script:
        script.create_topic("t", [1])
        script.create_topic(OFFSETS_TOPIC, [1, 1])
        names = [next(name for name in "abcdef" if partition_of(name, 2) == index) for index in (0, 1)]
        for name in names:
            assert error_of(script.answer(commit(script, 1, 5, name))) is ErrorCode.NONE
        yield script, names


def commit(script: Script, broker_id: int, offset: int, group_id: str = GROUP, note: str = "") -> Call:
    topics = [("t", [(0, offset, -1, note)])]
    return script.send(broker_id, ApiKey.OFFSET_COMMIT, 9, group_id=group_id, topics=topics)


def committed(script: Script, broker_id: int) -> int:
    offset: int = offset_of(script, fetch_offset(script, broker_id))
    return offset


def fetch_offset(script: Script, broker_id: int) -> Call:
    groups = [(GROUP, None, -1, [("t", [0])])]
    return script.send(broker_id, ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=True)


def offset_of(script: Script, call: Call) -> int:
    answer = script.answer(call)
    assert error_of(answer) is ErrorCode.NONE
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def join(script: Script, broker_id: int, instance_id: str = "i") -> Call:
    return script.send(
        broker_id,
        ApiKey.JOIN_GROUP,
        5,
        group_id=GROUP,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[("range", b"subscription")],
    )


def of_member(joined: object) -> dict[str, object]:
    """Return by what requests name a member."""
    return {
        "group_id": GROUP,
        "generation_id": joined.generation_id,  # type: ignore[attr-defined]
        "member_id": joined.member_id,  # type: ignore[attr-defined]
        "group_instance_id": "i",
    }


def sync(script: Script, broker_id: int, joined: object) -> Call:
    known = of_member(joined)
    return script.send(broker_id, ApiKey.SYNC_GROUP, 3, **known, assignments=[(known["member_id"], b"assignment")])


def heartbeat(script: Script, broker_id: int, joined: object) -> ErrorCode:
    return error_of(script.ask(broker_id, ApiKey.HEARTBEAT, 3, **of_member(joined)))


def error_here(script: Script, broker_id: int, group_id: str = GROUP) -> ErrorCode:
    """Return what a broker says of a group at this moment."""
    return script.broker(broker_id).groups.partitions.error_of(group_id)


def test_a_commit_is_acknowledged_when_it_is_safe(script: Script) -> None:
    with script.unheard(1):
        call = commit(script, 1, 5)
        script.settle()
        assert call.answer is None
    assert error_of(script.answer(call)) is ErrorCode.NONE
    assert committed(script, 1) == 5


def test_nobody_reads_what_could_be_lost(script: Script) -> None:
    with script.unheard(1):
        commit(script, 1, 5)
        script.settle()
        call = fetch_offset(script, 1)
        script.settle()
        assert call.answer is None
    assert offset_of(script, call) == 5


def test_others_say_that_they_do_not_coordinate(script: Script) -> None:
    for call in (commit(script, 2, 5), fetch_offset(script, 2), join(script, 2)):
        assert error_of(script.answer(call)) is ErrorCode.NOT_COORDINATOR
    assert error_of(script.ask(2, ApiKey.DESCRIBE_GROUPS, 5, groups=[GROUP])) is ErrorCode.NOT_COORDINATOR
    assert not script.ask(2, ApiKey.LIST_GROUPS, 4, states_filter=[]).groups
    deleted = script.ask(2, ApiKey.DELETE_GROUPS, 2, groups_names=[GROUP])
    assert ErrorCode(deleted.results[0].error_code) is ErrorCode.NOT_COORDINATOR


def test_clients_are_told_who_leads_the_groups_partition(script: Script) -> None:
    for asked in REPLICAS:
        (found,) = script.ask(
            asked, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP]
        ).coordinators  # fmt: skip
        assert (found.node_id, found.host) == (1, script.brokers[1].address)
    script.let_lead(OFFSETS_TOPIC, 0, 3)
    script.settle()
    found = script.ask(2, ApiKey.FIND_COORDINATOR, 3, key_type=0, key=GROUP)
    assert (found.error_code, found.node_id, found.host) == (0, 3, script.brokers[3].address)


def test_a_partition_that_cannot_be_read_back_holds_up_no_other_and_is_tried_again(
    halves: tuple[Script, list[str]],
) -> None:
    script, names = halves
    with script.damaged(2, OFFSETS_TOPIC, 0):
        for index in (0, 1):
            script.let_lead(OFFSETS_TOPIC, index, 2)
        script.pass_time(5 * LOAD_RETRY_MS)
        assert error_here(script, 2, names[0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert error_here(script, 2, names[1]) is ErrorCode.NONE
        listed = script.ask(2, ApiKey.LIST_GROUPS, 4, states_filter=[])
        assert (listed.error_code, [each.group_id for each in listed.groups]) == (ErrorCode.NONE, [names[1]])
    assert f"{OFFSETS_TOPIC}-0 could not be read back" in script.noted[0]
    script.pass_time(LOAD_RETRY_MS)
    for name in names:
        assert script.broker(2).groups.offsets.of_group(name)["t", 0].offset == 5


def test_a_mistake_in_going_on_with_a_partition_is_not_the_end_of_it(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answer(commit(script, 1, 5))
    groups, calls = script.broker(2).groups, []

    def loaded(partitions: Collection[int]) -> None:
        calls.append(partitions)
        if len(calls) == 1:
            raise PlantedError

    monkeypatch.setattr(groups, "loaded", loaded)
    script.let_lead(OFFSETS_TOPIC, 0, 2)
    script.settle()
    assert error_of(script.answer(fetch_offset(script, 2))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    script.pass_time(LOAD_RETRY_MS)
    assert calls == [[0], [0]]
    assert committed(script, 2) == 5


def test_a_group_keeps_its_members_and_offsets_when_its_coordinator_dies(script: Script) -> None:
    script.answer(commit(script, 1, 5))
    joined = script.answer(join(script, 1))
    assert error_of(script.answer(sync(script, 1, joined))) is ErrorCode.NONE
    script.kill(1)
    script.settle()
    assert heartbeat(script, 2, joined) is ErrorCode.NONE
    assert committed(script, 2) == 5
    group = script.broker(2).groups.group(GROUP)
    assert group is not None
    assert group.generation == joined.generation_id


def test_a_member_is_told_errors_that_it_knows_while_its_coordinator_reads_back(script: Script) -> None:
    """Neither a heartbeat's client nor, as Java's takes it for the end, a sync's has heard of loading; as in Kafka."""
    joined = script.answer(join(script, 1))
    with script.damaged(2, OFFSETS_TOPIC, 0):
        script.kill(1)
        script.settle()
        assert heartbeat(script, 2, joined) is ErrorCode.NONE
        assert error_of(script.answer(sync(script, 2, joined))) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", [7, 9])
def test_a_fetch_of_what_does_not_become_safe_is_told_an_error_that_it_knows(script: Script, version: int) -> None:
    """Java's consumer before 3.9 takes COORDINATOR_NOT_AVAILABLE for the end here; as in Kafka."""
    topics = [("t", [0])]
    asked = {"group_id": GROUP, "topics": topics} if version < 8 else {"groups": [(GROUP, None, -1, topics)]}
    with script.unheard(1):
        commit(script, 1, 5)
        script.settle()
        answer = script.ask(1, ApiKey.OFFSET_FETCH, version, require_stable=False, **asked)
    told = answer if version < 8 else answer.groups[0]
    assert ErrorCode(told.error_code) is ErrorCode.NOT_COORDINATOR


def test_what_was_not_safe_is_not_acknowledged_by_the_old_coordinator(script: Script) -> None:
    script.answer(commit(script, 1, 5))
    with script.unheard(1):
        call = commit(script, 1, 6)
        script.settle()
        script.let_lead(OFFSETS_TOPIC, 0, 2)
        assert error_of(script.answer(call)) is ErrorCode.NOT_COORDINATOR
    script.settle()
    assert committed(script, 2) == 5
    assert not script.broker(1).groups.offsets.groups()


def test_members_that_wait_look_for_the_next_coordinator(script: Script) -> None:
    joined = script.answer(join(script, 1))
    second = join(script, 1, instance_id="j")
    script.settle()
    assert second.answer is None, "it waits for the first to join again"
    script.let_lead(OFFSETS_TOPIC, 0, 2)
    assert error_of(script.answer(second)) is ErrorCode.NOT_COORDINATOR
    script.settle()
    assert not script.broker(1).groups.all_ids()
    script.pass_time(60_000)  # no timer of the former coordinator goes off
    assert not script.broker(1).groups.all_ids()
    assert heartbeat(script, 1, joined) is ErrorCode.NOT_COORDINATOR


def test_a_coordinator_with_too_few_replicas_takes_nothing(script: Script) -> None:
    script.kill(2)
    script.kill(3)
    script.settle()
    for call in (commit(script, 1, 5), join(script, 1)):
        assert error_of(script.answer(call)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not script.broker(1).groups.offsets.groups()
    assert not script.broker(1).groups.all_ids()


def test_a_broker_that_stops_reads_nothing_back_any_more(script: Script) -> None:
    script.answer(commit(script, 1, 5))
    stopped = script.broker(2)
    with script.damaged(2, OFFSETS_TOPIC, 0):
        script.let_lead(OFFSETS_TOPIC, 0, 2)
        script.until(lambda: script.noted)
        script.brokers[2].stop()
        script.until(lambda: not script.brokers[2].alive)
    script.pass_time(2 * LOAD_RETRY_MS)
    assert not stopped.groups.all_ids()


def test_an_answer_does_not_wait_without_end(script: Script) -> None:
    with script.unheard(1):
        call = commit(script, 1, 5)
        script.pass_time(SAFE_TIMEOUT_MS)
    assert error_of(call.answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_partition_that_comes_back_is_read_anew(script: Script) -> None:
    script.answer(commit(script, 1, 5))
    script.let_lead(OFFSETS_TOPIC, 0, 2)
    script.settle()
    assert error_of(script.answer(commit(script, 2, 6))) is ErrorCode.NONE
    script.let_lead(OFFSETS_TOPIC, 0, 1)
    script.settle()
    assert committed(script, 1) == 6
    assert error_of(script.answer(fetch_offset(script, 2))) is ErrorCode.NOT_COORDINATOR


def test_a_deletion_in_another_epoch_is_not_acknowledged(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be in no log any more, however far that of the next epoch is replicated."""
    names = ["a", "b"]
    for name in names:
        assert error_of(script.answer(commit(script, 1, 5, name))) is ErrorCode.NONE
    turn: Promise[None] = Promise()
    monkeypatch.setattr(script.broker(1).turns, "spend", lambda *_, **__: turn)
    call = script.send(1, ApiKey.DELETE_GROUPS, 2, groups_names=names)
    script.pass_time()
    for leader in (2, 1):
        script.let_lead(OFFSETS_TOPIC, 0, leader)
        script.until(
            lambda is_led=leader == 1: (script.broker(1).groups.partitions.epoch_now("b") is not None) == is_led
        )
    turn.complete(None)
    results = {each.group_id: ErrorCode(each.error_code) for each in script.answer(call).results}
    assert results == {"a": ErrorCode.NOT_COORDINATOR, "b": ErrorCode.NONE}


def test_leadership_that_is_lost_while_loading_leaves_nothing(script: Script) -> None:
    script.answer(commit(script, 1, 5))
    with script.damaged(2, OFFSETS_TOPIC, 0):
        script.let_lead(OFFSETS_TOPIC, 0, 2)
        script.until(lambda: script.noted)
        script.let_lead(OFFSETS_TOPIC, 0, 3)
        script.settle()
    script.pass_time(2 * LOAD_RETRY_MS)
    assert not script.broker(2).groups.offsets.groups()
    assert committed(script, 3) == 5


def test_other_partitions_stay_when_one_goes(halves: tuple[Script, list[str]]) -> None:
    script, names = halves
    script.let_lead(OFFSETS_TOPIC, 1, 2)
    script.settle()
    assert [script.broker(broker_id).groups.all_ids() for broker_id in (1, 2)] == [names[:1], names[1:]]


def test_a_consumer_group_of_kip_848_goes_on_under_the_next_coordinator(script: Script) -> None:
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    known = {"group_id": GROUP, "member_id": "m"}
    epoch = script.ask(1, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **known, member_epoch=0, **fields).member_epoch
    script.kill(1)
    script.settle()
    beat = script.ask(2, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **known, member_epoch=epoch)
    assert (ErrorCode(beat.error_code), beat.member_epoch) == (ErrorCode.NONE, epoch)


def test_a_log_of_many_records_is_read_over_several_turns(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered in between: that the partition is loading."""
    calls = [commit(script, 1, number, note="m" * 4_000) for number in range(400)]
    assert {error_of(script.answer(call)) for call in calls} == {ErrorCode.NONE}
    looks = count(0, 3)

    def slow(machine: Machine) -> int:
        """Let 3 ms pass with each look of broker 2 at its clock."""
        return machine.__dict__["booted_ms"] + (next(looks) if machine.node_id == 2 else 0)

    monkeypatch.setattr(Machine, "booted_ms", property(slow), raising=False)
    script.let_lead(OFFSETS_TOPIC, 0, 2)
    script.until(lambda: error_here(script, 2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for call in (fetch_offset(script, 2), script.send(2, ApiKey.LIST_GROUPS, 4, states_filter=[])):
        assert error_of(script.answer(call)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    script.settle()
    assert committed(script, 2) == 399


class _Course:
    """Commits and reads at whoever coordinates, which changes at random; some answers come late, some never."""

    def __init__(self, script: Script, seed: int) -> None:
        self.script = script
        self.random = random.Random(seed)
        self.committed = 0
        self.acknowledged = -1
        self.seen = -1
        self.waiting: list[tuple[str, int, Call]] = []

    def run(self) -> None:
        with ExitStack() as cut:
            for _ in range(60):
                self._step(cut)
        self.script.settle()
        self._hear()
        self._read()
        self.script.pass_time(SAFE_TIMEOUT_MS)
        self._hear()
        assert not self.waiting
        assert self.seen >= self.acknowledged, "it was acknowledged, and is lost"

    def _step(self, cut: ExitStack) -> None:
        script, chance = self.script, self.random
        leader = script.leader(OFFSETS_TOPIC, 0)
        what = chance.randrange(6)
        if what <= 1:
            self.committed += 1
            self.waiting.append(("commit", self.committed, commit(script, leader, self.committed)))
        elif what == 2:
            self._read()
        elif what == 3:
            script.let_lead(OFFSETS_TOPIC, 0, chance.choice(REPLICAS))
        elif what == 4:
            cut.close()
            if chance.random() < 0.5:
                cut.enter_context(script.unheard(leader))
        else:
            script.pass_time(chance.choice((0, 1, 30)))
        self._hear()

    def _read(self) -> None:
        self.waiting.append(("read", -1, fetch_offset(self.script, self.script.leader(OFFSETS_TOPIC, 0))))

    def _hear(self) -> None:
        for each in list(self.waiting):
            what, offset, call = each
            if call.answer is None:
                continue
            self.waiting.remove(each)
            if error_of(call.answer) is not ErrorCode.NONE:
                continue
            if what == "commit":
                self.acknowledged = max(self.acknowledged, offset)
            else:
                found = offset_of(self.script, call)
                assert found >= self.seen, "what was read has vanished"
                self.seen = found


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_and_nothing_read_vanishes(script: Script, seed: int) -> None:
    _Course(script, seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12, 300))
def test_nothing_acknowledged_is_lost_and_nothing_read_vanishes_for_long(script: Script, seed: int) -> None:
    _Course(script, seed).run()


def test_a_topic_id_of_zeros_is_an_unknown_one(script: Script) -> None:
    refused = script.ask(
        1,
        ApiKey.OFFSET_COMMIT,
        10,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[(ZERO_UUID, [(0, 5, -1, "")])],
    )
    assert error_of(refused) is ErrorCode.UNKNOWN_TOPIC_ID
    groups = [(GROUP, None, -1, [(ZERO_UUID, [0])])]
    unknown = script.ask(1, ApiKey.OFFSET_FETCH, 10, groups=groups, require_stable=False)
    assert unknown.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
