"""All transactional ids of the broker: the state machine's decisions carried out, its timers, its log.

Theory of operation: a decision's change is appended to `__transaction_state` first, and counts only then. If it decides
a transaction, the markers are written into its partitions at once, in this broker: up to a bound in the same turn of
the event loop, the rest in the next ones, so that a transaction over a thousand partitions does not hold up others.
Markers that could not be written are tried again. A broker that starts reads the topic back and first completes the
transactions that were decided.

Partitions that do not exist any more need no marker. A partition that refuses one, because somebody else has ended the
producer's transaction there in the meantime (WriteTxnMarkers, as an administrator's tool sends it), is done as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from broker_lite.coordinators.offsets import OFFSETS_TOPIC, decode_key, decode_value, partition_of
from broker_lite.coordinators.producer_state import Marker
from broker_lite.coordinators.transaction_log import (
    TRANSACTIONS_TOPIC,
    encode,
    encode_tombstone,
)
from broker_lite.coordinators.transaction_log import decode_key as decode_transactional_id
from broker_lite.coordinators.transaction_log import (
    decode_value as decode_transaction,
)
from broker_lite.coordinators.transaction_messages import Decision, Markers, Transaction, TransactionSettings
from broker_lite.coordinators.transactions import Transactions
from broker_lite.handlers.leader import LEADER_EPOCH
from broker_lite.handlers.purgatory import Timer
from broker_lite.handlers.replay import replay
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.records import BatchHeader, Record, encode_batch

if TYPE_CHECKING:
    from broker_lite.handlers.broker import Broker

logger = logging.getLogger(__name__)

COORDINATOR_EPOCH: Final = 0
"""The leader epoch of `__transaction_state`, by which markers of an older coordinator are told."""

MARKERS_PER_TURN: Final = 100
"""How many markers are written before other requests have their turn."""

RETRY_S: Final = 1.0
"""After how long markers that could not be written are tried again."""

_ENDED_ELSEWHERE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TransactionCoordinator:
    """Transactional ids, and the markers that end their transactions."""

    def __init__(self, broker: Broker) -> None:
        """Read `__transaction_state` back and complete what was decided."""
        self._broker = broker
        config = broker.config
        settings = TransactionSettings(config.transaction_max_timeout_ms, config.transactional_id_expiration_ms)
        self.transactions = Transactions(settings, broker.producer_ids.take)
        self._timers: dict[str, Timer] = {}
        self._replay()
        for markers in self.transactions.decided():
            logger.info("transactional id %s: completing the transaction that was decided", markers.transactional_id)
            self._write_markers(markers)
        self._set_timers()

    def carry_out(self, decision: Decision) -> Decision:
        """Bring a decision's change into the log and do what follows; gives what to answer."""
        if decision.change is None:
            return decision
        try:
            self._persist(decision.change)
        except KafkaError as error:
            self._broker.note_refusal(f"transactional id {decision.change.transactional_id}: {error}")
            return Decision(_answer_to(error.code))
        return decision

    def write_marker(self, topic: str, index: int, marker: Marker) -> None:
        """Write the end of a transaction into one partition, and wake whoever waits for it.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED or
                KAFKA_STORAGE_ERROR.
        """
        broker = self._broker
        broker.partition(topic, index).append_marker(marker, LEADER_EPOCH, broker.clock.now_ms())
        if topic == OFFSETS_TOPIC:
            for record in broker.pending_offsets.end(index, marker.producer_id, marker.committed):
                key = decode_key(record.key)
                assert key is not None
                broker.groups.offsets.put(key, None if record.value is None else decode_value(record.value))
        broker.purgatory.decided(topic, index)

    def close(self) -> None:
        """Let go of the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # Changes and what follows from them.

    def _persist(self, change: Transaction) -> None:
        self._append(change.transactional_id, encode(change, self._broker.clock.now_ms()))
        markers = self.transactions.applied(change)
        if markers is not None:
            self._write_markers(markers)
        self._set_timers()

    def _append(self, transactional_id: str, record: Record) -> None:
        broker = self._broker
        topic = broker.internal_topic(TRANSACTIONS_TOPIC)
        index = partition_of(transactional_id, len(topic.partitions))
        batch = encode_batch([record])
        topic.partitions[index].append(batch, LEADER_EPOCH, broker.clock.now_ms())
        broker.purgatory.appended(TRANSACTIONS_TOPIC, index, len(batch))

    def _write_markers(self, markers: Markers) -> None:
        """Write markers as far as one turn goes; complete the transaction after the last."""
        marker = Marker(
            markers.producer_id, markers.epoch, markers.committed, COORDINATOR_EPOCH, markers.transaction_version
        )
        wanted = sorted(markers.partitions)[:MARKERS_PER_TURN]
        written = [place for place in wanted if self._try_marker(markers.transactional_id, *place, marker)]
        completed = self.transactions.markers_written(markers.transactional_id, written, self._broker.clock.now_ms())
        if completed is None:
            delay_s = 0.0 if len(written) == len(wanted) else RETRY_S
            self._call_later(f"markers of {markers.transactional_id}", delay_s, self._go_on_with_markers)
            return
        try:
            self._persist(completed)
        except KafkaError as error:
            # The decision stands, and the markers may be written again when the broker starts the next time.
            logger.warning("transactional id %s: cannot be completed now: %s", completed.transactional_id, error)
            self._call_later(f"markers of {markers.transactional_id}", RETRY_S, self._go_on_with_markers)

    def _try_marker(self, transactional_id: str, topic: str, index: int, marker: Marker) -> bool:
        try:
            self.write_marker(topic, index, marker)
        except KafkaError as error:
            if error.code in _NOT_THERE:
                return True
            logger.warning("transactional id %s: marker for %s-%d: %s", transactional_id, topic, index, error)
            return error.code in _ENDED_ELSEWHERE
        return True

    def _go_on_with_markers(self) -> None:
        for markers in self.transactions.decided():
            self._write_markers(markers)

    # The passing of time.

    def _set_timers(self) -> None:
        config = self._broker.config
        if self.transactions.has_ongoing:
            interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._call_later("timeouts", interval_ms / 1000, self._abort_timed_out)
        if self.transactions.all():
            interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
            self._call_later("expiry", interval_ms / 1000, self._forget_expired)

    def _call_later(self, what: str, delay_s: float, do: object) -> None:
        """Do something once after a delay; nothing if it is to be done anyway."""
        assert callable(do)
        if what in self._timers:
            return

        def run() -> None:
            del self._timers[what]
            do()

        self._timers[what] = self._broker.scheduler.call_later(delay_s, run)

    def _abort_timed_out(self) -> None:
        for change in self.transactions.timed_out(self._broker.clock.now_ms()):
            logger.info(
                "transactional id %s: aborting the transaction of producer %d, open for more than %d ms",
                change.transactional_id,
                change.producer_id,
                change.timeout_ms,
            )
            self.carry_out(Decision(ErrorCode.NONE, change=change))
        self._set_timers()

    def _forget_expired(self) -> None:
        now_ms = self._broker.clock.now_ms()
        for transactional_id in self.transactions.expired(now_ms):
            try:
                self._append(transactional_id, encode_tombstone(transactional_id, now_ms))
            except KafkaError as error:
                logger.warning("transactional id %s: cannot be forgotten now: %s", transactional_id, error)
                break
            self.transactions.forgotten(transactional_id)
        self._set_timers()

    # Starting again.

    def _replay(self) -> None:
        topic = self._broker.logs.topics.get(TRANSACTIONS_TOPIC)
        for log in topic.partitions if topic is not None else ():
            replay(log, self._take)

    def _take(self, header: BatchHeader, record: Record) -> None:
        transactional_id = None if header.is_control else decode_transactional_id(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self.transactions.forgotten(transactional_id)
        else:
            self.transactions.load(decode_transaction(transactional_id, record.value))


def _answer_to(error: ErrorCode) -> ErrorCode:
    """Give what a client hears when `__transaction_state` could not be written (Kafka's TransactionStateManager)."""
    if error is ErrorCode.KAFKA_STORAGE_ERROR:
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
