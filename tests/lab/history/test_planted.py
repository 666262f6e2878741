"""Histories written by hand: each bad one is caught as exactly the anomaly it is named after, each near miss passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.history import AnomalyName, check_history, read_history
from lab.history.__main__ import ANOMALIES, CLEAN, main

PLANTED = Path(__file__).parent / "planted"
GOOD = sorted(PLANTED.glob("*.near-miss.jsonl"))
BAD = sorted(set(PLANTED.glob("*.jsonl")) - set(GOOD))
SEVERAL = {"inconsistent-offsets.overwritten": ["inconsistent-offsets", "lost-write"]}
"""What was overwritten is lost too."""


def name_of(path: Path) -> str:
    return path.name.removesuffix(".jsonl")


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_a_planted_anomaly_is_caught_as_what_it_is(path: Path) -> None:
    expected = SEVERAL.get(name_of(path), [name_of(path).partition(".")[0]])
    found = check_history(read_history([path]))
    assert sorted(anomaly.name for anomaly in found) == expected
    for anomaly in found:
        assert anomaly.explanation
        assert anomaly.events


@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_a_near_miss_passes(path: Path) -> None:
    assert check_history(read_history([path])) == []


def test_every_anomaly_has_a_planted_history_and_a_near_miss() -> None:
    for paths in (BAD, GOOD):
        assert {name_of(path).partition(".")[0] for path in paths} == set(AnomalyName)


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_the_command_names_file_and_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path)]) == ANOMALIES
    lines = capsys.readouterr().out.splitlines()
    events = len(path.read_text().splitlines())
    expected = SEVERAL.get(name_of(path), [name_of(path).partition(".")[0]])
    assert lines[-1] == f"HISTORY events={events} anomalies={len(expected)}"
    for name in expected:
        assert f"{name} (1)" in lines
    assert any(f"{path}:" in line for line in lines)


def test_the_command_counts_what_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--limit", "0", str(PLANTED / "lost-write.jsonl")]) == ANOMALIES
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["lost-write (1)", "  and 1 more"]


def test_the_command_says_what_may_be_lost_beside_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(PLANTED / "lost-write.near-miss.jsonl")]) == CLEAN
    assert "of unknown outcome 2, of which read 1: at most 1 more are lost" in capsys.readouterr().out


def test_the_command_is_content_with_a_good_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(GOOD[0])]) == CLEAN
    assert capsys.readouterr().out.splitlines()[-1].endswith(" anomalies=0")
