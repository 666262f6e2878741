"""The ends of decided transactions on their way to the leaders of their partitions.

Theory of operation (Kafka's TransactionMarkerChannelManager): first the decision itself has to be safe, or a marker
could end a transaction in some partitions that the next coordinator ends differently in the rest. Then each partition's
leader gets its marker: this broker writes its own, up to a bound in the same turn of the event loop; others get
WriteTxnMarkers, one request at a time for each broker, with all that has been collected for it meanwhile. A marker
counts as written when it is safe in its partition. Markers that were not written, because the leader has died, another
one leads, or too few replicas are in sync, are sent again, to the current leader; a second marker for a transaction
that has ended changes nothing. When all are written, the coordinator completes the transaction. A coordinator that is
replaced drops what it has not sent, and the next one sends all markers again, under a higher epoch, by which partitions
recognize markers of the old one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.transaction_messages import Markers, TopicPartition
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.node.coordinated import SAFE_TIMEOUT_MS, Refusals
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.image import ClusterImage
    from sparkonce.broker_lite.node.coordinated import Coordinated
    from sparkonce.broker_lite.scheduling import Scheduler

logger = logging.getLogger(__name__)

MARKERS_PER_TURN: Final = 100
"""How many markers are written before other requests have their turn."""

RETRY_S: Final = 0.1
"""After how long markers are sent again; the cluster may have another leader by then."""

MAX_RETRY_S: Final = 1.0
"""The same when none could be written several times, as where too few replicas are in sync."""

ENDING_WAIT_S: Final = 0.1
"""How long a request waits for the end of its id's last transaction; Kafka's default of
`add.partitions.to.txn.retry.backoff.max.ms`."""

_VERSION: Final = 2
_ENDED_ELSEWHERE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


@dataclass(slots=True, eq=False)
class _Sending:
    """One decided transaction; `left` still needs markers, of which `under_way` are being written by these brokers."""

    markers: Markers
    epoch: int
    left: set[TopicPartition]
    under_way: dict[TopicPartition, int] = field(default_factory=dict)
    is_safe: bool = False
    is_waiting: bool = False
    retry_s: float = RETRY_S
    """Its own: a partition that takes no markers for long must not hold up the transactions in others."""

    @property
    def name(self) -> str:
        return self.markers.transactional_id

    @property
    def timer(self) -> str:
        return f"markers of {self.name}"


_Batch = tuple[_Sending, list[TopicPartition]]


class _Coordinator(Protocol):
    """What decides transactions (`TransactionCoordinator`)."""

    @property
    def partitions(self) -> Coordinated:
        """The partitions of `__transaction_state` whose transactional ids are here."""

    def write_marker(self, topic: str, index: int, marker: Marker) -> int | None:
        """Write the end of a transaction into a partition that is led here; return what must become safe, if any."""

    def markers_written(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> bool:
        """Note where the end of a transaction has been written; returns whether it is complete now."""

    def call_later(self, what: str, delay_s: float, do: Callable[[], None]) -> None:
        """Schedule something once, after a delay; nothing if it is scheduled already."""

    def call_off(self, what: str) -> None:
        """Cancel something that is scheduled."""


class MarkerSender:
    """Brings markers to the leaders of their partitions."""

    def __init__(self, member: ClusterMember, scheduler: Scheduler, coordinator: _Coordinator) -> None:
        self._member = member
        self._scheduler = scheduler
        self._coordinator = coordinator
        self._sending: dict[str, _Sending] = {}
        self._outbox: dict[int, list[_Batch]] = {}
        """What is to be sent to each broker, as soon as it has answered what it was sent."""
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        """Requests that wait for the end of a transaction."""
        self._asked: set[int] = set()
        """The brokers that have not answered yet."""
        member.on_image.append(self._on_image)

    def write(self, markers: Markers) -> None:
        """Begin to write the markers of a transaction that has been decided, unless that is under way."""
        if markers.transactional_id not in self._sending:
            epoch = self._coordinator.partitions.epoch_of(markers.transactional_id)
            sending = _Sending(markers, epoch, set(markers.partitions))
            self._sending[markers.transactional_id] = sending
            self._wait_for_decision(sending)

    def forget(self, transactional_id: str) -> None:
        """Drop the markers of a transactional id: another broker coordinates it."""
        sending = self._sending.get(transactional_id)
        if sending is not None:
            self._over(sending)

    def _over(self, sending: _Sending) -> None:
        del self._sending[sending.name]
        self._coordinator.call_off(sending.timer)
        self._ended(sending.name)

    def when_ended(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Call back when no transaction of an id is being ended here any more, or after `ENDING_WAIT_S`.

        Clients begin the next transaction as soon as the last one is decided. Without waiting a little they would be
        refused, and come back much later than the few milliseconds that markers take. (Kafka 4's leaders wait so too.)
        """
        if transactional_id not in self._sending:
            then()
            return
        waiting = self._waiting.setdefault(transactional_id, [])
        if not waiting:
            self._scheduler.call_later(ENDING_WAIT_S, partial(self._ended, transactional_id, waiting))
        waiting.append(then)

    def _ended(self, transactional_id: str, waiting: list[Callable[[], None]] | None = None) -> None:
        """Call back those that wait for an end; if `waiting` is given, only if it is still the current list."""
        found = self._waiting.get(transactional_id)
        if found is None or (waiting is not None and found is not waiting):
            return
        del self._waiting[transactional_id]
        for then in found:
            self._scheduler.call_soon(then)

    def _wait_for_decision(self, sending: _Sending) -> None:
        sending.is_waiting = True
        self._coordinator.partitions.when_safe([sending.name], partial(self._on_safe, sending))

    def _on_safe(self, sending: _Sending, refusals: Refusals) -> None:
        sending.is_waiting, sending.is_safe = False, not refusals
        if self._sending.get(sending.name) is sending:
            self._go_on_with(sending)

    def _try_again(self, sending: _Sending) -> None:
        sending.retry_s = min(2 * sending.retry_s, MAX_RETRY_S)
        self._go_on(sending)

    def _go_on(self, sending: _Sending) -> None:
        if self._sending.get(sending.name) is not sending or sending.is_waiting:
            return
        if sending.is_safe:
            self._go_on_with(sending)
        else:
            self._wait_for_decision(sending)

    def _go_on_with(self, sending: _Sending) -> None:
        """Send what is neither written nor under way, as far as one turn goes."""
        if not sending.is_safe:
            self._retry_later(sending)
            return
        wanted = sorted(sending.left - sending.under_way.keys())
        written, here = [], []
        marker = marker_of(sending.markers, sending.epoch)
        for place in wanted[:MARKERS_PER_TURN]:
            leader = self._leader_of(place)
            if leader is None:
                written.append(place)
            elif leader == self._member.broker_id:
                here.append(place)
            elif leader != NO_LEADER:
                self._post(leader, sending, place)
        written += [place for place in here if self._write_here(sending, place, marker)]
        if len(wanted) > MARKERS_PER_TURN:
            self._scheduler.call_soon(partial(self._go_on, sending))
        self._written(sending, written)

    def _leader_of(self, place: TopicPartition) -> int | None:
        """Return the leader of a partition; None if it does not exist any more."""
        topic, index = place
        found = self._member.image.topic(topic)
        state = None if found is None else found.partitions.get(index)
        return None if state is None else state.leader

    def _written(self, sending: _Sending, places: Iterable[TopicPartition]) -> None:
        if self._sending.get(sending.name) is not sending:
            return
        places = list(places)
        if places:
            sending.retry_s = RETRY_S
        sending.left.difference_update(places)
        if (places or not sending.left) and self._coordinator.markers_written(sending.name, places):
            self._over(sending)
        elif not sending.left or sending.left - sending.under_way.keys():
            self._retry_later(sending)

    def _retry_later(self, sending: _Sending) -> None:
        self._coordinator.call_later(sending.timer, sending.retry_s, partial(self._try_again, sending))

    # Partitions that are led here.

    def _write_here(self, sending: _Sending, place: TopicPartition, marker: Marker) -> bool:
        """Write a marker; return whether nothing more is to be done for this partition."""
        try:
            end = self._coordinator.write_marker(*place, marker)
        except KafkaError as error:
            logger.info("transactional id %s: marker for %s-%d: %s", sending.name, *place, error)
            return is_done(error.code)
        if end is None:
            return True
        sending.under_way[place] = self._member.broker_id
        key = self._member.key(*place)
        self._member.when_safe(key, end - 1, SAFE_TIMEOUT_MS, partial(self._on_written_here, sending, place))
        return False

    def _on_written_here(self, sending: _Sending, place: TopicPartition, error: ErrorCode) -> None:
        if sending.under_way.get(place) == self._member.broker_id:
            del sending.under_way[place]
            self._written(sending, [place] if error is ErrorCode.NONE else [])

    # Partitions that others lead.

    def _post(self, leader: int, sending: _Sending, place: TopicPartition) -> None:
        """Put a marker to those that go to a broker next."""
        sending.under_way[place] = leader
        batches = self._outbox.setdefault(leader, [])
        if not batches and leader not in self._asked:
            self._scheduler.call_soon(partial(self._send, leader))
        if not batches or batches[-1][0] is not sending:
            batches.append((sending, []))
        batches[-1][1].append(place)

    def _send(self, leader: int) -> None:
        if leader in self._asked:
            return
        batches = self._due(leader)
        if not batches:
            return
        self._asked.add(leader)
        markers = [_encoded(sending, places) for sending, places in batches]
        request = apis.request(ApiKey.WRITE_TXN_MARKERS, _VERSION, markers=markers)
        self._member.send(leader, request, partial(self._on_answer, leader, batches))

    def _due(self, leader: int) -> list[_Batch]:
        """Take what waits for a broker, but for what has been ended, or sent to another one, in the meantime.

        Such a marker would end whatever transaction the producer has there by now.
        """
        batches = [
            (sending, [place for place in places if sending.under_way.get(place) == leader])
            for sending, places in self._outbox.pop(leader, [])
            if self._sending.get(sending.name) is sending
        ]
        return [(sending, places) for sending, places in batches if places]

    def _on_answer(self, leader: int, batches: list[_Batch], answer: Any) -> None:
        self._asked.discard(leader)
        errors: dict[tuple[int, str, int], ErrorCode] = {}
        for marker in answer.markers if answer is not None else ():
            for topic in marker.topics:
                for each in topic.partitions:
                    errors[marker.producer_id, topic.name, each.partition_index] = ErrorCode.of(each.error_code)
        for sending, places in batches:
            done = []
            for place in places:
                if sending.under_way.get(place) != leader:
                    continue  # sent to another one meanwhile
                del sending.under_way[place]
                error = errors.get((sending.markers.producer_id, *place), ErrorCode.REQUEST_TIMED_OUT)
                if is_done(error):
                    done.append(place)
                if error is not ErrorCode.NONE:
                    text = "transactional id %s: marker for %s-%d, sent to broker %d: %s"
                    logger.info(text, sending.name, *place, leader, error.name)
            self._written(sending, done)
        self._send(leader)

    def _on_image(self, _image: ClusterImage) -> None:
        """Stop waiting for brokers that no longer lead: they may be paused, and their answers long in coming."""
        for sending in self._sending.values():
            for place, leader in list(sending.under_way.items()):
                if self._leader_of(place) != leader:
                    del sending.under_way[place]
                    sending.retry_s = RETRY_S
                    self._coordinator.call_off(sending.timer)
                    self._retry_later(sending)


def _encoded(sending: _Sending, places: list[TopicPartition]) -> tuple[object, ...]:
    """Return a marker as a request has it, in the order of its fields."""
    markers = sending.markers
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return (
        markers.producer_id,
        markers.epoch,
        markers.committed,
        list(topics.items()),
        sending.epoch,
        markers.transaction_version,
    )


def marker_of(markers: Markers, coordinator_epoch: int) -> Marker:
    """Return the marker that goes into each partition."""
    version = markers.transaction_version
    return Marker(markers.producer_id, markers.epoch, markers.committed, coordinator_epoch, version)


def is_done(error: ErrorCode) -> bool:
    """Whether nothing more is to be done for a partition whose leader has answered with this."""
    return error is ErrorCode.NONE or error in _ENDED_ELSEWHERE
