"""A broker's lifecycle in its cluster: registration, heartbeats, controlled shutdown.

As Kafka's BrokerLifecycleManager. The broker's epoch is stored with its data: a broker that stopped cleanly sends it
when it registers again, and may then lead at once, as its logs are complete. A broker whose log directory has failed
requests in its heartbeats to be fenced, until it is restarted: others lead in its place.

The epoch is an offset of the controller's log, so one that is no higher than the stored one shows that the log has gone
back, as when the cluster got an older copy of it, or has begun anew with the same id. So does a log without the stored
epoch's registration, or without the position that the broker had read up to. This is checked first: each registration
appends to the log, so a log that has gone back would reach the stored epoch after some starts.
"""

from __future__ import annotations

import enum
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparkonce.broker_lite.controller.image import ClusterImage, LogPosition
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, NO_LEADER
from sparkonce.broker_lite.log.checkpoints import BROKER_EPOCH
from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.scheduling import Scheduler, Timer
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

RETRY_MS = 20
"""The interval of requests while a broker waits for a result."""
MAX_RETRY_MS = 1_000
"""The longest interval after repeated rejections."""
BEHIND_MS = 3_000
"""How long the known log may lack this broker's last registration, as a server of ZooKeeper may lag."""

logger = logging.getLogger(__name__)


def _nothing() -> None:
    """Do nothing."""


def _always() -> bool:
    return True


class State(enum.Enum):
    """The state of a broker in its cluster."""

    REGISTERING = enum.auto()
    """It has no epoch yet, or needs a new one."""
    ALIVE = enum.auto()
    STOPPING = enum.auto()
    """It has requested a controlled shutdown."""
    STOPPED = enum.auto()


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a broker in one start."""

    broker_id: int
    cluster_id: str
    incarnation: uuid.UUID
    listeners: tuple[tuple[str, str, int], ...]
    """Name, host and port of each; the first is the one for other brokers."""


class Lifecycle:
    """Registers one broker, and sends its heartbeats."""

    def __init__(
        self,
        identity: Identity,
        storage: Storage,
        log_dir: str,
        stopped_cleanly: bool,
        heartbeat_interval_ms: int,
        scheduler: Scheduler,
        send_to_controller: Callable[[Any, Callable[[Any], None]], None],
        image: Callable[[], ClusterImage],
        failure: Callable[[], OSError | None] = _nothing,
        in_session: Callable[[], bool] = _always,
        followed_to: LogPosition | None = None,
    ) -> None:
        """Prepare to register.

        `stopped_cleanly`: how the former start of this broker ended; `failure`: the permanent failure of its log
        directory; `in_session`: whether the cluster counts this broker as alive: it sends no requests otherwise. The
        former start had read the controller's log up to `followed_to`, if that is known.
        """
        self._identity = identity
        self._storage = storage
        self._path = f"{log_dir}/{BROKER_EPOCH}"
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._scheduler = scheduler
        self._send = send_to_controller
        self._image = image
        self._failure = failure
        self._in_session = in_session
        self._has_failed = False
        self._refused: ErrorCode | None = None
        self._retry_ms = RETRY_MS
        self._behind_ms = 0
        self._former_epoch = self._read_epoch()
        self._followed_to = None if self._former_epoch == NO_BROKER_EPOCH else followed_to
        self._last_epoch = self._former_epoch if stopped_cleanly else NO_BROKER_EPOCH
        self._timer: Timer | None = None
        self._asking = False
        self.state = State.REGISTERING
        self.broker_epoch = NO_BROKER_EPOCH
        self.fenced = True
        self.on_alive: Callable[[], None] = _nothing
        """Called once, when the cluster has accepted the broker, or `refusal` says why it does not join."""
        self.refusal = ""
        self._on_stopped: Callable[[], None] = _nothing

    @property
    def registered(self) -> bool:
        """Whether the applied part of the controller's log includes this start of the broker, later than all others."""
        found = self._image().brokers.get(self._identity.broker_id)
        if found is None or found.incarnation != self._identity.incarnation:
            return False
        return found.broker_epoch > self._former_epoch

    def start(self) -> None:
        """Register as soon as there is a controller."""
        self._again_in(0)

    def stop(self, then: Callable[[], None]) -> None:
        """Request a controlled shutdown, and call back when this broker leads no partitions."""
        self._on_stopped = then
        if self.broker_epoch == NO_BROKER_EPOCH:
            self._stopped()
            return
        self.state = State.STOPPING
        self._again_in(0)

    def close(self) -> None:
        """Send no more requests."""
        self.state = State.STOPPED
        if self._timer is not None:
            self._timer.cancel()

    def _again_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(delay_ms / 1000, self._ask)

    def _ask(self) -> None:
        if self._asking or self.state is State.STOPPED:
            return
        if not self._in_session():
            self._out_of_session()
            return
        if self.broker_epoch == NO_BROKER_EPOCH and self._is_behind():
            self._wait_for_log()
            return
        self._asking = True
        if self.state is State.REGISTERING:
            self._send(self._registration(), self._answered_registration)
        else:
            self._send(self._heartbeat(), self._answered_heartbeat)

    def _out_of_session(self) -> None:
        """Wait for a session; a broker without one leads nothing, and need not request its shutdown."""
        if self.state is State.STOPPING:
            self._stopped()
        else:
            self._again_in(RETRY_MS)

    def _is_behind(self) -> bool:
        """Whether the known log lacks this broker's last registration, or its last known position."""
        image = self._image()
        if image.broker_epoch(self._identity.broker_id) < self._former_epoch:
            return True
        return self._followed_to is not None and not image.contains(self._followed_to)

    def _wait_for_log(self) -> None:
        """Wait until more of the log is known; if there is a controller, not for long."""
        image = self._image()
        if image.controller_id != NO_LEADER:
            self._behind_ms += RETRY_MS
        if self._behind_ms > BEHIND_MS:
            self._refuse(image.next_offset)
        else:
            self._again_in(RETRY_MS)

    def _registration(self) -> Any:
        listeners = [
            apis.request_class(ApiKey.BROKER_REGISTRATION).Listener(
                version=REGISTRATION_VERSION, name=name, host=host, port=port, security_protocol=0
            )
            for name, host, port in self._identity.listeners
        ]
        return apis.request(
            ApiKey.BROKER_REGISTRATION,
            REGISTRATION_VERSION,
            broker_id=self._identity.broker_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._identity.incarnation,
            listeners=listeners,
            features=[],
            rack=None,
            is_migrating_zk_broker=False,
            log_dirs=[],
            previous_broker_epoch=self._last_epoch,
        )

    def _answered_registration(self, answer: Any) -> None:
        self._asking = False
        if self.state is not State.REGISTERING:
            self._again_in(0)
            return
        if answer is None or answer.error_code != ErrorCode.NONE:
            self._again_in(RETRY_MS if answer is None else self._refused_registration(ErrorCode.of(answer.error_code)))
            return
        if answer.broker_epoch <= self._former_epoch:
            self._refuse(answer.broker_epoch)
            return
        self._refused, self._retry_ms = None, RETRY_MS
        self.broker_epoch = self._last_epoch = answer.broker_epoch
        self._write_epoch(answer.broker_epoch)
        self.state = State.ALIVE
        self._again_in(0)

    def _refuse(self, epoch: int) -> None:
        """Do not join a cluster that has lost a part of its log: logs of topics unknown to it would be renamed."""
        known, followed = str(self._former_epoch), self._followed_to
        if followed is not None:
            known = f"{followed.offset} in controller epoch {followed.controller_epoch}"
        self.refusal = (
            f"the log of the cluster has gone back: it is at {epoch} in controller epoch "
            f"{self._image().controller_epoch}, and is not the one that this broker followed to {known}. Stop all "
            "brokers, and restore the cluster's latest metadata. To go on without what is lost, write -1 into "
            f"{self._path}: topics that the cluster does not know are put aside"
        )
        self.close()
        self.on_alive()

    def _refused_registration(self, code: ErrorCode) -> int:
        """Log a rejection, unless it is the same as before; return after how many milliseconds to retry."""
        if code is not self._refused:
            logger.warning("cannot register: %s; asking again", code.name)
            self._refused, self._retry_ms = code, RETRY_MS
        delay_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, MAX_RETRY_MS)
        return delay_ms

    def _has_directory_failed(self) -> bool:
        failure = self._failure()
        if failure is not None and not self._has_failed:
            self._has_failed = True
            logger.error(
                "the log directory has failed (%s): this broker asks to be fenced, so that others lead in its place; "
                "see to the disk, then start it again",
                failure,
            )
        return self._has_failed

    def _heartbeat(self) -> Any:
        return apis.request(
            ApiKey.BROKER_HEARTBEAT,
            HEARTBEAT_VERSION,
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._image().next_offset,
            want_fence=self._has_directory_failed(),
            want_shut_down=self.state is State.STOPPING,
        )

    def _answered_heartbeat(self, answer: Any) -> None:
        self._asking = False
        if self.state is State.STOPPED:
            return
        if answer is None:
            self._again_in(RETRY_MS)
        elif answer.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self._lost_epoch()
        elif answer.error_code != ErrorCode.NONE:
            self._again_in(RETRY_MS)
        elif self.state is State.STOPPING:
            if answer.should_shut_down:
                self._stopped()
            else:
                self._again_in(RETRY_MS)
        else:
            self._heard(answer.is_fenced)

    def _heard(self, fenced: bool) -> None:
        if fenced:
            self._again_in(self._heartbeat_interval_ms if self._has_failed else RETRY_MS)
        else:
            self._again_in(self._heartbeat_interval_ms)
            if self.fenced:
                self.on_alive()
                self.on_alive = _nothing
        self.fenced = fenced

    def _lost_epoch(self) -> None:
        """Register again: the controller has another start of this broker, or none."""
        if self.state is State.STOPPING:
            self._stopped()
            return
        self.state = State.REGISTERING
        self.fenced = True
        self._again_in(RETRY_MS)

    def _stopped(self) -> None:
        self.close()
        then, self._on_stopped = self._on_stopped, _nothing
        then()

    def _read_epoch(self) -> int:
        try:
            return int(self._storage.read(self._path))
        except (FileNotFoundError, ValueError):
            return NO_BROKER_EPOCH

    def _write_epoch(self, epoch: int) -> None:
        try:
            self._storage.write(self._path, b"%d\n" % epoch, durable=True)
        except OSError as error:
            logger.warning("%s: %s; after the next start this broker counts as not stopped cleanly", self._path, error)


REGISTRATION_VERSION = 3
HEARTBEAT_VERSION = 0
