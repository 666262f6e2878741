"""Sends the markers of decided transactions to the leaders of their partitions.

Theory of operation (Kafka's TransactionMarkerChannelManager): first the decision itself must be replicated, or a marker
could end a transaction in some partitions that the next coordinator ends differently in the rest. Then each partition's
leader gets its marker: this broker writes its own, up to a limit in the same turn of the event loop; others get
WriteTxnMarkers, one request at a time for each broker, with all markers collected for it meanwhile. A marker counts as
written when the high watermark of its partition covers it. Markers that failed, because the leader died or changed, or
too few replicas are in sync, are sent again, to the current leader; a second marker for an ended transaction changes
nothing. When all are written, the coordinator completes the transaction. A coordinator that is replaced drops its
unsent markers; the next one sends all markers again, with a higher epoch, by which partitions recognize markers of the
old one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.transaction_messages import Markers, TopicPartition
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.node.coordinated import SAFE_TIMEOUT_MS
from sparkonce.broker_lite.waiting import Promise, Waiting, begin_in_background
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
"""How many markers are written before other requests get a turn."""

RETRY_S: Final = 0.1
"""The delay before markers are sent again, in seconds; the leader may have changed by then."""

MAX_RETRY_S: Final = 1.0
"""The same after several failures, as when too few replicas are in sync."""

ENDING_WAIT_S: Final = 0.1
"""How long a request waits for the end of its id's last transaction, in seconds; Kafka's default of
`add.partitions.to.txn.retry.backoff.max.ms`."""

_VERSION: Final = 2
_ENDED_ELSEWHERE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


@dataclass(slots=True, eq=False)
class _Sending:
    """One decided transaction; `left` are partitions without marker, of which `under_way` are sent, with the broker."""

    markers: Markers
    epoch: int
    left: set[TopicPartition]
    under_way: dict[TopicPartition, int] = field(default_factory=dict)
    is_safe: bool = False
    is_waiting: bool = False
    retry_s: float = RETRY_S
    """Per transaction: a partition that accepts no markers for long must not delay the transactions in others."""

    @property
    def name(self) -> str:
        return self.markers.transactional_id

    @property
    def timer(self) -> str:
        return f"markers of {self.name}"


_Batch = tuple[_Sending, list[TopicPartition]]


class _Coordinator(Protocol):
    """The coordinator (`TransactionCoordinator`)."""

    @property
    def partitions(self) -> Coordinated:
        """The partitions of `__transaction_state` that this broker leads."""

    def write_marker(self, topic: str, index: int, marker: Marker) -> int | None:
        """Write a marker into a partition that is led here; return the offset that must be replicated, if any."""

    def markers_written(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> bool:
        """Note the partitions whose marker is written; returns whether the transaction is complete."""

    def call_later(self, what: str, delay_s: float, do: Callable[[], None]) -> None:
        """Call `do` once, after a delay; does nothing if `what` is already scheduled."""

    def call_off(self, what: str) -> None:
        """Cancel a scheduled call."""


class MarkerSender:
    """Sends markers to the leaders of their partitions."""

    def __init__(self, member: ClusterMember, scheduler: Scheduler, coordinator: _Coordinator) -> None:
        self._member = member
        self._scheduler = scheduler
        self._coordinator = coordinator
        self._sending: dict[str, _Sending] = {}
        self._outbox: dict[int, list[_Batch]] = {}
        """The markers to send to each broker once it has answered its last request."""
        self._waiting: dict[str, list[Promise[None]]] = {}
        """Requests that wait for the end of a transaction."""
        self._asked: set[int] = set()
        """The brokers with a request under way."""
        member.on_image.append(self._on_image)

    def write(self, markers: Markers) -> None:
        """Begin to write the markers of a decided transaction, unless that is under way."""
        if markers.transactional_id not in self._sending:
            epoch = self._coordinator.partitions.epoch_of(markers.transactional_id)
            sending = _Sending(markers, epoch, set(markers.partitions))
            self._sending[markers.transactional_id] = sending
            self._begin(self._send_once_decided(sending), sending)

    def forget(self, transactional_id: str) -> None:
        """Drop the markers of a transactional id: another broker coordinates it."""
        sending = self._sending.get(transactional_id)
        if sending is not None:
            self._over(sending)

    def _over(self, sending: _Sending) -> None:
        del self._sending[sending.name]
        self._coordinator.call_off(sending.timer)
        self._note_end(sending.name)

    def ended(self, transactional_id: str) -> Promise[None]:
        """Promise that no transaction of an id is ending here; `ENDING_WAIT_S` later in any case.

        Clients begin the next transaction as soon as the last one is decided. Without this short wait they would get an
        error, and retry much later than the few milliseconds that markers take. (Kafka 4's leaders wait so too.)
        """
        promise: Promise[None] = Promise()
        if transactional_id not in self._sending:
            promise.complete(None)
            return promise
        waiting = self._waiting.setdefault(transactional_id, [])
        if not waiting:
            self._scheduler.call_later(ENDING_WAIT_S, partial(self._note_end, transactional_id, waiting))
        waiting.append(promise)
        return promise

    def _note_end(self, transactional_id: str, waiting: list[Promise[None]] | None = None) -> None:
        """Resume the requests that wait for an end; with `waiting` only if it is still the current list."""
        found = self._waiting.get(transactional_id)
        if found is None or (waiting is not None and found is not waiting):
            return
        del self._waiting[transactional_id]
        for promise in found:
            self._scheduler.call_soon(partial(promise.complete, None))

    async def _send_once_decided(self, sending: _Sending) -> None:
        sending.is_waiting = True
        refusals = await self._coordinator.partitions.safe([sending.name])
        sending.is_waiting, sending.is_safe = False, not refusals
        if self._sending.get(sending.name) is sending:
            self._send_remaining(sending)

    def _try_again(self, sending: _Sending) -> None:
        sending.retry_s = min(2 * sending.retry_s, MAX_RETRY_S)
        self._go_on(sending)

    def _go_on(self, sending: _Sending) -> None:
        if self._sending.get(sending.name) is not sending or sending.is_waiting:
            return
        if sending.is_safe:
            self._send_remaining(sending)
        else:
            self._begin(self._send_once_decided(sending), sending)

    def _begin(self, coroutine: Waiting[None], sending: _Sending) -> None:
        begin_in_background(coroutine, f"transactional id {sending.name}: markers are not sent")

    def _send_remaining(self, sending: _Sending) -> None:
        """Send the markers that are neither written nor under way, within one turn's limit."""
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

    # Partitions led here.

    def _write_here(self, sending: _Sending, place: TopicPartition, marker: Marker) -> bool:
        """Write a marker; return whether the partition is done."""
        try:
            end = self._coordinator.write_marker(*place, marker)
        except KafkaError as error:
            logger.info("transactional id %s: marker for %s-%d: %s", sending.name, *place, error)
            return is_done(error.code)
        if end is None:
            return True
        sending.under_way[place] = self._member.broker_id
        self._begin(self._note_written_here(sending, place, end), sending)
        return False

    async def _note_written_here(self, sending: _Sending, place: TopicPartition, end: int) -> None:
        error = await self._member.safe(self._member.key(*place), end - 1, SAFE_TIMEOUT_MS)
        if sending.under_way.get(place) == self._member.broker_id:
            del sending.under_way[place]
            self._written(sending, [place] if error is ErrorCode.NONE else [])

    # Partitions led by others.

    def _post(self, leader: int, sending: _Sending, place: TopicPartition) -> None:
        """Add a marker to the next request to a broker."""
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
        begin_in_background(self._exchange(leader, batches), f"markers are not sent to broker {leader}")

    def _due(self, leader: int) -> list[_Batch]:
        """Take the waiting markers of a broker, except those that ended, or were sent to another one, meanwhile.

        Such a marker would end whatever transaction the producer has there by now.
        """
        batches = [
            (sending, [place for place in places if sending.under_way.get(place) == leader])
            for sending, places in self._outbox.pop(leader, [])
            if self._sending.get(sending.name) is sending
        ]
        return [(sending, places) for sending, places in batches if places]

    async def _exchange(self, leader: int, batches: list[_Batch]) -> None:
        """Send a broker its markers, and note which are written."""
        markers = [_encoded(sending, places) for sending, places in batches]
        answer = await self._member.ask(leader, apis.request(ApiKey.WRITE_TXN_MARKERS, _VERSION, markers=markers))
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
        """Stop waiting for brokers that no longer lead: they may be paused, and answer late."""
        for sending in self._sending.values():
            for place, leader in list(sending.under_way.items()):
                if self._leader_of(place) != leader:
                    del sending.under_way[place]
                    sending.retry_s = RETRY_S
                    self._coordinator.call_off(sending.timer)
                    self._retry_later(sending)


def _encoded(sending: _Sending, places: list[TopicPartition]) -> tuple[object, ...]:
    """Return a marker as the fields of a request, in their order."""
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
    """Whether a partition is done when its leader has answered with this error."""
    return error is ErrorCode.NONE or error in _ENDED_ELSEWHERE
