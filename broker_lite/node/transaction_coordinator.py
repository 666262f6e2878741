"""The transactional ids of this broker: carries out the state machine's decisions, with timers and log.

Theory of operation: a decision's change is appended to `__transaction_state` first, and is valid only then. If it ends
a transaction, markers are written to its partitions (`markers.py`), and after the last of them the completing change to
the log. A partition of `__transaction_state` is loaded before its ids are served (`coordinated.py`), and its decided
transactions are completed first of all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sparkonce.broker_lite.coordinators.internal_topics import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import decode_key as decode_transactional_id
from sparkonce.broker_lite.coordinators.transaction_log import (
    decode_value as decode_transaction,
)
from sparkonce.broker_lite.coordinators.transaction_log import encode, encode_tombstone
from sparkonce.broker_lite.coordinators.transaction_messages import (
    Decision,
    TopicPartition,
    Transaction,
    TransactionSettings,
)
from sparkonce.broker_lite.coordinators.transactions import Transactions
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.node.coordinated import Coordinated, replay_slices
from sparkonce.broker_lite.node.markers import MarkerSender
from sparkonce.broker_lite.scheduling import Scheduler, Timer
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import BatchHeader, Record, encode_batch

if TYPE_CHECKING:
    from sparkonce.broker_lite.node.clock import Clock
    from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions
    from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings

logger = logging.getLogger(__name__)


class TransactionCoordinator:
    """Transactional ids, and the markers that end their transactions."""

    def __init__(
        self,
        dynamic: DynamicSettings,
        partitions: Coordinated,
        led: ClusterPartitions,
        new_producer_id: Callable[[], int],
        end_offsets: Callable[[int, Marker], None],
        scheduler: Scheduler,
        clock: Clock,
        note_refusal: Callable[[str], object],
    ) -> None:
        """Load `__transaction_state`, as far as it is led here, and complete decided transactions.

        Args:
            dynamic: the broker's settings.
            partitions: the partitions of `__transaction_state` that this broker leads.
            led: all partitions that this broker leads, for markers.
            new_producer_id: returns a new producer id.
            end_offsets: called with each marker in a partition of `__consumer_offsets`.
            scheduler: the event loop.
            clock: the time.
            note_refusal: logs failures, up to a rate.
        """
        self._dynamic = dynamic
        self._led = led
        self._end_offsets = end_offsets
        self._scheduler = scheduler
        self._clock = clock
        self._note_refusal = note_refusal
        config = dynamic.config
        settings = TransactionSettings(config.transaction_max_timeout_ms, config.transactional_id_expiration_ms)
        self.transactions = Transactions(settings, new_producer_id)
        self.partitions = partitions
        self._timers: dict[str, Timer] = {}
        self._markers = MarkerSender(led.member, scheduler, self)
        self.partitions.begin(self)

    # Partitions of `__transaction_state`.

    def load(self, partitions: Mapping[int, PartitionLog]) -> Iterator[None]:
        """Load the transactional ids of some partitions, a step at a time."""
        found: dict[str, Transaction] = {}

        def take(header: BatchHeader, record: Record) -> None:
            transactional_id = None if header.is_control else decode_transactional_id(record.key)
            if transactional_id is None:
                return
            if record.value is None:
                found.pop(transactional_id, None)
            else:
                found[transactional_id] = decode_transaction(transactional_id, record.value)

        for log in partitions.values():
            yield from replay_slices(log, take)
        for transaction in found.values():
            self.transactions.load(transaction)

    def loaded(self, _partitions: Collection[int]) -> None:
        """Complete the decided transactions."""
        for markers in self.transactions.decided():
            logger.info("transactional id %s: completing the transaction that was decided", markers.transactional_id)
            self._markers.write(markers)
        self._set_timers()

    def drop(self, partition: int) -> None:
        """Drop the transactional ids of a partition; the next coordinator completes the decided transactions."""
        names = [each.transactional_id for each in self.transactions.all()]
        for transactional_id in self.partitions.kept_in(partition, names):
            self._markers.forget(transactional_id)
            self.transactions.forgotten(transactional_id)

    # For handlers.

    def carry_out(self, decision: Decision) -> Decision:
        """Append a decision's change to the log and do what follows; returns the answer."""
        if decision.change is None:
            return decision
        try:
            self._persist(decision.change)
        except KafkaError as error:
            self._note_refusal(f"transactional id {decision.change.transactional_id}: {error}")
            return Decision(_answer_to(error.code))
        return decision

    def ended(self, transactional_id: str) -> Promise[None]:
        """Promise that no transaction of an id is ending here; after a while in any case."""
        return self._markers.ended(transactional_id)

    def write_marker(self, topic: str, index: int, marker: Marker) -> int | None:
        """Write a marker into one partition, and complete its waiting fetches.

        Returns the log end offset that must be replicated; None if it already is.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED,
                KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER or NOT_ENOUGH_REPLICAS.
        """
        led = self._led.leading(topic, index)
        if led.replicas is not None:
            led.replicas.check_acks_all()  # else a marker that cannot be replicated would be written again and again
        led.log.append_marker(marker, led.leader_epoch, self._clock.now_ms())
        end = led.log.log_end_offset
        if topic == OFFSETS_TOPIC:
            self._end_offsets(index, marker)
        self._led.ended(topic, index, led)
        return None if led.replicas is None else end

    def close(self) -> None:
        """Cancel the timers."""
        self.partitions.close()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # Changes and their effects.

    def _persist(self, change: Transaction) -> None:
        self._append(change.transactional_id, encode(change, self._clock.now_ms()))
        markers = self.transactions.applied(change)
        if markers is not None:
            self._markers.write(markers)
        self._set_timers()

    def _append(self, transactional_id: str, record: Record) -> None:
        self.partitions.append(transactional_id, encode_batch([record]))

    def markers_written(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> bool:
        """Note the partitions whose marker is written; returns whether the transaction is complete."""
        completed = self.transactions.markers_written(transactional_id, partitions, self._clock.now_ms())
        if completed is None:
            return False
        try:
            self._persist(completed)
        except KafkaError as error:
            # The decision is valid, and the next coordinator may write the markers again.
            logger.warning("transactional id %s: cannot be completed now: %s", transactional_id, error)
            return False
        return True

    # Timers.

    def _set_timers(self) -> None:
        config = self._dynamic.config
        if self.transactions.has_ongoing:
            interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self.call_later("timeouts", interval_ms / 1000, self._abort_timed_out)
        if self.transactions.all():
            interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
            self.call_later("expiry", interval_ms / 1000, self._forget_expired)

    def call_later(self, what: str, delay_s: float, do: Callable[[], None]) -> None:
        """Call `do` once, after a delay; does nothing if `what` is already scheduled."""
        if what in self._timers:
            return

        def run() -> None:
            del self._timers[what]
            do()

        self._timers[what] = self._scheduler.call_later(delay_s, run)

    def call_off(self, what: str) -> None:
        """Cancel a scheduled call."""
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()

    def _abort_timed_out(self) -> None:
        for change in self.transactions.timed_out(self._clock.now_ms()):
            logger.info(
                "transactional id %s: aborting the transaction of producer %d, open for more than %d ms",
                change.transactional_id,
                change.producer_id,
                change.timeout_ms,
            )
            self.carry_out(Decision(ErrorCode.NONE, change=change))
        self._set_timers()

    def _forget_expired(self) -> None:
        now_ms = self._clock.now_ms()
        for transactional_id in self.transactions.expired(now_ms):
            try:
                self._append(transactional_id, encode_tombstone(transactional_id, now_ms))
            except KafkaError as error:
                logger.warning("transactional id %s: cannot be forgotten now: %s", transactional_id, error)
                break
            self.transactions.forgotten(transactional_id)
        self._set_timers()


def _answer_to(error: ErrorCode) -> ErrorCode:
    """Return the client's error when `__transaction_state` could not be written (Kafka's TransactionStateManager)."""
    if error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR):
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
