"""Groups of KIP-848 on a simulated broker, as part of a coordinator of `__consumer_offsets`.

Theory of operation: as `node/group_coordinator.py` does it. What a heartbeat, or the end of a session, comes to is
appended first and made true then; if it cannot be appended, nothing has happened. A heartbeat's answer waits until the
partition is safe as far as it goes then.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparkonce.broker_lite.coordinators.assignors import Partitions
from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.consumer_group_image import GroupImage, check_image
from sparkonce.broker_lite.coordinators.consumer_group_messages import (
    ConsumerGroupSettings,
    Decision,
    Heartbeat,
    HeartbeatAnswer,
)
from sparkonce.broker_lite.coordinators.group_records import encode_change
from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.ownership import Written

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker
    from sparkonce.broker_lite.sim.grouping import GroupCoordinator
    from sparkonce.broker_lite.sim.world import World

_RETRY_MS = 100
_MAX_SIZE = 100
_ASSIGNORS = ("uniform", "range")


class PlannedTopics:
    """The topics of a plan, as groups see them; none comes or goes."""

    version = 0

    def __init__(self, world: World) -> None:
        self._world = world

    def names(self) -> Iterable[str]:
        """Return all names."""
        return [topic.name for topic in self._world.plan.topics]

    def id_and_partitions(self, name: str) -> tuple[uuid.UUID, int] | None:
        """Return a topic's id and how many partitions it has."""
        found = next((each for each in self._world.plan.topics if each.name == name), None)
        return None if found is None else (self._world.key_of((name, 0))[0], found.partitions)


class ConsumerGroups:
    """Those of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator, broker: SimulatedBroker) -> None:
        self._coordinator = coordinator
        self._broker = broker
        self._topics = PlannedTopics(broker.world)
        self._not_before_ms: dict[str, int] = {}
        """When what could not be written at the end of a session is tried again."""
        self.groups: dict[str, ConsumerGroup] = {}

    def read_back(self, images: Mapping[str, GroupImage]) -> None:
        """Continue with groups that were read back: sessions of members restart."""
        for group_id, image in images.items():
            check_image(image)
            group = self.groups[group_id] = ConsumerGroup(group_id, self._settings(group_id), image)
            group.resume(self._now_ms)
            if image.members:
                self._broker.world.mark(Mark.CONSUMER_GROUP_READ_BACK)

    def tick(self) -> None:
        """End sessions, and the patience with members that do not give up partitions."""
        for group in list(self.groups.values()):
            deadline_ms = group.next_deadline_ms
            wait_ms = self._not_before_ms.get(group.group_id, 0)
            if deadline_ms is None or max(deadline_ms, wait_ms) > self._now_ms:
                continue
            decision = group.expire(self._now_ms, self._topics)
            if decision is None:
                continue
            try:
                self._settle(group, decision)
            except KafkaError:
                self._not_before_ms[group.group_id] = self._now_ms + _RETRY_MS

    def heartbeat(self, group_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """Handle a member's heartbeat.

        Raises:
            KafkaError: those of the core; COORDINATOR_NOT_AVAILABLE if it could not be written.
        """
        old = self.groups.get(group_id)
        if old is None and request.member_epoch != 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group = old or ConsumerGroup(group_id, self._settings(group_id))
        decision = group.heartbeat(request, self._topics, self._broker.now_ms)
        self._settle(group, decision)
        assert decision.answer is not None
        return decision.answer

    @property
    def _now_ms(self) -> int:
        return self._broker.scheduler.now_ms

    def _settings(self, group_id: str) -> ConsumerGroupSettings:
        session_ms = next(each.session_ms for each in self._broker.world.plan.groups if each.group_id == group_id)
        return ConsumerGroupSettings(session_ms, session_ms // 3, _MAX_SIZE, _ASSIGNORS)

    def _settle(self, group: ConsumerGroup, decision: Decision) -> None:
        """Write a decision, then apply it."""
        coordinator, now_ms = self._coordinator, self._broker.now_ms
        records = [encode_change(group.group_id, change, now_ms) for change in decision.changes]
        text = f"{decision.image.state.value}, epoch {decision.image.epoch}, members {sorted(decision.image.members)}"
        gone = sorted(group.image.members.keys() - decision.image.members.keys())

        def note(written: Written) -> None:
            for member_id in gone:
                self._broker.world.holders.removed(group.group_id, member_id, written)

        if records:
            try:
                coordinator.append(records, lambda: f"group {group.group_id} is {text}", note)
            except KafkaError as error:
                self._broker.world.mark(Mark.GROUP_NOT_WRITTEN)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        self.groups[group.group_id] = group
        group.accept(decision, self._now_ms, self._topics.version)
        check_image(group.image)


def places_of(world: World, owned: Mapping[uuid.UUID, Iterable[int]]) -> frozenset[TopicPartition]:
    """Return partitions by their topics' names."""
    return frozenset(world.place_of((topic_id, index)) for topic_id, indexes in owned.items() for index in indexes)


def owned_of(world: World, places: Iterable[TopicPartition]) -> Partitions:
    """Return partitions by their topics' ids."""
    found: dict[uuid.UUID, frozenset[int]] = {}
    for place in places:
        topic_id, index = world.key_of(place)
        found[topic_id] = found.get(topic_id, frozenset()) | {index}
    return found
