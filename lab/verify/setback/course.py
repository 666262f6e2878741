"""The course of one set-back cell: run, save a copy, run on, set the checkpoint back, run again, apply the remedy.

A course is a generator: it yields each run, and is sent the error with which that run ended, or None. So
many courses share one Spark session, each at its own step (`engine`).

After the checkpoint was set back the query either continues, and its rows must be right; or it raises. Then the remedy
in the error is applied: the checkpoint that fits the result is restored (each course has saved it);
or, with state in RocksDB and an error that names a command for that, the table is rewound to the checkpoint;
or, for a query without state, the checkpoint is new and the source begins at the stored offsets. That run must
succeed, and then the rows must be right too: leftovers of the error, or a remedy that does not work, are
wrong.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltalake import DeltaTable

from lab.crash_plans import arm, disarm, fired
from lab.verify.cells import Moment
from lab.verify.records import Sending, create_topic, make
from lab.verify.setback.cells import Query, SetBack, SetBackCell, StateStore
from lab.verify.setback.due import LINES
from lab.verify.setback.judge import is_sparks_own, names_way_out
from lab.verify.setback.queries import Setup
from sparkonce.crash_points import CrashAction, CrashPlan
from sparkonce.exactly_once.crash_points import SinkPoint

RECORDS_PER_BATCH = 4
LESS_RECORDS, MORE_FILES = 2, 2
"""Other limits: smaller batches of records, larger ones of files."""
FIRST_BATCHES = 2
"""Before the copy is made."""
ROUNDS = {SetBack.COPY_1: (1,), SetBack.COPY_10: (5, 5)}
"""Batches of data in each run between the copy and its restoration, if not `USUAL_ROUNDS`."""
USUAL_ROUNDS = (1, 1)
LATER_BATCHES = 2
"""Batches of data that arrive after the checkpoint was set back."""
DATA_COMES_FIRST = frozenset({SetBack.OTHER_LIMITS, SetBack.OFFSETS_DELETED, SetBack.COMMITS_DELETED, SetBack.TWIN})
"""Faults with new data at once; with others the query first runs over old data."""
COPIED = frozenset(
    {SetBack.COPY_1, SetBack.COPY_2, SetBack.COPY_10, SetBack.OTHER_LIMITS, SetBack.NO_DATA, SetBack.TWIN}
)
_STARTING_OFFSETS = re.compile(r"startingOffsets=(\{\S*\})")
_TAKE_BACK = re.compile(r"sparkonce offsets rewind (?:\S+|<[^>]*>) (--to-version \d+ --restore)")
_LONG_AGO_S = 1_600_000_000
"""Files get different times, a second apart: the file source reads them in that order."""

Course = Generator[Setup, str | None, None]


class CourseError(RuntimeError):
    """The cell did not show what it must; the message says why."""


@dataclass(slots=True)
class Running:
    """A cell that is running."""

    cell: SetBackCell
    folder: Path
    topic: str
    bootstrap_servers: str
    crash_folder: Path
    began_s: float = field(default_factory=time.monotonic)
    began_wall_s: float = field(default_factory=time.time)
    records: int = 0
    files: int = 0
    runs: int = 0
    moments: list[Moment] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """The errors of runs, including those before the checkpoint was set back."""
    refused: str | None = None
    """The error with which the query did not continue."""
    set_back: bool = False
    plan: CrashPlan | None = None

    @property
    def app_id(self) -> str:
        """The name of its pipeline; Kafka remembers names, so they are unique over all runs."""
        return f"{self.cell.name}_{self.topic}"

    def note(self, lane: str, what: str) -> None:
        """Add an event to the timeline."""
        self.moments.append(Moment(time.monotonic() - self.began_s, lane, what))

    def setup(self) -> Setup:
        """Return its query."""
        cell = self.cell
        return Setup(
            self.app_id, self.bootstrap_servers, self.topic, str(self.folder),
            cell.query.value, cell.state.value, cell.sink.value, RECORDS_PER_BATCH, files_per_batch=1,
        )  # fmt: skip

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return Path(self.setup().checkpoint)

    def feed(self, batches: int) -> None:
        """Produce records and files for some batches."""
        records = range(self.records, self.records + batches * RECORDS_PER_BATCH)
        if self.cell.query is not Query.FILES:
            Sending.begin(self.bootstrap_servers, self.topic, make(records)).finish()
        self.records = records.stop
        if self.cell.query in (Query.FILES, Query.UNION):
            for number in range(self.files, self.files + batches):
                _write_file(self.setup().files, number)
            self.files += batches

    def save(self, name: str) -> Path:
        """Copy the checkpoint; return the copy."""
        copy = self.folder / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.checkpoint, copy)
        return copy

    def put_back(self, copy: Path, what: str) -> None:
        """Replace the checkpoint by a copy."""
        shutil.rmtree(self.checkpoint)
        shutil.copytree(copy, self.checkpoint)
        self.note("checkpoint", what)

    def save_table(self) -> Path:
        """Copy the table, if it is to be restored; return the copy."""
        copy = self.folder / "table-copy"
        if self.cell.setback is SetBack.TABLE_COPY:
            shutil.copytree(self.setup().table, copy)
        return copy

    def put_table_back(self, copy: Path) -> None:
        """Replace the table by a copy."""
        shutil.rmtree(self.setup().table)
        shutil.copytree(copy, self.setup().table)
        self.set_back = True
        self.note("checkpoint", "stays, and the table is put back from a copy")

    def delete_table(self) -> Path:
        """Delete the table; return the checkpoint that fits it, an empty folder."""
        shutil.rmtree(self.setup().table)
        self.set_back = True
        self.note("checkpoint", "stays, and the table is deleted")
        empty = self.folder / "empty"
        empty.mkdir()
        return empty

    def newest(self, log: str) -> int:
        """Return the number of the newest batch in ``offsets`` or ``commits``; -1 if there is none."""
        folder = self.checkpoint / log
        return max((int(path.name) for path in folder.glob("*") if path.name.isdecimal()), default=-1)

    def version(self) -> int:
        """Return the version of the table to rewind; -1 if none is."""
        return DeltaTable(self.setup().table).version() if self.cell.setback is SetBack.REWOUND else -1

    def take_table_back(self, *options: str) -> None:
        """Run the command that rewinds the table's rows and offsets.

        Raises:
            CourseError: if it fails.
        """
        command = ["offsets", "rewind", self.setup().table, *options, "--apply"]
        ended = subprocess.run(
            [sys.executable, "-m", "sparkonce.jobs.cli.main", *command], capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            raise CourseError(f"the command fails: {shlex.join(command)}: {ended.stdout}{ended.stderr}")
        self.set_back = True
        self.note("checkpoint", f"stays, and the table is taken back: {shlex.join(options)}")


def course(one: Running) -> Course:
    """Run the cell, from its topic to the last run.

    Raises:
        CourseError: if it did not run as it must.
    """
    _prepare(one)
    one.feed(FIRST_BATCHES)
    yield from _goes_well(one, one.setup())
    copy, version, table = one.save("copy"), one.version(), one.save_table()
    yield from _run_on(one)
    if one.cell.setback is SetBack.NOTHING:
        one.set_back = True
        return
    if one.cell.setback is SetBack.REWOUND:
        one.take_table_back("--to-version", str(version), "--restore")
        fits, again = copy, one.setup()
    elif one.cell.setback is SetBack.TABLE_COPY:
        one.put_table_back(table)
        fits, again = copy, one.setup()
    elif one.cell.setback is SetBack.TABLE_DELETED:
        fits, again = one.delete_table(), one.setup()
    else:
        fits, again = one.save("newest"), _set_back(one, copy)
    error = None
    if one.cell.setback not in DATA_COMES_FIRST:
        error = yield from _run(one, again)
    if error is None:
        one.feed(LATER_BATCHES)
        error = yield from _run(one, again)
    if error is not None:
        yield from _way_out(one, error, fits)
    elif one.cell.setback is SetBack.TWIN:
        yield from _other_twin(one, fits)


def _prepare(one: Running) -> None:
    setup = one.setup()
    for topic in filter(None, (setup.topic, setup.output_topic)):
        create_topic(one.bootstrap_servers, topic)
    setup.files.mkdir()


def _run_on(one: Running) -> Course:
    """Run until the checkpoint is to be set back."""
    rounds = ROUNDS.get(one.cell.setback, USUAL_ROUNDS)
    for number, batches in enumerate(rounds, 1):
        one.feed(batches)
        if one.cell.setback is SetBack.NO_DATA and number == len(rounds):
            yield from _crash_without_data(one)
        else:
            yield from _goes_well(one, one.setup())


def _crash_without_data(one: Running) -> Course:
    """Fail at the start of the batch without data that follows the next one.

    Other sinks than ours have no crash points; there the batch is missing, and the result is the same.
    """
    if one.cell.compares_only:
        yield from _goes_well(one, replace(one.setup(), batches_without_data=False))
        return
    batch = one.newest("offsets") + 2
    name = one.folder.name
    plan = f"{one.app_id}:{SinkPoint.BEGUN.value}@{batch}={CrashAction.RAISE.value}"
    one.plan = arm(one.crash_folder, name, plan)
    error = yield from _run(one, one.setup())
    disarm(one.crash_folder, name)
    if error is None or fired(one.plan) is None:
        raise CourseError(f"the query did not fail in batch {batch}, the one without data: {error or 'it went on'}")
    one.note("fault", f"exception at {SinkPoint.BEGUN.value} of batch {batch}, which has no data")


def _set_back(one: Running, copy: Path) -> Setup:
    """Set the checkpoint back as the cell says; return how the query runs then."""
    setback, setup = one.cell.setback, one.setup()
    if setback in COPIED:
        before = one.newest("offsets")
        one.put_back(copy, "is set back to a copy")
        assert one.newest("offsets") < before, "the copy is as new as the checkpoint"
    else:
        log = "offsets" if setback is SetBack.OFFSETS_DELETED else "commits"
        newest = one.newest(log)
        for name in (f"{newest}", f".{newest}.crc"):
            (one.checkpoint / log / name).unlink(missing_ok=True)
        one.note("checkpoint", f"{log}/{newest} is deleted")
    one.set_back = True
    if setback is SetBack.OTHER_LIMITS:
        return replace(setup, records_per_batch=LESS_RECORDS, files_per_batch=MORE_FILES)
    return setup


def _other_twin(one: Running, other: Path) -> Course:
    """Continue with the checkpoint that was in use before, when the copy has written."""
    last_writer = one.save("copy")
    one.put_back(other, "is the other copy again")
    one.feed(1)
    if (error := (yield from _run(one, one.setup()))) is not None:
        yield from _way_out(one, error, last_writer)


def _way_out(one: Running, error: str, fits: Path) -> Course:
    """Check that an error names the remedy, and apply it; the checkpoint ``fits`` belongs to the result."""
    one.refused = error
    if one.cell.compares_only:
        return
    if not (names_way_out(error) or is_sparks_own(one.cell, error)):
        raise CourseError(f"the query stopped, and its error names no way out: {error}")
    setup = one.setup()
    if one.cell.state is StateStore.ROCKSDB and (command := _TAKE_BACK.search(error)) is not None:
        one.take_table_back(*command[1].split())
    elif one.cell.query is Query.STATELESS and "new checkpointLocation" in error:
        shutil.rmtree(one.checkpoint)
        one.note("checkpoint", "is deleted, as the error says")
        if setup.offset_store is None:
            setup = replace(setup, starting_offsets=_starting_offsets(error))
    else:
        one.put_back(fits, "is the one that goes with the result")
    one.feed(1)
    if (again := (yield from _run(one, setup))) is not None:
        raise CourseError(f"the way out that the error names leads nowhere: {error} THEN: {again}")


def _starting_offsets(error: str) -> str:
    found = _STARTING_OFFSETS.search(error)
    if found is None:
        raise CourseError(f"the error does not name the stored offsets: {error}")
    return found[1]


def _goes_well(one: Running, setup: Setup) -> Course:
    if (error := (yield from _run(one, setup))) is not None:
        raise CourseError(f"the query failed before its checkpoint was set back: {error}")


def _run(one: Running, setup: Setup) -> Generator[Setup, str | None, str | None]:
    one.runs += 1
    one.note("pipeline", "starts" if one.runs == 1 else "is started again")
    error = yield setup
    one.note("pipeline", "ends" if error is None else "ends with an error")
    if error is not None:
        one.errors.append(error)
    return error


def _write_file(folder: Path, number: int) -> None:
    unfinished = folder.with_name("unfinished")
    unfinished.write_text("".join(f"{number}-{line}\n" for line in range(LINES)))
    os.utime(unfinished, (_LONG_AGO_S + number, _LONG_AGO_S + number))
    unfinished.rename(folder / f"{number:04d}.txt")
