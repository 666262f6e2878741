"""No producer is fenced without a cause: which producers a coordinator may turn away for good.

Theory of operation: PRODUCER_FENCED and its like are the end of a Java producer. It may get them only if it has lost
its epoch: another instance was assigned one after it, or its transaction was aborted on its timeout. The owner of the
last epoch of a transactional id is noted when a coordinator decides so. After an EndTxn that returns the next epoch,
the one before counts as well for EndTxn, until the next transaction begins: the answer may be lost, and the producer
retries. Its coordinator may be replaced before the decision is safe. Then the retry is decided anew by one that does
not know of it, and takes another new producer id if the epochs are worn out: the later decision is what counts.

What a coordinator decides that another one has replaced already, without its knowledge, may come to nothing. It leaves
nobody of whom it is known that he may not be turned away, until the next epoch is given.
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

    def unknown(self, transactional_id: str) -> None:
        """Forget the owner of the last epoch, until the next decision names one."""
        self._latest.pop(transactional_id, None)
        self._before.pop(transactional_id, None)

    def decided(self, asks: Producer, decision: Decision) -> None:
        """Take a change that a client has asked for, and that is in the log."""
        name, change, now = asks.transactional_id, decision.change, self._latest.get(asks.transactional_id)
        assert change is not None
        state = TransactionState(change.state.value)  # of this version, whichever the coordinator is of
        if decision.error is not ErrorCode.NONE:
            self.unknown(name)  # it has fenced the one before
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
        """Take a refusal; `ends` says that it is of an EndTxn.

        Raises:
            ViolationError: if a producer is turned away for good that has the last epoch that was given.
        """
        name = asks.transactional_id
        holds = asks == self._latest.get(name) or (ends and asks == self._before.get(name))
        if error in _FATAL and holds:
            raise ViolationError(INVARIANT, f"{asks} hears {error.name}, and nobody has taken its place")
