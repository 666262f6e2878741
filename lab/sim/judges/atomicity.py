"""Transactions are atomic: what a read_committed reader may receive, and what it must have received at the end.

Theory of operation: every batch of a transactional producer is known by its partition and checksum, with its
transaction and that one's requests and responses. A reader never receives a batch of a transaction whose commit
has not been requested, or whose abort was acknowledged. At the end no transaction hangs, and a reader sees all of a
transaction or nothing, each batch once: all if its commit was acknowledged, nothing if its
commit was never requested.

One exception is the protocol's, from before KIP-890 part 2: if all transactions of a producer have one epoch, a late
duplicate of an earlier EndTxn ends the next transaction half way. What was acknowledged to its client
until then is still committed or aborted as a whole; later writes may have another outcome, or be rejected.
If each transaction has its own epoch, that is a violation once the decision is durable: a coordinator that was
replaced without knowing it, for example while paused, may still take the previous epoch for the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.records import ControlType, control_type, decode_records, scan

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.partition_log import PartitionLog

INVARIANT = "transactions-atomic"
_READ_BYTES = 2_000


class Asked(Enum):
    """What a producer has requested, and what was acknowledged."""

    NOTHING = "its commit was never asked for"
    COMMIT = "its commit was asked for, and never answered"
    COMMITTED = "it was answered as committed"
    ABORTED = "it was answered as aborted"


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction of one producer."""

    name: str
    asked: Asked = Asked.NOTHING
    batches: list[tuple[PartitionKey, int]] = field(default_factory=list)
    """Partition and checksum of the batches sent."""
    acknowledged: list[tuple[PartitionKey, int]] = field(default_factory=list)
    """The same of those acknowledged."""
    first_part: list[tuple[PartitionKey, int]] | None = None
    """What was acknowledged when an earlier transaction's EndTxn ended it; None if none did."""


class ReadCommitted(NamedTuple):
    """A reader's view of one response: batches as last offset and checksum, and the next offset."""

    batches: list[tuple[int, int]]
    next_offset: int


class Transactions:
    """All transactions of producers."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._of_batch: dict[tuple[PartitionKey, int], Attempt] = {}

    def begins(self, name: str) -> Attempt:
        """Register a transaction."""
        attempt = Attempt(name)
        self.attempts.append(attempt)
        return attempt

    def sends(self, attempt: Attempt, key: PartitionKey, crc: int) -> None:
        """Register a batch before it is sent."""
        attempt.batches.append((key, crc))
        self._of_batch[key, crc] = attempt

    def ended_by_earlier(self, attempt: Attempt, has_epochs: bool) -> None:
        """Note that the coordinator ends a transaction by an EndTxn that its producer sent for an earlier one.

        With `has_epochs` it is called only for durable decisions; see `transactions.py`.

        Raises:
            ViolationError: if its producer has an epoch for each transaction, which should prevent that.
        """
        if has_epochs:
            raise ViolationError(INVARIANT, f"{attempt.name} is ended by an EndTxn of an earlier one")
        if attempt.first_part is None:
            attempt.first_part = list(attempt.acknowledged)

    def read(self, key: PartitionKey, batches: Iterable[tuple[int, int]]) -> None:
        """Check what a read_committed reader received of a partition."""
        for last_offset, crc in batches:
            attempt = self._of_batch.get((key, crc))
            if attempt is None or attempt.first_part is not None:
                continue
            if attempt.asked in (Asked.NOTHING, Asked.ABORTED):
                text = f"{attempt.name}: a reader was given its batch at {last_offset}, though {attempt.asked.value}"
                raise ViolationError(INVARIANT, text)

    def check_all(self, read: Mapping[PartitionKey, Counter[int]]) -> None:
        """Check, at the end, all readable batches: for each partition, how often each checksum occurs."""
        for attempt in self.attempts:
            seen = _counts(read, attempt.batches)
            everything, nothing = _is_everything(seen), not any(seen)
            if attempt.asked is Asked.COMMITTED:
                good = everything
            elif attempt.first_part is not None:
                first = _counts(read, attempt.first_part)
                good = max(seen, default=0) <= 1 and (_is_everything(first) or not any(first))
            elif attempt.asked is Asked.COMMIT:
                good = everything or nothing
            else:
                good = nothing
            if not good:
                text = f"{attempt.name}: {attempt.asked.value}, and its batches are read {seen} times"
                raise ViolationError(INVARIANT, text)


def _counts(read: Mapping[PartitionKey, Counter[int]], batches: Iterable[tuple[PartitionKey, int]]) -> list[int]:
    """Return how often each batch is read, for partitions whose records are judged."""
    return [read[key][crc] for key, crc in batches if key in read]


def _is_everything(seen: Iterable[int]) -> bool:
    return all(count == 1 for count in seen)


def read_committed(log: PartitionLog, offset: int) -> ReadCommitted:
    """Read as a read_committed consumer: up to the last stable offset, without transactions listed as aborted."""
    end = log.last_stable_offset
    data = log.read(offset, _READ_BYTES, True, up_to_offset=end).read()
    aborted = sorted(log.aborted_transactions(offset, end), key=lambda each: each.first_offset)
    aborting: set[int] = set()
    found: list[tuple[int, int]] = []
    for position, header in scan(data):
        if offset <= header.last_offset < end:
            offset = header.next_offset
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.pop(0).producer_id)
            if header.is_control:
                record = decode_records(memoryview(data)[position : position + header.size])[0]
                if control_type(record) is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in aborting:
                found.append((header.last_offset, header.crc))
    return ReadCommitted(found, offset)
