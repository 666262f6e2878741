"""The producer state of one partition: the state machine behind exactly-once appends.

A producer numbers its records. For each producer id the partition keeps the epoch and the last five batches
(first and last sequence, last offset). A repeated batch is answered with the offsets of its first append;
an out-of-order batch is rejected; a batch of an older epoch is fenced.

    known epoch   batch                                 answer
    -----------   -----------------------------------   ------------------------------------------
    none          any sequence                          accept (its state may be gone: KIP-360)
    same          among the last five                   duplicate: the first append's offsets
    same          first sequence = last + 1 (wrapping)  accept
    same          anything else                         OUT_OF_ORDER_SEQUENCE_NUMBER
    lower than    first sequence 0                      accept, forget the older epoch's batches
    the batch's   anything else                         OUT_OF_ORDER_SEQUENCE_NUMBER
    higher        any                                   INVALID_PRODUCER_EPOCH

A transactional batch opens a transaction on the partition, and a marker of the coordinator closes it. A transaction
opens only if the coordinator knows of it (KIP-890): the first batch of each needs its confirmation, a `Verification`.
While it is open, the producer's other batches must be transactional too. Records from the first open transaction on are
not stable: a read_committed consumer does not see them.

Time may pass between the coordinator's confirmation and the batch, and the transaction may end meanwhile: the batch
would then open one that is never ended. So a verification is begun here before the coordinator is asked, and the
partition drops it when a transaction of the producer begins or ends (Kafka's VerificationGuard). Where each transaction
has its own epoch, the end of an earlier one does not drop it: clients continue before the markers are written. That is
decided by the marker, not by the client: another one may have ended the transaction without a new epoch, and then the
marker has the epoch of the transaction that it ends.

    transaction   what comes                            answer
    -----------   -----------------------------------   ------------------------------------------
    none          transactional batch, verified         accept, the transaction begins with it
    none          transactional batch, not verified,    INVALID_TXN_STATE
                  or its verification is forgotten
    none          the same, verified before this        NOT_LEADER_OR_FOLLOWER, so that it comes again
                  leader's epoch began
    none          first batch ever, sequence not 0,     OUT_OF_ORDER_SEQUENCE_NUMBER
                  verified by a client with KIP-890.2
    open          transactional batch                   accept
    open          batch without a transaction           INVALID_TXN_STATE
    any           marker of a lower coordinator epoch   TRANSACTION_COORDINATOR_FENCED
    any           marker of a lower producer epoch      INVALID_PRODUCER_EPOCH
    open          marker of the same epoch              accept; INVALID_PRODUCER_EPOCH from version 2 on, whose
                                                        markers always have a higher one
    none          marker of the same epoch              accept: it is written a second time (KAFKA-19999)
    any           marker of a higher epoch              accept, the epoch is the producer's from here on

The rules are those of Kafka's ProducerStateEntry, ProducerAppendInfo and ProducerStateManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader

BATCHES_KEPT: Final = 5
"""A producer may have five requests in flight, so any of its last five batches may come again."""

MAX_PRODUCERS: Final = 100_000
"""The most producers kept for one partition; beyond that, the one idle longest is removed."""

NO_TRANSACTION: Final = -1
"""The first offset, if there is no transaction."""

_EPOCH_BUMP_VERSION = 2


class Verification:
    """A request to the transaction coordinator to verify a producer's next transaction here, and its result.

    It is valid while the partition keeps it; compared by identity.
    """

    __slots__ = ("__weakref__", "among", "epoch", "has_epochs")

    def __init__(self, epoch: int, has_epochs: bool, among: WeakValueDictionary[int, Verification]) -> None:
        self.among = among
        """The verifications of the same leader epoch, by producer id."""
        self.epoch = epoch
        """The producer epoch of the request."""
        self.has_epochs = has_epochs
        """Whether its client gets a new epoch with each transaction (KIP-890 part 2)."""


class AppendedBatch(NamedTuple):
    """One batch of a producer, as appended; `timestamp_ms` is the latest of its records."""

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


class Marker(NamedTuple):
    """A transaction marker, as its coordinator wrote it; the version selects the rules (KIP-890)."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended; `last_stable_offset` is that after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    committed: bool


@dataclass(slots=True)
class ProducerEntry:
    """One producer's state; the last two fields belong to transactions."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    current_transaction_first_offset: int = NO_TRANSACTION

    @property
    def last_sequence(self) -> int:
        """The last sequence appended, -1 if none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """The producers of one partition, in the order of their last append."""

    __slots__ = ("_entries", "_ongoing", "_verifications")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        # Producer id -> first offset, in the order of the offsets: later transactions begin at higher offsets.
        ongoing = [each for each in self._entries.values() if each.current_transaction_first_offset != NO_TRANSACTION]
        ongoing.sort(key=lambda each: each.current_transaction_first_offset)
        self._ongoing = {each.producer_id: each.current_transaction_first_offset for each in ongoing}
        # By producer id, while a request waits for the coordinator's answer, or has it and is about to append. Most
        # partitions never need it, and it takes longer to create than all the rest.
        self._verifications: WeakValueDictionary[int, Verification] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[ProducerEntry]:
        """Return the producers' states."""
        return list(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return one producer's state."""
        return self._entries.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        for first_offset in self._ongoing.values():
            return first_offset
        return None

    @property
    def oldest_transaction_written_ms(self) -> int | None:
        """The latest timestamp written here by the producer of the oldest open transaction."""
        for producer_id in self._ongoing:
            return self._entries[producer_id].last_timestamp_ms
        return None

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction here in this epoch, so that no verification is needed."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and producer_id in self._ongoing

    def begin_verification(self, producer_id: int, epoch: int, has_epochs: bool) -> Verification:
        """Begin a verification of a producer's next transaction here; concurrent requests share it.

        It must be kept, and passed to `check` once the coordinator has confirmed. A verification of an older epoch than
        that of a concurrent request is invalid.
        """
        if self._verifications is None:
            self._verifications = WeakValueDictionary()
        found = self._verifications.get(producer_id)
        if found is not None and (found.epoch, found.has_epochs) == (epoch, has_epochs):
            return found
        begun = Verification(epoch, has_epochs, self._verifications)
        if found is None or epoch >= found.epoch:
            self._verifications[producer_id] = begun
        return begun

    def forget_verifications(self) -> None:
        """Invalidate all verifications begun before."""
        self._verifications = None

    def check(
        self, header: BatchHeader, verification: Verification | None = None, by_coordinator: bool = False
    ) -> AppendedBatch | None:
        """Check whether a batch of a producer with an id may be appended; return None, or the append it repeats.

        `verification` is the one that the coordinator has confirmed, if it was asked. Batches that a group coordinator
        writes for a producer (offsets) have no sequence, so it is not checked.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE or
                NOT_LEADER_OR_FOLLOWER.
        """
        entry = self._entries.get(header.producer_id)
        if entry is not None:
            if header.producer_epoch < entry.epoch:
                raise _fenced(header.producer_id, entry.epoch, header.producer_epoch)
            if not by_coordinator:
                repeated = self._check_sequence(entry, header)
                if repeated is not None:
                    return repeated
        if header.is_transactional:
            self._check_transaction(entry, header, verification, by_coordinator)
        elif header.producer_id in self._ongoing:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open here; the batch is outside of it",
            )
        return None

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> AppendedBatch | None:
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

    def _check_transaction(
        self, entry: ProducerEntry | None, header: BatchHeader, verification: Verification | None, by_coordinator: bool
    ) -> None:
        producer_id = header.producer_id
        if self.in_transaction(producer_id, header.producer_epoch):
            return
        if verification is not None and verification.among is not self._verifications:
            # The transaction may have ended under another leader. It is not an error of the client: it retries.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the coordinator was asked about producer {producer_id} before this leader's epoch began",
            )
        if (
            verification is None
            or self._verification_of(producer_id) is not verification
            or verification.epoch != header.producer_epoch
        ):
            late = "" if verification is None else ": what the coordinator was asked for has ended since"
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the batch of producer {producer_id} epoch {header.producer_epoch} is in no open transaction{late}",
            )
        begins_late = entry is None and header.base_sequence != 0 and not by_coordinator
        if verification.has_epochs and begins_late:
            # KIP-890: with an epoch for each transaction, a first batch with sequence > 0 has lost a batch before it.
            raise _out_of_order(header, "0, as nothing is known of the producer")

    def update(self, header: BatchHeader, last_offset: int) -> None:
        """Note an appended batch, whose last record got `last_offset`."""
        producer_id = header.producer_id
        entry = self._take(producer_id)
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.batches.append(
            AppendedBatch(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        )
        entry.last_timestamp_ms = header.max_timestamp
        if header.is_transactional and producer_id not in self._ongoing:
            first_offset = last_offset - header.last_offset_delta
            entry.current_transaction_first_offset = self._ongoing[producer_id] = first_offset
            self._forget_verification(producer_id)
        self._entries[producer_id] = entry

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers idle for `expiration_ms`, unless they are busy; returns how many."""
        gone = [
            producer_id
            for producer_id, entry in self._entries.items()
            if not self._is_busy(producer_id) and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def check_marker(self, marker: Marker) -> None:
        """Check a marker. Raises KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED."""
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return
        stale = marker.producer_epoch < entry.epoch
        if marker.transaction_version >= _EPOCH_BUMP_VERSION and marker.producer_epoch == entry.epoch:
            stale = marker.producer_id in self._ongoing
        if stale:
            raise _fenced(marker.producer_id, entry.epoch, marker.producer_epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator's epoch is {entry.coordinator_epoch}; the marker is of {marker.coordinator_epoch}",
            )

    def end(self, marker: Marker, offset: int, timestamp_ms: int) -> CompletedTransaction | None:
        """Note a marker that was written at `offset`; returns the transaction that it has ended, if one was open."""
        entry = self._take(marker.producer_id)
        asked = self._verification_of(marker.producer_id)
        bumped = marker.transaction_version >= _EPOCH_BUMP_VERSION
        if asked is not None and not (asked.has_epochs and bumped and asked.epoch >= marker.producer_epoch):
            self._forget_verification(marker.producer_id)
        if entry.epoch != marker.producer_epoch:
            entry.epoch = marker.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        entry.current_transaction_first_offset = NO_TRANSACTION
        self._entries[marker.producer_id] = entry
        first_offset = self._ongoing.pop(marker.producer_id, None)
        if first_offset is None:
            return None
        unstable = self.first_unstable_offset
        last_stable_offset = offset + 1 if unstable is None else unstable
        return CompletedTransaction(marker.producer_id, first_offset, offset, last_stable_offset, marker.committed)

    def _take(self, producer_id: int) -> ProducerEntry:
        """Remove and return a producer's entry, to be added again; a new one may evict the one idle longest."""
        entry = self._entries.pop(producer_id, None)
        if entry is None:
            entry = ProducerEntry(producer_id)
            if len(self._entries) >= MAX_PRODUCERS:
                silent = next((each for each in self._entries if not self._is_busy(each)), None)
                if silent is not None:
                    del self._entries[silent]
        return entry

    def _is_busy(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction here, or waits to begin one."""
        return producer_id in self._ongoing or self._verification_of(producer_id) is not None

    def _verification_of(self, producer_id: int) -> Verification | None:
        return None if self._verifications is None else self._verifications.get(producer_id)

    def _forget_verification(self, producer_id: int) -> None:
        if self._verifications is not None:
            self._verifications.pop(producer_id, None)


def _fenced(producer_id: int, epoch: int, came: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {epoch} here; what came is of {came}",
    )


def _out_of_order(header: BatchHeader, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch}: "
        f"sequence {header.base_sequence} came, expected {expected}",
    )
