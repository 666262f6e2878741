"""A campaign on several processes outlives any of them, and knows whose seeds they had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from lab.sim import workers as sim_workers
from lab.sim.campaign import Tally
from lab.sim.workers import tallies

DEADLY = 6
AT_ONCE = 3
WAITS_FOR_EVER = """
import signal
from lab.sim.workers import tallies

def run(seeds):
    print("runs", flush=True)
    signal.pause()

if __name__ == "__main__":
    list(tallies(range(9), 1, run))
"""


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


def dies_once(seeds: Iterable[int], has_died: Path) -> Tally:
    there = list(seeds)
    if DEADLY in there and not has_died.exists():
        has_died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return counted(there)


def process_ids(seeds: Iterable[int]) -> Tally:
    return Tally(seeds=len(list(seeds)), violations=[(os.getpid(), "")])


def environment(seeds: Iterable[int]) -> Tally:
    wanted = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "of the user"}
    right = {name: os.environ.get(name) for name in wanted} == wanted
    return Tally(seeds=len([*seeds]), simulated_ms=int(right))


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
    assert "exit code -9; its seeds 6 to 7 are run again, each alone" in capsys.readouterr().err


def test_a_process_that_was_killed_once_costs_nothing_but_time(tmp_path: Path) -> None:
    run = partial(dies_once, has_died=tmp_path / "has_died")
    assert joined(tallies(range(10), 2, run)) == Tally(seeds=10, simulated_ms=sum(range(10)))


def test_processes_are_replaced_after_a_while() -> None:
    found = joined(tallies(range(3 * AT_ONCE), 1, process_ids))
    assert found.seeds == 3 * AT_ONCE
    assert len({process_id for process_id, _ in found.violations}) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_workers_have_huge_pages_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    monkeypatch.setenv("GLIBC_TUNABLES", "of the user")
    assert joined(tallies(range(2), 1, environment)).simulated_ms == 2
    assert "PYTHONMALLOC" not in os.environ
    assert os.environ["GLIBC_TUNABLES"] == "of the user"


def test_what_came_of_a_seed_comes_before_the_next_one() -> None:
    assert [each.seeds for each in tallies(range(AT_ONCE), 1, counted)] == [1] * AT_ONCE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent_and_say_nothing(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "campaign.py"
    script.write_text(WAITS_FOR_EVER)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's `&` has it ignored
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "runs\n"
    if number == signal.SIGINT:  # a terminal sends it to all of them
        os.killpg(parent.pid, number)
    else:
        parent.send_signal(number)
    _, errors = parent.communicate(timeout=60)  # their output ends when the last of them has ended
    assert errors.count("Traceback") == (number == signal.SIGINT), "that of the parent"
