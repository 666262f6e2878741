"""How a simulated broker takes what producers send, and gives consumers what is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_lite.controller.image import PartitionKey
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.records import scan
from broker_lite.replication.leader import check_leader_epoch
from broker_lite.sim.marks import Mark
from broker_lite.sim.node import Call

if TYPE_CHECKING:
    from broker_lite.sim.broker import SimulatedBroker

_MAX_BYTES = 2_000
_MARKS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: Mark.UNDER_MIN,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Mark.OUT_OF_ORDER,
    ErrorCode.KAFKA_STORAGE_ERROR: Mark.DISK_FULL,
}


class Produced(NamedTuple):
    """Where a batch went."""

    base_offset: int
    last_offset: int


class Consumed(NamedTuple):
    """What a consumer is given: last offsets and checksums of batches."""

    batches: list[tuple[int, int]]
    leader_epoch: int


class _Waiting(NamedTuple):
    call: Call
    produced: Produced


class ProduceService:
    """Appends, and answers when a batch is safe."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._waiting: dict[PartitionKey, list[_Waiting]] = {}

    def produce(self, call: Call, key: PartitionKey, batch: bytes, acks: int) -> None:
        """Append a batch, and answer at once (acks 0 and 1) or when it is safe (acks -1)."""
        broker = self._broker
        try:
            produced = self._append(key, batch, acks)
        except KafkaError as error:
            mark = _MARKS.get(error.code)
            if mark is not None:
                broker.world.mark(mark)
            call.answer(error.code)
            return
        if acks != -1:
            call.answer(produced)
        else:
            waiting = _Waiting(call, produced)
            self._waiting.setdefault(key, []).append(waiting)
            broker.after(broker.world.plan.settings.timeout_ms, self._time_out, key, waiting)
        broker.publish(broker.replicas.appended(key, broker.now_ms))
        broker.fetches.wake(key)
        self.high_watermark_moved(key)

    def _append(self, key: PartitionKey, batch: bytes, acks: int) -> Produced:
        broker = self._broker
        role = broker.replicas.leader(key)
        if acks == -1:
            role.check_acks_all()
        log = broker.log(key)
        before = log.log_end_offset
        appended = log.append(bytearray(batch), role.state.leader_epoch, broker.now_ms)
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
        return Produced(appended.base_offset, appended.last_offset)

    def high_watermark_moved(self, key: PartitionKey) -> None:
        """Answer what is safe by now."""
        waiting = self._waiting.get(key)
        if not waiting:
            return
        role = self._broker.replicas.leader(key)
        left = []
        for each in waiting:
            try:
                if role.is_acknowledged(each.produced.last_offset):
                    each.call.answer(each.produced)
                else:
                    left.append(each)
            except KafkaError as error:
                each.call.answer(error.code)
        self._waiting[key] = left

    def lost(self, key: PartitionKey) -> None:
        """Tell those who wait that another broker leads."""
        for each in self._waiting.pop(key, ()):
            self._broker.world.mark(Mark.ACK_LOST)
            each.call.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _time_out(self, key: PartitionKey, waiting: _Waiting) -> None:
        left = self._waiting.get(key, [])
        if waiting in left:
            left.remove(waiting)
            self._broker.world.mark(Mark.TIMED_OUT)
            waiting.call.answer(ErrorCode.REQUEST_TIMED_OUT)

    def consume(self, call: Call, key: PartitionKey, offset: int, leader_epoch: int) -> None:
        """Give a consumer what is below the high watermark."""
        broker = self._broker
        try:
            role = broker.replicas.leader(key)
            check_leader_epoch(leader_epoch, role.state.leader_epoch)
            log = broker.log(key)
            data = log.read(offset, _MAX_BYTES, True, up_to_offset=log.high_watermark).read()
        except KafkaError as error:
            call.answer(error.code)
            return
        batches = [(header.last_offset, header.crc) for _, header in scan(data)]
        call.answer(Consumed(batches, role.state.leader_epoch))
