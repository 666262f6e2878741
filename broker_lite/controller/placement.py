"""The assignment of a new topic's replicas to brokers.

As Kafka's StripedReplicaPlacer without racks: the leaders go round the brokers, and the followers of a partition are
the brokers after its leader, at a distance that grows with each round, so that no pair of brokers shares more
partitions than others do. The start of the round is a parameter instead of random, so that it can be repeated.

Brokers that are down get replicas, too, but only if there are not enough live ones, and never lead: with one of three
brokers dead, topics with three replicas can be created, and get the third when it is back.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


def place(
    there: Sequence[int], away: Sequence[int], partitions: int, replication_factor: int, first: int
) -> list[tuple[int, ...]]:
    """Return each partition's replicas, the preferred leader first.

    Args:
        there: the brokers that may lead, in order.
        away: the other registered brokers, in order.
        partitions: how many partitions to place.
        replication_factor: how many replicas each has.
        first: the index of the first leader.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR if fewer brokers are registered, or none may lead.
    """
    count = len(there)
    if not 0 < replication_factor <= count + len(away):
        text = f"replication factor {replication_factor}, and {count + len(away)} brokers are registered"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if not there:
        text = f"none of the brokers {list(away)} is there: start one, as a partition needs a leader"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if count == replication_factor == 1:
        return [(there[0],)] * partitions
    placed = []
    for index in range(partitions):
        leader = (first + index) % count
        others = [(leader + 1 + step) % count for step in range(count - 1)]
        shift = (index // count) % len(others) if others else 0
        order = [leader, *others[shift:], *others[:shift]]
        turn = (first + index) % len(away) if away else 0
        ordered = [*(there[each] for each in order), *away[turn:], *away[:turn]]
        placed.append(tuple(ordered[:replication_factor]))
    return placed
