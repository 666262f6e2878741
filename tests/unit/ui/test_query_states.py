"""Whether a query runs: by what its listener has heard, else by what it has left."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

from sparkonce.connectors.lag.runs import EVERY_S, MAX_ERROR, Run, Runs, RunState
from sparkonce.jobs.ui.delta.checkpoints import CheckpointState
from sparkonce.jobs.ui.delta.query_states import LATE_MS, QUIET_MS, query_state
from tests.cases import each_case

HERE, NOW = os.getpid(), 10**12
LATE = NOW - QUIET_MS - 1


def checkpoint(*planned: int, done: int | None = None) -> CheckpointState:
    """Batches planned then; the first ``done`` of them are finished, by default all."""
    known = dict(enumerate(planned))
    return CheckpointState("c", "q", known, dict(list(known.items())[:done]))


def run(state: RunState, at_ms: int = NOW, *, is_heard: bool = True, folder: Path) -> Run:
    runs = Runs(folder)
    runs.note("q", state)
    noted = runs.find("q")
    assert noted is not None
    assert (noted.pid, noted.is_heard) == (HERE, True)
    return Run(state, at_ms, noted.pid, noted.began if is_heard else "another process")


@each_case(
    "state, heard, last_ms, expected",
    [
        ("running", True, NOW - 10**9, "running"),  # a batch that takes days
        ("running", True, NOW + 60_000, "running"),
        ("running", False, NOW, "stopped"),
        ("running", False, NOW + 1000 * EVERY_S, "stopped"),
        ("running", False, NOW + 2000 * EVERY_S, "seems running"),  # a run without a listener
        ("idle", True, NOW, "idle"),
        ("idle", False, NOW, "stopped"),
        ("ended", True, NOW, "stopped"),
        ("ended", True, NOW + LATE_MS + 1, "seems running"),
        ("failed", False, NOW, "failed"),
        ("fenced", True, NOW, "fenced"),
    ],
)
def test_what_a_listener_has_heard(tmp_path: Path, state: str, heard: bool, last_ms: int, expected: str) -> None:
    found = query_state(
        run(RunState(state), is_heard=heard, folder=tmp_path), checkpoint(last_ms), last_ms, 5, max(NOW, last_ms)
    )
    assert str(found) == expected


def test_an_idle_query_that_has_planned_a_batch_runs(tmp_path: Path) -> None:
    idle = run(RunState.IDLE, folder=tmp_path)
    assert str(query_state(idle, checkpoint(NOW, done=0), NOW, 0, NOW)) == "running"


@each_case(
    "known, last_ms, lag, expected",
    [
        (checkpoint(), None, None, "seems stopped"),
        (checkpoint(NOW, done=0), NOW, 5, "seems running"),
        (checkpoint(LATE, done=0), LATE, 5, "seems stopped"),
        (checkpoint(NOW), NOW, 0, "seems running"),
        (checkpoint(LATE), LATE, 5, "seems stopped"),
        (checkpoint(LATE), LATE, 0, "seems idle"),
        (checkpoint(LATE), LATE, None, "seems idle"),
        (checkpoint(LATE - 10**6, LATE), LATE, 5, "seems running"),  # its trigger is that slow
        (None, NOW, None, "seems running"),
        (None, LATE, None, "seems stopped"),
    ],
)
def test_what_is_concluded(known: CheckpointState | None, last_ms: int | None, lag: int | None, expected: str) -> None:
    assert str(query_state(None, known, last_ms, lag, NOW)) == expected


def test_every_query_has_a_state_and_a_reason(tmp_path: Path) -> None:
    runs = [None, *(run(state, is_heard=heard, folder=tmp_path) for state in RunState for heard in (True, False))]
    known = [None, checkpoint(), checkpoint(NOW), checkpoint(LATE, NOW, done=1)]
    for each in product(runs, known, (None, LATE, NOW), (None, 0, 1)):
        state = query_state(*each, NOW)
        assert state.word in ("running", "idle", "stopped", "failed", "fenced")
        assert state.why


def test_notes_are_read_as_they_are_or_not_at_all(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for query in ("q", "../q", ""):
        runs.note(query, RunState.FAILED)
    assert [each.name for each in tmp_path.iterdir()] == ["q.json"]
    runs.note("q", RunState.ENDED)
    runs.note("q", RunState.FAILED, "why " * 1000)
    failed = runs.find("q")
    assert failed is not None
    assert (failed.error[:4], len(failed.error)) == ("why ", MAX_ERROR)
    for text in ("", "[]", "{}", '{"state":"odd","atMs":1,"pid":1,"began":""}', "null"):
        (tmp_path / "q.json").write_text(text)
        assert runs.find("q") is None
    runs.forget("q")
    assert list(tmp_path.iterdir()) == []
    Runs(tmp_path / "missing").note("q", RunState.IDLE)
    assert Runs(tmp_path / "missing").find("q") is None
