"""Transactions are atomic: what a read_committed reader may get, and what it must have got in the end.

Theory of operation: every batch that a transactional producer sends is known by its partition and checksum, and so is
its transaction, and what was asked and answered about that. A reader is given no batch of a transaction whose commit
has not even been asked for, or whose abort was answered. In the end nothing hangs, and of each transaction a reader
sees everything or nothing, each batch once: everything of those that were answered as committed, nothing of those whose
commit was never asked for.

One exception is the protocol's, from before KIP-890 part 2: where all transactions of a producer have one epoch, the
EndTxn of one that was sent twice, and comes a second time late, ends the next one half way. What its client had heard
of until then is still committed or aborted as a whole; what it writes after that may fare otherwise, or be refused.
Where each transaction has its own epoch, that is a violation, once the decision counts: a coordinator that has been
replaced without its knowledge, as one that was paused, may still take the epoch before for the last one.
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
    """What a producer has asked for, and been answered."""

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
    """Partition and checksum of what was sent."""
    acknowledged: list[tuple[PartitionKey, int]] = field(default_factory=list)
    """The same of what was answered."""
    first_part: list[tuple[PartitionKey, int]] | None = None
    """What was acknowledged when the end of an earlier transaction ended it; None if none did."""


class ReadCommitted(NamedTuple):
    """What a reader makes of one answer: batches as last offset and checksum, and where it goes on."""

    batches: list[tuple[int, int]]
    next_offset: int


class Transactions:
    """All transactions that producers have begun."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._of_batch: dict[tuple[PartitionKey, int], Attempt] = {}

    def begins(self, name: str) -> Attempt:
        """Take a transaction that begins."""
        attempt = Attempt(name)
        self.attempts.append(attempt)
        return attempt

    def sends(self, attempt: Attempt, key: PartitionKey, crc: int) -> None:
        """Take a batch before it is sent."""
        attempt.batches.append((key, crc))
        self._of_batch[key, crc] = attempt

    def ended_by_earlier(self, attempt: Attempt, has_epochs: bool) -> None:
        """Note that the coordinator decides a transaction by an EndTxn that its producer sent for an earlier one.

        With `has_epochs` it is called only for decisions that count; see `transactions.py`.

        Raises:
            ViolationError: if its producer has an epoch for each transaction, which is to keep that from happening.
        """
        if has_epochs:
            raise ViolationError(INVARIANT, f"{attempt.name} is ended by an EndTxn of an earlier one")
        if attempt.first_part is None:
            attempt.first_part = list(attempt.acknowledged)

    def read(self, key: PartitionKey, batches: Iterable[tuple[int, int]]) -> None:
        """Check what a read_committed reader got of a partition."""
        for last_offset, crc in batches:
            attempt = self._of_batch.get((key, crc))
            if attempt is None or attempt.first_part is not None:
                continue
            if attempt.asked in (Asked.NOTHING, Asked.ABORTED):
                text = f"{attempt.name}: a reader was given its batch at {last_offset}, though {attempt.asked.value}"
                raise ViolationError(INVARIANT, text)

    def check_all(self, read: Mapping[PartitionKey, Counter[int]]) -> None:
        """Look, in the end, at all that there is to read: for each partition, how often each checksum."""
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
    """Return how often each batch is read, of the partitions that are judged."""
    return [read[key][crc] for key, crc in batches if key in read]


def _is_everything(seen: Iterable[int]) -> bool:
    return all(count == 1 for count in seen)


def read_committed(log: PartitionLog, offset: int) -> ReadCommitted:
    """Read as a read_committed consumer does: up to the last stable offset, without what the index says is aborted."""
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
