"""A client that owns two topics: a compacted one, and one whose old segments are deleted.

It writes keyed records and tombstones to the first, and to the second records that it deletes now and then. Nothing
is retried, so a write without a successful response may happen at any later time, or never. When the cluster has
recovered, every replica's log is read:

    latest-kept       each key has the record that was acknowledged last, or a later one, unless that was a
                      tombstone, which may be removed later, or a write of the key has an unknown outcome
    retained          from its start offset on the other log has every acknowledged record; it starts no later than
                      where records were deleted by request, or where a replica had `retention.bytes` after that,
                      safe or not (as in Kafka)
    written-by-us     no log has a record where another one was acknowledged, or one that nobody has sent
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.sim.clients.client import UnreachableError
from lab.sim.clients.producers import ProduceClient
from lab.sim.marks import Mark
from lab.sim.plan import Durability
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import Record, decode_records, encode_batch, scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from lab.sim.world import World
    from sparkonce.broker_lite.log.partition_log import PartitionLog

COMPACTED: Final = "compacted"
RETAINED: Final = "retained"
_RETENTION_BYTES: Final = 900
_TOPICS: Final = {
    COMPACTED: {
        "cleanup.policy": "compact", "segment.bytes": "500", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "400",
    },
    RETAINED: {"cleanup.policy": "delete", "segment.bytes": "300", "retention.bytes": str(_RETENTION_BYTES)},
}  # fmt: skip
_DURABLE: Final = {"flush.messages": "1", "file.delete.delay.ms": "100"}
_PAUSE_MS: Final = 80
_KEYS: Final = 6
_READ_BYTES: Final = 1 << 20
_CODECS: Final = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4)

Content = tuple[bytes | None, bytes | None]
"""A record's key and value."""


class RetentionChecker(ProduceClient):
    """Writes to both topics, and deletes records of one, until all faults are over."""

    replicas = 3

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._is_over = False
        self._written = 0
        self._sent: dict[str, set[Content]] = {topic: set() for topic in _TOPICS}
        self._acknowledged: dict[str, dict[int, Content]] = {topic: {} for topic in _TOPICS}
        self._perhaps_deleted: set[bytes] = set()
        """Keys of the compacted topic with an unacknowledged tombstone: it may appear and be removed at any time."""
        self._delete_below = 0

    def begin(self) -> None:
        """Begin."""
        self.run(self._work())

    def end(self) -> None:
        """Stop writing."""
        self._is_over = True

    async def _work(self) -> None:
        for topic in _TOPICS:
            while not await self._create(topic):
                await self.back_off()
        while not self._is_over:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            try:
                if self.rng.random() < 0.08:
                    await self._delete()
                else:
                    await self._write(self.rng.choice((COMPACTED, COMPACTED, RETAINED)))
            except UnreachableError:
                self._leaders.clear()

    async def _create(self, topic: str) -> bool:
        configs = list((_TOPICS[topic] | _DURABLE | {"min.insync.replicas": str(min(self.replicas, 2))}).items())
        try:
            answer = await self.ask(
                self.some_broker(), ApiKey.CREATE_TOPICS, 5, topics=[(topic, 1, self.replicas, [], configs)],
                timeout_ms=2_000, validate_only=False,
            )  # fmt: skip
        except UnreachableError:
            return False
        return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _write(self, topic: str) -> None:
        contents = [self._content() for _ in range(self.rng.choice((1, 1, 2, 4)))]
        self._sent[topic].update(contents)
        records = [Record(key, value, self.now_ms()) for key, value in contents]
        batch = bytes(encode_batch(records, compression=self.rng.choice(_CODECS)))
        deleted = {key for key, value in contents if value is None and key is not None and topic == COMPACTED}
        deleted -= self._perhaps_deleted
        self._perhaps_deleted |= deleted
        result = await self.produce(topic, 0, batch, acks=-1)
        if result.error_code == ErrorCode.NONE:
            self._perhaps_deleted -= deleted
            for offset, content in enumerate(contents, result.base_offset):
                self._acknowledged[topic][offset] = content

    def _content(self) -> Content:
        self._written += 1
        key = b"k%d" % self.rng.randrange(_KEYS)
        return key, None if self.rng.random() < 0.15 else b"%d" % self._written

    async def _delete(self) -> None:
        """Delete the records before some offset."""
        known = sorted(self._acknowledged[RETAINED])
        if not known:
            return
        offset = self.rng.choice(known)
        self._delete_below = max(self._delete_below, offset)
        topics = [(RETAINED, [(0, offset)])]
        answer = await self.ask(await self.leader(RETAINED, 0), ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=500)
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self.world.mark(Mark.RECORDS_DELETED)
        else:
            self.forget_leader(RETAINED, 0)

    # Checks at the end.

    def look(self) -> None:
        """Check all logs.

        Raises:
            ViolationError: if one is wrong.
        """
        for topic in _TOPICS if self.is_judged else ():
            for broker_id, topic_id, log in self.logs(topic):
                where, records = f"broker {broker_id}, {topic}", list(_records(log))
                self._check_records(where, topic, records)
                if topic == COMPACTED:
                    self._check_latest(where, records)
                else:
                    self._check_retained(where, topic_id, log, records)

    @property
    def is_judged(self) -> bool:
        """Whether acknowledged records must be kept."""
        return self.world.plan.durability is not Durability.NONE

    def logs(self, topic: str) -> Iterator[tuple[int, UUID, PartitionLog]]:
        """Return the logs of a topic, each with its broker, and the topic's id."""
        image = self.world.image
        if topic in image.topic_ids:
            topic_id = image.topic_ids[topic]
            for broker_id in image.topics[topic_id].partitions[0].replicas:
                yield broker_id, topic_id, self.world.logs[broker_id, (topic_id, 0)]

    def _check_records(self, where: str, topic: str, records: list[tuple[int, Content]]) -> None:
        last = -1
        for offset, content in records:
            acknowledged = self._acknowledged[topic].get(offset, content)
            sent = content[0] is None or content in self._sent[topic]  # a herald's records have no key
            if offset <= last or content != acknowledged or not sent:
                text = f"{where}: at {offset}, after {last}, is {content}, and {acknowledged} was acknowledged there"
                raise ViolationError("written-by-us", text)
            last = offset

    def _check_latest(self, where: str, records: list[tuple[int, Content]]) -> None:
        found = {key: offset for offset, (key, _) in records}
        latest = {key: (offset, value) for offset, (key, value) in sorted(self._acknowledged[COMPACTED].items())}
        for key, (offset, value) in latest.items():
            if value is not None and found.get(key, -1) < offset and key not in self._perhaps_deleted:
                text = f"{where}: of {key!r} it has {found.get(key)}, and {offset} was acknowledged"
                raise ViolationError("latest-kept", text)

    def _check_retained(
        self, where: str, topic_id: UUID, log: PartitionLog, records: list[tuple[int, Content]]
    ) -> None:
        offsets, start = {offset for offset, _ in records}, log.log_start_offset
        lost = [offset for offset in self._acknowledged[RETAINED] if offset >= start and offset not in offsets]
        if lost:
            raise ViolationError("retained", f"{where}: it begins at {start} and lacks {lost}")
        if start:
            self.world.mark(Mark.RETAINED)
        latest = max(self._delete_below, self.world.retained_from.get((topic_id, 0), 0))
        if start > latest:
            raise ViolationError("retained", f"{where}: it begins at {start}, and {latest} is the latest that it may")


def _records(log: PartitionLog) -> Iterator[tuple[int, Content]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, _READ_BYTES, True).read()
        before = offset
        for position, header in scan(data):
            for record in decode_records(memoryview(data)[position : position + header.size]):
                if record.offset >= before:
                    key, value = record.key, record.value
                    yield record.offset, (None if key is None else bytes(key), None if value is None else bytes(value))
            offset = header.next_offset
        if offset == before:
            return
