"""The server-side assignors: who gets what, and how little moves."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.coordinators.assignors import ASSIGNORS, Assignment, Partitions, Subscriber

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]
T1, T2 = TOPICS[:2]


def group(*members: Subscriber) -> list[Subscriber]:
    return list(members)


def member(name: str, *topics: uuid.UUID, instance: str | None = None, has: Partitions | None = None) -> Subscriber:
    return Subscriber(name, instance, frozenset(topics), has or {})


def sizes(assignment: Assignment) -> dict[str, int]:
    return {name: sum(len(each) for each in share.values()) for name, share in assignment.items()}


def test_range_gives_five_partitions_over_four_members_as_two_one_one_one() -> None:
    """As Kafka; by M = ceil(P/C), which articles write, it would be 2, 2, 1, 0."""
    shares = ASSIGNORS["range"]([member(name, T1) for name in "abcd"], {T1: 5})
    assert {name: sorted(share[T1]) for name, share in shares.items()} == {"a": [0, 1], "b": [2], "c": [3], "d": [4]}


def test_range_gives_the_same_partitions_of_each_topic_to_the_same_member() -> None:
    shares = ASSIGNORS["range"]([member("b", T1, T2), member("a", T1, T2)], {T1: 3, T2: 3})
    assert shares == {"a": dict.fromkeys((T1, T2), frozenset({0, 1})), "b": dict.fromkeys((T1, T2), frozenset({2}))}


def test_static_members_come_first_by_their_instance() -> None:
    members = group(member("a", T1), member("z", T1, instance="i1"), member("y", T1, instance="i0"))
    shares = ASSIGNORS["range"](members, {T1: 3})
    assert {name: sorted(share[T1]) for name, share in shares.items()} == {"y": [0], "z": [1], "a": [2]}


def test_more_members_than_partitions() -> None:
    shares = ASSIGNORS["range"]([member(name, T1) for name in "abc"], {T1: 2})
    assert shares == {"a": {T1: frozenset({0})}, "b": {T1: frozenset({1})}, "c": {}}


def test_uniform_moves_only_what_a_newcomer_must_get() -> None:
    has: Partitions = {T1: frozenset({0, 1, 2})}
    shares = ASSIGNORS["uniform"]([member("a", T1, has=has), member("b", T1)], {T1: 3})
    assert sizes(shares) == {"a": 2, "b": 1}
    assert shares["a"][T1] < has[T1]


def test_uniform_gives_what_a_leaver_had_to_the_others_and_moves_nothing_else() -> None:
    members = [member("a", T1, has={T1: frozenset({0})}), member("b", T1, has={T1: frozenset({2})})]
    shares = ASSIGNORS["uniform"](members, {T1: 4})
    assert 0 in shares["a"][T1]
    assert 2 in shares["b"][T1]
    assert sizes(shares) == {"a": 2, "b": 2}


def test_uniform_balances_over_topics() -> None:
    shares = ASSIGNORS["uniform"]([member(name, T1, T2) for name in "ab"], {T1: 1, T2: 1})
    assert sizes(shares) == {"a": 1, "b": 1}


def test_uniform_passes_on_through_others() -> None:
    """The rich and the poor member have no topic in common; the one between them gets one and gives one."""
    members = [
        member("rich", T1, has={T1: frozenset({0, 1, 2})}),
        member("between", T1, T2, has={T2: frozenset({0, 1})}),
        member("poor", T2, has={T2: frozenset({2})}),
    ]
    assert sizes(ASSIGNORS["uniform"](members, {T1: 3, T2: 3})) == {"rich": 2, "between": 2, "poor": 2}


def test_uniform_takes_what_is_no_longer_subscribed_to() -> None:
    shares = ASSIGNORS["uniform"]([member("a", T2, has={T1: frozenset({0})})], {T2: 1})
    assert shares == {"a": {T2: frozenset({0})}}


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[uuid.UUID, int]]:
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1))
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
    alike = draw(st.booleans())
    owners: dict[str, dict[uuid.UUID, set[int]]] = {name: {} for name in names}
    for topic, count in counts.items():
        for index in range(count + 1):  # one more than there is: the topic was larger once
            owner = draw(st.none() | st.sampled_from(names))
            if owner is not None:
                owners[owner].setdefault(topic, set()).add(index)
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)))
    same = draw(subscriptions)
    members = [
        Subscriber(
            name,
            draw(st.none() | st.just(f"i-{name}")),
            same if alike else draw(subscriptions),
            {topic: frozenset(indexes) for topic, indexes in owners[name].items()},
        )
        for name in names
    ]
    subscribed = frozenset[uuid.UUID]().union(*(each.topic_ids for each in members))
    return members, {topic: count for topic, count in counts.items() if topic in subscribed}


def check_everything_is_given_once(
    members: Sequence[Subscriber], counts: Mapping[uuid.UUID, int], found: Assignment
) -> None:
    given_out = [(topic, index) for share in found.values() for topic, indexes in share.items() for index in indexes]
    assert sorted(given_out) == [(topic, index) for topic in sorted(counts) for index in range(counts[topic])]
    assert set(found) == {each.member_id for each in members}
    assert all(set(found[each.member_id]) <= each.topic_ids for each in members)
    assert all(indexes for share in found.values() for indexes in share.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(case=groups())
def test_every_partition_is_given_to_one_subscriber(
    name: str, case: tuple[list[Subscriber], dict[uuid.UUID, int]]
) -> None:
    members, counts = case
    found = ASSIGNORS[name](members, counts)
    check_everything_is_given_once(members, counts, found)
    again = [Subscriber(m.member_id, m.instance_id, m.topic_ids, found[m.member_id]) for m in members]
    assert ASSIGNORS[name](again, counts) == found, "a second round moves nothing"


@given(groups())
def test_uniform_is_balanced(case: tuple[list[Subscriber], dict[uuid.UUID, int]]) -> None:
    members, counts = case
    found = ASSIGNORS["uniform"](members, counts)
    have = sizes(found)
    for poor in members:
        for rich in members:
            movable = set(found[rich.member_id]) & poor.topic_ids
            assert not movable or have[poor.member_id] + 2 > have[rich.member_id]
    if len({each.topic_ids for each in members}) == 1:
        assert max(have.values()) - min(have.values()) <= 1


@given(groups())
def test_uniform_moves_no_more_than_it_must_where_all_subscribe_alike(
    case: tuple[list[Subscriber], dict[uuid.UUID, int]],
) -> None:
    members, counts = case
    if len({each.topic_ids for each in members}) > 1:
        return
    found = ASSIGNORS["uniform"](members, counts)
    total, (quota, extra) = sum(counts.values()), divmod(sum(counts.values()), len(members))
    valid = [
        sum(index < counts.get(topic, 0) for topic, indexes in each.target.items() for index in indexes)
        for each in members
    ]
    richer = min(extra, sum(count > quota for count in valid))
    could_stay = sum(min(count, quota) for count in valid) + richer
    stayed = sum(
        len(indexes & found[each.member_id].get(topic, frozenset()))
        for each in members
        for topic, indexes in each.target.items()
    )
    assert stayed == could_stay
    assert stayed <= total
