"""Whether a query runs, is idle, was stopped, has failed, or was fenced.

What its `LagListener` has heard is certain, as long as nothing was planned afterwards. Otherwise it is concluded from
what the query leaves: what it has planned, finished and committed, when, and whether there is more to read. That is
marked as "seems": a query that is idle and one that was stopped leave the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from sparkonce.connectors.lag.runs import EVERY_S, Run, RunState
from sparkonce.jobs.ui.delta.checkpoints import CheckpointState

QUIET_MS = 60_000
"""A query that has left nothing for so long does not seem to run."""
PAUSES = 3
"""Nor one that has left nothing for so many times the usual pause between its batches, if that is longer."""
LATE_MS = 2_000
"""A batch that is planned so long after the end of a run is another run's."""

RUNNING, BEHIND, IDLE, STOPPED, FAILED, FENCED = "running", "behind", "idle", "stopped", "failed", "fenced"
_ENDS = {
    RunState.ENDED: (STOPPED, "it was stopped, or has read what it was to read"),
    RunState.FAILED: (FAILED, "it ended with an error, which is in its driver's log"),
    RunState.FENCED: (FENCED, "another driver writes with its appId, and has fenced it"),
}


@dataclass(frozen=True, slots=True)
class QueryState:
    """What a query does."""

    word: str
    why: str
    is_certain: bool = False

    def __str__(self) -> str:
        return self.word if self.is_certain else f"seems {self.word}"


def query_state(
    run: Run | None,
    checkpoint: CheckpointState | None,
    last_ms: int | None,
    lag: int | None,
    now_ms: int,
    written: int | None = None,
) -> QueryState:
    """Return what a query does; ``last_ms`` is when it last planned or committed, ``written`` its newest batch."""
    concluded = _concluded(checkpoint, last_ms, lag, now_ms, written)
    if run is None:
        return concluded
    is_going_on = run.state in (RunState.RUNNING, RunState.IDLE)
    until_ms = run.at_ms + LATE_MS + (1000 * EVERY_S if is_going_on else 0)
    if is_going_on and (run.is_heard or (last_ms or 0) <= until_ms):
        return _heard(run, checkpoint)
    if not is_going_on and (last_ms or 0) <= until_ms:
        word, why = _ENDS[run.state]
        return QueryState(word, run.error or why, is_certain=True)
    return concluded


def _heard(run: Run, checkpoint: CheckpointState | None) -> QueryState:
    if not run.is_heard:
        return QueryState(STOPPED, f"its driver (process {run.pid}) has ended without reporting it", is_certain=True)
    if run.state is RunState.IDLE and not (checkpoint and checkpoint.is_at_work):
        return QueryState(IDLE, "it waits for records", is_certain=True)
    return QueryState(RUNNING, f"its driver is process {run.pid}", is_certain=True)


def _concluded(
    checkpoint: CheckpointState | None, last_ms: int | None, lag: int | None, now_ms: int, written: int | None
) -> QueryState:
    if last_ms is None:
        return QueryState(STOPPED, "it has planned no batch yet")
    is_quiet = now_ms - last_ms > _quiet_ms(checkpoint)
    if checkpoint is not None and checkpoint.is_at_work:
        if is_quiet and written == checkpoint.newest:
            why = f"its batch {written} is written, and not noted as finished: it was killed, failed, or still works"
            return QueryState(STOPPED, why)
        if is_quiet:
            return QueryState(STOPPED, "its last batch is not finished: it was killed, has failed, or takes that long")
        return QueryState(RUNNING, "its last batch was planned a moment ago")
    if not is_quiet:
        return QueryState(RUNNING, "it was at work a moment ago")
    if checkpoint is None:
        return QueryState(STOPPED, "it has committed nothing for a while, and its checkpoint is not known")
    if lag:
        return QueryState(STOPPED, "records wait for it, and it plans no batch")
    return QueryState(IDLE, "or stopped: it has finished its last batch" + (", and nothing waits" if lag == 0 else ""))


def _quiet_ms(checkpoint: CheckpointState | None) -> float:
    return max(QUIET_MS, PAUSES * pause_ms([] if checkpoint is None else checkpoint.planned.values()))


def pause_ms(planned: Iterable[int]) -> float:
    """Return the usual time between two plans; 0 if there are none."""
    pauses = [after - before for before, after in pairwise(sorted(planned))]
    return median(pauses) if pauses else 0.0
