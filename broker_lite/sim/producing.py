"""How a simulated broker appends what producers send, and returns to consumers what is safe.

And what waits there until records are safe: answers of producers and of coordinators, markers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.protocol.records import scan
from sparkonce.broker_lite.replication.leader import check_leader_epoch
from sparkonce.broker_lite.sim.atomicity import read_committed
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.node import Call

if TYPE_CHECKING:
    from sparkonce.broker_lite.coordinators.producer_state import Verification
    from sparkonce.broker_lite.sim.broker import SimulatedBroker

_MAX_BYTES = 2_000
_MARKS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: Mark.UNDER_MIN,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Mark.OUT_OF_ORDER,
    ErrorCode.KAFKA_STORAGE_ERROR: Mark.DISK_FULL,
    ErrorCode.INVALID_TXN_STATE: Mark.VERIFIED_TOO_LATE,
}

Then = Callable[[ErrorCode], None]


class Produced(NamedTuple):
    """Where a batch went."""

    base_offset: int
    last_offset: int
    leader_epoch: int


class Consumed(NamedTuple):
    """What a consumer gets: last offsets and checksums of batches, and from where it reads next."""

    batches: list[tuple[int, int]]
    next_offset: int
    leader_epoch: int


class ProduceService:
    """Appends, and answers when a batch is safe."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def produce(
        self, call: Call, key: PartitionKey, batch: bytes, acks: int, verification: Verification | None = None
    ) -> None:
        """Append a batch, and answer at once (acks 0 and 1) or when it is safe (acks -1)."""
        broker = self._broker
        try:
            produced = self._append(key, batch, acks, verification)
        except KafkaError as error:
            mark = _MARKS.get(error.code)
            if mark is not None:
                broker.world.mark(mark)
            call.answer(error.code)
            return
        if acks != -1:
            call.answer(produced)
        else:
            broker.acknowledgements.when_safe(
                key, produced.last_offset, lambda code: call.answer(produced if code is ErrorCode.NONE else code)
            )
        broker.appended(key)

    def _append(self, key: PartitionKey, batch: bytes, acks: int, verification: Verification | None) -> Produced:
        broker = self._broker
        role = broker.replicas.leader(key)
        if acks == -1:
            role.check_acks_all()
        log = broker.log(key)
        before = log.log_end_offset
        appended = log.append(bytearray(batch), role.state.leader_epoch, broker.now_ms, verification)
        if appended.base_offset < before:
            broker.world.mark(Mark.DUPLICATE)
        broker.world.trace(
            lambda: (
                f"broker {broker.node_id} appends {broker.world.name_of(key)} {appended.base_offset} to "
                f"{appended.last_offset} in epoch {role.state.leader_epoch}, acks {acks}"
            )
        )
        now = broker.world.metadata.image.partition(key)
        if now is not None and now.leader_epoch > role.state.leader_epoch:
            broker.world.mark(Mark.OLD_LEADER)
        return Produced(appended.base_offset, appended.last_offset, role.state.leader_epoch)

    def consume(
        self, call: Call, key: PartitionKey, offset: int, leader_epoch: int, *, committed: bool = False
    ) -> None:
        """Send a consumer what is below the high watermark; or of that what is committed, by the last stable offset."""
        broker = self._broker
        try:
            role = broker.replicas.leader(key)
            check_leader_epoch(leader_epoch, role.state.leader_epoch)
            log = broker.log(key)
            if committed:
                found = read_committed(log, offset)
                call.answer(Consumed(found.batches, found.next_offset, role.state.leader_epoch))
                return
            data = log.read(offset, _MAX_BYTES, True, up_to_offset=log.high_watermark).read()
        except KafkaError as error:
            call.answer(error.code)
            return
        batches = [(header.last_offset, header.crc) for _, header in scan(data)]
        next_offset = batches[-1][0] + 1 if batches else offset
        call.answer(Consumed(batches, next_offset, role.state.leader_epoch))


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
