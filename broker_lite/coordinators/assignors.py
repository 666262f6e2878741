"""The server-side assignors of KIP-848: `uniform` and `range`.

Theory of operation: an assignor gets the members, each with its subscribed topics and its last target assignment, and
the topics' partition counts, and assigns every partition of a subscribed topic to exactly one member. Members are
ordered the same on all brokers: static ones by instance id, then the others by member id, so that the same group gets
the same assignment again.

- `range` cuts each topic into contiguous ranges, the first members getting one partition more: 5 partitions over 4
  members are 2, 1, 1, 1. It ignores the current assignment.
- `uniform` balances the number of partitions over all topics, then moves as few as it can. If all members subscribe
  to the same topics, their counts differ by at most one. Otherwise no member has two more than another one that
  could take one of them; which partitions move may differ from Kafka's choice.

The models are Kafka's RangeAssignor and UniformAssignor.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

Partitions = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id; no topic without partitions."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it; ``target`` is its last target assignment."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[uuid.UUID]
    target: Partitions = field(default_factory=dict)


Assignment = dict[str, Partitions]
Assignor = Callable[[Sequence[Subscriber], Mapping[uuid.UUID, int]], Assignment]


def in_order(members: Sequence[Subscriber]) -> list[Subscriber]:
    """Return static members by instance id, then dynamic ones by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))


def assign_range(members: Sequence[Subscriber], partition_counts: Mapping[uuid.UUID, int]) -> Assignment:
    """Assign contiguous ranges of each topic to its subscribers."""
    shares: dict[str, dict[uuid.UUID, frozenset[int]]] = {member.member_id: {} for member in members}
    ordered = in_order(members)
    for topic_id, count in partition_counts.items():
        subscribers = [member for member in ordered if topic_id in member.topic_ids]
        start = 0
        for index, member in enumerate(subscribers):
            size = count // len(subscribers) + (index < count % len(subscribers))
            if size:
                shares[member.member_id][topic_id] = frozenset(range(start, start + size))
            start += size
    return dict(shares)


def assign_uniform(members: Sequence[Subscriber], partition_counts: Mapping[uuid.UUID, int]) -> Assignment:
    """Balance the number of partitions; then move as few as possible."""
    ordered = in_order(members)
    shares = _keep_present(ordered, partition_counts)
    if len({member.topic_ids for member in ordered}) <= 1:
        _fill_to_quota(ordered, shares, partition_counts)
    else:
        subscribers = {topic: [m.member_id for m in ordered if topic in m.topic_ids] for topic in partition_counts}
        _hand_out(shares, subscribers, partition_counts)
        _level(shares, subscribers)
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By name, the default first."""

_Shares = dict[str, dict[tuple[uuid.UUID, int], None]]
"""Partitions by member; the last one is moved away first."""


def _known(member: Subscriber, partition_counts: Mapping[uuid.UUID, int]) -> list[uuid.UUID]:
    return [topic_id for topic_id in partition_counts if topic_id in member.topic_ids]


def _keep_present(ordered: Sequence[Subscriber], partition_counts: Mapping[uuid.UUID, int]) -> _Shares:
    """Keep each member's partitions that exist and are still subscribed to."""
    return {
        member.member_id: {
            (topic_id, partition): None
            for topic_id, partitions in member.target.items()
            if topic_id in member.topic_ids
            for partition in sorted(partitions)
            if partition < partition_counts.get(topic_id, 0)
        }
        for member in ordered
    }


def _fill_to_quota(ordered: Sequence[Subscriber], shares: _Shares, partition_counts: Mapping[uuid.UUID, int]) -> None:
    """Assign evenly, if all subscribe alike; among members that may have one more, those that have it come first."""
    if not ordered:
        return
    topics = _known(ordered[0], partition_counts)
    quota, extra = divmod(sum(partition_counts[topic] for topic in topics), len(ordered))
    allowed: dict[str, int] = {}
    for member in sorted(ordered, key=lambda each: len(shares[each.member_id]) <= quota):
        allowed[member.member_id] = quota + (extra > 0)
        extra -= extra > 0
        share = shares[member.member_id]
        while len(share) > allowed[member.member_id]:
            share.popitem()
    taken = {partition for share in shares.values() for partition in share}
    free = ((topic, index) for topic in topics for index in range(partition_counts[topic]))
    unassigned = (partition for partition in free if partition not in taken)
    for member in ordered:
        share = shares[member.member_id]
        for partition in islice(unassigned, allowed[member.member_id] - len(share)):
            share[partition] = None


def _hand_out(
    shares: _Shares, subscribers: Mapping[uuid.UUID, Sequence[str]], partition_counts: Mapping[uuid.UUID, int]
) -> None:
    """Assign each free partition to the subscriber with the fewest; topics with the fewest subscribers first."""
    taken = {partition for share in shares.values() for partition in share}
    topics = sorted(
        (topic for topic, members in subscribers.items() if members),
        key=lambda topic: (-partition_counts[topic] / len(subscribers[topic]), len(subscribers[topic])),
    )
    for topic in topics:
        for index in range(partition_counts[topic]):
            if (topic, index) not in taken:
                poorest = min(subscribers[topic], key=lambda member_id: len(shares[member_id]))
                shares[poorest][topic, index] = None


def _level(shares: _Shares, subscribers: Mapping[uuid.UUID, Sequence[str]]) -> None:
    """Move partitions until no member has two more than another one that could take one of them.

    A partition may move through other members, which get one and give one. Each round reduces the differences, so
    it ends.
    """
    while (moves := _levelling_moves(shares, subscribers)) is not None:
        for giver, taker, partition in moves:
            del shares[giver][partition]
            shares[taker][partition] = None


_Move = tuple[str, str, tuple[uuid.UUID, int]]


def _levelling_moves(shares: _Shares, subscribers: Mapping[uuid.UUID, Sequence[str]]) -> list[_Move] | None:
    least = min(map(len, shares.values()), default=0)
    for richest in sorted(shares, key=lambda member_id: -len(shares[member_id])):
        if len(shares[richest]) < least + 2:
            return None
        reached: dict[str, _Move | None] = {richest: None}
        for giver in (queue := [richest]):
            for topic, partition in {each[0]: each for each in shares[giver]}.items():
                for taker in subscribers[topic]:
                    if taker in reached:
                        continue
                    reached[taker] = (giver, taker, partition)
                    queue.append(taker)
                    if len(shares[taker]) <= len(shares[richest]) - 2:
                        return _path_to(taker, reached)
    return None


def _path_to(member_id: str, reached: Mapping[str, _Move | None]) -> list[_Move]:
    path = []
    while (move := reached[member_id]) is not None:
        path.append(move)
        member_id = move[0]
    return path


def _by_topic(share: Mapping[tuple[uuid.UUID, int], None]) -> Partitions:
    topics: dict[uuid.UUID, set[int]] = {}
    for topic_id, partition in share:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
