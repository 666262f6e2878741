"""A watched image takes what a controller may say, and complains of each thing that none may."""

from __future__ import annotations

import uuid
from copy import deepcopy

import pytest

from sparkonce.broker_lite.cluster.watching import WatchedImage
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import (
    BrokerChanged,
    BrokerRegistered,
    ControllerElected,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    TopicCreated,
)
from sparkonce.broker_lite.replication.invariants import ViolationError

TOPIC = uuid.UUID(int=1)
BEGUN = PartitionState((1, 2), (1, 2), 1, 0, 0)
MOVED = PartitionState((1, 2), (2,), 2, 1, 1)


def partition(state: PartitionState) -> PartitionChanged:
    return PartitionChanged(TOPIC, 0, state)


def there(broker_id: int, offset: int) -> list[MetadataRecord]:
    """Return the records of a broker that registers at an offset and is unfenced."""
    registered = BrokerRegistered(broker_id, uuid.UUID(int=broker_id), "h", broker_id)
    return [registered, BrokerChanged(broker_id, offset, fenced=False, shutting_down=False)]


@pytest.fixture
def watched() -> WatchedImage:
    """Two brokers that are there, and a partition that broker 1 leads."""
    found = WatchedImage()
    found.take([ControllerElected(1, 3), *there(1, 1), *there(2, 3), TopicCreated("t", TOPIC), partition(BEGUN)])
    return found


def snapshot(watched: WatchedImage) -> ClusterImage:
    found = deepcopy(watched.image)
    found.next_offset += 1
    return found


def violates(invariant: str) -> pytest.RaisesExc[ViolationError]:
    return pytest.raises(ViolationError, match=f"^{invariant}: ")


def test_what_a_controller_decides_is_taken(watched: WatchedImage) -> None:
    watched.take(snapshot(watched))
    watched.take([ControllerElected(2, 4)])
    watched.take([partition(MOVED)])
    assert watched.image.partition((TOPIC, 0)) == MOVED


@pytest.mark.parametrize(
    ("invariant", "state"),
    [
        ("leader-in-sync", MOVED._replace(in_sync_replicas=(1,))),
        ("epochs-rise", MOVED._replace(partition_epoch=0)),
        ("epochs-rise", MOVED._replace(leader_epoch=0)),
        ("epochs-rise", BEGUN._replace(leader_epoch=1, partition_epoch=1)),
    ],
)
def test_a_change_that_may_not_be_is_told_and_taken(
    watched: WatchedImage, invariant: str, state: PartitionState
) -> None:
    with violates(invariant):
        watched.take([partition(state)])
    assert watched.image.partition((TOPIC, 0)) == state


def test_two_leaders_of_one_epoch_are_told(watched: WatchedImage) -> None:
    watched.take([partition(MOVED)])
    later = snapshot(watched)
    later.next_offset += 5  # some of the log was missed
    later.topics[TOPIC].partitions[0] = MOVED._replace(leader=1, in_sync_replicas=(1,), partition_epoch=9)
    with violates("one-leader"):
        watched.take(later)


def test_a_controller_epoch_that_comes_again_is_told(watched: WatchedImage) -> None:
    with violates("epochs-rise"):
        watched.take([ControllerElected(2, 3)])


def test_one_fenced_and_in_sync_is_told(watched: WatchedImage) -> None:
    with violates("leader-in-sync"):
        watched.take([BrokerChanged(2, 3, fenced=True, shutting_down=False)])


def test_a_snapshot_that_forgets_is_told(watched: WatchedImage) -> None:
    forgetful = snapshot(watched)
    forgetful.next_producer_id += 1000
    with violates("images-equal"):
        watched.take(forgetful)


def test_a_snapshot_after_what_was_missed_may_differ_but_not_go_back(watched: WatchedImage) -> None:
    watched.take([partition(MOVED)])
    later = snapshot(watched)
    later.next_offset += 5
    later.topics[TOPIC].partitions[0] = BEGUN._replace(leader_epoch=2, partition_epoch=2)
    watched.take(later)
    back = snapshot(watched)
    back.next_offset += 5
    back.topics[TOPIC].partitions[0] = BEGUN._replace(leader_epoch=2, partition_epoch=1)
    with violates("epochs-rise"):
        watched.take(back)
