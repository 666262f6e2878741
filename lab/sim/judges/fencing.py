"""No producer is fenced without a cause: which producers a coordinator may reject for good.

Theory of operation: errors such as PRODUCER_FENCED end a Java producer. It may receive them only if it has lost
its epoch: another instance was assigned a later one, or its transaction was aborted on its timeout. The owner of the
last epoch of a transactional id is noted when a coordinator assigns it. After an EndTxn that returns the next epoch,
the previous one is also valid for EndTxn until the next transaction begins: the response may be lost, and the producer
retries. Its coordinator may be replaced before the decision is safe. Then its successor, which does not know of it,
decides the retry anew, and takes another new producer id if the epochs are used up: the later decision counts.

A decision of a coordinator that was replaced without knowing it may be lost. After it no owner is known until the
next epoch is assigned.

Such a coordinator also rejects the producers to which its successor has assigned an epoch: a rejection appends nothing
that would have to be safe first. Kafka's coordinators do the same. So its rejections are noted, and a client may hear
them; one that hears a fatal error from anyone else is fenced without a cause.
"""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.transaction_messages import LEGACY, Decision, Producer, TransactionState
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.errors import ErrorCode

INVARIANT = "fenced-for-cause"
_FATAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class Fencing:
    """The owner of the last epoch of each transactional id."""

    def __init__(self) -> None:
        self._latest: dict[str, Producer] = {}
        self._before: dict[str, Producer] = {}
        self._refused_by_former: set[Producer] = set()

    def unknown(self, transactional_id: str) -> None:
        """Forget the owner of the last epoch, until the next decision."""
        self._latest.pop(transactional_id, None)
        self._before.pop(transactional_id, None)

    def decided(self, asks: Producer, decision: Decision) -> None:
        """Note a change that a client has requested, and that is in the log."""
        name, change, now = asks.transactional_id, decision.change, self._latest.get(asks.transactional_id)
        assert change is not None
        state = TransactionState(change.state.value)  # the enum of this version, whichever the coordinator has
        if decision.error is not ErrorCode.NONE:
            self.unknown(name)  # it has fenced the previous one
        elif state is TransactionState.EMPTY:
            self.unknown(name)
            self._latest[name] = Producer(name, decision.producer_id, decision.epoch)
        elif state is not TransactionState.ONGOING and change.client_version != LEGACY:
            if asks in (now, self._before.get(name)):  # the latter: the first decision was not safe, and is lost
                self._before[name] = asks
                self._latest[name] = Producer(name, decision.producer_id, decision.epoch)
        elif now == asks:
            self._before.pop(name, None)

    def refused(self, asks: Producer, error: ErrorCode, *, ends: bool) -> None:
        """Check a rejection; `ends` means of an EndTxn.

        Raises:
            ViolationError: if a producer is fenced that has the last assigned epoch.
        """
        name = asks.transactional_id
        holds = asks == self._latest.get(name) or (ends and asks == self._before.get(name))
        if error in _FATAL and holds:
            raise ViolationError(INVARIANT, f"{asks} hears {error.name}, and nobody has taken its place")

    def refused_by_former(self, asks: Producer, error: ErrorCode) -> None:
        """Note a rejection by a coordinator that was replaced without knowing it."""
        if error in _FATAL:
            self._refused_by_former.add(asks)

    def hears_from_former(self, asks: Producer) -> bool:
        """Whether a fatal error that a client hears is such a coordinator's; each excuses one error."""
        is_former = asks in self._refused_by_former
        self._refused_by_former.discard(asks)
        return is_former
