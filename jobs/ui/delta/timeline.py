"""The timeline of a query's batches: planned, its two writes, its commits, finished; and failures in between.

An exactly-once batch has its two writes, rows and offsets, in one commit; the others have a commit for each. The
time of writing rows is that of the commit's data files. Kills leave no record, unless a supervisor
has noted them (`jobs.shared.events`). Their traces are shown instead: a file that no commit
names, a batch that was written again, a new checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparkonce.jobs.cli.housekeeping.orphans import FolderFile
from sparkonce.jobs.ui.delta.queries_seen import Switch
from sparkonce.jobs.ui.delta.versions import VersionState
from sparkonce.offset_store.record import Writes

MAX_BATCHES = 14
MAX_EVENTS = 40
BESIDE_MS = 5 * 60_000
"""How long before the first batch and after the last one events are shown: Spark may be killed before it plans one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One commit of a batch."""

    version: int
    at_ms: int
    writes: Writes
    attempt_id: str
    rows_from_ms: int | None
    """When its first data file was written; None for a commit without files."""
    rows_to_ms: int | None

    @property
    def has_rows(self) -> bool:
        """Whether it has rows."""
        return Writes.ROWS in self.writes

    @property
    def has_offsets(self) -> bool:
        """Whether it has offsets."""
        return Writes.OFFSETS in self.writes

    @property
    def what(self) -> str:
        """What it wrote."""
        return " and ".join(["rows"] * self.has_rows + ["offsets"] * self.has_offsets)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch."""

    batch_id: int
    query_id: str
    planned_ms: int | None
    """None if Spark's entry is not kept, or the checkpoint is unknown."""
    marks: tuple[Mark, ...]
    done_ms: int | None

    @property
    def attempts(self) -> int:
        """The number of attempts that have committed something."""
        return len({mark.attempt_id for mark in self.marks})

    @property
    def first_ms(self) -> int | None:
        """The earliest known time."""
        return min(self._moments(), default=None)

    @property
    def last_ms(self) -> int | None:
        """The latest known time."""
        return max(self._moments(), default=None)

    def _moments(self) -> list[int]:
        rows = [mark.rows_from_ms for mark in self.marks]
        known = [self.planned_ms, self.done_ms, *rows, *(mark.at_ms for mark in self.marks)]
        return [each for each in known if each]

    @property
    def words(self) -> str:
        """Describe the line."""
        said = [f"batch {self.batch_id}"]
        said += ["planned"] if self.planned_ms is not None else []
        for mark in self.marks:
            said.append(f"{mark.what} in version {mark.version}")
        said.append("finished" if self.done_ms is not None else "not known to be finished")
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class Event:
    """An event outside the steps of a batch."""

    at_ms: int
    kind: str
    """``kill``, ``restart``, ``trace`` (a leftover) or ``note``."""
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The newest batches, oldest first, and events during them, shortly before and after."""

    lines: tuple[BatchLine, ...]
    events: tuple[Event, ...]
    from_ms: int = 0
    to_ms: int = 0


def timeline(
    query_id: str,
    commits: Sequence[VersionState],
    planned: Mapping[int, int],
    done: Mapping[int, int],
    events: Iterable[Event] = (),
) -> Timeline:
    """Return the timeline of a query's newest batches; ``commits`` are its own, and those of earlier queries."""
    marks: dict[tuple[str, int], list[Mark]] = {}
    for state in sorted(commits, key=lambda each: each.version):
        if state.batch is not None:
            record = state.batch.record
            marks.setdefault((record.query_id, record.batch_id), []).append(_mark(state))
    for batch_id in planned:
        marks.setdefault((query_id, batch_id), [])
    lines = [
        BatchLine(
            batch_id,
            query,
            planned.get(batch_id) if query == query_id else None,
            tuple(found),
            done.get(batch_id) if query == query_id else None,
        )
        for (query, batch_id), found in marks.items()
    ]
    lines = sorted((line for line in lines if line.first_ms is not None), key=lambda line: line.first_ms or 0)
    shown = tuple(lines[-MAX_BATCHES:])
    if not shown:
        return Timeline((), ())
    first, last = min(each.first_ms or 0 for each in shown), max(each.last_ms or 0 for each in shown)
    again = [event for line in shown for event in _written_again(line)]
    near = [each for each in (*events, *again) if first - BESIDE_MS <= each.at_ms <= last + BESIDE_MS]
    near = sorted(near, key=lambda each: each.at_ms)[-MAX_EVENTS:]
    moments = [first, last, *(each.at_ms for each in near)]
    return Timeline(shown, tuple(near), min(moments), max(moments))


def events_of(switches: Iterable[Switch], app_ids: Iterable[str], unnamed: Iterable[FolderFile]) -> list[Event]:
    """Return the traces of restarts and kills in a table and its folder."""
    wanted = set(app_ids)
    found = [
        Event(each.at_ms, "restart", f"query {each.after} goes on in place of {each.before}: another checkpoint")
        for each in switches
        if each.app_id in wanted
    ]
    text = "rows that no commit names: an attempt that was ended before its commit, or one that runs"
    return found + [Event(file.modified_ms, "trace", f"{file.path}: {text}") for file in unnamed]


def _written_again(line: BatchLine) -> list[Event]:
    rows = [mark for mark in line.marks if mark.has_rows]
    return [
        Event(mark.at_ms, "trace", f"the rows of batch {line.batch_id} were written again, by another attempt")
        for before, mark in pairwise(rows)
        if before.attempt_id != mark.attempt_id
    ]


def _mark(state: VersionState) -> Mark:
    assert state.batch is not None
    times = [file.modified_ms for file in state.added if file.modified_ms]
    return Mark(
        state.version,
        state.at_ms,
        state.batch.writes,
        state.batch.record.attempt_id,
        min(times, default=None),
        max(times, default=None),
    )
