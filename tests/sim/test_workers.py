"""A campaign on several processes outlives any of them, and knows whose seeds they had."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

import pytest

from sparkonce.broker_lite.sim.campaign import Tally
from sparkonce.jobs.lab import sim_workers
from sparkonce.jobs.lab.sim_workers import tallies

DEADLY = 7
AT_ONCE = 3


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_workers, "SEEDS_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(sim_workers, "BLOCKS_PER_PROCESS", 2)


def counted(seeds: Iterable[int]) -> Tally:
    there = list(seeds)
    return Tally(seeds=len(there), simulated_ms=sum(there))


def dies_of_one(seeds: Iterable[int]) -> Tally:
    there = list(seeds)
    if DEADLY in there:
        os.kill(os.getpid(), signal.SIGKILL)
    return counted(there)


def dies_of_many(seeds: Iterable[int]) -> Tally:
    there = list(seeds)
    if DEADLY in there and len(there) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return counted(there)


def process_ids(seeds: Iterable[int]) -> Tally:
    return Tally(seeds=len(list(seeds)), violations=[(os.getpid(), "")])


def joined(parts: Iterable[Tally]) -> Tally:
    found = Tally()
    for each in parts:
        found.join(each)
    return found


def test_a_seed_that_ends_its_process_is_named_and_all_others_count(capsys: pytest.CaptureFixture[str]) -> None:
    found = joined(tallies(range(2, 12), 2, dies_of_one))
    assert found.seeds == 10
    assert found.simulated_ms == sum(range(2, 12)) - DEADLY
    assert [seed for seed, _ in found.violations] == [DEADLY]
    assert found.violations[0][1].startswith("process-ends: ")
    assert "exit code -9; its seeds 5 to 7 are run again, each alone" in capsys.readouterr().err


def test_a_process_that_was_killed_once_costs_nothing_but_time() -> None:
    assert joined(tallies(range(10), 2, dies_of_many)) == Tally(seeds=10, simulated_ms=sum(range(10)))


def test_processes_are_replaced_after_a_while() -> None:
    found = joined(tallies(range(3 * AT_ONCE), 1, process_ids))
    assert found.seeds == 3 * AT_ONCE
    assert len({process_id for process_id, _ in found.violations}) == 2
