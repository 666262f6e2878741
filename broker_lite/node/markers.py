"""The ends of decided transactions on their way into their partitions, of a standalone broker.

Theory of operation: up to a bound the markers are written in the same turn of the event loop as the decision, the rest
in the next ones, so that a transaction over a thousand partitions does not hold up others. Markers that could not be
written are tried again.

Partitions that no longer exist need no marker. A partition that refuses one, because the producer's transaction there
has been ended in the meantime (WriteTxnMarkers, as an administrator's tool sends it), is done as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.coordinators.producer_state import Marker
from sparkonce.broker_lite.coordinators.transaction_messages import Markers
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.node.transaction_coordinator import TransactionCoordinator

logger = logging.getLogger(__name__)

MARKERS_PER_TURN: Final = 100
"""How many markers are written before other requests have their turn."""

RETRY_S: Final = 1.0
"""After how long markers that could not be written are tried again."""

_ENDED_ELSEWHERE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class MarkerWriter:
    """Writes markers into partitions that are all led here."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def write(self, markers: Markers) -> None:
        """Write markers as far as one turn goes; complete the transaction after the last."""
        coordinator = self._coordinator
        marker = marker_of(markers, coordinator.partitions.epoch_of(markers.transactional_id))
        wanted = sorted(markers.partitions)[:MARKERS_PER_TURN]
        written = [place for place in wanted if self._try(markers.transactional_id, *place, marker)]
        if not coordinator.markers_written(markers.transactional_id, written):
            delay_s = 0.0 if len(written) == len(wanted) < len(markers.partitions) else RETRY_S
            coordinator.call_later(f"markers of {markers.transactional_id}", delay_s, self._go_on)

    def forget(self, transactional_id: str) -> None:
        """Drop the markers of a transactional id: another broker coordinates it."""

    def when_ended(self, _transactional_id: str, then: Callable[[], None]) -> None:
        """Call back when no transaction of an id is being ended: markers are quickly written here."""
        then()

    def _try(self, transactional_id: str, topic: str, index: int, marker: Marker) -> bool:
        try:
            self._coordinator.write_marker(topic, index, marker)
        except KafkaError as error:
            if error.code in _NOT_THERE:
                return True
            logger.warning("transactional id %s: marker for %s-%d: %s", transactional_id, topic, index, error)
            return is_done(error.code)
        return True

    def _go_on(self) -> None:
        for markers in self._coordinator.transactions.decided():
            self.write(markers)


def marker_of(markers: Markers, coordinator_epoch: int) -> Marker:
    """Return the marker that goes into each partition."""
    version = markers.transaction_version
    return Marker(markers.producer_id, markers.epoch, markers.committed, coordinator_epoch, version)


def is_done(error: ErrorCode) -> bool:
    """Whether nothing more is to be done for a partition whose leader has answered with this."""
    return error is ErrorCode.NONE or error in _ENDED_ELSEWHERE
