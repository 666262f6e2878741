"""Which brokers get a new topic's replicas.

As Kafka's StripedReplicaPlacer without racks: the leaders go round the brokers, and the followers of a partition are
the brokers after its leader, at a distance that grows with each round, so that no pair of brokers shares more
partitions than others do. Where the round begins is given, rather than random, so that it can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_lite.protocol.errors import ErrorCode, KafkaError


def place(brokers: Sequence[int], partitions: int, replication_factor: int, first: int) -> list[tuple[int, ...]]:
    """Give each partition's replicas, the preferred leader first.

    Args:
        brokers: those that are there, in order.
        partitions: how many partitions to place.
        replication_factor: how many replicas each has.
        first: where the round begins.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR if there are not that many brokers.
    """
    count = len(brokers)
    if not 0 < replication_factor <= count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}, and {count} brokers are there",
        )
    placed = []
    for index in range(partitions):
        leader = (first + index) % count
        others = [(leader + 1 + step) % count for step in range(count - 1)]
        shift = (index // count) % len(others) if others else 0
        order = [leader, *others[shift:], *others[:shift]]
        placed.append(tuple(brokers[each] for each in order[:replication_factor]))
    return placed
