"""Many seeds of the simulated store, and every planted bug."""

from __future__ import annotations

import pytest

from lab.log.__main__ import MOST_PLANTED, add_arguments, run
from lab.log.campaign import search, tallies
from lab.log.planted import PLANTED
from lab.log.run import run_seed
from sparkonce.jobs.shared.command_line import run_module

SEEDS = 20_000


@pytest.mark.timeout(3600)
def test_no_seed_violates_a_rule() -> None:
    found = list(tallies(range(SEEDS), jobs=2))
    assert [each for tally in found for each in tally.failed] == [], "again: python -m lab.log --seed N"
    assert sum(tally.seeds for tally in found) == SEEDS
    assert all(sum(tally.seen[what] for tally in found) for what in ("checkpoint", "delete", "drop", "late"))


FOUND = {
    210_824: "a commit was deleted as one into the past, whose checkpoint was written, and the log cleaned, meanwhile",
    213_533: "the same",
    229_925: "the same",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_something_finds_nothing_any_more(seed: int) -> None:
    assert not run_seed(seed).violations, FOUND[seed]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_bug_is_found(name: str) -> None:
    assert search(name, range(MOST_PLANTED)) is not None


def test_the_command_shows_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_module("lab.log", add_arguments, run, ["--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("CREATE TABLE")
    assert lines[-1].startswith("RESULT seeds=1 violations=0 ")
