"""Topics and members to try KIP-848 groups with."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from sparkonce.broker_lite.coordinators.assignors import Partitions
from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.coordinators.consumer_group_image import GroupImage
from sparkonce.broker_lite.coordinators.consumer_group_messages import (
    ConsumerGroupSettings,
    Decision,
    Heartbeat,
    HeartbeatAnswer,
)
from sparkonce.broker_lite.coordinators.group_records import ConsumerRecord, decode, encode_change
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.kafka.protocol.records import Record

SESSION_MS = 45_000
REBALANCE_MS = 60_000
SETTINGS = ConsumerGroupSettings(SESSION_MS, 5_000, 4, ("uniform", "range"))


class FakeTopics:
    def __init__(self, **partitions: int) -> None:
        self.version = 0
        self._topics: dict[str, tuple[uuid.UUID, int]] = {}
        self._ids = 0
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self._ids += 1
        self._topics[name] = (uuid.UUID(int=self._ids), count)
        self.version += 1

    def grow(self, name: str, count: int) -> None:
        """More partitions are seen by those who subscribe, not by a new version: names are the same."""
        self._topics[name] = (self._topics[name][0], count)

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def names(self) -> Iterable[str]:
        return [*self._topics, OFFSETS_TOPIC]

    def id_and_partitions(self, name: str) -> tuple[uuid.UUID, int] | None:
        return self._topics.get(name)

    def all_of(self, names: Iterable[str]) -> set[tuple[uuid.UUID, int]]:
        found = [self._topics[name] for name in names if name in self._topics]
        return {(topic_id, index) for topic_id, count in found for index in range(count)}


class Carried:
    """A group whose changes are written to a list of records, as the broker writes them to its log."""

    def __init__(self, topics: FakeTopics, settings: ConsumerGroupSettings = SETTINGS) -> None:
        self.group = ConsumerGroup("g", settings)
        self.topics = topics
        self.now_ms = 0
        self.log: list[Record] = []

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        decision = self.decide(member_id, epoch, **fields)
        self.take(decision)
        assert decision.answer is not None
        return decision.answer

    def decide(self, member_id: str, epoch: int, **fields: Any) -> Decision:
        return self.group.heartbeat(Heartbeat(member_id, epoch, **fields), self.topics, 1_000 + self.now_ms)

    def take(self, decision: Decision) -> None:
        self.log += [encode_change("g", change, 0) for change in decision.changes]
        self.group.accept(decision, self.now_ms, self.topics.version)

    def join(self, member_id: str, *names: str, **fields: Any) -> HeartbeatAnswer:
        complete = {"topic_names": names, "rebalance_timeout_ms": REBALANCE_MS, "owned": {}, **fields}
        return self.heartbeat(member_id, 0, **complete)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        decision = self.group.expire(self.now_ms, self.topics)
        if decision is not None:
            self.take(decision)

    def replayed(self) -> GroupImage:
        image = GroupImage()
        for record in self.log:
            found = decode(record)
            assert isinstance(found, ConsumerRecord)
            assert found.change is not None
            image.apply(found.change)
        return image

    def restart(self) -> None:
        self.group = ConsumerGroup("g", self.group.settings, self.replayed())
        self.group.resume(self.now_ms)


def contents(image: GroupImage) -> tuple[object, ...]:
    return (
        image.epoch,
        image.metadata_hash,
        image.members,
        image.targets,
        image.target_epoch,
        image.patterns,
        image._owners,
    )


def plain(answer: HeartbeatAnswer) -> Partitions | None:
    if answer.assignment is None:
        return None
    return {topic_id: frozenset(indexes) for topic_id, indexes in answer.assignment.items()}
