"""What should be fast in a healthy cluster, and is not if a wake-up is missed somewhere.

    prompt      a transaction can begin right after the last one ended: its markers are written and replicated by
                then, or within the time for which a coordinator lets AddPartitionsToTxn wait (`node/markers.py`)

Times are simulated, so limits are exact to the millisecond: no faults are left, and a message takes 2 ms.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lab.sim.clients.client import TRANSACTION, Client, UnreachableError
from sparkonce.broker_lite.coordinators.offsets import partition_of
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Any

    from lab.sim.world import World

_TRANSACTIONS: Final = 6
_MOST_MS: Final = 60
"""How long an answer may take: three round trips, and as much again."""
_WAIT_MS: Final = 10_000


class _MovedError(Exception):
    """A leader took over just before, or a broker heard of it late: requests may be rejected then, and are retried."""


class Prober(Client):
    """Begins and ends transactions without records, and measures."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_done = False
        self.slowest_ms = 0

    def name_and_place(self) -> tuple[str, str, int] | None:
        """Return a transactional id, and a partition led by its coordinator."""
        image = self.world.image
        partitions = image.topics[image.topic_ids[TRANSACTIONS_TOPIC]].partitions
        for name in (f"prober-{number}" for number in range(8)):
            coordinator = partitions[partition_of(name, len(partitions))].leader
            for topic, index in self.world.places:
                state = image.topics[image.topic_ids[topic]].partitions[index]
                if state.leader == coordinator:
                    return name, topic, index
        return None

    async def probe(self) -> None:
        """Measure, if there is a suitable partition; again if leaders change meanwhile."""
        try:
            while (found := self.name_and_place()) is not None:
                self._coordinators.clear()  # this answer may be from just before another broker was elected
                with suppress(_MovedError):
                    await self._probe(*found)
                    break
        except UnreachableError as error:
            self.world.violated(ViolationError("prompt", f"nothing goes wrong any more, but: {error}"))
        self.is_done = True

    async def _probe(self, name: str, topic: str, index: int) -> None:
        began_ms = self.world.scheduler.now_ms
        answer = await self._ask(
            name, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=60_000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        if answer.error_code:
            self._late("InitProducerId", answer.error_code, began_ms)
            return
        producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        for _ in range(_TRANSACTIONS):
            began_ms = self.world.scheduler.now_ms
            added = await self._ask(
                name,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer["producer_id"],
                v3_and_below_producer_epoch=producer["producer_epoch"],
                v3_and_below_topics=[(topic, [index])],
            )
            error = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            self._measured("AddPartitionsToTxn", error, began_ms)
            began_ms = self.world.scheduler.now_ms
            ended = await self._ask(name, ApiKey.END_TXN, 3, transactional_id=name, **producer, committed=True)
            self._measured("EndTxn", ended.error_code, began_ms)

    async def _ask(self, name: str, api_key: ApiKey, version: int, **fields: Any) -> Any:
        return await self.ask(await self.coordinator(TRANSACTION, name), api_key, version, **fields)

    def _measured(self, api: str, error: int, began_ms: int) -> None:
        took_ms = self.world.scheduler.now_ms - began_ms
        self.slowest_ms = max(self.slowest_ms, took_ms)
        if error or took_ms > _MOST_MS:
            self._late(api, error, began_ms)

    def _late(self, api: str, error: int, began_ms: int) -> None:
        processes = [each.process for each in self.world.brokers.values()]
        held_ms = [
            each.zookeeper.held_until_ms for each in processes if each is not None and each.zookeeper is not None
        ]
        if max([self.world.leader_changed_ms, *held_ms]) >= began_ms - _MOST_MS:  # brokers learn of it a little later
            raise _MovedError
        name, took_ms = ErrorCode.of(error).name, self.world.scheduler.now_ms - began_ms
        text = f"the cluster is well, and {api} is answered with {name} after {took_ms} ms"
        self.world.violated(ViolationError("prompt", text))


def probe(world: World) -> None:
    """Measure transaction latency, now that the cluster has recovered."""
    if not world.plan.transactional or world.is_lossy:
        return
    prober = Prober(world)
    prober.run(prober.probe())
    until_ms = world.scheduler.now_ms + _WAIT_MS
    while not prober.is_done and world.scheduler.now_ms < until_ms:
        world.pass_until(world.scheduler.now_ms + 20)
    world.trace(lambda: f"the slowest answer to the prober took {prober.slowest_ms} ms")
