"""Which transactions the cleaner is in the middle of, and so which data and which markers may go.

The cleaner goes through the log and reports each batch. Data of an aborted transaction is removed at once. A marker
stays as long as the cleaner has seen data of its transaction on this pass, because readers need it to interpret that;
the entry of the transaction index stays with it. Only a marker whose transaction is empty may be removed, after another
`delete.retention.ms`. The rules are those of Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sparkonce.broker_lite.log.transaction_index import AbortedTransaction
from sparkonce.broker_lite.protocol.records import BatchHeader, ControlType


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    seen_data: bool = False


class CleanedTransactions:
    """The transactions open at the cleaner's place in the log. `keep` is called with each that stays aborted."""

    __slots__ = ("_aborted", "_ahead", "_committed", "keep")

    def __init__(self, keep: Callable[[AbortedTransaction], None] | None = None) -> None:
        self._committed: set[int] = set()
        self._aborted: dict[int, _Aborted] = {}
        self._ahead: list[tuple[int, AbortedTransaction]] = []
        self.keep = keep

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions of the part of the log that comes next."""
        for each in aborted:
            heapq.heappush(self._ahead, (each.first_offset, each))

    def on_batch(self, header: BatchHeader) -> bool:
        """Note a batch of data; True if it may go, being of an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None:
            aborted.seen_data = True
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, header: BatchHeader, kind: ControlType | None, empty: bool) -> bool:
        """Note a control batch; True if it may go, its transaction having no data before it."""
        self._reach(header.last_offset)
        if empty:
            return True  # it was cleaned before
        if kind is ControlType.COMMIT:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not seen
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is None or not aborted.seen_data:
                return True
            if self.keep is not None:
                self.keep(aborted.transaction)
        return False

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, transaction = heapq.heappop(self._ahead)
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
