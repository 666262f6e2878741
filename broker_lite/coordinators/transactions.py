"""The transaction coordinator as a state machine: requests and time in, decisions out.

Theory of operation: for each transactional id there is one `Transaction`, an immutable value that is replaced as a
whole. A request is checked against it and leads to a `Decision`. If the decision has a change, the caller appends it
to `__transaction_state`, and only then calls `applied`, so that a change has no effect before it is in the log. A
change to one of the two Prepare states decides a transaction; `applied` then returns the `Markers` to be written into
its partitions, and when `markers_written` has been called for all of them, it returns the change that completes the
transaction. The transitions (Kafka's TransactionState):

    from                          event                                                  to
    Empty, Complete*              the producer adds its first partition                  Ongoing
    Ongoing                       it adds more                                           Ongoing
    Ongoing                       EndTxn                                                 PrepareCommit, PrepareAbort
    Ongoing                       timeout, or another instance requests the id           PrepareEpochFence
    PrepareEpochFence             at once, in the same step                              PrepareAbort
    Empty, Complete*              EndTxn v5 aborts what has not begun                    PrepareAbort
    PrepareCommit, PrepareAbort   all markers are written                                CompleteCommit, CompleteAbort
    Empty, Complete*              InitProducerId                                         Empty
    Empty, Complete*              not used for `transactional.id.expiration.ms`          Dead

Producers are distinguished by epochs: by KIP-360 one that failed requests the next epoch with its own, so that an
older instance is fenced and a repeated request is not. With KIP-890 part 2 (EndTxn v5) each transaction has its own
epoch, so that a delayed EndTxn has no effect (KAFKA-17754).

EndTxn is answered when the decision is in the log, so the producer continues, with its next epoch or producer id,
while the markers are being written. Until the transaction is complete every request is answered with
CONCURRENT_TRANSACTIONS, which clients retry, before producer ids and epochs are compared: PRODUCER_FENCED would be
fatal for a Java producer (KAFKA-18464, KAFKA-18660). Clients that keep their epoch are compared first, as by Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final

from sparkonce.broker_lite.coordinators.transaction_messages import (
    EPOCH_BUMP,
    LEGACY,
    NO_TIMESTAMP,
    SERVER_VERSION,
    Decision,
    Markers,
    Producer,
    TopicPartition,
    Transaction,
    TransactionSettings,
    TransactionState,
)
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

MAX_TRANSACTIONAL_IDS: Final = 100_000
"""The most transactional ids; beyond that, new ones are rejected until old ones expire."""

MAX_EPOCH: Final = 2**15 - 1
"""The last epoch of a producer id; producers get at most one less, so that they can always be fenced."""

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of transactions held open by two-phase commit (KIP-939): they never time out."""

TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
            TransactionState.DEAD,
        }
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
            TransactionState.PREPARE_EPOCH_FENCE,
        }
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
            TransactionState.DEAD,
        }
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
            TransactionState.DEAD,
        }
    ),
    TransactionState.DEAD: frozenset(),
}
"""The valid next states of each state."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_AT_REST: Final = COMPLETE | {TransactionState.EMPTY}


class Transactions:
    """All transactional ids of one coordinator."""

    def __init__(self, settings: TransactionSettings, take_producer_id: Callable[[], int]) -> None:
        """`take_producer_id` returns new producer ids; if it raises, nothing has changed."""
        self._settings = settings
        self._take_producer_id = take_producer_id
        self._by_id: dict[str, Transaction] = {}
        self._ongoing: set[str] = set()

    def get(self, transactional_id: str) -> Transaction | None:
        """Return the state of a transactional id."""
        return self._by_id.get(transactional_id)

    def all(self) -> Collection[Transaction]:
        """Return the state of every transactional id."""
        return self._by_id.values()

    @property
    def has_ongoing(self) -> bool:
        """Whether a transaction could time out."""
        return bool(self._ongoing)

    # Requests.

    def init_producer_id(self, producer: Producer, timeout_ms: int, now_ms: int) -> Decision:
        """Handle InitProducerId; a producer id of -1 means that the producer does not know one yet (KIP-360)."""
        if not producer.transactional_id:
            return Decision(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            return Decision(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if (producer.producer_id == NO_PRODUCER_ID) != (producer.epoch == NO_PRODUCER_EPOCH):
            return Decision(ErrorCode.INVALID_REQUEST)
        known = self._by_id.get(producer.transactional_id)
        if known is None:
            if len(self._by_id) >= MAX_TRANSACTIONAL_IDS:
                return Decision(ErrorCode.POLICY_VIOLATION)
            known = Transaction(producer.transactional_id, self._take_producer_id(), timeout_ms)
        elif known.state in PREPARED:
            return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif producer.producer_id != NO_PRODUCER_ID and not _may_claim(known, producer):
            return Decision(ErrorCode.PRODUCER_FENCED)
        if known.state is TransactionState.ONGOING:
            # The new instance must retry, and then gets an epoch above that of the abort.
            return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, change=_fence(known, now_ms))
        change = self._next_epoch(known, producer, timeout_ms, now_ms)
        if change is None:
            return Decision(ErrorCode.PRODUCER_FENCED)
        return Decision(ErrorCode.NONE, change.producer_id, change.epoch, change)

    def _next_epoch(self, known: Transaction, producer: Producer, timeout_ms: int, now_ms: int) -> Transaction | None:
        """Return the id's next epoch, or the same again for a repeated request; None if the producer is fenced."""
        named = producer.producer_id != NO_PRODUCER_ID
        producer_id, epoch, last_epoch = known.producer_id, known.epoch + 1, known.epoch
        # If the broker has aborted with the last epoch, that one is never assigned: the producer gets a new id.
        aborted = known.epoch == MAX_EPOCH and producer.epoch == known.last_epoch
        if _is_exhausted(known.epoch) and (not named or producer.epoch == known.epoch or aborted):
            producer_id, epoch, last_epoch = self._take_producer_id(), 0, producer.epoch
        elif named and known.epoch not in (NO_PRODUCER_EPOCH, producer.epoch):
            if producer.epoch != known.last_epoch:
                return None
            epoch, last_epoch = known.epoch, known.last_epoch
        if not named:
            last_epoch = NO_PRODUCER_EPOCH
        return _move(
            known,
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def add_partitions(
        self, producer: Producer, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> Decision:
        """Handle AddPartitionsToTxn, AddOffsetsToTxn, and the first write of a transaction to a partition."""
        if self._is_being_ended(producer):
            return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
        known, error = self._identify(producer)
        if known is None:
            return Decision(error)
        wanted = known.partitions | frozenset(partitions)
        if known.state is TransactionState.ONGOING and wanted == known.partitions:
            return Decision(ErrorCode.NONE)
        change = _move(
            known,
            TransactionState.ONGOING,
            now_ms,
            partitions=wanted,
            start_ms=known.start_ms if known.state is TransactionState.ONGOING else now_ms,
            client_version=client_version,
        )
        return Decision(ErrorCode.NONE, change=change)

    def verify_partitions(
        self, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it is in the producer's transaction (KIP-890 part 1)."""
        known, error = self._identify(producer)
        if known is None or known.state in PREPARED:
            refusal = error if known is None else ErrorCode.CONCURRENT_TRANSACTIONS
            return dict.fromkeys(partitions, refusal)
        return {
            each: ErrorCode.NONE if each in known.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
        }

    def _is_being_ended(self, producer: Producer) -> bool:
        known = self._by_id.get(producer.transactional_id)
        return known is not None and known.state in PREPARED

    def _identify(self, producer: Producer) -> tuple[Transaction | None, ErrorCode]:
        if not producer.transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        known = self._by_id.get(producer.transactional_id)
        if known is None or known.producer_id != producer.producer_id:
            return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != producer.epoch:
            return None, ErrorCode.PRODUCER_FENCED
        return known, ErrorCode.NONE

    def end(self, producer: Producer, committed: bool, client_version: int, now_ms: int) -> Decision:
        """Handle EndTxn: version 5 with `EPOCH_BUMP`, earlier ones with `LEGACY`."""
        if not producer.transactional_id:
            return Decision(ErrorCode.INVALID_REQUEST)
        known = self._by_id.get(producer.transactional_id)
        if known is None:
            return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if client_version < EPOCH_BUMP:
            return _end_legacy(known, producer, committed, now_ms)
        return self._end_with_bump(known, producer, committed, now_ms)

    def _end_with_bump(self, known: Transaction, producer: Producer, committed: bool, now_ms: int) -> Decision:
        """Decide as in the table of Kafka's TransactionCoordinator for transaction version 2."""
        if known.state in PREPARED:
            return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
        overflowed = (
            known.previous_producer_id == producer.producer_id
            and producer.epoch == MAX_EPOCH - 1
            and known.epoch == 0
            and known.producer_id != producer.producer_id
        )
        # Only an end with a bump leaves the next epoch to this producer. Otherwise it belongs to another instance,
        # which has fenced this one: with it, both could write.
        bumped = known.epoch == producer.epoch + 1 and known.client_version >= EPOCH_BUMP
        repeated = overflowed or bumped
        current = known.epoch == producer.epoch
        if known.producer_id != producer.producer_id and not overflowed:
            return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.state in COMPLETE and repeated:
            agrees = (known.state is TransactionState.COMPLETE_COMMIT) == committed
            if not agrees:
                return Decision(ErrorCode.INVALID_TXN_STATE)
            if known.epoch == MAX_EPOCH:  # the broker aborted, with the reserved epoch, which is never assigned
                return Decision(ErrorCode.PRODUCER_FENCED)
            return Decision(ErrorCode.NONE, known.producer_id, known.epoch)
        if not current:
            return Decision(ErrorCode.PRODUCER_FENCED)
        if known.state is not TransactionState.ONGOING and committed:
            return Decision(ErrorCode.INVALID_TXN_STATE)
        next_producer_id = self._take_producer_id() if _is_exhausted(known.epoch) else NO_PRODUCER_ID
        change = _prepare(known, committed, EPOCH_BUMP, now_ms, next_producer_id)
        if next_producer_id != NO_PRODUCER_ID:
            return Decision(ErrorCode.NONE, next_producer_id, 0, change)
        return Decision(ErrorCode.NONE, change.producer_id, change.epoch, change)

    # After a change is in the log.

    def applied(self, change: Transaction) -> Markers | None:
        """Apply a change that is in the log; return the markers to write if it decides a transaction."""
        self._by_id[change.transactional_id] = change
        if change.state is TransactionState.ONGOING:
            self._ongoing.add(change.transactional_id)
        else:
            self._ongoing.discard(change.transactional_id)
        return _markers(change) if change.state in PREPARED else None

    def markers_written(
        self, transactional_id: str, partitions: Iterable[TopicPartition], now_ms: int
    ) -> Transaction | None:
        """Note partitions whose marker is written; returns the completing change after the last."""
        known = self._by_id[transactional_id]
        assert known.state in PREPARED, f"{transactional_id} is {known.state}"
        known = replace(known, partitions=known.partitions - frozenset(partitions))
        self._by_id[transactional_id] = known
        return None if known.partitions else complete(known, now_ms)

    # Timers.

    def timed_out(self, now_ms: int) -> list[Transaction]:
        """Return the changes that abort the transactions that have timed out."""
        late = [self._by_id[each] for each in sorted(self._ongoing)]
        return [
            _fence(each, now_ms)
            for each in late
            if each.timeout_ms != NO_TIMEOUT_MS and each.start_ms + each.timeout_ms < now_ms
        ]

    def expired(self, now_ms: int) -> list[str]:
        """Return the transactional ids that have been unused for the expiration time."""
        oldest = now_ms - self._settings.id_expiration_ms
        return [
            each.transactional_id
            for each in self._by_id.values()
            if each.state in _AT_REST and each.last_update_ms <= oldest
        ]

    def forgotten(self, transactional_id: str) -> None:
        """Apply a record without a value: the id is Dead."""
        self._by_id.pop(transactional_id, None)
        self._ongoing.discard(transactional_id)

    # Loading.

    def load(self, transaction: Transaction) -> None:
        """Apply a value from the log; the last one of an id is valid."""
        self.applied(transaction)

    def decided(self) -> list[Markers]:
        """Return the markers of transactions that are decided but not complete."""
        return [_markers(each) for each in self._by_id.values() if each.state in PREPARED]


def _may_claim(known: Transaction, producer: Producer) -> bool:
    """Whether a producer with its id may have the next epoch; the epoch itself is compared later (KIP-360)."""
    return (
        known.epoch == NO_PRODUCER_EPOCH
        or producer.producer_id == known.producer_id
        or (producer.producer_id == known.previous_producer_id and _is_exhausted(producer.epoch))
    )


def _is_exhausted(epoch: int) -> bool:
    return epoch >= MAX_EPOCH - 1


def _end_legacy(known: Transaction, producer: Producer, committed: bool, now_ms: int) -> Decision:
    if known.producer_id != producer.producer_id:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.epoch != producer.epoch:
        return Decision(ErrorCode.PRODUCER_FENCED)
    if known.state in PREPARED:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is TransactionState.ONGOING:
        return Decision(ErrorCode.NONE, change=_prepare(known, committed, LEGACY, now_ms))
    decided = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    return Decision(ErrorCode.NONE if known.state is decided else ErrorCode.INVALID_TXN_STATE)


def _fence(known: Transaction, now_ms: int) -> Transaction:
    """Abort an ongoing transaction with an epoch that its producer does not have."""
    fenced = _move(known, TransactionState.PREPARE_EPOCH_FENCE, known.last_update_ms)
    return _prepare(fenced, False, SERVER_VERSION, now_ms)


def _prepare(
    known: Transaction, committed: bool, version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
) -> Transaction:
    """Decide a transaction; from version 2 on its markers carry the next epoch."""
    epoch, last_epoch = known.epoch, known.last_epoch
    if version >= EPOCH_BUMP:
        assert epoch < MAX_EPOCH or not committed
        epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
    began = known.state in (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE)
    return _move(
        known,
        TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        now_ms,
        epoch=epoch,
        last_epoch=last_epoch,
        next_producer_id=next_producer_id,
        start_ms=known.start_ms if began else now_ms,
        client_version=version,
    )


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Return the state of a decided transaction after its markers are written."""
    overflow = known.client_version >= EPOCH_BUMP and known.next_producer_id != NO_PRODUCER_ID
    committed = known.state is TransactionState.PREPARE_COMMIT
    return _move(
        known,
        TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        now_ms,
        producer_id=known.next_producer_id if overflow else known.producer_id,
        epoch=0 if overflow else known.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def _move(known: Transaction, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
    assert state in TRANSITIONS[known.state], f"{known.transactional_id}: {known.state} -> {state}"
    return replace(known, state=state, last_update_ms=now_ms, previous_producer_id=known.producer_id, **changes)


def _markers(known: Transaction) -> Markers:
    return Markers(
        known.transactional_id,
        known.producer_id,
        known.epoch,
        known.state is TransactionState.PREPARE_COMMIT,
        known.client_version,
        known.partitions,
    )


def check_invariants(transactions: Transactions) -> None:
    """Assert the invariants between any two events; used by tests and by simulators."""
    for each in transactions.all():
        assert each.producer_id >= 0
        assert 0 <= each.epoch <= MAX_EPOCH
        assert each.state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
        if each.state in _AT_REST:
            assert not each.partitions
            assert each.next_producer_id == NO_PRODUCER_ID
        else:
            assert each.start_ms != NO_TIMESTAMP
        if each.state is TransactionState.ONGOING:
            assert each.epoch < MAX_EPOCH
