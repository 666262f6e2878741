"""Whether a controller's log has a position: also where it was replaced by an older copy, and went on from there."""

from __future__ import annotations

import random
import uuid

import pytest

from sparkonce.broker_lite.controller import image as module
from sparkonce.broker_lite.controller.image import ClusterImage, LogPosition
from sparkonce.broker_lite.controller.records import ControllerElected, ProducerIdsAllocated
from sparkonce.broker_lite.replication.invariants import ViolationError, check_images_equal
from tests.cases import each_case

Log = tuple[ClusterImage, tuple[int, ...]]
"""What a log has led to, and its records, each known by a number of its own."""


class World:
    """Logs of one cluster, of which each is continued from a copy of another one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._made = 0
        self.logs: list[Log] = [self._elected((ClusterImage(), ()))]

    def step(self) -> None:
        image, records = self.chance.choice(self.logs)
        if self.chance.random() < 0.3:
            self.logs.append(self._elected((image, records)))
        elif (image, records) == self.logs[-1]:  # only the newest controller still writes
            after = image.copy()
            after.apply(ProducerIdsAllocated(1))
            self.logs.append((after, (*records, self._number())))

    def _elected(self, log: Log) -> Log:
        image, records = log[0].copy(), log[1]
        image.next_offset += 1  # a snapshot
        image.apply(
            ControllerElected(1, image.controller_epoch + 1, uuid.UUID(int=self._number()), image.next_offset - 1)
        )
        return image, (*records, 0, self._number())

    def _number(self) -> int:
        self._made += 1
        return self._made


@each_case("seed", range(20))
def test_a_log_has_the_positions_of_its_own_beginnings_and_no_others(seed: int) -> None:
    world = World(seed)
    for _ in range(80):
        world.step()
    outcomes = set()
    for image, records in world.logs:
        for other, others in world.logs:
            assert other.position is not None
            is_there = records[: len(others)] == others
            assert image.contains(other.position) is is_there, (records, others)
            outcomes.add(is_there)
    assert outcomes == {True, False}


def test_what_is_older_than_the_terms_that_are_kept_is_not_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TERMS", 2)
    image = ClusterImage()
    for epoch in range(4):
        image.apply(ControllerElected(1, epoch, uuid.UUID(int=epoch), image.next_offset))
    assert [term.controller_epoch for term in image.terms] == [2, 3]
    assert image.contains(LogPosition(1, uuid.UUID(int=77), 900))
    assert not image.contains(LogPosition(2, uuid.UUID(int=77), 0))
    assert not image.contains(LogPosition(4, uuid.UUID(int=4), 0))


def test_a_controller_that_keeps_no_terms_leaves_none() -> None:
    """One of a version before: what it decides is in nobody's position."""
    image = ClusterImage()
    image.apply(ControllerElected(1, 0, uuid.UUID(int=1), 0))
    image.apply(ControllerElected(2, 1))
    assert (image.terms, image.position) == ((), None)
    assert image.contains(LogPosition(0, uuid.UUID(int=9), 900))


def test_images_differ_by_their_terms_unless_a_broker_of_a_former_version_knows_none() -> None:
    images = [ClusterImage() for _ in range(3)]
    for image, incarnation in zip(images, (uuid.UUID(int=1), uuid.UUID(int=2), None), strict=True):
        image.apply(ControllerElected(1, 0, incarnation, 0))
    one, other, former = images
    check_images_equal(one, former, "the former")
    assert one.terms
    with pytest.raises(ViolationError):
        check_images_equal(one, other, "the other")
    former.apply(ProducerIdsAllocated(1))
    one.next_offset += 1
    with pytest.raises(ViolationError):
        check_images_equal(one, former, "the former")
    # A position in its own epoch or a later one is of another log: brokers that note positions also record terms.
    assert not image.contains(LogPosition(1, uuid.UUID(int=9), 0))
    assert not image.contains(LogPosition(2, uuid.UUID(int=9), 0))
