"""Transactions on a simulated broker: coordinators of its partitions of `__transaction_state`, markers, verification.

Theory of operation: as the handlers of a real broker do it, with calls in place of sockets. A coordinator is the core's
`Transactions`, read back from its partition when the broker comes to lead it, and dropped when it does not lead it any
more. A change is appended first and then taken in; what a request is answered waits until the partition is safe as far
as it went then. Markers leave when the decision is safe, count when they are safe where they go, and are sent again
until then. A leader that is written to in a transaction it does not know asks the coordinator first (KIP-890), with a
verification begun before, so that an answer which comes too late does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.producer_state import NO_TRANSACTION, Marker
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC, decode_key, decode_value, encode
from sparkonce.broker_lite.coordinators.transaction_messages import (
    EPOCH_BUMP,
    LEGACY,
    Decision,
    Markers,
    Producer,
    TopicPartition,
    Transaction,
    TransactionSettings,
)
from sparkonce.broker_lite.coordinators.transactions import Transactions, check_invariants
from sparkonce.broker_lite.node.markers import is_done, marker_of
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.protocol.records import (
    NO_PRODUCER_EPOCH,
    Record,
    decode_records,
    read_header,
    scan,
)
from sparkonce.broker_lite.sim.coordinating import Coordinator, Coordinators
from sparkonce.broker_lite.sim.disk import CutShort
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.node import Call

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.partition_log import PartitionLog
    from sparkonce.broker_lite.sim.broker import SimulatedBroker

_SETTINGS = TransactionSettings(max_timeout_ms=60_000, id_expiration_ms=10**9)
_READ_BYTES = 1 << 20
_RETRY_MS = 60

Decides = Callable[[], Callable[[], None] | None]
"""Called before an EndTxn decides a transaction; what it returns is called when that decision counts: at once if no
other coordinator has been elected, and when it is safe. One that has been replaced without its knowledge decides by
what it knew until then, and that comes to nothing unless it becomes safe."""


@dataclass(slots=True, eq=False)
class _Sending:
    """A decided transaction whose markers are not all written."""

    markers: Markers
    left: set[TopicPartition]
    under_way: set[TopicPartition] = field(default_factory=set)
    is_safe: bool = False


class TransactionCoordinator(Coordinator):
    """The transactional ids of one partition, as long as it is led here in one epoch."""

    def __init__(self, broker: SimulatedBroker, key: PartitionKey, epoch: int) -> None:
        super().__init__(broker, key, epoch)
        self._sending: dict[str, _Sending] = {}
        self.transactions = Transactions(_SETTINGS, broker.world.take_producer_id)

    @property
    def at_rest(self) -> bool:
        """Whether no transaction is open or being ended."""
        return self.loaded and not self.transactions.has_ongoing and not self.transactions.decided()

    def read_back(self) -> None:
        """Read the partition back, and complete what was decided."""
        found: dict[str, Transaction] = {}
        for record in _records(self.log):
            name = decode_key(record.key)
            if name is not None and record.value is not None:
                found[name] = decode_value(name, record.value)
        for transaction in found.values():
            self.transactions.load(transaction)
        self.loaded = True
        for markers in self.transactions.decided():
            self._broker.world.mark(Mark.DECISION_TAKEN_OVER)
            self._send(markers)

    @property
    def is_current(self) -> bool:
        """Whether no other coordinator has been elected in its place."""
        state = self._broker.world.metadata.image.partition(self._key)
        return state is not None and (state.leader, state.leader_epoch) == (self._broker.node_id, self._epoch)

    def left_behind(self, transactional_id: str, epoch: int) -> None:
        """Begin a transactional id where a producer of long ago has left it, if it is not known yet."""
        if self.transactions.get(transactional_id) is None:
            producer_id = self._broker.world.take_producer_id()
            self._persist(Transaction(transactional_id, producer_id, _SETTINGS.max_timeout_ms, epoch=epoch))

    def carry_out(self, decision: Decision, asks: Producer | None = None) -> Decision:
        """Bring a decision's change into the log, and begin what follows; returns what to answer.

        `asks` is None if no client has asked for it.
        """
        if decision.change is None:
            return decision
        fencing, is_known = self._broker.world.fencing, self.is_current and asks is not None
        if not is_known:
            fencing.unknown(decision.change.transactional_id)
        try:
            self._persist(decision.change)
        except KafkaError:
            return Decision(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except CutShort:
            fencing.unknown(decision.change.transactional_id)
            raise
        if is_known and asks is not None:
            fencing.decided(asks, decision)
        return decision

    def tick(self) -> None:
        """Abort transactions whose time is up."""
        for change in self.transactions.timed_out(self._broker.now_ms) if self.loaded else ():
            if self.carry_out(Decision(ErrorCode.NONE, change=change)).error is ErrorCode.NONE:
                self._broker.world.mark(Mark.TRANSACTION_TIMED_OUT)

    def _persist(self, change: Transaction) -> None:
        self.append(
            [encode(change, self._broker.now_ms)],
            lambda: (
                f"{change.transactional_id} is {change.state.value}, producer {change.producer_id} "
                f"epoch {change.epoch}, in {sorted(change.partitions)}"
            ),
        )
        markers = self.transactions.applied(change)
        check_invariants(self.transactions)
        if markers is not None:
            self._send(markers)

    # Markers.

    def _send(self, markers: Markers) -> None:
        if markers.transactional_id not in self._sending:
            sending = self._sending[markers.transactional_id] = _Sending(markers, set(markers.partitions))
            self._wait_for_decision(sending)

    def _is_current(self, sending: _Sending) -> bool:
        return not self.over and self._sending.get(sending.markers.transactional_id) is sending

    def _wait_for_decision(self, sending: _Sending) -> None:
        if self._is_current(sending):
            self.when_safe(lambda code: self._on_safe(sending, code))

    def _on_safe(self, sending: _Sending, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            sending.is_safe = True
            self._go_on(sending)
        else:
            self._broker.after(_RETRY_MS, self._wait_for_decision, sending)

    def _go_on(self, sending: _Sending) -> None:
        """Send what is neither written nor under way, and look again a little later."""
        if not self._is_current(sending):
            return
        if not sending.left:
            self._written(sending, None, ErrorCode.NONE)
        for place in sorted(sending.left - sending.under_way):
            self._send_one(sending, place)
        self._broker.after(_RETRY_MS, self._go_on, sending)

    def _send_one(self, sending: _Sending, place: TopicPartition) -> None:
        broker = self._broker
        key = broker.world.key_of(place)
        state = broker.image.partition(key)
        if state is None or state.leader == NO_LEADER:
            return
        sending.under_way.add(place)
        marker, leader = marker_of(sending.markers, self._epoch), broker.world.brokers[state.leader]
        Call(
            broker,
            leader,
            lambda call: leader.transactions.write_marker(call, key, marker),
            lambda answer: self._written(sending, place, answer),
            broker.world.plan.settings.timeout_ms * 2,
        ).send(may_double=False)

    def _written(self, sending: _Sending, place: TopicPartition | None, answer: ErrorCode | None) -> None:
        """Note that a marker was written, or not; with the last one the transaction is complete."""
        done = []
        if place is not None:
            sending.under_way.discard(place)
            if answer is None or not is_done(answer):
                return
            sending.left.discard(place)
            done = [place]
        if not self._is_current(sending):
            return
        name = sending.markers.transactional_id
        completed = self.transactions.markers_written(name, done, self._broker.now_ms)
        if completed is None:
            return
        try:
            self._persist(completed)
        except KafkaError:
            return  # the decision stands; `_go_on` tries it again
        del self._sending[name]


class TransactionService:
    """What a broker has to do with transactions."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self.coordinators = Coordinators(broker, TRANSACTIONS_TOPIC, TransactionCoordinator)

    @property
    def at_rest(self) -> bool:
        """Whether no transaction that is coordinated here is open or being ended."""
        return all(each.at_rest for each in self.coordinators)

    # What clients ask a coordinator.

    def init_producer_id(self, call: Call, producer: Producer, timeout_ms: int, left_at: int) -> None:
        """Answer InitProducerId with a `Decision`; `left_at` is the last epoch of a producer of long ago, or -1."""
        now_ms, coordinator = self._broker.now_ms, self.coordinators.find(producer.transactional_id)
        if left_at != NO_PRODUCER_EPOCH and not isinstance(coordinator, ErrorCode):
            with suppress(KafkaError):
                coordinator.left_behind(producer.transactional_id, left_at)
        self._decide(call, producer, lambda core: core.init_producer_id(producer, timeout_ms, now_ms))

    def add_partition(self, call: Call, producer: Producer, place: TopicPartition, version: int) -> None:
        """Answer AddPartitionsToTxn with a `Decision`."""
        now_ms = self._broker.now_ms
        self._decide(call, producer, lambda core: core.add_partitions(producer, [place], version, now_ms))

    def end(self, call: Call, producer: Producer, committed: bool, version: int, decides: Decides) -> None:
        """Answer EndTxn with a `Decision`; `decides` is called before it decides a transaction."""
        now_ms = self._broker.now_ms
        self._decide(call, producer, lambda core: core.end(producer, committed, version, now_ms), decides)

    def verify(self, call: Call, producer: Producer, place: TopicPartition) -> None:
        """Return whether a partition is in the producer's transaction, as a `Decision`."""
        self._decide(call, producer, lambda core: Decision(core.verify_partitions(producer, [place])[place]))

    def _decide(
        self,
        call: Call,
        producer: Producer,
        decide: Callable[[Transactions], Decision],
        decides: Decides | None = None,
    ) -> None:
        """Answer with a `Decision`; `decides` is given for an EndTxn."""
        coordinator = self.coordinators.find(producer.transactional_id)
        if isinstance(coordinator, ErrorCode):
            call.answer(Decision(coordinator))
            return
        ends, decision = decides is not None, decide(coordinator.transactions)
        counts = decides() if decides is not None and decision.change is not None else None
        if counts is not None and coordinator.is_current:
            counts()
        decision = coordinator.carry_out(decision, producer)
        if coordinator.is_current:
            self._broker.world.fencing.refused(producer, decision.error, ends=ends)
        if decision.error is ErrorCode.PRODUCER_FENCED:
            self._broker.world.mark(Mark.PRODUCER_FENCED)
        if ends and decision.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            self._note_early_end(producer, coordinator.transactions.get(producer.transactional_id))

        def answer(code: ErrorCode) -> None:
            if counts is not None and code is decision.error is ErrorCode.NONE:
                counts()
            call.answer(decision if code is ErrorCode.NONE else Decision(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        coordinator.when_safe(answer)

    def _note_early_end(self, producer: Producer, known: Transaction | None) -> None:
        """Note an EndTxn under an epoch, or a producer id, that follows when the markers are written."""
        if known is not None and known.producer_id != producer.producer_id == known.next_producer_id:
            self._broker.world.mark(Mark.ENDED_TOO_EARLY_BY_NEXT_ID)
        elif known is not None and known.client_version != LEGACY and known.epoch == producer.epoch:
            self._broker.world.mark(Mark.ENDED_TOO_EARLY)

    # What happens in the partitions that are written to.

    def produce(self, call: Call, key: PartitionKey, batch: bytes, name: str, version: int) -> None:
        """Append a transactional batch, after the coordinator's word if it begins a transaction here."""
        broker, header = self._broker, read_header(batch)
        try:
            broker.replicas.leader(key)
        except KafkaError as error:
            call.answer(error.code)
            return
        producers = broker.log(key).producers
        if producers.in_transaction(header.producer_id, header.producer_epoch):
            broker.produces.produce(call, key, batch, -1)
            return
        verification = producers.begin_verification(header.producer_id, header.producer_epoch, version == EPOCH_BUMP)

        def told(answer: Decision | None) -> None:
            if answer is not None and answer.error is ErrorCode.NONE:
                broker.produces.produce(call, key, batch, -1, verification)
            else:
                call.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else answer.error)

        self._ask_coordinator(Producer(name, header.producer_id, header.producer_epoch), key, version, told)

    def _ask_coordinator(
        self, producer: Producer, key: PartitionKey, version: int, then: Callable[[Any], None]
    ) -> None:
        broker = self._broker
        state = broker.image.partition(broker.world.coordinator_key(TRANSACTIONS_TOPIC, producer.transactional_id))
        if state is None or state.leader == NO_LEADER:
            then(None)
            return
        coordinator, place = broker.world.brokers[state.leader], broker.world.place_of(key)

        def ask(call: Call) -> None:
            if version == LEGACY:
                coordinator.transactions.verify(call, producer, place)
            else:
                coordinator.transactions.add_partition(call, producer, place, version)

        timeout_ms = broker.world.plan.settings.timeout_ms
        if broker.rng.random() < broker.network.weather.late_words:
            at_once, delay_ms = then, int(broker.rng.random() * timeout_ms)

            def then(answer: Decision | None) -> None:
                broker.after(delay_ms, at_once, answer)

        Call(broker, coordinator, ask, then, timeout_ms).send(may_double=False)

    def write_marker(self, call: Call, key: PartitionKey, marker: Marker) -> None:
        """Write the end of a transaction into a partition; answer when it is safe."""
        broker = self._broker
        try:
            role = broker.replicas.leader(key)
            role.check_acks_all()
            log = broker.log(key)
            entry = log.producers.get(marker.producer_id)
            if entry is None or entry.current_transaction_first_offset == NO_TRANSACTION:
                broker.world.mark(Mark.MARKER_AGAIN)
            appended = log.append_marker(marker, role.state.leader_epoch, broker.now_ms)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                broker.world.mark(Mark.MARKER_UNDER_MIN)
            call.answer(error.code)
            return
        word = "commits" if marker.committed else "aborts"
        broker.world.trace(
            lambda: (
                f"broker {broker.node_id} {word} producer {marker.producer_id} in {broker.world.name_of(key)} at "
                f"{appended.last_offset}, producer epoch {marker.producer_epoch}"
            )
        )
        broker.acknowledgements.when_safe(key, appended.last_offset, call.answer)
        broker.appended(key)


def _records(log: PartitionLog) -> Iterator[Record]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, _READ_BYTES, True).read()
        for position, header in scan(data):
            offset = header.next_offset
            yield from decode_records(memoryview(data)[position : position + header.size])
