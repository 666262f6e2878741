"""The controller of a cluster, where this broker is it: decisions are in the log before they become visible.

Theory of operation: every broker keeps trying to become the controller; one succeeds, and its `Controller` decides. A
decision returns records, which are written to the log as one batch and made durable before the answer is sent. If
anything fails in between, this controller resigns: its image may be ahead of the log. Another broker continues from the
log, or this one does, in a new epoch; after a disk failure only after a backoff, which grows up to `MAX_BACKOFF_MS` and
is reset as soon as a decision has been written.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from sparkonce.broker_lite.cluster.coordination import Coordination
from sparkonce.broker_lite.cluster.metadata_log import MetadataLog, MetadataWriter
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.controller.records import BrokerChanged, Record
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MIN_BACKOFF_MS: Final = 50
MAX_BACKOFF_MS: Final = 5_000

Result = TypeVar("Result")
Decision = Callable[[Controller], tuple[list[Record], Result]]
"""An action of the controller: returns the records that follow, and the answer."""


class ControllerService:
    """The controller role on one broker; not thread-safe."""

    def __init__(
        self,
        broker_id: int,
        log: MetadataLog,
        coordination: Coordination,
        settings: ControllerSettings,
        max_log_bytes: int,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Be ready to lead, from the first `tick` on.

        Args:
            broker_id: who this is.
            log: where decisions are written.
            coordination: says who leads.
            settings: what the controller goes by.
            max_log_bytes: after so many bytes a new epoch begins, with a snapshot.
            now_ms: the time of day, for the records.
            monotonic_ms: a clock that never goes back, for leases.
        """
        self._broker_id = broker_id
        self._log = log
        self._coordination = coordination
        self._settings = settings
        self._max_log_bytes = max_log_bytes
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._controller: Controller | None = None
        self._writer: MetadataWriter | None = None
        self._snapshot_bytes = 0
        """What this epoch's log began with: however much that is, it does not make another epoch due."""
        self._backoff_ms = 0
        self._not_before_ms = 0
        self._told: set[str] = set()
        """The failures that were logged since a decision was last written."""
        self.on_written: list[Callable[[], None]] = []
        """Called after each batch."""

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._controller is not None

    def tick(self) -> None:
        """Try to lead; while leading, send a sign of life and fence dead brokers. To be called many times a second."""
        if self._controller is None:
            self._try_to_begin()
            return
        coordination = self._coordination
        try:
            coordination.beat(self._monotonic_ms(), self._now_ms())
            self.decide(self._look_around)
            overtaken = coordination.latest_epoch() != coordination.epoch
        except OSError as error:
            self._back_off(f"broker {self._broker_id} cannot show that it is the controller: {error}")
            self._end("it cannot go on")
        except KafkaError:  # it has resigned, and `_write` has logged why
            return
        else:
            if overtaken and self.active:
                self._end("another broker has taken over")

    def decide(self, decision: Decision[Result]) -> Result:
        """Let the controller decide; when this returns, its records are durable.

        Raises:
            KafkaError: NOT_CONTROLLER if this broker is not the controller, or has just ceased to be, in which case
                what it decided may hold or not; and what the decision raises.
        """
        controller = self._controller
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"broker {self._broker_id} is not the controller")
        base_offset = controller.image.next_offset
        try:
            records, result = decision(controller)
        except KafkaError:
            assert controller.image.next_offset == base_offset, "a decision that is refused changes nothing"
            raise
        except BaseException:
            self._end("it made a mistake")
            raise
        if records:
            self._write(records, base_offset)
        return result

    def close(self) -> None:
        """Let another broker lead."""
        if self.active:
            self._end("it stops")

    def _try_to_begin(self) -> None:
        coordination = self._coordination
        if self._monotonic_ms() < self._not_before_ms:
            return
        try:
            if not coordination.try_lead(self._monotonic_ms()):
                return
            image, self._writer = self._log.begin(coordination.epoch, self._broker_id, self._now_ms())
        except OSError as error:
            self._back_off(f"broker {self._broker_id} cannot be the controller: {error}")
            coordination.resign()
            return
        self._snapshot_bytes = self._writer.size
        self._controller = Controller(image, self._settings, self._monotonic_ms())
        logger.info("broker %d is the controller, in epoch %d", self._broker_id, coordination.epoch)
        self._written()
        with contextlib.suppress(KafkaError):  # it has resigned, and `_write` has logged why
            self.decide(lambda controller: (controller.begin(), None))

    def _back_off(self, failure: str) -> None:
        if failure not in self._told:
            self._told.add(failure)
            logger.error("%s; trying again after some time, if no other broker is it by then", failure)
        self._backoff_ms = min(2 * self._backoff_ms, MAX_BACKOFF_MS) or MIN_BACKOFF_MS
        self._not_before_ms = self._monotonic_ms() + self._backoff_ms

    def _look_around(self, controller: Controller) -> tuple[list[Record], None]:
        here = [each.broker_id for each in controller.image.brokers.values() if not each.fenced]
        dead = [broker_id for broker_id in here if self._coordination.is_gone(broker_id)]
        if dead:
            logger.info("broker %s is dead: others lead in its place", ", ".join(map(str, dead)))
        return controller.fence(dead) + controller.tick(self._monotonic_ms()), None

    def _write(self, records: list[Record], base_offset: int) -> None:
        assert self._writer is not None
        try:
            self._writer.append(records, base_offset, self._now_ms())
            latest = self._coordination.latest_epoch()
        except OSError as error:
            self._back_off(f"broker {self._broker_id} cannot write the controller's log: {error}")
            self._end("its log cannot be written")
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"the controller's log cannot be written: {error}") from error
        if latest != self._coordination.epoch:
            self._end("another broker has taken over")
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"controller epoch {latest} has begun")
        for record in records:
            if isinstance(record, BrokerChanged) and not record.shutting_down:
                what = "fenced: it leads nothing, and is in sync nowhere" if record.fenced else "there, and may lead"
                logger.info("broker %d is %s", record.broker_id, what)
        self._backoff_ms, self._told = 0, set()
        if self._writer.size - self._snapshot_bytes > self._max_log_bytes:
            self._end("its log is long: the next epoch begins with a snapshot")
        self._written()

    def _written(self) -> None:
        for listener in self.on_written:
            listener()

    def _end(self, reason: str) -> None:
        logger.info("broker %d is not the controller any more: %s", self._broker_id, reason)
        self._controller = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._coordination.resign()
