"""What requests may ask of the controller: which brokers a partition can be assigned to, and how much at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

MAX_RECORDS = 10_000
"""How many records one request may have the controller write (QuorumController.MAX_RECORDS_PER_USER_OP)."""


def too_many_records() -> KafkaError:
    """Return what Kafka's controller answers to a request that is more than one write of its log."""
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def check_replicas(known: Collection[int], node_ids: Sequence[int], as_many_as: Sequence[int] | None = None) -> None:
    """Check whether a partition can be assigned to these of the brokers that are `known`.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT if one is not known, or named twice, or there are not `as_many_as` those
            of the partitions before.
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
