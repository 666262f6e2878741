"""Limits of requests to the controller: the brokers that a partition can be assigned to, and the number of records."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

MAX_RECORDS = 10_000
"""The most records that one request may make the controller write (QuorumController.MAX_RECORDS_PER_USER_OP)."""


def too_many_records() -> KafkaError:
    """Return Kafka's error for a request that needs more than one write of the controller's log."""
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def check_replicas(known: Collection[int], node_ids: Sequence[int], as_many_as: Sequence[int] | None = None) -> None:
    """Check whether a partition can be assigned to `node_ids`, given the `known` brokers.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT if one is unknown or repeated, or there are not as many as those of
            the partitions before (`as_many_as`).
    """
    text = "The manual partition assignment includes"
    if not node_ids:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{text} an empty replica list.")
    for index, node_id in enumerate(node_ids):
        if node_id in node_ids[:index]:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{text} the broker {node_id} more than once.")
        if node_id not in known:
            unknown = f"{text} broker {node_id}, but no such broker is registered."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, unknown)
    if as_many_as is not None and len(as_many_as) != len(node_ids):
        uneven = (
            f"{text} a partition with {len(node_ids)} replica(s), but this is not consistent with previous "
            f"partitions, which have {len(as_many_as)} replica(s)."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, uneven)
