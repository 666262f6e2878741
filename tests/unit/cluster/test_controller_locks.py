"""Who may lead: claims of epochs, leaders that die or hang, and brokers that are gone. On a real file system, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkonce.broker_lite.cluster.controller_locks import MAX_STEP_MS, ControllerLocks
from sparkonce.broker_lite.log.storage import DiskStorage, Storage
from tests.unit.cluster.shared import SHARED, TIMEOUT_MS, SharedStorage


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Storage, str]]:
    if request.param == "memory":
        yield SharedStorage(), SHARED
    else:
        yield DiskStorage(), str(tmp_path / "shared")


def two(place: tuple[Storage, str]) -> tuple[ControllerLocks, ControllerLocks]:
    first, second = (ControllerLocks(*place, broker_id, TIMEOUT_MS) for broker_id in (1, 2))
    return first, second


def test_one_leads_until_it_resigns(place: tuple[Storage, str]) -> None:
    first, second = two(place)
    assert (first.latest_epoch(), first.leader()) == (0, -1)
    assert first.try_lead(0)
    assert first.try_lead(0)
    assert not second.try_lead(0)
    assert (first.leading, first.epoch, second.leading) == (True, 1, False)
    assert (second.latest_epoch(), second.leader()) == (1, 1)
    first.resign()
    first.resign()
    assert second.try_lead(0)
    assert (second.epoch, first.latest_epoch(), first.leader()) == (2, 2, 2)
    assert not first.try_lead(0)


def test_a_leader_that_hangs_is_overtaken_and_one_that_shows_life_is_not(place: tuple[Storage, str]) -> None:
    first, second = two(place)
    assert first.try_lead(0)
    now_ms = 0
    for _ in range(3 * TIMEOUT_MS // MAX_STEP_MS):
        now_ms += MAX_STEP_MS
        first.beat(now_ms, 1_000_000 + now_ms)
        assert not second.try_lead(now_ms)
    since_ms = now_ms
    while not second.try_lead(now_ms):
        now_ms += MAX_STEP_MS
    assert TIMEOUT_MS <= now_ms - since_ms <= TIMEOUT_MS + 2 * MAX_STEP_MS
    assert (second.epoch, first.latest_epoch()) == (2, 2)
    assert first.leading  # as far as it knows: it is the log that keeps it out


def test_who_has_slept_itself_does_not_take_a_leader_for_dead(place: tuple[Storage, str]) -> None:
    first, second = two(place)
    assert first.try_lead(0)
    assert not second.try_lead(0)
    for now_ms in (100 * TIMEOUT_MS, 200 * TIMEOUT_MS):
        assert not second.try_lead(now_ms)


def test_an_epoch_is_claimed_once_even_if_its_leader_died_before_anybody_looked(place: tuple[Storage, str]) -> None:
    first, second = two(place)
    assert first.try_lead(0)
    first.resign()
    path = f"{place[1]}/0000000001.claim"
    held = place[0].lock(path)  # somebody looks whether it is free
    assert not second.try_lead(0)
    held.release()
    assert second.try_lead(0)
    assert second.epoch == 2


def test_a_claim_that_was_removed_meanwhile_is_not_ours() -> None:
    storage = SharedStorage()
    first, second = two((storage, SHARED))

    def overtake() -> None:
        assert second.try_lead(0)
        second.resign()
        assert second.try_lead(0)

    path = f"{SHARED}/0000000001.claim"
    lock = storage.lock

    def lock_late(wanted: str) -> object:
        storage.lock = lock  # type: ignore[method-assign]
        if wanted == path:
            overtake()
        return lock(wanted)

    storage.lock = lock_late  # type: ignore[method-assign, assignment]
    assert not first.try_lead(0)
    assert not first.leading
    assert second.leading
    assert path not in storage.locks


def test_a_claim_that_cannot_be_written_is_let_go() -> None:
    storage = SharedStorage()
    first, second = two((storage, SHARED))
    storage.room = 0
    with pytest.raises(OSError, match="No space"):
        first.try_lead(0)
    storage.room = None
    assert not first.leading
    assert second.try_lead(0)


def test_a_broker_is_gone_when_nobody_holds_its_id(place: tuple[Storage, str]) -> None:
    first, second = two(place)
    assert first.hold_broker(1)
    assert not ControllerLocks(*place, 1, TIMEOUT_MS).hold_broker(1)
    assert not first.is_gone(1)
    assert not second.is_gone(1)
    assert second.is_gone(3)
    first.release_broker()
    first.release_broker()
    assert second.is_gone(1)
    assert first.hold_broker(1)


def test_a_leader_is_suspected_after_half_of_the_time(place: tuple[Storage, str]) -> None:
    first, second = two(place)
    assert first.try_lead(0)
    now_ms = 0
    while not second.suspects:
        assert now_ms < TIMEOUT_MS // 2 + MAX_STEP_MS
        now_ms += MAX_STEP_MS
        assert not second.try_lead(now_ms)
    assert now_ms >= TIMEOUT_MS // 2
    assert not first.suspects
    first.beat(now_ms, 1_000_000 + now_ms)
    assert not second.try_lead(now_ms)
    assert not second.suspects


def test_to_ask_whether_a_file_is_locked_leaves_no_trace(place: tuple[Storage, str]) -> None:
    storage, directory = place
    storage.make_directory(directory)
    path = f"{directory}/broker-1.lock"
    assert not storage.is_locked(path)
    assert storage.list_directory(directory) == []
    lock = storage.lock(path)
    assert storage.is_locked(path)
    lock.release()
    assert not storage.is_locked(path)
    storage.lock(path).release()
