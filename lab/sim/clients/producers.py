"""Producers and consumers of one partition, over the protocol.

A producer retries unacknowledged batches in order, over another connection after any failure, while the data of the
old one may still arrive: idempotence must handle that. As Java's client, it has several requests in flight only once
the partition knows it. A consumer reads everything from the beginning.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from lab.sim.clients.client import Address, Client, UnreachableError
from lab.sim.marks import Mark
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol import fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ControlType,
    Record,
    control_type,
    decode_records,
    encode_batch,
    scan,
)

if TYPE_CHECKING:
    from lab.sim.world import World
    from sparkonce.broker_lite.controller.image import PartitionKey

ATTEMPTS: Final = 6
"""Attempts of a producer without idempotence, after which it gives the batch up."""
POLL_MS: Final = 250
FETCH_BYTES: Final = 2_000
_HERALD_VERSION: Final = 7
HERALD: Final = b"herald/"
"""The prefix of a herald's record values."""


class ProduceClient(Client):
    """A client that sends batches."""

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        acks: int,
        transactional_id: str | None = None,
        least: int = 3,
        most: int = 12,
    ) -> produce.ProducePartitionResult:
        """Send one batch to the partition's leader, in a version within bounds; for acks=0 a response is made up.

        Raises:
            UnreachableError: if there is no answer.
        """
        address = await self.leader(topic, partition)
        version = self.rng.choice([each for each in (3, 7, 9, 11, 12) if least <= each <= most])
        wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(partition, batch)])
        timeout_ms = self.world.plan.settings.timeout_ms
        body = produce.encode_request(version, produce.ProduceRequest(transactional_id, acks, timeout_ms, [wanted]))
        try:
            if acks == 0:
                await (await self.connection(address)).request(ApiKey.PRODUCE, version, body, answered=False)
                return produce.ProducePartitionResult(partition)
            answer = produce.decode_response(version, await self.exchange(address, ApiKey.PRODUCE, version, body))
        except UnreachableError:
            self.forget_leader(topic, partition)
            raise
        (result,) = answer.topics[0].partitions
        if result.error_code:
            self.forget_leader(topic, partition)
        return result


@dataclass(slots=True)
class _Send:
    records: int
    number: int
    batch: bytes = b""
    """Empty until it is sent for the first time."""
    attempts: int = 0

    @property
    def crc(self) -> int:
        """The batch's checksum."""
        return int(crc32c(self.batch[21:]))


class Producer(ProduceClient):
    """Writes to one partition."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world)
        plan = world.plan.producers[number]
        self.plan = plan
        self.topic = world.plan.topics[plan.topic].name
        self.key: PartitionKey = world.image.topic_ids[self.topic], plan.partition
        self.producer = number
        self._knows_us = False
        self._queue: deque[_Send] = deque()
        self._producer_id = NO_PRODUCER_ID
        self._epoch = 0
        self._sequence = 0
        self._sent = 0
        self._running = False

    @property
    def pending(self) -> int:
        """The number of batches neither acknowledged nor given up."""
        return len(self._queue)

    def send(self, records: int) -> None:
        """Send a batch of records."""
        self._queue.append(_Send(records, self._sent))
        self._sent += 1
        if not self._running:
            self._running = True
            self.run(self._pump())

    def _encode(self, send: _Send) -> None:
        now_ms = self.now_ms()
        content = [
            Record(None, b"%d/%d/%d" % (self.producer, send.number, each), now_ms) for each in range(send.records)
        ]
        if self.plan.idempotent:
            batch = encode_batch(
                content, producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=self._sequence
            )
            self._sequence += send.records
        else:
            batch = encode_batch(content)
        send.batch = bytes(batch)

    async def _pump(self) -> None:
        """Send all batches, several in flight; after a failure, resend the unacknowledged ones."""
        while self._queue:
            try:  # if the leader must be looked up first: batches stay in order
                if self.plan.idempotent and self._producer_id == NO_PRODUCER_ID:
                    await self._init()
                await self.connection(await self.leader(self.topic, self.plan.partition))
            except UnreachableError:
                self.forget_leader(self.topic, self.plan.partition)
                await self.back_off()
                continue
            most = self.plan.in_flight if self._knows_us else 1
            sends = [self._queue[index] for index in range(min(most, len(self._queue)))]
            for each in sends:
                if not each.batch:
                    self._encode(each)
            if not all(await asyncio.gather(*[self._attempt(each) for each in sends])):
                await self.back_off()
        self._running = False

    async def _init(self) -> None:
        answer = await self.ask(
            self.some_broker(), ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60_000,
            producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH,
        )  # fmt: skip
        if answer.error_code:
            raise UnreachableError(ErrorCode.of(answer.error_code).name)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _attempt(self, send: _Send) -> bool:
        """Send a batch; return whether it is finished."""
        try:
            result = await self.produce(self.topic, self.plan.partition, send.batch, self.plan.acks)
        except UnreachableError:
            self._failed(send, None)
            return False
        error = ErrorCode.of(result.error_code)
        self.world.trace(lambda: f"producer {self.producer} hears of its batch {send.number}: {error.name}")
        if error is ErrorCode.NONE:
            if self.plan.acks == -1:
                last_offset = result.base_offset + send.records - 1
                self.world.acknowledged(self.key, result.base_offset, last_offset, send.crc)
            self._knows_us = self.plan.idempotent
            if send in self._queue:
                self._queue.remove(send)
            return True
        self._failed(send, error)
        return False

    def _failed(self, send: _Send, error: ErrorCode | None) -> None:
        send.attempts += 1
        if error in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH):
            self._lost_order(send)
        if not self.plan.idempotent and send.attempts >= ATTEMPTS and send in self._queue:
            self._queue.remove(send)

    def _lost_order(self, send: _Send) -> None:
        """Start a new epoch where the partition has forgotten the producer's state.

        This happens where safe records may be lost: unacknowledged batches are sent again in a new epoch (KIP-360). Of
        several requests in flight, a restarted broker remembers only the last, as Kafka's snapshots store no more: the
        others are rejected whether they were appended or not, and a client can only report that to its user.
        """
        if self.world.history_of(self.key).lossy:
            self._epoch, self._sequence, self._knows_us = self._epoch + 1, 0, False
            self._queue = deque(_Send(each.records, each.number) for each in self._queue)
        elif self.plan.in_flight > 1 and send.attempts > ATTEMPTS:
            self.world.mark(Mark.GAVE_UP)
            self._producer_id, self._sequence, self._knows_us = NO_PRODUCER_ID, 0, False
            self._queue.clear()


class Herald(Client):
    """Sends a record at once to the leader by the durable log, where a fault needs a record there in time."""

    def send(self, key: PartitionKey) -> None:
        """Send a record with acks=1; nobody waits for it, and it may be lost."""
        state = self.world.image.partition(key)
        machine = None if state is None else self.world.brokers.get(state.leader)
        if machine is not None:
            topic = self.world.image.topics[key[0]].name  # which may be deleted before it is sent
            self.run(self._send(Address(machine.address, self.port), topic, key[1]))

    async def _send(self, address: Address, topic: str, partition: int) -> None:
        now_ms = self.now_ms()
        batch = bytes(encode_batch([Record(None, HERALD + b"%d" % now_ms, now_ms)]))
        wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(partition, batch)])
        body = produce.encode_request(_HERALD_VERSION, produce.ProduceRequest(None, 1, 1_000, [wanted]))
        with suppress(UnreachableError):
            await self.exchange(address, ApiKey.PRODUCE, _HERALD_VERSION, body)


class Consumer(Client):
    """Reads one partition from its beginning."""

    def __init__(self, world: World, key: PartitionKey, *, committed: bool = False) -> None:
        """If `committed`, it reads with isolation level read_committed."""
        super().__init__(world)
        self.key = key
        self.topic = world.image.topics[key[0]].name
        self.committed = committed
        self.offset = 0
        self.run(self._poll())

    def is_out_of_range(self) -> None:
        """Restart from the beginning, if records that it has read may have been lost.

        Raises:
            ViolationError: read-is-safe, if it has read more than is safe.
        """
        history = self.world.history_of(self.key)
        if history.lossy:
            self.offset = 0
        elif history.safe and self.offset > history.safe[-1].last_offset + 1:
            raise ViolationError("read-is-safe", f"{history.name}: a consumer has read up to {self.offset}")

    async def _poll(self) -> None:
        while True:
            try:
                await self._fetch()
            except UnreachableError:
                self.forget_leader(self.topic, self.key[1])
            await self.pause(POLL_MS)

    async def _fetch(self) -> None:
        address = await self.leader(self.topic, self.key[1])
        version = self.rng.choice((4, 7, 11, 12))
        wanted = fetch.FetchTopic(self.topic, ZERO_UUID, [fetch.FetchPartition(self.key[1], self.offset, FETCH_BYTES)])
        wait_ms = self.rng.choice((0, 100, 300))
        request = fetch.FetchRequest(wait_ms, 1, 1 << 20, [wanted], isolation_level=int(self.committed))
        body = fetch.encode_request(version, request)
        answer = fetch.decode_response(version, await self.exchange(address, ApiKey.FETCH, version, body))
        for topic in answer.topics:
            for result in topic.partitions:
                self._take(result)

    def _take(self, result: fetch.FetchPartitionResult) -> None:
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.world.judge(self.is_out_of_range)
        if result.error_code:
            self.forget_leader(self.topic, self.key[1])
            return
        data = bytes(result.records or b"")  # type: ignore[arg-type]
        aborted = sorted(result.aborted_transactions or (), key=lambda each: each.first_offset)
        aborting: set[int] = set()
        for position, header in scan(data):
            if header.last_offset < self.offset:
                continue
            self.offset = header.next_offset
            read = (header.last_offset, header.crc)
            epoch = header.partition_leader_epoch
            self.world.judge(lambda: self.world.history_of(self.key).read([read], epoch))  # noqa: B023
            if not self.committed:
                continue
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.pop(0).producer_id)
            if header.is_control:
                record = decode_records(memoryview(data)[position : position + header.size])[0]
                if control_type(record) is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in aborting:
                self.world.judge(lambda: self.world.read_committed(self.key, [read]))  # noqa: B023
