"""One broker as a member of its cluster: it follows the controller's decisions, and notifies its listeners.

A standalone broker is a cluster of one. Its controller is in the same process, and passes on its decisions
(`StandaloneController`): there is no log to follow, and there are no timers.

Theory of operation: after each reported change, or many times a second if changes are not reported (`Looks`),
the broker reads the new part of the controller's log, batch by batch. After
each batch the image listeners are called, then its replicas take their new roles, and the event listeners are called
with those. Roles wait until this start of the broker is registered: by that the cluster learns that others may lead
the partitions of its former start.

A broker outside its session (`Coordination.in_session`) leads nothing: others may have been elected in its
place, without its knowledge. When it is back, it takes its current roles in the log.

Requests to the controller are kept until the current controller answers: if it dies or resigns, they are sent to the
next one. So a request may be executed twice, or executed and answered with an error, as clients of a Kafka cluster
have to expect as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkonce.broker_lite.cluster.acknowledgements import Acknowledgements
from sparkonce.broker_lite.cluster.looks import Looks
from sparkonce.broker_lite.controller.image import ClusterImage, LogPosition, PartitionKey
from sparkonce.broker_lite.controller.partition_state import NO_BROKER_EPOCH, NO_LEADER
from sparkonce.broker_lite.replication.replica_log import ReplicaLog
from sparkonce.broker_lite.replication.replicas import Event, Replicas, ReplicationSettings
from sparkonce.broker_lite.scheduling import Scheduler
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import uuid

    from sparkonce.broker_lite.cluster.in_sync import InSyncProposals
    from sparkonce.broker_lite.cluster.roles import Answer, BrokerRole, ControllerRole, Peers, Surroundings
    from sparkonce.broker_lite.controller.records import MetadataRecord

PROPOSALS_EVERY: Final = 3
"""Leaders' proposals are sent after every third check, those of many partitions together; at rest, after each."""
FAILOVER_WAIT_MS: Final = 400
"""How long a request for leaders waits for the controller to notice a death, which takes it a poll or two."""
CONTROLLER_TIMEOUT_MS: Final = 30_000
"""The timeout of a request to the controller (`request.timeout.ms` in Kafka)."""

logger = logging.getLogger(__name__)


def _nothing() -> None:
    """Do nothing."""


class ClusterMember:
    """A broker's view of its cluster; used from the broker's only thread."""

    def __init__(
        self,
        broker_id: int,
        log_of: Callable[[PartitionKey], ReplicaLog],
        settings: ReplicationSettings,
        peers: Peers | None,
        scheduler: Scheduler,
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Begin with an empty cluster: see `join`.

        Args:
            broker_id: this broker's id.
            log_of: returns the log of a partition with a replica on this broker; creates it if needed.
            settings: the settings of replication.
            peers: sends requests to brokers, see `connect`; None if there are no others.
            scheduler: the event loop.
            monotonic_ms: a monotonic clock.
        """
        self.broker_id = broker_id
        self.image = ClusterImage()
        """The cluster as far as this broker has applied the controller's log."""
        self.safe_position: LogPosition | None = None
        """The position up to which that log is committed for certain.

        Its last batch may not be on the disk yet, as a file can be read while its controller flushes it: it is
        committed once there is another one.
        """
        self.replicas = Replicas(broker_id, log_of, settings)
        self.on_image: list[Callable[[ClusterImage], None]] = []
        """Called after each batch of the log, before the events of `listen`."""
        self.acknowledgements = Acknowledgements(self.replicas, scheduler, monotonic_ms)
        self.safe = self.acknowledgements.safe
        """Promise that a partition which this broker leads is replicated up to an offset: see `Acknowledgements`."""
        self._listeners: list[Callable[[Event], None]] = [self.acknowledgements.on_event]
        self._peers = peers
        self._scheduler = scheduler
        self._monotonic_ms = monotonic_ms
        self._lag_look_ms = settings.replica_lag_time_max_ms // 2
        self._looked_for_lag_ms = monotonic_ms()
        self._waiting: list[_ToController] = []
        self._after_failover: list[tuple[int, Promise[None]]] = []
        self._proposals: InSyncProposals | None = None
        self._looks = Looks(self._look, self._may_rest, scheduler, monotonic_ms)
        self.look_soon = self._looks.soon
        """Check the cluster soon, and often for a while: something has changed."""
        self.on_look: Callable[[], None] = _nothing
        """Called after each check, at least several times a second."""
        self._looked = 0
        self._membership: Membership | None = None
        self._in_session = True
        self._has_lapsed = False
        """Whether anything since the last check found this broker outside its session."""

    def connect(self, peers: Peers) -> None:
        """Set the network that reaches other brokers."""
        self._peers = peers

    def join(self, membership: Membership) -> None:
        """Begin to follow the log, and to compete for writing it; `lifecycle.start` then registers this broker."""
        from sparkonce.broker_lite.cluster.in_sync import InSyncProposals  # a standalone broker never proposes

        self._membership = membership
        self.replicas.in_session = partial(self._is_in_session, membership.coordination)
        self.replicas.on_proposal = membership.coordination.on_report = self.look_soon
        self._proposals = InSyncProposals(
            self.replicas, self.send_to_controller, self.poll, self.publish, self._monotonic_ms
        )
        self._looks.begin()

    def be_standalone(self, membership: Membership, image: ClusterImage) -> None:
        """Be a cluster of one, whose controller passes on its decisions; take all roles of this image."""
        self._membership, self.image = membership, image
        self.take_roles()

    def leave(self) -> None:
        """Stop following the log, and resign if this broker is the controller."""
        self._looks.end()
        membership, self._membership = self._membership, None
        if membership is not None:
            membership.lifecycle.close()
            membership.controller.close()
            membership.coordination.close()
        self.acknowledgements.close()

    @property
    def registered(self) -> bool:
        """Whether the image has this start of the broker, and so everything before it in the log."""
        return self._membership is not None and self._membership.lifecycle.registered

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker; NO_BROKER_EPOCH before it has registered."""
        return NO_BROKER_EPOCH if self._membership is None else self._membership.lifecycle.broker_epoch

    @property
    def controller(self) -> ControllerRole:
        """The controller's interface on this broker, which may be the controller or not."""
        assert self._membership is not None, "the broker has joined"
        return self._membership.controller

    def listen(self, callback: Callable[[Event], None]) -> None:
        """Add a listener; it is called with each event after it took effect."""
        self._listeners.append(callback)

    def publish(self, events: Iterable[Event]) -> None:
        """Call all listeners with events, in order."""
        for event in events:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception:  # an error about one partition must not hide the changes of the others
                    logger.exception("what follows from %s is not done", event)

    def key(self, topic: str, index: int) -> PartitionKey:
        """Return the key of a partition in the image. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.image.topic(topic)
        if found is None or index not in found.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {topic}-{index}")
        return found.topic_id, index

    # Requests.

    def send(self, broker_id: int, request: Any, then: Answer) -> None:
        """Send a request to a broker, or to this one; never answers before it returns."""
        assert self._peers is not None, "a standalone broker asks nobody"
        self._peers.send(broker_id, request, then)

    def ask(self, broker_id: int, request: Any) -> Promise[Any]:
        """Promise another broker's answer: None if it does not answer."""
        promise: Promise[Any] = Promise()
        self.send(broker_id, request, promise.complete)
        return promise

    def ask_controller(self, request: Any, timeout_ms: int = CONTROLLER_TIMEOUT_MS) -> Promise[Any]:
        """Promise the controller's answer: None after `timeout_ms`."""
        promise: Promise[Any] = Promise()
        self.send_to_controller(request, promise.complete, timeout_ms)
        return promise

    def send_to_controller(self, request: Any, then: Answer, timeout_ms: int = CONTROLLER_TIMEOUT_MS) -> None:
        """Send a request to the current controller; the answer is None after `timeout_ms`."""
        waiting = _ToController(request, then, self._monotonic_ms() + timeout_ms)
        self._waiting.append(waiting)
        self._send_waiting(waiting)

    def _send_waiting(self, waiting: _ToController) -> None:
        waiting.controller_epoch = self.image.controller_epoch
        epoch = waiting.controller_epoch
        if self.image.controller_id != NO_LEADER:
            waiting.under_way = True
            self.send(self.image.controller_id, waiting.request, lambda answer: self._answered(waiting, epoch, answer))
        else:
            self.look_soon()

    def _answered(self, waiting: _ToController, epoch: int, answer: Any) -> None:
        if waiting not in self._waiting or waiting.controller_epoch != epoch:
            return  # timed out, or sent to the next controller by now
        if answer is None or answer.error_code == ErrorCode.NOT_CONTROLLER:
            waiting.under_way = False  # until the next check
            self.look_soon()
            return
        self._waiting.remove(waiting)
        waiting.then(answer)

    def _send_again(self) -> None:
        """Send the requests that the current controller does not have yet; drop those that have timed out."""
        now_ms = self._monotonic_ms()
        for waiting in list(self._waiting):
            if now_ms >= waiting.deadline_ms:
                self._waiting.remove(waiting)
                waiting.then(None)
            elif not waiting.under_way or waiting.controller_epoch != self.image.controller_epoch:
                self._send_waiting(waiting)

    # Deaths that the controller has not noticed yet.

    def is_gone(self, broker_id: int) -> bool:
        """Whether a broker is known to be dead, whatever the log says."""
        return self._membership is not None and self._membership.coordination.is_gone(broker_id)

    def is_announced(self, broker_id: int, incarnation: uuid.UUID) -> bool:
        """Whether this start of a broker is known to be alive: then all others of that id are dead."""
        return self._membership is not None and self._membership.coordination.is_announced(broker_id, incarnation)

    def misses_a_death(self) -> bool:
        """Whether a broker is dead that the log still has as alive."""
        self.poll()
        return any(
            not each.fenced and each.broker_id != self.broker_id and self.is_gone(each.broker_id)
            for each in self.image.brokers.values()
        )

    def failover(self) -> Promise[None]:
        """Promise that the log has new leaders in place of dead brokers; `FAILOVER_WAIT_MS` later in any case.

        A client that has just lost its connection to a leader asks at once for the new one. If the answer were still
        the dead one, it would ask again only a second later.
        """
        promise: Promise[None] = Promise()
        if self.misses_a_death():
            self._after_failover.append((self._monotonic_ms() + FAILOVER_WAIT_MS, promise))
            self.look_soon()
        else:
            promise.complete(None)
        return promise

    def _end_failover(self) -> None:
        now_ms = self._monotonic_ms()
        is_over = not self.misses_a_death()
        waiting, self._after_failover = self._after_failover, []
        for deadline_ms, promise in waiting:
            if is_over or now_ms >= deadline_ms:
                promise.complete(None)
            else:
                self._after_failover.append((deadline_ms, promise))

    # The log.

    def poll(self) -> None:
        """Apply the new part of the controller's log."""
        if self._membership is None:
            return
        try:
            steps = self._membership.coordination.poll()
        except OSError as error:
            logger.warning("the controller's log cannot be read: %s", error)
            return
        for step in steps:
            if isinstance(step, ClusterImage):
                self.image, self.safe_position = step, step.position
                if step is not steps[-1]:
                    continue  # its controller's election belongs to it: in between there is no valid position
            else:
                self._apply(step)
            try:
                self.notify()
                self.take_roles()
            except Exception:  # the log has been read already: the rest must be applied, too
                logger.exception("what follows from the controller's log up to %d is not done", self.image.next_offset)
        if steps:
            self.look_soon()

    def _apply(self, records: Iterable[MetadataRecord]) -> None:
        """Apply records to the image; one that cannot be applied is ignored, as by Kafka's MetadataBatchLoader."""
        image = self.image
        before, terms = image.position, image.terms
        for offset, record in enumerate(records, image.next_offset):
            try:
                image.apply(record)
            except Exception:
                logger.exception("%s, offset %d of the controller's log, is ignored", record, offset)
            image.next_offset = offset + 1
        # The election is written together with the snapshot, and flushed before any other broker can read it.
        self.safe_position = before if image.terms == terms else image.position

    def take_roles(self) -> None:
        """Let the replicas take their roles in the image, if this broker may have any.

        Outside its session it has none: the effects of a role would fail then, and not be retried.
        """
        if self.registered and self._in_session:
            self.publish(self.replicas.apply(self.image, self._monotonic_ms()))

    def notify(self) -> None:
        """Call the listeners of `on_image`, before this broker's roles change."""
        for listener in self.on_image:
            try:
                listener(self.image)
            except (KafkaError, OSError) as error:
                logger.error(
                    "what the controller has decided cannot be done here; after its next word again: %s", error
                )
            except Exception:  # the log has been read already: the listeners after this one must be called, too
                logger.exception("what the controller has decided is not done; after its next word again")

    def _is_in_session(self, coordination: Surroundings) -> bool:
        if coordination.in_session:
            return True
        self._has_lapsed = True
        return False

    def _look_at_session(self, in_session: bool) -> None:
        if in_session == self._in_session:
            return
        self._in_session = in_session
        if not in_session:
            self.publish(self.replicas.step_down())
        else:
            self.take_roles()

    def poll_soon(self) -> None:
        """Apply the new part of the log in the next turn of the event loop."""
        self._scheduler.call_soon(self.poll)

    def _may_rest(self) -> bool:
        """Whether everything waited for is reported (`look_soon`)."""
        membership = self._membership
        if membership is None or self._after_failover or not self.registered:
            return False
        if any(not each.under_way for each in self._waiting):
            return False
        return membership.coordination.may_rest and membership.controller.may_rest

    def _look(self) -> None:
        membership = self._membership
        if membership is None:
            return
        membership.controller.tick()
        self.poll()
        if self._has_lapsed:  # it may be over by now, but operations that failed meanwhile must be retried
            self._has_lapsed = False
            self._look_at_session(False)
        self._look_at_session(membership.coordination.in_session)
        if self._waiting:
            self._send_again()
        if self._after_failover:
            self._end_failover()
        self._looked += 1
        if self._looked % PROPOSALS_EVERY == 0 or self._looks.rests:
            self._look_at_replicas()
        self.on_look()

    def _look_at_replicas(self) -> None:
        now_ms = self._monotonic_ms()
        if now_ms - self._looked_for_lag_ms >= self._lag_look_ms:
            self._looked_for_lag_ms = now_ms
            self.publish(self.replicas.tick(now_ms))
        if self.broker_epoch != NO_BROKER_EPOCH and self._proposals is not None:
            self._proposals.send(self.broker_id, self.broker_epoch)


class Membership(NamedTuple):
    """The parts of a broker's membership."""

    coordination: Surroundings
    controller: ControllerRole
    lifecycle: BrokerRole


@dataclass(slots=True, eq=False)
class _ToController:
    """A request without an answer from the controller yet."""

    request: Any
    then: Answer
    deadline_ms: int
    controller_epoch: int = -1
    under_way: bool = False
