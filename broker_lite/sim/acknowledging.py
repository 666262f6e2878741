"""What waits on a simulated broker until records are safe: producers' answers, coordinators' answers, markers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.sim.marks import Mark

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker

Then = Callable[[ErrorCode], None]


class _Waiting(NamedTuple):
    last_offset: int
    then: Then


class Acknowledgements:
    """Who waits for the high watermark, by partition."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._waiting: dict[PartitionKey, list[_Waiting]] = {}

    def when_safe(self, key: PartitionKey, last_offset: int, then: Then) -> None:
        """Call back once a record is safe in a partition led here, or why that was not to be waited for."""
        waiting = _Waiting(last_offset, then)
        self._waiting.setdefault(key, []).append(waiting)
        self._broker.after(self._broker.world.plan.settings.timeout_ms, self._time_out, key, waiting)

    def high_watermark_moved(self, key: PartitionKey) -> None:
        """Answer what is safe by now."""
        waiting = self._waiting.pop(key, None)
        if not waiting:
            return
        role = self._broker.replicas.leader(key)
        left, ended = [], []
        for each in waiting:
            try:
                if role.is_acknowledged(each.last_offset):
                    ended.append((each, ErrorCode.NONE))
                else:
                    left.append(each)
            except KafkaError as error:
                ended.append((each, error.code))
        if left:
            self._waiting[key] = left
        for each, code in ended:
            each.then(code)

    def lost(self, key: PartitionKey) -> None:
        """Tell waiting requests that another broker leads."""
        for each in self._waiting.pop(key, ()):
            self._broker.world.mark(Mark.ACK_LOST)
            each.then(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _time_out(self, key: PartitionKey, waiting: _Waiting) -> None:
        left = self._waiting.get(key, [])
        if waiting in left:
            left.remove(waiting)
            self._broker.world.mark(Mark.TIMED_OUT)
            waiting.then(ErrorCode.REQUEST_TIMED_OUT)
