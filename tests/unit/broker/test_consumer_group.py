"""The KIP-848 group: the paths that clients walk, and every refusal."""

from __future__ import annotations

import uuid

import pytest

from sparkonce.broker_lite.coordinators.consumer_group_image import ConsumerGroupState, MemberState, check_image
from sparkonce.broker_lite.coordinators.consumer_group_messages import ConsumerGroupSettings
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.consumer_group_support import (
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    Carried,
    FakeTopics,
    contents,
    plain,
)

T = uuid.UUID(int=1)


def carried(**partitions: int) -> Carried:
    return Carried(FakeTopics(**(partitions or {"t": 3})))


def share(*indexes: int) -> dict[uuid.UUID, frozenset[int]]:
    return {T: frozenset(indexes)}


def test_the_first_member_gets_everything_in_epoch_two() -> None:
    """Kafka 4.3's groups begin in epoch 1, and the first member's subscription begins the next."""
    group = carried()
    answer = group.join("a", "t")
    assert (answer.member_epoch, plain(answer)) == (2, share(0, 1, 2))
    assert group.group.state is ConsumerGroupState.STABLE
    assert group.heartbeat("a", 2).assignment is None


def test_a_partition_is_given_up_before_it_is_given_away() -> None:
    group = carried()
    group.join("a", "t")
    joined = group.join("b", "t")
    assert (joined.member_epoch, plain(joined)) == (3, {})
    assert group.group.image.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    told = group.heartbeat("a", 2)
    kept = plain(told)
    assert told.member_epoch == 2, "it stays in its epoch until it has given up"
    assert kept is not None
    assert len(kept[T]) == 2
    assert group.heartbeat("b", 3).assignment is None
    assert group.heartbeat("a", 2, owned=share(0, 1, 2)).member_epoch == 2

    assert group.heartbeat("a", 2, owned=kept).member_epoch == 3
    given = plain(group.heartbeat("b", 3))
    assert given == {T: frozenset({0, 1, 2}) - kept[T]}
    assert group.group.state is ConsumerGroupState.STABLE


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    group = carried()
    group.join("a", "t")
    group.join("b", "t")
    group.heartbeat("a", 2)
    for _ in range(REBALANCE_MS // 10_000 - 1):
        group.wait(10_000)
        group.heartbeat("a", 2)
        group.heartbeat("b", group.group.image.members["b"].epoch)
    group.wait(10_000)
    assert set(group.group.image.members) == {"b"}
    assert plain(group.heartbeat("b", 3)) == share(0, 1, 2)


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    group = carried()
    group.join("a", "t")
    group.wait(SESSION_MS - 1)
    assert set(group.group.image.members) == {"a"}
    group.wait(1)
    assert group.group.state is ConsumerGroupState.EMPTY
    with pytest.raises(KafkaError) as refused:
        group.heartbeat("a", 2)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_leaves_and_the_others_get_its_share() -> None:
    group = carried()
    group.join("a", "t")
    group.join("b", "t")
    assert group.heartbeat("a", -1).member_epoch == -1
    assert group.group.state is ConsumerGroupState.ASSIGNING
    answer = group.heartbeat("b", 3)
    assert (answer.member_epoch, plain(answer)) == (4, share(0, 1, 2))


@pytest.mark.parametrize(
    ("epoch", "owned", "code"),
    [
        (3, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, share(), ErrorCode.FENCED_MEMBER_EPOCH),
        (9, None, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_in_another_epoch_is_fenced(epoch: int, owned: object, code: ErrorCode) -> None:
    group = carried()
    group.join("a", "t")
    before = contents(group.group.image)
    with pytest.raises(KafkaError) as refused:
        group.heartbeat("a", epoch, owned=owned)
    assert refused.value.code is code
    assert contents(group.group.image) == before


def test_a_member_that_missed_the_answer_may_go_on_from_its_last_epoch() -> None:
    group = carried()
    group.join("a", "t")
    group.join("b", "t")
    kept = plain(group.heartbeat("a", 2))
    group.heartbeat("a", 2, owned=kept)  # the answer, epoch 3, is lost
    assert group.heartbeat("a", 2, owned=kept).member_epoch == 3
    with pytest.raises(KafkaError) as refused:
        group.heartbeat("a", 2, owned=share(0, 1, 2))
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_join_again_at_any_time() -> None:
    group = carried()
    group.join("a", "t")
    answer = group.join("a", "t")
    assert (answer.member_epoch, plain(answer)) == (2, share(0, 1, 2))


def test_who_says_everything_is_told_everything() -> None:
    group = carried()
    group.join("a", "t")
    answer = group.heartbeat("a", 2, topic_names=("t",), rebalance_timeout_ms=REBALANCE_MS, owned=share(0))
    assert plain(answer) == share(0, 1, 2)


def test_a_static_member_comes_back_under_another_id_to_its_share() -> None:
    group = carried()
    group.join("a", "t", instance_id="i")
    group.join("b", "t")
    kept = plain(group.heartbeat("a", 2, instance_id="i"))
    group.heartbeat("a", 2, instance_id="i", owned=kept)
    group.heartbeat("b", 3)
    epoch = group.group.image.epoch
    assert group.heartbeat("a", -2, instance_id="i").member_epoch == -2
    assert group.group.image.members["a"].epoch == -2
    answer = group.join("c", "t", instance_id="i")
    assert (answer.member_epoch, plain(answer)) == (epoch, kept)
    assert group.group.image.epoch == epoch, "nobody else has noticed"
    assert set(group.group.image.members) == {"b", "c"}


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    group = carried()
    group.join("a", "t", instance_id="i")
    group.heartbeat("a", -2, instance_id="i")
    group.wait(SESSION_MS)
    assert group.group.state is ConsumerGroupState.EMPTY


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance_id", "code"),
    [
        ("b", 0, "i", ErrorCode.UNRELEASED_INSTANCE_ID),
        ("b", 2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", 2, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", -2, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_is_not_the_static_member(member_id: str, epoch: int, instance_id: str | None, code: ErrorCode) -> None:
    group = carried()
    group.join("a", "t", instance_id="i")
    with pytest.raises(KafkaError) as refused:
        group.heartbeat(member_id, epoch, instance_id=instance_id, topic_names=("t",), rebalance_timeout_ms=1, owned={})
    assert refused.value.code is code


def test_a_full_group_takes_nobody_in() -> None:
    group = Carried(FakeTopics(t=3), ConsumerGroupSettings(SESSION_MS, 5_000, 1, ("uniform",)))
    group.join("a", "t")
    with pytest.raises(KafkaError) as refused:
        group.join("b", "t")
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.heartbeat("a", 2).member_epoch == 2


def test_an_assignor_that_is_not_there() -> None:
    group = carried()
    with pytest.raises(KafkaError) as refused:
        group.join("a", "t", server_assignor="sticky")
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    group = Carried(FakeTopics(t=5))
    for name in "abcd":
        group.join(name, "t", server_assignor="range")
    assert group.group.assignor == "range"
    targets = group.group.image.targets
    assert [sorted(targets[name][T]) for name in "abcd"] == [[0, 1], [2], [3], [4]]
    assert carried().group.assignor == SETTINGS.assignors[0]


def test_a_pattern_follows_the_topics() -> None:
    group = carried(**{"a-1": 1, "b-1": 1})
    answer = group.join("m", topic_pattern="a-.*")
    assert plain(answer) == share(0)
    group.topics.create("a-2", 2)
    more = group.heartbeat("m", 2)
    assert more.member_epoch == 3
    assert more.assignment is not None
    assert len(more.assignment) == 2
    group.topics.delete("a-1")
    assert group.heartbeat("m", 3).assignment is not None
    assert group.group.image.patterns["a-.*"].topics == {"a-2"}
    group.heartbeat("m", -1)
    assert group.group.image.patterns == {}


def test_a_pattern_matches_whole_names() -> None:
    group = carried(a=1, ab=1)
    assert group.group.image.patterns == {}
    group.join("m", topic_pattern="a")
    assert group.group.image.patterns["a"].topics == {"a"}


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=x)", r"(a)\1", "a{2000}"])
def test_what_is_no_pattern_of_re2(pattern: str) -> None:
    group = carried()
    with pytest.raises(KafkaError) as refused:
        group.join("m", topic_pattern=pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not group.group.image.members


def test_new_partitions_are_given_out() -> None:
    group = carried()
    group.join("a", "t")
    group.topics.grow("t", 4)
    answer = group.heartbeat("a", 2)
    assert (answer.member_epoch, plain(answer)) == (3, share(0, 1, 2, 3))


def test_a_member_gives_up_what_it_no_longer_subscribes_to() -> None:
    group = carried(t=1, u=1)
    group.join("a", "t", "u")
    answer = group.heartbeat("a", 2, topic_names=("u",))
    assert answer.assignment is not None
    assert T not in answer.assignment
    assert answer.member_epoch == 2
    owned = plain(answer)
    assert group.heartbeat("a", 2, owned=owned).member_epoch == 3


def test_topics_that_do_not_exist_yet_may_be_subscribed_to() -> None:
    group = carried()
    assert plain(group.join("a", "later")) == {}
    group.topics.create("later", 2)
    answer = group.heartbeat("a", group.group.image.members["a"].epoch)
    assert answer.assignment is not None
    assert [sorted(each) for each in answer.assignment.values()] == [[0, 1]]


def test_who_may_commit_and_fetch_offsets() -> None:
    group = carried()
    assert group.group.commit_error("", -1, 9, []) is ErrorCode.NONE
    group.join("a", "t")
    group.join("b", "t")
    commit = group.group.commit_error
    assert commit("", -1, 9, []) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1, 9, [], transactional=True) is ErrorCode.NONE
    assert commit("who", 2, 9, []) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("a", 2, 8, []) is ErrorCode.UNSUPPORTED_VERSION
    assert commit("a", 2, 9, [(T, 0)]) is ErrorCode.NONE
    assert commit("a", 3, 9, [(T, 0)]) is ErrorCode.STALE_MEMBER_EPOCH
    kept = plain(group.heartbeat("a", 2))
    assert kept is not None
    group.heartbeat("a", 2, owned=kept)
    (first, second), (lost,) = sorted(kept[T]), {0, 1, 2} - kept[T]
    assert commit("a", 2, 9, [(T, first), (T, second)]) is ErrorCode.NONE, "it has had them since epoch 2 (KIP-1251)"
    assert commit("a", 2, 9, [(T, lost)]) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("a", 1, 9, [(T, first)]) is ErrorCode.STALE_MEMBER_EPOCH
    fetch = group.group.fetch_error
    assert fetch(None, -1) is ErrorCode.NONE
    assert fetch("a", 3) is ErrorCode.NONE
    assert fetch("a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("who", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_keeps_members_and_gives_them_their_time_anew() -> None:
    group = carried()
    group.join("a", "t")
    group.join("b", "t")
    group.heartbeat("a", 2)
    before = contents(group.group.image)
    group.now_ms += SESSION_MS
    group.restart()
    assert contents(group.group.image) == before
    check_image(group.group.image)
    group.wait(SESSION_MS - 1)
    assert set(group.group.image.members) == {"a", "b"}
    group.heartbeat("b", 3)
    group.wait(REBALANCE_MS - SESSION_MS + 1)
    assert set(group.group.image.members) == {"b"}, "the session's end or the rebalance timeout: both run again"


def test_the_first_heartbeat_after_a_restart_is_told_what_a_lost_answer_said() -> None:
    group = carried()
    group.join("a", "t")
    group.join("b", "t")
    lost = plain(group.heartbeat("a", 2))
    assert lost is not None
    group.restart()
    assert plain(group.heartbeat("a", 2)) == lost
    assert plain(group.heartbeat("a", 2)) is None, "only once"


def test_a_decision_that_is_not_taken_changes_nothing() -> None:
    group = carried()
    group.join("a", "t")
    before = contents(group.group.image)
    group.decide("b", 0, topic_names=("t",), rebalance_timeout_ms=1, owned={})
    group.decide("a", -1)
    assert contents(group.group.image) == before
