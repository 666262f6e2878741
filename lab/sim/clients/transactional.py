"""Transactional producers: one transaction after the other, over several partitions, some with a group's offsets.

As Java's client: retriable errors are retried; a failed transaction is aborted; a fenced producer starts over, as a new
instance would. Depending on the protocol version they either add partitions before writing to them and keep their
epoch, or have a new epoch for each transaction (KIP-890). Hasty ones continue once a commit is acknowledged, while
its markers are still being written. Some EndTxn requests are sent a second time, over another connection.

Invariants of records are in `sim/judges/atomicity.py`. Besides:

    fenced-for-cause    the only user of a transactional id, with all responses to InitProducerId received and its
                        transaction timeout not passed, gets no fatal error, except from a coordinator that was
                        replaced without knowing it
    offsets-atomic      at the end the group's offset is that of the last committed transaction that sent offsets;
                        it is never one of an aborted transaction
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

from lab.sim.clients.client import GROUP, TRANSACTION, Client, UnreachableError
from lab.sim.clients.producers import ProduceClient
from lab.sim.judges.atomicity import Asked, Attempt
from lab.sim.marks import Mark
from lab.sim.steps import Kind
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record, encode_batch

if TYPE_CHECKING:
    from lab.sim.world import World
    from sparkonce.broker_lite.controller.image import PartitionKey

ATTEMPTS: Final = 12
"""Attempts for a batch, after which the transaction is aborted."""
_AT_ONCE_MS: Final = 40
_HURRY_MS: Final = 20
"""How long a client in a hurry waits for the response to its last batch."""
_BEGIN_ANEW: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
)
_FENCED: Final = _BEGIN_ANEW[:3]
_ABORT: Final = (*_BEGIN_ANEW, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.TRANSACTION_ABORTABLE)
_LOOK_AGAIN: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_FENCING_MARGIN_MS: Final = 100
_ABORTED_EVERY: Final = 5
"""Multiples of this are aborted transactions."""


class _Task(NamedTuple):
    amount: int
    """Identifies the transaction's contents."""
    at_once: bool = False
    """Whether it is aborted as soon as something has been sent."""


class _Write(NamedTuple):
    key: PartitionKey
    batch: bytes
    adds: bool
    """Whether the partition must be added to the transaction first."""


class TransactionalProducer(ProduceClient):
    """Writes transactions."""

    def __init__(self, world: World, number: int, keys: list[PartitionKey]) -> None:
        """`keys` are the partitions that it writes to."""
        super().__init__(world)
        plan = world.plan.transactional[number]
        self.producer = number
        self.name = plan.transactional_id
        self.group_id = f"offsets-of-{number}"
        self.with_offsets: list[Attempt] = []
        """The transactions that have sent offsets; the offset is the transaction's number in this list, from 1."""
        self._plan = plan
        self.keys = keys
        self._todo: deque[_Task] = deque()
        self._busy = False
        self._producer_id, self._epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._sequences: dict[PartitionKey, int] = {}
        self._count = 0
        self._must_init = True
        self._attempt = Attempt("")
        self._aborts = False
        """Whether the current transaction will be aborted."""
        self._began_ms = 0
        self._courier: Courier | None = None
        self._hurries: _Write | None = None
        """The batch whose response it does not wait for; it aborts instead."""
        self._ending: bool | None = None
        """Whether it has requested the commit (or abort) of its transaction; None if neither yet."""
        names = [each.transactional_id for each in world.plan.transactional]
        clocks = any(step.kind is Kind.CLOCK for step in world.plan.steps)
        self._is_fenced_for_cause = names.count(self.name) > 1 or clocks
        """Whether another cause may have fenced it."""

    @property
    def pending(self) -> int:
        """The number of unfinished transactions."""
        return len(self._todo) + self._busy

    @property
    def has_epochs(self) -> bool:
        """Whether each transaction has its own epoch (KIP-890)."""
        return self._plan.has_epochs

    @property
    def attempt(self) -> Attempt:
        """Its last transaction."""
        return self._attempt

    def is_ended_by_earlier(self, producer: Producer, *, committed: bool) -> bool:
        """Whether an EndTxn that ends its transaction must be an earlier transaction's."""
        if producer.transactional_id != self.name or producer.producer_id != self._producer_id:
            return False
        if self._plan.has_epochs:
            return producer.epoch < self._epoch
        return producer.epoch == self._epoch and committed is not self._ending

    def is_amid(self, key: PartitionKey) -> bool:
        """Whether it has written to a partition in a transaction that will be aborted."""
        return self._aborts and any(each == key for each, _ in self._attempt.acknowledged)

    def transact(self, amount: int) -> None:
        """Write a transaction; the amount determines its contents."""
        self._todo.append(_Task(amount))
        if self._plan.is_hasty:
            self._todo += (_Task(amount + 1, at_once=True), _Task(amount + 2))
        if not self._busy:
            self._busy = True
            self.run(self._work())

    async def _work(self) -> None:
        while self._todo:
            if self._must_init:
                await self._init()
            else:
                await self._transaction(self._todo.popleft())
        self._busy = False

    # Requests to the coordinator.

    async def _coordinate(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask the coordinator of the transactional id.

        Raises:
            UnreachableError: if it is not found, or does not answer.
        """
        try:
            answer = await self.ask(await self.coordinator(TRANSACTION, self.name), api_key, version, **fields)
        except UnreachableError:
            self.forget_coordinator(TRANSACTION, self.name)
            raise
        if getattr(answer, "error_code", ErrorCode.NONE) in _LOOK_AGAIN:
            self.forget_coordinator(TRANSACTION, self.name)
        return answer

    async def _init(self) -> None:
        version = 5 if self._plan.has_epochs else 4
        try:
            answer = await self._coordinate(
                ApiKey.INIT_PRODUCER_ID,
                version,
                transactional_id=self.name,
                transaction_timeout_ms=self._plan.timeout_ms,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
            )
        except UnreachableError:
            self._is_fenced_for_cause = True  # by a late copy of this request
            await self.back_off()
            return
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.NONE:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
            self._must_init = False
        elif error in _BEGIN_ANEW:
            await self._begin_anew()
        else:
            await self.back_off()

    async def _begin_anew(self) -> None:
        """Start over as a new instance."""
        self._producer_id, self._epoch, self._must_init = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, True
        await self.back_off()

    def _judge_fenced(self, error: ErrorCode | None) -> None:
        """Check for fatal errors without a cause."""
        elapsed_ms = self.world.scheduler.now_ms - self._began_ms
        in_time = elapsed_ms < self._plan.timeout_ms - _FENCING_MARGIN_MS
        us = Producer(self.name, self._producer_id, self._epoch)
        if error not in _FENCED or self.world.fencing.hears_from_former(us):
            return
        if in_time and not self._is_fenced_for_cause:
            text = f"{self._attempt.name} hears {error.name} after {elapsed_ms} ms, and nobody has taken its place"
            self.world.violated(ViolationError("fenced-for-cause", text))

    # One transaction.

    async def _transaction(self, task: _Task) -> None:
        amount = task.amount
        self._count += 1
        name = f"transaction {self._count} of producer {self.producer} ({self.name})"
        self._attempt = attempt = self.world.transactions.begins(name)
        self._ending = None
        self._aborts = amount % _ABORTED_EVERY == 0
        self._began_ms = self.world.scheduler.now_ms
        self.world.trace(lambda: f"{name} begins, producer {self._producer_id} epoch {self._epoch}")
        writes = self._writes(amount)
        at_once = task.at_once and self._plan.has_epochs
        limit_s = int(self.rng.random() * _AT_ONCE_MS) / 1000 if at_once else None
        hurries = not at_once and (task.at_once or amount % 10 == 0)
        self._hurries = writes[-1 - amount % 2] if hurries else None  # the first of its partition, which is verified
        self.world.words.hurried.discard(self.name)
        try:
            async with asyncio.timeout(limit_s):
                committed = await self._write(writes, offsets=amount % 2 == 0) and not self._aborts
        except TimeoutError:
            committed = False
        self._aborts = False
        await self._end(committed=committed, again_ms=20 + amount if amount % 4 == 1 else None)
        if attempt.asked is Asked.ABORTED and attempt in self.with_offsets:
            await self._judge_aborted_offset()
        if self._hurries is not None:  # requests in flight then find that no transaction has begun since
            await self.pause(int(self.rng.random() * self.world.plan.settings.timeout_ms))

    def _writes(self, amount: int) -> deque[_Write]:
        return deque(self._encode(key, each) for key in self._keys_of(amount) for each in range(1 + amount % 2))

    def _keys_of(self, amount: int) -> list[PartitionKey]:
        first, count = amount % len(self.keys), 1 + amount % 3
        return list(dict.fromkeys((self.keys[first:] + self.keys)[:count]))

    def amount_of(self, key: PartitionKey | None, *, committed: bool) -> int | None:
        """Return the amount of an early transaction that writes to a partition; None if there is none."""
        amounts = [each for each in range(1, 60) if (each % _ABORTED_EVERY != 0) == committed]
        found = [each for each in amounts if key in self._keys_of(each)]
        return min(found, key=lambda each: self._keys_of(each).index(key), default=None)  # type: ignore[arg-type]

    def _encode(self, key: PartitionKey, each: int) -> _Write:
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + 1
        content = Record(None, b"x%d/%d/%d" % (self.producer, self._count, each), self.now_ms())
        batch = encode_batch(
            [content],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.world.transactions.sends(self._attempt, key, crc32c(batch[21:]))
        return _Write(key, bytes(batch), not self._plan.has_epochs and each == 0)

    async def _write(self, writes: deque[_Write], *, offsets: bool) -> bool:
        """Write a transaction's records and offsets; return whether it may be committed."""
        if offsets and OFFSETS_TOPIC in self.world.image.topic_ids and not await self._send_offsets():
            return False
        for write in writes:
            for _ in range(ATTEMPTS):
                error = await self._send(write)
                if error is ErrorCode.NONE:
                    self._attempt.acknowledged.append((write.key, crc32c(write.batch[21:])))
                    break
                if error in _ABORT:
                    self._judge_fenced(error)
                    return False
                await self.back_off()
            else:
                return False
        return True

    async def _send(self, write: _Write) -> ErrorCode | None:
        """Send a batch; add its partition first if needed.

        Raises:
            TimeoutError: if there is no response in the short time allowed for the transaction's last batch.
        """
        topic, partition = self.world.topic_of(write.key).name, write.key[1]
        try:
            if write.adds:
                error = await self._add(topic, partition)
                if error is not ErrorCode.NONE:
                    return error
            least = 12 if self._plan.has_epochs else 3
            limit_s = None
            if write is self._hurries:
                limit_s = (1 + int(self.rng.random() * _HURRY_MS)) / 1000
                self.world.words.hurried.add(self.name)
            async with asyncio.timeout(limit_s):
                result = await self.produce(
                    topic, partition, write.batch, -1, self.name, least, 12 if least == 12 else 11
                )
        except UnreachableError:
            return None
        error = ErrorCode.of(result.error_code)
        if error is ErrorCode.NONE and result.base_offset >= 0:
            crc = crc32c(write.batch[21:])
            self.world.acknowledged(write.key, result.base_offset, result.base_offset, crc)
        return error

    async def _add(self, topic: str, partition: int) -> ErrorCode:
        answer = await self._coordinate(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[(topic, [partition])],
        )
        error = ErrorCode.of(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        if error in _LOOK_AGAIN:
            self.forget_coordinator(TRANSACTION, self.name)
        return error

    # Offsets.

    async def _send_offsets(self) -> bool:
        """Send a group's offsets within the transaction; return whether it may be committed."""
        self.with_offsets.append(self._attempt)
        number = len(self.with_offsets)
        for _ in range(ATTEMPTS):
            try:
                error = await self._try_offsets(number)
            except UnreachableError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error is ErrorCode.NONE:
                return True
            if error in _ABORT:
                self._judge_fenced(error)
                return False
            await self.back_off()
        return False

    async def _try_offsets(self, number: int) -> ErrorCode:
        if not self._plan.has_epochs:
            answer = await self._coordinate(
                ApiKey.ADD_OFFSETS_TO_TXN,
                3,
                transactional_id=self.name,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=self.group_id,
            )
            if answer.error_code:
                return ErrorCode.of(answer.error_code)
        topic, partition = self.world.topic_of(self.keys[0]).name, self.keys[0][1]
        try:
            answer = await self.ask(
                await self.coordinator(GROUP, self.group_id),
                ApiKey.TXN_OFFSET_COMMIT,
                5 if self._plan.has_epochs else 3,
                transactional_id=self.name,
                group_id=self.group_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[(topic, [(partition, number, -1, "")])],
            )
        except UnreachableError:
            self.forget_coordinator(GROUP, self.group_id)
            raise
        error = ErrorCode.of(answer.topics[0].partitions[0].error_code)
        if error in _LOOK_AGAIN:
            self.forget_coordinator(GROUP, self.group_id)
        return error

    # Its end.

    async def _end(self, *, committed: bool, again_ms: int | None) -> None:
        attempt, version = self._attempt, 5 if self._plan.has_epochs else self.rng.choice((3, 4))
        fields = {
            "transactional_id": self.name,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "committed": committed,
        }
        self._ending = committed
        if committed:
            attempt.asked = Asked.COMMIT
        if again_ms is not None:
            courier = self._courier = self._courier or Courier(self.world)
            courier.run(self._end_again(courier, again_ms, version, fields))
        while True:
            try:
                answer = await self._coordinate(ApiKey.END_TXN, version, **fields)
            except UnreachableError:
                await self.back_off()
                continue
            error = ErrorCode.of(answer.error_code)
            verb = "commit" if committed else "abort"
            self.world.trace(lambda: f"{attempt.name} hears of its {verb}: {error.name}")  # noqa: B023
            if error is ErrorCode.NONE:
                self._ended(committed, answer)
                return
            if error in _BEGIN_ANEW:
                self._judge_fenced(error)
                await self._begin_anew()
                return
            await self.back_off()

    async def _end_again(self, courier: Client, delay_ms: int, version: int, fields: dict[str, Any]) -> None:
        """Send EndTxn over another connection, as a late duplicate of the first one."""
        await courier.pause(delay_ms)
        try:
            await courier.ask(await courier.coordinator(TRANSACTION, self.name), ApiKey.END_TXN, version, **fields)
        except UnreachableError:
            courier.forget_coordinator(TRANSACTION, self.name)

    def _ended(self, committed: bool, answer: Any) -> None:
        self._attempt.asked = Asked.COMMITTED if committed else Asked.ABORTED
        self.world.mark(Mark.COMMITTED if committed else Mark.ABORTED)
        if self._plan.has_epochs:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        else:
            self._must_init = not committed  # which sequences were appended is unknown: KIP-360

    # Checks at the end.

    async def committed_offset(self) -> int:
        """Return the group's committed offset at the end, -1 if none."""
        while True:
            found = await self._ask_offset()
            if found is not None:
                return found
            await self.back_off()

    async def _ask_offset(self) -> int | None:
        """Return the group's offset, -1 if none; None if there is no response."""
        topic, partition = self.world.topic_of(self.keys[0]).name, self.keys[0][1]
        try:
            answer = await self.ask(
                await self.coordinator(GROUP, self.group_id),
                ApiKey.OFFSET_FETCH,
                7,
                group_id=self.group_id,
                topics=[(topic, [partition])],
                require_stable=True,
            )
        except UnreachableError:
            self.forget_coordinator(GROUP, self.group_id)
            return None
        if answer.error_code == ErrorCode.NONE:
            (result,) = answer.topics[0].partitions
            if result.error_code == ErrorCode.NONE:
                return int(result.committed_offset)
        self.forget_coordinator(GROUP, self.group_id)
        return None

    async def _judge_aborted_offset(self) -> None:
        """Check that the offset of a transaction that was just aborted is not returned."""
        number, attempt = len(self.with_offsets), self._attempt
        if await self._ask_offset() == number and attempt.first_part is None:
            text = f"group {self.group_id}: {attempt.name} was aborted, and its offset is returned"
            self.world.violated(ViolationError("offsets-atomic", text))


class Courier(Client):
    """Sends requests over its own connections."""
