"""The controller in one broker's process: requests come in, records become durable, answers go out, in that order."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings, InSyncProposal
from sparkonce.broker_lite.controller.image import MIN_IN_SYNC_REPLICAS, UNCLEAN_ELECTION, ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import ControllerElected, PartitionState, Record
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.plan import TopicPlan

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker
    from sparkonce.broker_lite.sim.node import Call

_REFUSALS = {
    ErrorCode.INELIGIBLE_REPLICA: Mark.REFUSED_INELIGIBLE,
    ErrorCode.INVALID_UPDATE_VERSION: Mark.REFUSED_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH: Mark.REFUSED_LEADER,
    ErrorCode.STALE_BROKER_EPOCH: Mark.STALE_BROKER,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: Mark.TWO_REGISTRATIONS,
}

Decision = Callable[[Controller], tuple[list[Record], Any]]


class ControllerHost:
    """What a broker has while it holds the lock."""

    def __init__(self, broker: SimulatedBroker) -> None:
        """Begin from what the log says."""
        self._broker = broker
        self._world = broker.world
        image = ClusterImage()
        for record in self._world.metadata.records:
            image.apply(record)
        elected = ControllerElected(broker.node_id, image.controller_epoch + 1)
        image.apply(elected)
        plan = self._world.plan.settings
        defaults = {MIN_IN_SYNC_REPLICAS: str(self._world.plan.default_minimum)}
        settings = ControllerSettings(plan.session_ms, plan.rebalance_ms, defaults)
        self.controller = Controller(image, settings, broker.now_ms)
        self.commit([elected, *self.controller.begin()], lambda: None)

    def commit(self, records: list[Record], then: Callable[[], None]) -> None:
        """Let records become durable, and then do something, if this is still the controller."""
        self._world.metadata.write(records, then)

    def decide(self, call: Call, decision: Decision) -> None:
        """Answer a call with what the controller decides, or its error code."""
        try:
            records, answer = decision(self.controller)
        except KafkaError as error:
            self._refused(error.code)
            call.answer(error.code)
            return
        incarnation = self._broker.incarnation
        self.commit(records, lambda: self._broker.do(incarnation, call.answer, (answer,)))

    def tick(self) -> None:
        """Look at leases and balance."""
        fenced = {broker_id for broker_id, each in self.controller.image.brokers.items() if each.fenced}
        records = []
        if self._world.plan.settings.locks:
            records = self.controller.fence(
                each for each in self.controller.image.brokers if not self._world.brokers[each].alive
            )
        records += self.controller.tick(self._broker.now_ms)
        if not records:
            return
        if {broker_id for broker_id, each in self.controller.image.brokers.items() if each.fenced} > fenced:
            self._world.mark(Mark.SESSION_ENDED)
        else:
            self._world.mark(Mark.BALANCED)
        self.commit(records, lambda: None)

    def register(self, call: Call, broker_id: int, incarnation: uuid.UUID, last_epoch: int) -> None:
        """Answer a registration with the broker's epoch."""
        now_ms = self._broker.now_ms

        def decision(core: Controller) -> tuple[list[Record], int]:
            known, records = core.image.brokers.get(broker_id), []
            if self._world.plan.settings.locks and known is not None and known.incarnation != incarnation:
                records = core.fence((broker_id,))  # who asks now holds the lock, so the one before is dead
            registered, epoch = core.register(broker_id, incarnation, "sim", broker_id, last_epoch, now_ms)
            return records + registered, epoch

        self.decide(call, decision)

    def heartbeat(self, call: Call, broker_id: int, broker_epoch: int, next_offset: int, stops: bool) -> None:
        """Answer a heartbeat."""
        now_ms = self._broker.now_ms
        self.decide(call, lambda core: core.heartbeat(broker_id, broker_epoch, next_offset, stops, now_ms))

    def alter(self, call: Call, broker_id: int, broker_epoch: int, proposals: list[InSyncProposal]) -> None:
        """Answer proposals, each with a state or an error code."""

        def decision(core: Controller) -> tuple[list[Record], list[PartitionState | ErrorCode]]:
            records, answers = core.alter_in_sync(broker_id, broker_epoch, proposals)
            codes = [each.code if isinstance(each, KafkaError) else each for each in answers]
            for code in codes:
                if isinstance(code, ErrorCode):
                    self._refused(code)
            return records, codes

        before = [self.controller.image.partition(each.key) for each in proposals]
        self.decide(call, decision)
        for proposal, state in zip(proposals, before, strict=True):
            now = self.controller.image.partition(proposal.key)
            if now is not None and state is not None and now is not state:
                fewer = len(now.in_sync_replicas) < len(state.in_sync_replicas)
                self._world.mark(Mark.SHRUNK if fewer else Mark.EXPANDED)

    def elect(self, call: Call, key: PartitionKey) -> None:
        """Let the preferred leader lead."""
        self.decide(call, lambda core: (core.elect(key, unclean=False), True))

    def create_topics(self, call: Call) -> None:
        """Make the plan's topics that are not there."""

        def decision(core: Controller) -> tuple[list[Record], bool]:
            records: list[Record] = []
            for index, topic in enumerate(self._world.plan.topics):
                if topic.name not in core.image.topic_ids:
                    settings = topic_settings(topic, topic.minimums[0], unclean=topic.unclean)
                    topic_id = uuid.UUID(int=index + 1)
                    records += core.create_topic(topic.name, topic_id, topic.partitions, 3, settings)
            return records, True

        self.decide(call, decision)

    def change_settings(self, call: Call, topic: TopicPlan, minimum: int, *, unclean: bool) -> None:
        """Let a topic have other settings."""
        eligible = self._with_eligible()
        wanted = topic_settings(topic, minimum, unclean=unclean)
        self.decide(call, lambda core: (core.change_settings(topic.name, wanted), True))
        self._note_settings(eligible)

    def change_default(self, call: Call, minimum: int) -> None:
        """Let the cluster have another `min.insync.replicas`."""
        eligible = self._with_eligible()
        wanted = {MIN_IN_SYNC_REPLICAS: str(minimum)}
        self.decide(call, lambda core: (core.change_default_settings(wanted), True))
        self._note_settings(eligible)

    def _note_settings(self, eligible_before: int) -> None:
        self._world.mark(Mark.SETTINGS)
        if self._with_eligible() < eligible_before:
            self._world.mark(Mark.ELIGIBLE_NO_MORE)

    def _with_eligible(self) -> int:
        """Return how many partitions have eligible leaders that are not in sync."""
        return sum(1 for _, each in self.controller.image.partitions() if each.eligible_leader_replicas)

    def reassign(self, call: Call, key: PartitionKey, target: tuple[int, ...] | None) -> None:
        """Let a partition move to other replicas; None gives a move up."""

        def decision(core: Controller) -> tuple[list[Record], bool]:
            records = core.reassign(key, target)
            self._world.mark(Mark.MOVE if target is not None else Mark.MOVE_GIVEN_UP)
            return records, True

        self.decide(call, decision)

    def _refused(self, code: ErrorCode) -> None:
        mark = _REFUSALS.get(code)
        if mark is not None:
            self._world.mark(mark)


def topic_settings(topic: TopicPlan, minimum: int, *, unclean: bool) -> dict[str, str]:
    """Return a topic's own settings."""
    settings = {UNCLEAN_ELECTION: str(unclean).lower()}
    if not topic.by_default:
        settings[MIN_IN_SYNC_REPLICAS] = str(minimum)
    return settings
