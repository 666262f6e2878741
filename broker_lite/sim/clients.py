"""Producers and consumers: they find leaders by what any broker says, try again, and keep the order.

A producer's requests to a broker go over one connection, in order; after any failure it opens another one and sends
again what was not acknowledged, in order, while what the old connection still holds may yet arrive. That is what
idempotence is for. As Java's client does, it has several requests under way only once the partition knows it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.records import Record, encode_batch
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.network import CLIENT
from sparkonce.broker_lite.sim.node import Call, Node
from sparkonce.broker_lite.sim.producing import Consumed, Produced

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker
    from sparkonce.broker_lite.sim.world import World

_ALL = -1
_ATTEMPTS = 6
"""Of a producer without idempotence; the batch is given up after them."""
_POLL_MS = 250
_MORE_IDS = 100


class Client(Node):
    """What sends requests and never dies."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(CLIENT, world.scheduler, world.network)
        self.world = world
        self.number = number
        self.started()

    def leader_of(self, key: PartitionKey) -> SimulatedBroker | None:
        """Return the leader, according to some broker: it may be out of date."""
        there = [each for each in self.world.brokers.values() if each.alive]
        if not there:
            return None
        told = there[int(self.world.rng.random() * len(there))]
        state = told.image.partition(key)
        return None if state is None or state.leader == NO_LEADER else self.world.brokers[state.leader]


@dataclass(slots=True)
class _Send:
    batch: bytes
    crc: int
    records: int
    number: int
    attempts: int = 0


class Producer(Client):
    """Sends to one partition."""

    def __init__(self, world: World, number: int, key: PartitionKey) -> None:
        super().__init__(world, number)
        self.key = key
        plan = world.plan.producers[number]
        self.acks = plan.acks
        self._idempotent = plan.idempotent
        self._most_in_flight = plan.in_flight
        self._knows_us = False
        self._queue: deque[_Send] = deque()
        self._in_flight = 0
        self._connection = 0
        self._free_at_ms = 0
        self._producer_id = number + 1
        self._epoch = 0
        self._sequence = 0
        self._sent = 0
        self._waits = False

    @property
    def pending(self) -> int:
        """How many batches are neither acknowledged nor given up."""
        return len(self._queue)

    def produce(self, records: int) -> None:
        """Send a batch of records."""
        self._queue.append(self._encode(records, self._sent))
        self._sent += 1
        self._pump()

    def _encode(self, records: int, number: int) -> _Send:
        content = [Record(None, b"%d/%d/%d" % (self.number, number, each), 0) for each in range(records)]
        if self._idempotent:
            batch = encode_batch(
                content, producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=self._sequence
            )
            self._sequence += records
        else:
            batch = encode_batch(content)
        return _Send(bytes(batch), crc32c(batch[21:]), records, number)

    def _pump(self) -> None:
        if self._waits:
            return
        most = self._most_in_flight if self._knows_us else 1
        while self._in_flight < min(most, len(self._queue)):
            send = self._queue[self._in_flight]
            leader = self.leader_of(self.key)
            if leader is None:
                self._try_again()
                return
            self._in_flight += 1
            self._send(leader, send)

    def _send(self, leader: SimulatedBroker, send: _Send) -> None:
        """Send over the connection: nothing overtakes what was sent before."""
        connection, timeout_ms = self._connection, self.world.plan.settings.timeout_ms * 2
        call = Call(
            self,
            leader,
            lambda call: leader.produces.produce(call, self.key, send.batch, self.acks),
            lambda answer: self._answered(connection, send, answer),
            timeout_ms,
        )
        now_ms = self.scheduler.now_ms
        self._free_at_ms = max(self._free_at_ms, now_ms + self.network.delay_ms(CLIENT))
        if self.network.is_lost(CLIENT, leader.node_id):
            self._free_at_ms += timeout_ms  # the connection hangs: what follows comes no earlier
        else:
            self.scheduler.after(self._free_at_ms - now_ms, call.arrive)
        if self.acks == 0:
            self._done(connection, send)

    def _answered(self, connection: int, send: _Send, answer: Produced | ErrorCode | None) -> None:
        if isinstance(answer, Produced) and self.acks == _ALL:
            self.world.history_of(self.key).acknowledged(answer.last_offset, send.crc, answer.leader_epoch)
        told = answer.name if isinstance(answer, ErrorCode) else answer
        self.world.trace(lambda: f"producer {self.number} hears of its batch {send.number}: {told}")
        if connection != self._connection:
            return
        if isinstance(answer, Produced):
            self._knows_us = self._idempotent
            self._done(connection, send)
            return
        send.attempts += 1
        self._lost_order(send, answer)
        if not self._idempotent and send.attempts >= _ATTEMPTS and send in self._queue:
            self._queue.remove(send)
        self._try_again()

    def _lost_order(self, send: _Send, answer: ErrorCode | None) -> None:
        """Begin again where the partition has forgotten what was sent.

        That may be where safe records may be lost: what is not acknowledged is sent again in a new epoch (KIP-360). Of
        several requests under way, a broker that starts again remembers the last only, as that is what Kafka's
        snapshots hold: the rest is refused whether it was appended or not, and a client can only tell its user.
        """
        if answer not in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH):
            return
        if self.world.history_of(self.key).lossy:
            self._epoch, self._sequence, self._knows_us = self._epoch + 1, 0, False
            self._queue = deque(self._encode(each.records, each.number) for each in self._queue)
        elif self._most_in_flight > 1 and send.attempts > _ATTEMPTS:
            self.world.mark(Mark.GAVE_UP)
            self._producer_id += _MORE_IDS
            self._epoch, self._sequence, self._knows_us = 0, 0, False
            self._queue.clear()

    def _done(self, connection: int, send: _Send) -> None:
        if connection == self._connection and send in self._queue:
            self._queue.remove(send)
            self._in_flight -= 1
            self._pump()

    def _try_again(self) -> None:
        """Leave the connection, and send all that is not acknowledged again after a while."""
        self._connection += 1
        self._in_flight, self._free_at_ms, self._waits = 0, 0, True
        self.after(self.world.plan.settings.backoff_ms, self._go_on)

    def _go_on(self) -> None:
        self._waits = False
        self._pump()


class Consumer(Client):
    """Reads one partition from its beginning."""

    def __init__(self, world: World, number: int, key: PartitionKey, *, committed: bool = False) -> None:
        """If `committed`, it reads what is committed only."""
        super().__init__(world, number)
        self.key = key
        self._committed = committed
        self.offset = 0
        self._leader_epoch = -1
        self.after(1_000, self._poll)

    def begin_again(self) -> None:
        """Read from the beginning."""
        self.offset, self._leader_epoch = 0, -1

    def _poll(self) -> None:
        leader = self.leader_of(self.key)
        if leader is None:
            self.after(_POLL_MS, self._poll)
            return
        offset, epoch = self.offset, self._leader_epoch
        Call(
            self,
            leader,
            lambda call: leader.produces.consume(call, self.key, offset, epoch, committed=self._committed),
            self._took,
            self.world.plan.settings.timeout_ms,
        ).send(may_double=False)

    def _took(self, answer: Consumed | ErrorCode | None) -> None:
        self.after(_POLL_MS, self._poll)
        if isinstance(answer, Consumed):
            self._leader_epoch = answer.leader_epoch
            new = [each for each in answer.batches if each[0] >= self.offset]
            if new:
                self.world.history_of(self.key).read(new, answer.leader_epoch)
            if self._committed:
                self.world.read_committed(self.key, new)
            self.offset = max(self.offset, answer.next_offset)
        elif answer is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.world.reads_out_of_range(self)
