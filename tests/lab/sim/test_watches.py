"""What simulated machines report of the disk that brokers share: late and merged, and all of it."""

from __future__ import annotations

import pytest

from lab.sim.machine.machine import METADATA
from lab.sim.machine.process import Process, SimulatedHost
from lab.sim.plan import plan_of
from lab.sim.world import World

PATH = f"{METADATA}/file"


class Brokers:
    """Processes of two machines; the first one watches."""

    def __init__(self) -> None:
        self.world = World(plan_of(1), tracing=False)
        self.watcher, self.other = (Process(self.world.brokers[number]) for number in (1, 2))
        self.reports = 0
        watch = SimulatedHost(self.watcher).watch([METADATA], self.take)
        assert watch is not None
        self.watch = watch

    def take(self) -> None:
        self.reports += 1

    def reported(self) -> int:
        """Let all be reported that has happened; returns how many reports there were of it."""
        before, until_ms = self.reports, self.world.scheduler.now_ms + 80
        while self.world.scheduler.step(until_ms):
            pass
        return self.reports - before


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr("lab.sim.machine.process.has_watch", lambda _: True)
    return Brokers()


def test_every_change_is_reported_and_several_at_once_may_be_one_report(brokers: Brokers) -> None:
    files = brokers.other.files
    files.write(PATH, b"a", durable=False)
    files.rename(PATH, f"{PATH}.renamed")
    assert brokers.reported() == 1
    files.open(f"{PATH}.renamed").append(b"b")
    assert brokers.reported() == 1
    files.remove(f"{PATH}.renamed")
    assert brokers.reported() == 1


def test_what_changes_nothing_is_not_reported(brokers: Brokers) -> None:
    files = brokers.other.files
    files.write(PATH, b"a", durable=False)
    brokers.reported()
    files.read(PATH)
    files.is_locked(PATH)
    files.set_modified_ms(PATH, 1)
    assert brokers.reported() == 0


def test_who_is_held_up_reads_reports_later(brokers: Brokers) -> None:
    brokers.watcher.loop.pause()
    brokers.other.files.write(PATH, b"a", durable=False)
    assert brokers.reported() == 0
    brokers.watcher.loop.resume()
    assert brokers.reported() == 1


def test_who_learns_late_hears_of_it_late(brokers: Brokers) -> None:
    brokers.world.brokers[1].blind_until_ms = brokers.world.scheduler.now_ms + 200
    brokers.other.files.write(PATH, b"a", durable=False)
    assert brokers.reported() == 0
    brokers.reported()
    brokers.reported()
    assert brokers.reports == 1


def test_the_end_of_a_lock_is_reported_and_a_dead_process_has_it_a_moment_longer(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.sim.machine.process._RELEASED_MS", (5,))
    brokers.other.files.lock(PATH)
    brokers.reported()
    brokers.other.end(power=False)
    assert brokers.watcher.files.is_locked(PATH)
    assert brokers.reported() == 1
    assert not brokers.watcher.files.is_locked(PATH)
    lock = brokers.watcher.files.lock(PATH)
    brokers.reported()
    lock.release()
    assert not brokers.watcher.files.is_locked(PATH)
    assert brokers.reported() == 1


def test_who_watches_no_more_hears_nothing(brokers: Brokers) -> None:
    brokers.other.files.write(PATH, b"a", durable=False)
    brokers.watch.close()
    assert brokers.reported() == 0
