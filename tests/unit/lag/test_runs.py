"""Notes of which queries run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.connectors.lag import runs
from sparkonce.connectors.lag.runs import Runs, RunState


def test_notes_of_queries_that_are_tried_again_for_weeks_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_FILES", 20)
    monkeypatch.setattr(runs, "SWEPT_EVERY", 10)
    noted = Runs(tmp_path)
    for number in range(100):
        noted.note(f"q{number}", RunState.RUNNING)
        noted.note(f"q{number}", RunState.FAILED, "it refuses")
    assert len([*tmp_path.iterdir()]) <= 30
    assert noted._noted == {}
    newest = noted.find("q99")
    assert newest is not None
    assert newest.state is RunState.FAILED
