"""Input and output of the transaction coordinator's state machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TopicPartition = tuple[str, int]
"""A topic's name and a partition's index."""

LEGACY: Final = 0
"""The transaction version of clients that add each partition before they write to it, and keep their epoch."""

EPOCH_BUMP: Final = 2
"""The transaction version of KIP-890 part 2: a new epoch with each transaction, partitions added by the first write."""

SERVER_VERSION: Final = EPOCH_BUMP
"""The transaction version of aborts by the broker itself."""

NO_TIMESTAMP: Final = -1


class TransactionState(Enum):
    """The states of a transactional id; the values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings for transactions."""

    max_timeout_ms: int
    id_expiration_ms: int


class Producer(NamedTuple):
    """The caller: a transactional id, and the producer id and epoch that its instance was assigned."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id (Kafka's TransactionMetadata); times are since 1970.

    `last_epoch` is the epoch before the current one, if the current producer held that as well.
    `next_producer_id` is the id to use after the transaction, if the epochs of this one are used up.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    epoch: int = NO_PRODUCER_EPOCH
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    client_version: int = LEGACY


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a request. If there is a `change`, it must be in the log before the rest becomes visible."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    change: Transaction | None = None


@dataclass(frozen=True, slots=True)
class Markers:
    """The markers of a transaction, to be written into each of its partitions."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]
