"""Producers of transactions: one transaction after the other, each over several partitions.

Theory of operation: as Java's client: what fails for a while is tried again; what does not come about is aborted; who
is fenced starts over, as a new instance would. Several producers may have the same transactional id, and fence each
other. By the version of the protocol they either name partitions before they write to them and keep their epoch, or
have an epoch for each transaction (KIP-890). Hasty ones go on as soon as they hear of a commit, while its markers are
still being written: they begin a transaction, send, and abort it at once, and then begin another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, LEGACY, Decision, Producer
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record, encode_batch
from sparkonce.broker_lite.sim.atomicity import Asked, Attempt
from sparkonce.broker_lite.sim.clients import Client
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.node import Call
from sparkonce.broker_lite.sim.producing import Produced

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker
    from sparkonce.broker_lite.sim.world import World

_ATTEMPTS = 12
"""For a batch; the transaction is aborted after them."""
_AT_ONCE_MS = 40
"""How long a transaction that is aborted at once lasts at most."""
_BEGIN_ANEW = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
)
_ABORT = (*_BEGIN_ANEW, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.TRANSACTION_ABORTABLE)


class _Task(NamedTuple):
    amount: int
    """What is in the transaction."""
    at_once: bool = False
    """Whether it is aborted as soon as something has been sent."""


class _Write(NamedTuple):
    key: PartitionKey
    batch: bytes
    adds: bool
    """Whether the partition is to be added to the transaction before."""


class TransactionalProducer(Client):
    """Writes transactions."""

    def __init__(self, world: World, number: int, keys: list[PartitionKey]) -> None:
        """`keys` are the partitions that it writes to."""
        super().__init__(world, number)
        plan = world.plan.transactional[number]
        self._name = plan.transactional_id
        self._version = EPOCH_BUMP if plan.has_epochs else LEGACY
        self._plan = plan
        self._keys = keys
        self._todo: deque[_Task] = deque()
        self._busy = False
        self._producer_id, self._epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._sequences: dict[PartitionKey, int] = {}
        self._count = 0
        self._must_init = True
        self._attempt = Attempt("")
        self._writes: deque[_Write] = deque()
        self._attempts = 0
        self._aborts_by_itself = self._is_impatient = self._is_ending = False
        self._end_comes_again_ms: int | None = None
        self._under_way: _Write | None = None

    @property
    def pending(self) -> int:
        """How many transactions have not ended."""
        return len(self._todo) + self._busy

    def transact(self, amount: int) -> None:
        """Write a transaction; what is in it depends on the amount."""
        self._todo.append(_Task(amount))
        if self._plan.is_hasty:
            self._todo += (_Task(amount + 1, at_once=True), _Task(amount + 2))
        if not self._busy:
            self._next()

    @property
    def _producer(self) -> Producer:
        return Producer(self._name, self._producer_id, self._epoch)

    def _next(self) -> None:
        self._busy = bool(self._todo)
        if not self._busy:
            return
        if self._must_init:
            self._init()
        else:
            self._begin(self._todo.popleft())

    def _again(self, action: Callable[[], None]) -> None:
        self.after(self.world.plan.settings.backoff_ms, action)

    # What the coordinator is asked.

    def _ask(self, ask: Callable[[SimulatedBroker, Call], None], then: Callable[[Decision], None]) -> None:
        coordinator = self.leader_of(self.world.coordinator_key(TRANSACTIONS_TOPIC, self._name))
        if coordinator is None:
            self._again(lambda: then(Decision(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return

        def told(answer: Decision | None) -> None:
            then(Decision(ErrorCode.REQUEST_TIMED_OUT) if answer is None else answer)

        timeout_ms = self.world.plan.settings.timeout_ms * 2
        Call(self, coordinator, lambda call: ask(coordinator, call), told, timeout_ms).send()

    def _init(self) -> None:
        producer, plan = self._producer, self._plan

        def told(answer: Decision) -> None:
            if answer.error is ErrorCode.NONE:
                self._producer_id, self._epoch = answer.producer_id, answer.epoch
                self._sequences.clear()
                self._must_init = False
                self._next()
            elif answer.error in _BEGIN_ANEW:
                self._begin_anew()
            else:
                self._again(self._init)

        def ask(broker: SimulatedBroker, call: Call) -> None:
            broker.transactions.init_producer_id(call, producer, plan.timeout_ms, plan.left_at)

        self._ask(ask, told)

    def _begin_anew(self) -> None:
        """Go on as a new instance."""
        self._producer_id, self._epoch, self._must_init = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, True
        self._again(self._next)

    # One transaction.

    def _begin(self, task: _Task) -> None:
        amount, self._is_ending = task.amount, False
        self._count += 1
        name = f"transaction {self._count} of producer {self.number} ({self._name})"
        self._attempt = self.world.transactions.begins(name)
        first, count = amount % len(self._keys), 1 + amount % 3
        keys = list(dict.fromkeys((self._keys[first:] + self._keys)[:count]))
        for key in keys:
            for each in range(1 + amount % 2):
                self._writes.append(self._encode(key, each))
        self.world.trace(lambda: f"{name} begins, producer {self._producer_id} epoch {self._epoch}")
        self._aborts_by_itself = amount % 5 == 0
        self._is_impatient = amount % 15 == 0
        self._end_comes_again_ms = 20 + amount if amount % 4 == 1 else None
        if task.at_once and self._version == EPOCH_BUMP:
            self._aborts_by_itself = True
            self.after(int(self.world.rng.random() * _AT_ONCE_MS), self._abort, self._attempt)
        self._write()

    def _encode(self, key: PartitionKey, each: int) -> _Write:
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + 1
        content = Record(None, b"x%d/%d/%d" % (self.number, self._count, each), 0)
        batch = bytes(
            encode_batch(
                [content],
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        self.world.transactions.sends(self._attempt, key, crc32c(batch[21:]))
        return _Write(key, batch, self._version == LEGACY and each == 0)

    def _write(self) -> None:
        """Send the next batch, or end the transaction."""
        self._attempts += 1
        if not self._writes:
            self._end(committed=not self._aborts_by_itself)
        elif self._attempts > _ATTEMPTS:
            self._end(committed=False)
        elif self._writes[0].adds:
            self._add(self._writes[0])
        else:
            self._send(self._writes[0])

    def _add(self, write: _Write) -> None:
        producer, place = self._producer, self.world.place_of(write.key)

        def told(answer: Decision) -> None:
            if answer.error is ErrorCode.NONE:
                self._writes[0] = write._replace(adds=False)
                self._write()
            else:
                self._failed(answer.error)

        self._ask(lambda broker, call: broker.transactions.add_partition(call, producer, place, LEGACY), told)

    def _send(self, write: _Write) -> None:
        leader = self.leader_of(write.key)
        if leader is None:
            self._write_again()
            return
        self._under_way = write

        def told(answer: Produced | ErrorCode | None) -> None:
            if isinstance(answer, Produced):
                crc = crc32c(write.batch[21:])
                self.world.history_of(write.key).acknowledged(answer.last_offset, crc, answer.leader_epoch)
            if self._under_way is not write:
                return  # it did not wait for this
            self._under_way = None
            if isinstance(answer, Produced):
                self._attempt.acknowledged.append((write.key, crc32c(write.batch[21:])))
                self._writes.popleft()
                self._attempts = 0
                self._write()
            else:
                self._failed(answer)

        Call(
            self,
            leader,
            lambda call: leader.transactions.produce(call, write.key, write.batch, self._name, self._version),
            told,
            self.world.plan.settings.timeout_ms * 3,
        ).send()
        if self._is_impatient and len(self._writes) == 1:
            self.after(1 + int(self.world.rng.random() * 20), self._abort_at_once, write)

    def _abort_at_once(self, write: _Write) -> None:
        """Abort with a write under way, as a client does whose time for it is up."""
        if self._under_way is write:
            self._under_way = None
            self._end(committed=False)

    def _abort(self, attempt: Attempt) -> None:
        """Abort a transaction, whatever is under way for it."""
        if self._attempt is attempt and not self._is_ending:
            self._under_way = None
            self._end(committed=False)

    def _failed(self, error: ErrorCode | None) -> None:
        if error in _ABORT:
            self._end(committed=False)
        else:
            self._write_again()

    def _write_again(self) -> None:
        attempt = self._attempt

        def write() -> None:
            if self._attempt is attempt and not self._is_ending:
                self._write()

        self._again(write)

    def _end(self, *, committed: bool) -> None:
        self._is_ending = True
        attempt, producer, version = self._attempt, self._producer, self._version
        if committed:
            attempt.asked = Asked.COMMIT

        def told(answer: Decision) -> None:
            self.world.trace(
                lambda: f"{attempt.name} hears of its {'commit' if committed else 'abort'}: {answer.error.name}"
            )
            if answer.error is ErrorCode.NONE:
                self._ended(committed, answer)
            elif answer.error in _BEGIN_ANEW:
                self._over()
                self._begin_anew()
            else:
                self._again(lambda: self._end(committed=committed))

        def decides() -> Callable[[], None] | None:
            ended = self._attempt
            if ended is attempt:
                return None
            if version == EPOCH_BUMP:
                return lambda: self.world.transactions.ended_by_earlier(ended, attempt, has_epochs=True)
            # What its client has heard of is noted now, even if the decision may come to nothing.
            self.world.mark(Mark.ENDED_BY_EARLIER)
            self.world.transactions.ended_by_earlier(ended, attempt, has_epochs=False)
            return None

        def ask(broker: SimulatedBroker, call: Call) -> None:
            broker.transactions.end(call, producer, committed, version, decides)

        self._ask(ask, told)
        if self._end_comes_again_ms is not None:
            # It had been sent before, over a connection that was closed; that one arrives only now.
            self.after(self._end_comes_again_ms, self._ask, ask, lambda _: None)

    def _ended(self, committed: bool, answer: Decision) -> None:
        self._attempt.asked = Asked.COMMITTED if committed else Asked.ABORTED
        self.world.mark(Mark.COMMITTED if committed else Mark.ABORTED)
        if self._version == EPOCH_BUMP:
            self._producer_id, self._epoch = answer.producer_id, answer.epoch
            self._sequences.clear()
        else:
            self._must_init = not committed  # which sequences were appended is not known: KIP-360
        self._over()
        self._next()

    def _over(self) -> None:
        self._writes.clear()
        self._attempts = 0
