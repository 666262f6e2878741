"""A cell of ``--show`` that runs: its records, its queries, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.spark_process import SESSION_ENDED, SessionError, SparkProcess
from lab.verify.cells import Moment
from lab.verify.engine import Engine
from lab.verify.evidence import Evidence, gather
from lab.verify.fates import remove
from lab.verify.records import Sending, create_topic
from lab.verify.shows.cells import ShowCell
from lab.verify.shows.copies import Copy
from lab.verify.wave import POLL_S, RUN_LIMIT_S


class ShowError(RuntimeError):
    """A cell could not be shown: nothing happened for too long, or a query did not do what it must."""


@dataclass(slots=True)
class Stage:
    """A running cell."""

    cell: ShowCell
    engine: Engine
    copy: Copy
    """The query."""
    moments: list[Moment] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    acknowledged: list[tuple[bytes, bytes]] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    began_wall_s: float = field(default_factory=time.time)
    is_cut_off: bool = False
    """Whether its drivers were killed at the end, in the middle of a batch."""
    remark: str | None = None
    trouble: str | None = None
    runs: int = 0

    @classmethod
    def begin(cls, cell: ShowCell, engine: Engine) -> Stage:
        """Create the cell's folder and topics."""
        folder, topic = engine.place(cell.name)
        copy = Copy(
            f"{cell.name}_{topic}", engine.kafka.broker.bootstrap_servers, topic, str(folder), cell.guarantee.value,
            cell.result.value, 0, stored_in=engine.store.location(folder),
            storage_options=engine.store.storage_options, by_spark=cell.by_spark,
        )  # fmt: skip
        for name in filter(None, (topic, copy.output_topic)):
            create_topic(copy.bootstrap_servers, name)
        return cls(cell, engine, copy)

    @property
    def folder(self) -> Path:
        """The cell's own folder."""
        return Path(self.copy.folder)

    def pipeline(self) -> Copy:
        """Return the query."""
        return self.copy

    def evidence(self) -> Evidence:
        """Return the broker's state; only a driver of ours that has ended must leave nothing behind."""
        found = gather(self.copy)
        return replace(found, left_behind=()) if self.cell.by_spark or self.is_cut_off else found

    def note(self, lane: str, what: str) -> None:
        """Add an event to the timeline."""
        self.moments.append(Moment(time.monotonic() - self.began_s, lane, what))

    def send(self, numbers: Sequence[int]) -> None:
        """Produce records, and wait for their acknowledgements."""
        records = self.copy.records(numbers)
        self.acknowledged += Sending.begin(self.copy.bootstrap_servers, self.copy.topic, records).finish()

    def start(self, session: SparkProcess) -> str:
        """Start the query in a session, and return its name there."""
        self.runs += 1
        self.note("pipeline", "starts" if self.runs == 1 else "is started again")
        name = f"{self.folder.name}#{self.runs}"
        session.start(name, self.copy)
        return name

    def end(self, session: SparkProcess, name: str) -> str | None:
        """Wait for the end of a query, and return its error.

        Raises:
            ShowError: if it does not end.
            SessionError: if the session has ended.
        """
        wait(lambda: session.ended(name)[0], "the end of a query")
        error = session.ended(name)[1]
        if error == SESSION_ENDED:
            raise SessionError(f"{SESSION_ENDED}; its log ends with:\n{session.log_tail()}")
        self.note("pipeline", "ends" if error is None else "ends with an error")
        self.errors += [] if error is None else [error]
        return error

    def run(self, session: SparkProcess | None = None, query: str | None = None) -> None:
        """Run the query to its end, by default from its start in the engine's session.

        Raises:
            ShowError: if it fails.
        """
        session = session or self.engine.session()
        if (error := self.end(session, query or self.start(session))) is not None:
            raise ShowError(f"the query stopped: {error}")

    def lose_checkpoint(self) -> None:
        """Delete the checkpoint."""
        remove(self.copy.checkpoint, self.copy.storage_options)
        self.note("fault", "the checkpoint is deleted")


def wait(happened: Callable[[], bool], what: str, limit_s: float = RUN_LIMIT_S) -> None:
    """Wait for a condition.

    Raises:
        ShowError: if it takes too long.
    """
    deadline = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > deadline:
            raise ShowError(f"{what} did not happen within {limit_s:g} s; --keep FOLDER keeps the logs of Spark")
        time.sleep(POLL_S)
