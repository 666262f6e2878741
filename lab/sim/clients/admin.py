"""An administrator: creates topics, changes settings, requests elections and reassignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lab.sim.clients.client import GROUP, TRANSACTION, Client, UnreachableError
from lab.sim.machine.settings import INTERNAL_SEGMENT_BYTES, has_cleaning
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from lab.sim.plan import TopicPlan

_COORDINATED: Final = {OFFSETS_TOPIC: GROUP, TRANSACTIONS_TOPIC: TRANSACTION}
_TOPIC: Final = 2
_BROKER: Final = 4
_SET: Final = 0


class Admin(Client):
    """The one administrator of a cluster."""

    has_created = False
    """Whether all topics of the plan are there, with their settings."""

    async def create_topics(self) -> None:
        """Create the plan's topics; retry until it succeeds."""
        for topic in self.world.plan.topics:
            kind = _COORDINATED.get(topic.name)
            while not await (self._create(topic) if kind is None else self._create_internal(topic, kind)):
                await self.pause(100)
        self.has_created = True

    async def _create(self, topic: TopicPlan) -> bool:
        configs = [(name, value) for name, value in _settings(topic, topic.minimums[0], unclean=topic.unclean).items()]
        if topic.flushed:
            configs.append(("flush.messages", "1"))
        configs.append(("segment.bytes", str(topic.segment_bytes)))
        answer = await self._try(
            ApiKey.CREATE_TOPICS, 5, topics=[(topic.name, topic.partitions, 3, [], configs)], timeout_ms=5_000,
            validate_only=False,
        )  # fmt: skip
        return answer is not None and answer.topics[0].error_code in (
            ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS,
        )  # fmt: skip

    async def _create_internal(self, topic: TopicPlan, kind: int) -> bool:
        if topic.name not in self.world.image.topic_ids:
            await self._try(ApiKey.FIND_COORDINATOR, 3, key="any", key_type=kind)
            return False
        settings = _settings(topic, topic.minimums[0], unclean=False)
        if has_cleaning(self.world.plan.seed):
            settings["segment.bytes"] = str(INTERNAL_SEGMENT_BYTES)
        return await self._alter(_TOPIC, topic.name, settings)

    async def change_settings(self, topic: TopicPlan, minimum: int, *, unclean: bool) -> None:
        """Change settings of a topic."""
        await self._alter(_TOPIC, topic.name, _settings(topic, minimum, unclean=unclean))

    async def change_default(self, minimum: int) -> None:
        """Change the `min.insync.replicas` of the cluster."""
        await self._alter(_BROKER, "", {"min.insync.replicas": str(minimum)})

    async def _alter(self, kind: int, name: str, settings: dict[str, str]) -> bool:
        configs = [(setting, _SET, value) for setting, value in settings.items()]
        if not configs:
            return True
        answer = await self._try(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[(kind, name, configs)], validate_only=False
        )
        return answer is not None and answer.responses[0].error_code == ErrorCode.NONE

    async def elect(self, topic: str, partition: int) -> None:
        """Request the election of the preferred leader."""
        await self._try(
            ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=[(topic, [partition])], timeout_ms=1_000
        )

    async def reassign(self, topic: str, partition: int, target: tuple[int, ...] | None) -> None:
        """Request a reassignment; None cancels one."""
        replicas = None if target is None else list(target)
        await self._try(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1_000, topics=[(topic, [(partition, replicas)])]
        )

    async def lead(self, topic: str, partition: int, replicas: tuple[int, ...]) -> None:
        """Put another of its replicas first, and request its election."""
        await self.reassign(topic, partition, replicas)
        await self.elect(topic, partition)

    async def _try(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        try:
            return await self.ask(self.some_broker(), api_key, version, **fields)
        except UnreachableError:
            return None


def _settings(topic: TopicPlan, minimum: int, *, unclean: bool) -> dict[str, str]:
    settings = {} if topic.by_default else {"min.insync.replicas": str(minimum)}
    if topic.unclean:
        settings["unclean.leader.election.enable"] = "true" if unclean else "false"
    return settings
