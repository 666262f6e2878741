"""What goes into the transaction coordinator's state machine and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TopicPartition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""

LEGACY: Final = 0
"""The transaction version of clients that name each partition before they write to it, and keep their epoch."""

EPOCH_BUMP: Final = 2
"""The transaction version of KIP-890 part 2: a new epoch with each transaction, partitions added by the first write."""

SERVER_VERSION: Final = EPOCH_BUMP
"""The transaction version by which the broker itself aborts."""

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
    """The broker's settings that bear on transactions."""

    max_timeout_ms: int
    id_expiration_ms: int


class Producer(NamedTuple):
    """The caller: a transactional id, and the producer id and epoch that its instance was assigned."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """All that is kept of one transactional id (Kafka's TransactionMetadata); times are since 1970.

    `last_epoch` is the epoch before the current one, if the producer that holds the current one held that as well.
    `next_producer_id` is the id that follows when the transaction is complete, if the epochs of this one are used up.
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
    """The end of a transaction, to be written into each of its partitions."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]
