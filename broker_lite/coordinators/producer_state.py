"""What one partition knows of its idempotent producers: the state machine behind exactly-once appends.

A producer numbers its records. For each producer id the partition keeps the epoch and the last five batches
(first and last sequence, last offset). A batch that comes again is answered with the offsets of its first append;
a batch out of order is refused; a batch of an older epoch is fenced.

    known epoch   batch                                 answer
    -----------   -----------------------------------   ------------------------------------------
    none          any sequence                          accept (its state may be gone: KIP-360)
    same          among the last five                   duplicate: the first append's offsets
    same          first sequence = last + 1 (wrapping)  accept
    same          anything else                         OUT_OF_ORDER_SEQUENCE_NUMBER
    lower than    first sequence 0                      accept, forget the older epoch's batches
    the batch's   anything else                         OUT_OF_ORDER_SEQUENCE_NUMBER
    higher        any                                   INVALID_PRODUCER_EPOCH

The rules are those of Kafka's ProducerStateEntry and ProducerAppendInfo.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.records import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader

BATCHES_KEPT: Final = 5
"""A producer may have five requests in flight, so any of its last five batches may come again."""

MAX_PRODUCERS: Final = 100_000
"""The most producers kept for one partition; beyond, the one that has been silent longest is forgotten."""


class AppendedBatch(NamedTuple):
    """One batch of a producer, as it was appended; `timestamp_ms` is its records' latest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """One producer's state; the last two fields belong to transactions."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    current_transaction_first_offset: int = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence appended, -1 if none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """The producers of one partition, the one that appended last at the end."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[ProducerEntry]:
        """Give the producers' states."""
        return list(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Give one producer's state."""
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Say whether a batch of an idempotent producer may be appended: None, or the append it repeats.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch} here; the batch is of {header.producer_epoch}",
            )
        first = header.base_sequence
        if header.producer_epoch > entry.epoch:
            if first != 0 and entry.epoch != NO_PRODUCER_EPOCH:
                raise _out_of_order(header, "0, as the epoch is new")
            return None
        last = header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        expected = (entry.last_sequence + 1) & MAX_SEQUENCE
        if first != expected:
            raise _out_of_order(header, str(expected))
        return None

    def update(self, header: BatchHeader, last_offset: int) -> None:
        """Note a batch that was appended and whose last record got `last_offset`."""
        producer_id = header.producer_id
        entry = self._entries.pop(producer_id, None)
        if entry is None:
            entry = ProducerEntry(producer_id)
            if len(self._entries) >= MAX_PRODUCERS:
                del self._entries[next(iter(self._entries))]
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.batches.append(
            AppendedBatch(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        )
        entry.last_timestamp_ms = header.max_timestamp
        self._entries[producer_id] = entry


def _out_of_order(header: BatchHeader, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch}: "
        f"sequence {header.base_sequence} came, expected {expected}",
    )
