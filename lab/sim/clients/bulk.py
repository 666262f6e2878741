"""A client that sends and requests a lot at once, and reads the responses late, or never.

It writes large batches to its own topic, several in flight, and fetches many of them at once. Brokers then have more
to send than a socket takes: responses wait in memory, and requests in the read buffer, until the client reads again
or disconnects. Nothing is retried, so a write without a successful response may have happened or not.

    written-by-us    no batch is where another one was acknowledged, and every batch was sent by this client
    retained         at the end every acknowledged batch is there
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from lab.sim.clients.client import ClientConnection, Guest, UnreachableError
from lab.sim.clients.producers import HERALD
from lab.sim.marks import Mark
from lab.sim.plan import Durability
from lab.sim.scheduler import stream
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol import fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import BatchHeader, Record, encode_batch, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.sim.world import World

_SEEDS: Final = 0.12
"""How many seeds have one."""
TOPIC: Final = "bulk"
_SETTINGS: Final = (
    ("flush.messages", "1"), ("min.insync.replicas", "2"), ("segment.bytes", "400000"),
)  # fmt: skip
_PAUSE_MS: Final = 250
_BATCH_BYTES: Final = (1_000, 20_000, 60_000, 60_000, 150_000)
_FETCH_BYTES: Final = 400_000
_AT_ONCE: Final = (1, 3, 20)
_LATE_MS: Final = (100, 400, 1_200)
_VERSION: Final = 11
_ALL: Final = -1
_MOST_BYTES: Final = 1_500_000
"""How much it writes; it is kept in memory three times, and read again and again."""


_Spoil = Callable[[bytearray], bytes]
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_LAST_DELTA_AT: Final = 23
_MAX_TIMESTAMP_AT: Final = 35
_COUNT_AT: Final = 57


def _with(position: int, data: bytes) -> _Spoil:
    """Return a function that overwrites bytes of a batch and corrects its checksum."""

    def spoil(batch: bytearray) -> bytes:
        batch[position : position + len(data)] = data
        batch[_CRC_AT:_ATTRIBUTES_AT] = _crc(batch).to_bytes(4, "big")
        return bytes(batch)

    return spoil


_SPOILS: Final[tuple[_Spoil, ...]] = (
    lambda batch: bytes(batch[:-1]) + b"?",  # wrong checksum
    lambda batch: bytes(batch[:-3]),
    lambda batch: bytes(batch[:40]),
    lambda batch: bytes(batch) * 2,
    _with(0, bytes(7) + b"\5"),  # wrong base offset
    _with(16, b"\1"),  # another format
    _with(_ATTRIBUTES_AT, b"\0\x20"),  # a control batch
    _with(_ATTRIBUTES_AT, b"\0\x10"),  # transactional, without a producer
    _with(_ATTRIBUTES_AT, b"\0\x07"),  # an unknown codec
    _with(_LAST_DELTA_AT, b"\0\0\0\5"),
    _with(_MAX_TIMESTAMP_AT, b"\x7f" + bytes(7)),  # in a far future
    _with(_COUNT_AT, bytes(4)),
)
"""Each makes a batch invalid: brokers must refuse it."""


def has_bulk(seed: int) -> bool:
    """Whether a seed has a bulk client."""
    return stream("bulk", seed).random() < _SEEDS


class BulkClient(Guest):
    """Writes and reads until all faults are over."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sent: set[int] = set()
        self._acknowledged: dict[int, int] = {}
        """Checksums by offset."""
        self._bytes = 0

    async def work(self) -> None:
        """See `Guest`."""
        while not self.is_over:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            try:
                if self._bytes == 0 and not await self._create():
                    continue
                kind = self.rng.random()
                if kind < 0.15:
                    await self._write_rubbish()
                elif kind < 0.6 and self._bytes < _MOST_BYTES:
                    await self._write()
                else:
                    await self._read_late()
            except UnreachableError:
                self._leaders.clear()

    async def _create(self) -> bool:
        answer = await self.ask(
            self.some_broker(), ApiKey.CREATE_TOPICS, 5, topics=[(TOPIC, 1, 3, [], list(_SETTINGS))],
            timeout_ms=2_000, validate_only=False,
        )  # fmt: skip
        return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _write(self) -> None:
        """Send several batches without waiting for responses."""
        connection = await self.connection(await self.leader(TOPIC, 0))
        batches = [self._batch() for _ in range(self.rng.choice((1, 2, 5)))]
        timeout_ms = self.world.plan.settings.timeout_ms
        acks = [self.rng.choice((_ALL, _ALL, _ALL, 1)) for _ in batches]
        answers = []
        for batch, wanted_acks in zip(batches, acks, strict=True):
            wanted = produce.ProduceTopic(TOPIC, ZERO_UUID, [produce.ProducePartition(0, batch)])
            body = produce.encode_request(7, produce.ProduceRequest(None, wanted_acks, timeout_ms, [wanted]))
            answers.append(connection.request(ApiKey.PRODUCE, 7, body))
        for batch, wanted_acks, answer in zip(batches, acks, await self._all(connection, answers), strict=True):
            (result,) = produce.decode_response(7, answer).topics[0].partitions
            if result.error_code == ErrorCode.NONE and wanted_acks == _ALL:
                self._acknowledged[result.base_offset] = _crc(batch)
            elif result.error_code:
                self.forget_leader(TOPIC, 0)

    async def _write_rubbish(self) -> None:
        """Send an invalid batch; if it were appended, it would be found as one that nobody has sent."""
        batch = self.rng.choice(_SPOILS)(bytearray(encode_batch([Record(None, b"rubbish", self.now_ms())] * 2)))
        wanted = produce.ProduceTopic(TOPIC, ZERO_UUID, [produce.ProducePartition(0, batch)])
        body = produce.encode_request(7, produce.ProduceRequest(None, _ALL, 500, [wanted]))
        answer = await self.exchange(await self.leader(TOPIC, 0), ApiKey.PRODUCE, 7, body)
        (result,) = produce.decode_response(7, answer).topics[0].partitions
        if result.error_code == ErrorCode.NONE:
            self.world.violated(ViolationError("written-by-us", f"{TOPIC}: a spoilt batch is acknowledged"))

    def _batch(self) -> bytes:
        size = self.rng.choice(_BATCH_BYTES)
        self._bytes += size
        batch = bytes(encode_batch([Record(None, self.rng.randbytes(size), self.now_ms())]))
        self._sent.add(_crc(batch))
        return batch

    async def _all(self, connection: ClientConnection, answers: Sequence[asyncio.Future[bytes]]) -> list[bytes]:
        """Wait for responses.

        Raises:
            UnreachableError: if one does not come.
        """
        try:
            async with asyncio.timeout((self.timeout_ms + max(_LATE_MS)) / 1000):
                return [await each for each in answers]
        except TimeoutError:
            connection.close()
            raise UnreachableError("no answer in time") from None
        finally:
            _forget(answers)

    async def _read_late(self) -> None:
        """Fetch a lot, and read nothing for a while; then read all, or disconnect."""
        address = await self.leader(TOPIC, 0)
        connection = await self.connection(address)
        connection.stop_reading()
        count = self.rng.choice(_AT_ONCE)
        answers = [connection.request(ApiKey.FETCH, _VERSION, self._fetch_request()) for _ in range(count)]
        await self.pause(self.rng.choice(_LATE_MS))
        if self.rng.random() < 0.2:
            connection.close()
            _forget(answers)
            return
        connection.read_on()
        self.world.mark(Mark.READ_LATE)
        for answer in await self._all(connection, answers):
            self._take(answer)

    def _fetch_request(self, offset: int | None = None) -> bytes:
        known = [0, *self._acknowledged]
        wanted = fetch.FetchPartition(0, self.rng.choice(known) if offset is None else offset, _FETCH_BYTES)
        request = fetch.FetchRequest(0, 1, _FETCH_BYTES, [fetch.FetchTopic(TOPIC, ZERO_UUID, [wanted])])
        return bytes(fetch.encode_request(_VERSION, request))

    def _take(self, answer: bytes) -> dict[int, int]:
        """Check what was read; return the checksums by offset."""
        found: dict[int, int] = {}
        for topic in fetch.decode_response(_VERSION, answer).topics:
            for result in topic.partitions:
                if result.error_code:
                    self.forget_leader(TOPIC, 0)
                    continue
                data = bytes(result.records or b"")  # type: ignore[arg-type]
                for position, header in scan(data):
                    found[header.base_offset] = header.crc
                    self._check(header, data[position : position + header.size])
        return found

    def _check(self, header: BatchHeader, batch: bytes) -> None:
        ours = header.crc in self._sent or HERALD in batch
        if self._is_judged and not (ours and self._acknowledged.get(header.base_offset, header.crc) == header.crc):
            text = f"{TOPIC}: at {header.base_offset} is a batch that was not written there"
            self.world.violated(ViolationError("written-by-us", text))

    @property
    def _is_judged(self) -> bool:
        return self.world.plan.durability is not Durability.NONE

    # Checks at the end.

    async def look(self) -> None:
        """Read everything."""
        found: dict[int, int] = {}
        offset = 0
        while self._acknowledged and offset <= max(self._acknowledged):
            try:
                address = await self.leader(TOPIC, 0)
                more = self._take(await self.exchange(address, ApiKey.FETCH, _VERSION, self._fetch_request(offset)))
            except UnreachableError:
                self.forget_leader(TOPIC, 0)
                more = {}
            if more:
                found |= more
                offset = max(more) + 1
            else:
                await self.back_off()
        lost = [each for each in self._acknowledged if each not in found]
        if lost and self._is_judged:
            self.world.violated(ViolationError("retained", f"{TOPIC}: {lost} were acknowledged, and are gone"))


def _forget(answers: Sequence[asyncio.Future[bytes]]) -> None:
    """Stop waiting, whatever has arrived."""
    for each in answers:
        if each.done() and not each.cancelled():
            each.exception()
        each.cancel()


def _crc(batch: bytes | bytearray) -> int:
    return int(crc32c(bytes(batch[21:])))
