"""What `python -m lab.sim` prints and how it ends."""

from __future__ import annotations

import re

import pytest

from lab.sim.__main__ import main
from lab.sim.campaign import Tally
from lab.sim.planted.shell import PLANTED


def test_one_seed_prints_its_steps_its_trace_and_a_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "12"]) == 0
    first = capsys.readouterr().out
    assert ": ControllerElected(" in first
    assert "TRACE seed=12 " in first.splitlines()[-1]
    assert main(["--seed", "12"]) == 0
    assert capsys.readouterr().out == first


def test_a_planted_bug_fails_and_fewer_steps_can_be_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--plant", "truncate-to-high-watermark"]) == 1
    assert "VIOLATION safe-in-sync" in capsys.readouterr().out
    assert main(["--seed", "5", "--plant", "truncate-to-high-watermark", "--keep", ""]) == 1
    assert "violation: none: this seed does not notice truncate-to-high-watermark\n" in capsys.readouterr().out
    assert main(["--seed", "1", "--keep", ""]) == 0
    assert "steps (0 of" in capsys.readouterr().out


def test_many_seeds_end_with_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--first", "40"]) == 0
    out = capsys.readouterr().out
    assert "RESULT seeds=3 violations=0 planted_found=not-searched simulated_s_per_s=" in out.splitlines()[-1]
    assert "a follower cut its log by a diverging epoch" in out


def test_too_few_seeds_do_not_find_all_planted_bugs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("acks-by-end", "partition-epoch-not-compared")
    monkeypatch.setattr("lab.sim.__main__.PLANTED", [each for each in PLANTED if each.name in names])
    assert main(["--seeds", "1", "--planted"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^acks-by-end +seed 0 +1 seeds ", out, re.MULTILINE)
    assert re.search(r"^partition-epoch-not-compared +- +1 seeds  NOT FOUND", out, re.MULTILINE)
    assert " planted_found=1/2 " in out.splitlines()[-1]


def test_a_failing_seed_is_made_small_and_can_be_replayed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkonce.broker_lite.replication.leader.PartitionLeader.is_acknowledged", lambda *_: True)
    assert main(["--seeds", "2"]) == 1
    out, err = capsys.readouterr()
    assert "seed 0: acknowledged-is-safe" in out
    assert "again: python -m lab.sim --seed 0 --keep " in out
    assert "lab.sim: seed 0: acknowledged-is-safe" in err, "told at once, as a campaign may be long"


def test_one_bug_is_searched_for_and_made_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "30", "--plant", "advance-under-min"]) == 0
    out = capsys.readouterr().out
    assert " --plant advance-under-min --keep " in out
    assert out.splitlines()[-1].endswith("planted_found=1/1")
    assert main(["--seeds", "1", "--first", "3", "--plant", "expand-before-epoch-start"]) == 1
    assert capsys.readouterr().out == "RESULT seeds=1 planted_found=0/1\n"


def test_ablations_go_on_when_a_bug_is_found_often_enough(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bugs = [each for each in PLANTED if each.name in ("acks-before-safe", "offsets-outside-transaction")]
    monkeypatch.setattr("lab.sim.__main__.PLANTED", tuple(bugs))
    assert main(["--seeds", "2", "--ablations", "--enough", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:6] == ["acks-before-safe", "1", "of", "1", "seed", "0"]
    assert lines[2].split()[:6] == ["offsets-outside-transaction", "0", "of", "2", "-", "NEVER;"]
    assert lines[-1] == "RESULT seeds=2 ablations=2 never_found=1"
    assert main(["--seeds", "2", "--ablations", "--jobs", "2"]) == 1
    assert capsys.readouterr().out.splitlines()[1].split()[:6] == ["acks-before-safe", "2", "of", "2", "seed", "0"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seed", "1", "--planted"], "--planted goes with --seeds"),
        (["--seed", "1", "--jobs", "2"], "--jobs goes with --seeds"),
        (["--seed", "1", "--first", "2"], "--first goes with --seeds"),
        (["--seeds", "1", "--enough", "2"], "--enough goes with --ablations"),
        (["--seeds", "1", "--ablations", "--planted"], "--ablations goes with neither"),
        (["--seeds", "1", "--ablations", "--plant", "ask-once"], "--ablations goes with neither"),
        (["--seed", "1", "--keep", "0,9999"], "no 9999"),
        (["--seeds", "1", "--keep", "1"], "--keep goes with --seed"),
        (["--seeds", "1", "--planted", "--plant", "ask-once"], "--plant goes with neither"),
        (["--seeds", "1", "--jobs", "2", "--plant", "ask-once"], "--plant goes with neither"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--seed", "-1"], ["--seeds", "0"], ["--seeds", "many"], ["--seeds", "1", "--first", "-1"]]
)
def test_numbers_that_are_none(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert f"argument {words[-2]}: " in (told := capsys.readouterr().err)
    assert "whole number" in told


def test_progress_tells_rate_and_time_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert main(["--seeds", "2"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("\r[##")
    assert "2/2 seeds, " in err
    assert "0:00 left" in err


def test_a_line_comes_after_the_seed_in_which_half_a_minute_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 11))  # each look at it is 11 s after the one before
    monkeypatch.setattr("lab.sim.__main__.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("lab.sim.__main__.run_seeds", lambda *_, **__: Tally(seeds=1, simulated_ms=1))
    assert main(["--seeds", "6"]) == 0
    assert "lab.sim: 2/6 seeds, " in capsys.readouterr().err


def test_ctrl_c_shows_what_was_seen_so_far(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = iter([Tally(seeds=1)])

    def run(*_: object, **__: object) -> Tally:
        try:
            return next(parts)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("lab.sim.__main__.run_seeds", run)
    assert main(["--seeds", "3"]) == 130
    out, err = capsys.readouterr()
    assert err == "lab.sim: interrupted after 1 of 3 seeds\n"
    assert out.splitlines()[0].split() == ["times", "seeds", "seen"]


def test_ctrl_c_ends_any_command_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lab.sim.__main__.search", search)
    assert main(["--seeds", "3", "--plant", "ask-once"]) == 130
    assert capsys.readouterr().err == "lab.sim: interrupted\n"


def test_what_each_planted_bug_is_is_told_in_words() -> None:
    assert all(" " in each.source or each.source.startswith("KAFKA-") for each in PLANTED)
    assert not [each.source for each in PLANTED if each.source.endswith("undone")]


def test_help_lists_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "exit status: 0 " in capsys.readouterr().out
