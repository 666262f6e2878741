"""The controller role of this broker: decisions are in the log before they become visible.

Theory of operation: every broker keeps trying to become the controller; one succeeds, and its `Controller` decides. A
decision returns records, which are appended to the log as a whole, and the next one builds on them. Answers wait until
all earlier decisions are durable (`written`), errors too, as they may depend on them. After any failure in
between, this controller resigns: its image may be ahead of the log. Another broker continues from the log, or this one
does, in a new epoch; after a failed write only after a backoff, which grows up to `MAX_BACKOFF_MS` and is reset as
soon as a decision is durable.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Final, TypeVar

from sparkonce.broker_lite.cluster.coordination import Coordination, OvertakenError
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import BrokerChanged, MetadataRecord
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MIN_BACKOFF_MS: Final = 50
MAX_BACKOFF_MS: Final = 5_000

Result = TypeVar("Result")
Decision = Callable[[Controller], tuple[list[MetadataRecord], Result]]
"""An action of the controller: returns the records that follow, and the answer."""


class ControllerService:
    """The controller role on one broker; not thread-safe."""

    def __init__(
        self,
        broker_id: int,
        coordination: Coordination,
        settings: ControllerSettings,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """Prepare to lead, from the first `tick` on.

        Args:
            broker_id: this broker's id.
            coordination: elects the controller, and stores its decisions.
            settings: the controller's settings.
            now_ms: the time of day, for the records.
            monotonic_ms: a monotonic clock, for leases.
        """
        self._broker_id = broker_id
        self._coordination = coordination
        self._settings = settings
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._controller: Controller | None = None
        self._waiting: deque[tuple[int, Promise[bool]]] = deque()
        """Answers, with the offsets up to which the log must be durable before they are sent."""
        self._backoff_ms = 0
        self._not_before_ms = 0
        self._logged: set[str] = set()
        """The failures logged since a decision was last written."""
        self.on_begin: list[Callable[[ClusterImage], None]] = []
        """Called with the cluster as the log has it, whenever this broker becomes the controller."""
        coordination.on_change.append(self._written)

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._controller is not None

    @property
    def epoch(self) -> int:
        """The epoch in which this broker is, or last was, the controller; -1 if never."""
        return self._coordination.epoch

    def tick(self) -> None:
        """Try to lead; while leading, send a sign of life and fence dead brokers. To be called many times a second."""
        if self.active and self._coordination.is_log_long:
            self._end("its log is long: the next epoch begins with a snapshot")
        if self._controller is None:
            self._try_to_begin()
            return
        coordination = self._coordination
        try:
            overtaken = not coordination.keep_leading(self._monotonic_ms(), self._now_ms())
        except OSError as error:
            self._back_off(f"broker {self._broker_id} cannot go on as the controller: {error}")
            self._end("it cannot go on")
            return
        if overtaken:
            self._end("another broker has taken over")
            return
        with contextlib.suppress(KafkaError):  # it has resigned, and `_append` has logged why
            self.decide(self._look_around)

    @property
    def may_rest(self) -> bool:
        """See `ControllerRole`: not if the next attempt to lead is due soon, or a broker's heartbeat is overdue."""
        now_ms = self._monotonic_ms()
        return now_ms >= self._not_before_ms and (
            self._controller is None or not self._controller.misses_heartbeats(now_ms)
        )

    def decide(self, decision: Decision[Result]) -> Result:
        """Let the controller decide; the decision is valid once it is durable: see `written`.

        Raises:
            KafkaError: NOT_CONTROLLER if this broker is not the controller, or has just resigned, in which case the
                outcome of the decision is unknown; and the decision's errors.
        """
        controller = self._controller
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"broker {self._broker_id} is not the controller")
        base_offset = controller.image.next_offset
        try:
            records, result = decision(controller)
        except BaseException as error:
            half_done = controller.image.next_offset != base_offset
            if half_done or not isinstance(error, KafkaError):
                self._end("it made a mistake")
            if half_done and isinstance(error, KafkaError):
                raise AssertionError("a decision that is refused changes nothing") from error
            raise
        if records:
            self._append(records, base_offset)
        return result

    @property
    def is_written(self) -> bool:
        """Whether all decisions of this controller are durable."""
        controller = self._controller
        return controller is not None and self._coordination.durable_offset >= controller.image.next_offset

    def check_has_others(self) -> None:
        """Do nothing: there may be other brokers."""

    def written(self) -> Promise[bool]:
        """Promise that all decisions so far are durable; False if this controller resigns before."""
        assert self._controller is not None, "this broker is the controller"
        promise: Promise[bool] = Promise()
        if self.is_written:
            promise.complete(True)
        else:
            self._waiting.append((self._controller.image.next_offset, promise))
        return promise

    def prepare(
        self, _name: str, _topic_id: uuid.UUID, _indexes: Collection[int], _settings: Mapping[str, str]
    ) -> Generator[int, None, None]:
        """Do nothing: only the decision shows which brokers get a partition."""
        yield from ()

    def end_preparation(self, _name: str, _topic_id: uuid.UUID) -> None:
        """Do nothing, as nothing was prepared."""

    def decide_together(self, decisions: Sequence[Decision[object]]) -> Generator[int, None, None]:
        """Let the controller decide several things in one write of its log; as `decide`."""

        def all_of_them(controller: Controller) -> tuple[list[MetadataRecord], None]:
            return [record for decision in decisions for record in decision(controller)[0]], None

        self.decide(all_of_them)
        yield from ()

    def settle(self) -> None:
        """Do nothing: decisions are applied as they are read from the log."""

    def close(self) -> None:
        """Resign."""
        if self.active:
            self._end("it stops")

    def _try_to_begin(self) -> None:
        coordination = self._coordination
        if self._monotonic_ms() < self._not_before_ms:
            return
        try:
            image = coordination.lead(self._monotonic_ms(), self._now_ms())
        except OSError as error:
            self._back_off(f"broker {self._broker_id} cannot be the controller: {error}")
            coordination.resign()
            return
        if image is None:
            return
        self._controller = Controller(image, self._settings, self._monotonic_ms())
        logger.info("broker %d is the controller, in epoch %d", self._broker_id, coordination.epoch)
        for begin in self.on_begin:
            begin(image)
        with contextlib.suppress(KafkaError):  # it has resigned, and `_append` has logged why
            self.decide(lambda controller: (controller.begin(), None))

    def _back_off(self, failure: str) -> None:
        if failure not in self._logged:
            self._logged.add(failure)
            logger.error("%s; trying again after some time, if no other broker is it by then", failure)
        self._backoff_ms = min(2 * self._backoff_ms, MAX_BACKOFF_MS) or MIN_BACKOFF_MS
        self._not_before_ms = self._monotonic_ms() + self._backoff_ms

    def _look_around(self, controller: Controller) -> tuple[list[MetadataRecord], None]:
        here = [each.broker_id for each in controller.image.brokers.values() if not each.fenced]
        dead = [broker_id for broker_id in here if self._coordination.is_gone(broker_id)]
        if dead:
            logger.info("broker %s is dead: others lead in its place", ", ".join(map(str, dead)))
        fenced, ticked = controller.fence(dead), controller.tick(self._monotonic_ms())
        for record in ticked:
            if isinstance(record, BrokerChanged) and record.fenced:
                logger.info("broker %d has sent no heartbeat for broker.session.timeout.ms", record.broker_id)
        return fenced + ticked, None

    def _append(self, records: list[MetadataRecord], base_offset: int) -> None:
        try:
            self._coordination.append(records, base_offset, self._now_ms())
        except OvertakenError as error:
            self._end("another broker has taken over")
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        except OSError as error:
            self._back_off(f"broker {self._broker_id} cannot write the controller's log: {error}")
            self._end("its log cannot be written")
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"the controller's log cannot be written: {error}") from error
        except BaseException:
            self._end("it made a mistake")
            raise
        for record in records:
            if isinstance(record, BrokerChanged) and not record.shutting_down:
                what = "fenced: it leads nothing, and is in sync nowhere" if record.fenced else "there, and may lead"
                logger.info("broker %d is %s", record.broker_id, what)

    def _written(self) -> None:
        """Send the answers that have waited for decisions that are durable now."""
        if self._controller is None:
            return
        durable_offset = self._coordination.durable_offset
        if self.is_written:
            self._backoff_ms, self._logged = 0, set()
        while self._waiting and self._waiting[0][0] <= durable_offset:
            self._waiting.popleft()[1].complete(True)

    def _end(self, reason: str) -> None:
        logger.info("broker %d is not the controller any more: %s", self._broker_id, reason)
        self._controller = None
        self._coordination.resign()
        waiting, self._waiting = self._waiting, deque()
        for _, promise in waiting:
            promise.complete(False)
