"""Checks a running cluster, or the files of a stopped one, against the simulator's invariants.

Theory of operation: the controller's log is read step by step, as a broker reads it, and each change of a partition is
compared with its former state. A reader that missed a part, since a new log was begun meanwhile, finds a snapshot: then
epochs must not have decreased, and if nothing was missed, the snapshot equals the known image.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from sparkonce.broker_lite.cluster.coordination import Step
from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import ControllerElected, MetadataRecord, PartitionChanged, PartitionState
from sparkonce.broker_lite.replication.invariants import (
    PartitionHistory,
    ViolationError,
    check_image,
    check_images_equal,
)

SNAPSHOT_RECORDS: Final = 1
"""How many records of the log a snapshot is."""


class WatchedImage:
    """The cluster according to its controller's log; raises an error where an invariant is violated."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._histories: dict[PartitionKey, PartitionHistory] = {}

    def take(self, step: Step) -> None:
        """Apply the next step of the log.

        Raises:
            ViolationError: if it breaks an invariant (leader-in-sync, one-leader, epochs-rise, images-equal). The step
                is applied all the same.
        """
        broker_epochs = {each.broker_id: each.broker_epoch for each in self.image.brokers.values()}
        if isinstance(step, ClusterImage):
            before, self.image = self.image, step
            self._check_snapshot(before)
        else:
            self._apply(step)
        check_image(broker_epochs, self.image)

    def _apply(self, changes: list[MetadataRecord]) -> None:
        violation: ViolationError | None = None
        for change in changes:
            try:
                self._check_change(change)
            except ViolationError as error:
                violation = violation or error
            self.image.apply(change)
        if violation is not None:
            raise violation

    def _check_change(self, change: MetadataRecord) -> None:
        if isinstance(change, PartitionChanged):
            key = (change.topic_id, change.partition)
            history = self._history(key, self.image)
            history.changed(self.image.partition(key), change.state)
            _check_leader(history, change.state)
        elif isinstance(change, ControllerElected) and change.controller_epoch <= self.image.controller_epoch:
            raise ViolationError("epochs-rise", f"controller epoch {change.controller_epoch} comes again")

    def _check_snapshot(self, before: ClusterImage) -> None:
        after = self.image
        if before.next_offset and after.next_offset == before.next_offset + SNAPSHOT_RECORDS:
            known = copy(before)
            known.next_offset = after.next_offset
            check_images_equal(known, after, "who has followed the log")
        if after.next_offset < before.next_offset or after.controller_epoch < before.controller_epoch:
            raise ViolationError(
                "epochs-rise", f"a snapshot at offset {after.next_offset} is older than what came before"
            )
        for key, state in after.partitions():
            history = self._history(key, after)
            history.changed(None, state)
            _check_leader(history, state)
            known_state = before.partition(key)
            if known_state is not None:
                _check_not_older(history.name, known_state, state)

    def _history(self, key: PartitionKey, image: ClusterImage) -> PartitionHistory:
        if key not in self._histories:
            topic = image.topics.get(key[0])
            self._histories[key] = PartitionHistory(f"{key[0] if topic is None else topic.name}-{key[1]}")
        return self._histories[key]


def _check_leader(history: PartitionHistory, state: PartitionState) -> None:
    """Check that no other broker has led in this epoch (one-leader)."""
    if state.leader >= 0:
        history.leads(state.leader, state.leader_epoch, [], current=False)


def _check_not_older(name: str, before: PartitionState, after: PartitionState) -> None:
    if after.leader_epoch < before.leader_epoch or after.partition_epoch < before.partition_epoch:
        raise ViolationError("epochs-rise", f"{name}: from {before} to {after}")
    if after.partition_epoch == before.partition_epoch and after != before:
        raise ViolationError("epochs-rise", f"{name}: one partition epoch is both {before} and {after}")
