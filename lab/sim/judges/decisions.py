"""Checks the controllers' decisions: each record when it is written, and against earlier decisions.

Theory of operation: `Truth` reads the controller's log and passes each step to this class, which applies it to the
true image; a step about a partition is added to that partition's history, and its in-sync and eligible replicas
must have all safe records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.sim.judges.images import as_known
from lab.sim.marks import Mark
from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import (
    NO_LEADER,
    BrokerRegistered,
    ControllerElected,
    DefaultSettingsChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    TopicSettingsChanged,
)
from sparkonce.broker_lite.replication.invariants import Replica, ViolationError, check_image, check_images_equal

if TYPE_CHECKING:
    from lab.sim.world import World
    from sparkonce.broker_lite.cluster.coordination import Step as MetadataStep


class Decisions:
    """Checks each step of the controller's log."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._broker_epochs: dict[int, int] = {}
        self._controllers = 0

    def landed(self, step: MetadataStep) -> None:
        """Apply written steps to the true image, and check it."""
        if isinstance(step, ClusterImage):
            if self._world.image.next_offset:
                self._world.judge(lambda: self._check_snapshot(step))
            else:
                self._world.metadata.image = step
            self._world.image.next_offset = step.next_offset
            return
        self._world.judge(lambda: self._apply(step))
        for machine in self._world.brokers.values():
            machine.hear_later()

    def _check_snapshot(self, snapshot: ClusterImage) -> None:
        """Compare a new controller's snapshot with earlier decisions."""
        snapshot.next_offset, offset = self._world.image.next_offset, snapshot.next_offset
        former = (as_known(self._world.image, each) for each in self._world.versions[1:])
        if snapshot not in former:  # the controller's version may leave out what it does not know
            check_images_equal(snapshot, self._world.image, "the snapshot of a new controller")
        snapshot.next_offset = offset

    def _apply(self, step: list[MetadataRecord]) -> None:
        image, registered, eligible = self._world.image, [], self._eligible()
        for record in step:
            self._world.trace(lambda record=record: f"log {image.next_offset}: {record}")  # type: ignore[misc]
            if isinstance(record, PartitionChanged):
                key = (record.topic_id, record.partition)
                before = image.partition(key)
                self._world.history_of(key).changed(before, record.state)
                image.apply(record)
                if before is not None:
                    if before.leader_epoch != record.state.leader_epoch:
                        self._world.leader_changed_ms = self._world.scheduler.now_ms
                    self._note_election(key, before, record.state)
                self.check_members(key)
                continue
            if isinstance(record, ControllerElected):
                if record.controller_epoch <= image.controller_epoch:
                    raise ViolationError("epochs-rise", f"controller epoch {record.controller_epoch} comes again")
                self._controllers += 1
                if self._controllers > 1:
                    self._note_failover()
            image.apply(record)
            if isinstance(record, BrokerRegistered):
                registered.append(record.broker_id)
        settings = (TopicSettingsChanged, DefaultSettingsChanged)
        if any(isinstance(each, settings) for each in step) and self._eligible() < eligible:
            self._world.mark(Mark.ELIGIBLE_NO_MORE)
        check_image(self._broker_epochs, image)
        self._broker_epochs = {each: image.broker_epoch(each) for each in image.brokers}
        for broker_id in registered:
            for key, _ in image.partitions():
                self.check_member(key, broker_id)

    def _note_failover(self) -> None:
        self._world.mark(Mark.FAILOVER)
        processes = [each.process for each in self._world.brokers.values() if each.process is not None]
        if any(role.proposal is not None for each in processes for role in each.led.values()):
            self._world.mark(Mark.FAILOVER_IN_PROPOSAL)

    def _eligible(self) -> int:
        """Return how many replicas are eligible to lead without being in sync."""
        return sum(len(state.eligible_leader_replicas) for _, state in self._world.image.partitions())

    def _note_election(self, key: PartitionKey, before: PartitionState, after: PartitionState) -> None:
        if before.adding_replicas and not after.adding_replicas and before.replicas != after.replicas:
            self._world.mark(Mark.MOVED)
        if after.leader == NO_LEADER:
            self._world.mark(Mark.NOBODY_LEADS)
        elif after.leader in before.in_sync_replicas:
            return
        elif after.leader in before.eligible_leader_replicas:
            self._world.mark(Mark.ELIGIBLE)
        elif after.leader == before.last_known_leader and not before.eligible_leader_replicas:
            self._world.mark(Mark.LAST_KNOWN)
        elif after.leader != before.leader:
            self._world.mark(Mark.UNCLEAN)
            self._world.history_of(key).loses(after.leader_epoch)

    def check_members(self, key: PartitionKey) -> None:
        """Check all in-sync and eligible replicas."""
        state = self._world.image.partition(key)
        if state is not None:
            self._world.history_of(key).check_members(
                self._replica(key, each)
                for each in (*state.in_sync_replicas, *state.eligible_leader_replicas)
                if not self._has_forgotten(key, each)
            )

    def check_member(self, key: PartitionKey, broker_id: int) -> None:
        """Check one replica, if it is in sync or eligible."""
        state = self._world.image.partition(key)
        if state is None or broker_id not in (*state.in_sync_replicas, *state.eligible_leader_replicas):
            return
        if not self._has_forgotten(key, broker_id):
            self._world.history_of(key).check_members((self._replica(key, broker_id),))

    def _replica(self, key: PartitionKey, broker_id: int) -> Replica:
        log = self._world.logs.get((broker_id, key))
        return Replica(broker_id, () if log is None else log.batches)

    def _has_forgotten(self, key: PartitionKey, broker_id: int) -> bool:
        """Whether a replica may have lost records since which its broker has not registered again."""
        forgot_epoch = self._world.brokers[broker_id].forgot_epoch
        return not self._world.topic_of(key).flushed and forgot_epoch == self._world.image.broker_epoch(broker_id)
