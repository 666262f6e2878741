"""Runs set-back cells side by side in the Spark session of the crash matrix, and returns their outcomes."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.spark_process import SESSION_ENDED, SessionError
from lab.verify.cells import Outcome, Result, Shows
from lab.verify.engine import MOST_TRIES, Engine
from lab.verify.evidence import commits
from lab.verify.outcomes import trouble_of_a_busy_machine
from lab.verify.setback.cells import Query, SetBackCell, Sink
from lab.verify.setback.course import Course, CourseError, Running, course
from lab.verify.setback.judge import Found, find, left_behind
from lab.verify.setback.queries import Setup
from lab.verify.wave import AT_ONCE, POLL_S, RUN_LIMIT_S

_AUDITED = {
    Sink.APPEND: Result.APPEND,
    Sink.DEAD_LETTERS: Result.DEAD_LETTERS,
    Sink.MERGE: Result.MERGE,
    Sink.APPEND_WRITER: Result.APPEND_WRITER,
}
"""Sinks whose tables can be audited."""


@dataclass(slots=True)
class SetBackEngine:
    """Runs cells on the Kafka and in the sessions of an `Engine`."""

    around: Engine

    def run(self, cells: Sequence[SetBackCell]) -> Iterator[Outcome[SetBackCell]]:
        """Run cells and yield each outcome as soon as it is known."""
        left, tries = list(cells), 0
        while left:
            tries += 1
            self.around.charge("checkpoint set back")
            self.around.use({})
            again: list[SetBackCell] = []
            for batch in [left] if tries == 1 else [[cell] for cell in left]:
                for one, outcome in self._side_by_side(batch):
                    trouble = trouble_of_a_busy_machine(outcome, SESSION_ENDED)
                    if trouble is not None and tries < MOST_TRIES:
                        self.around.tell(f"{one.cell.name} is run again: {trouble}")
                        again.append(one.cell)
                    else:
                        yield outcome
            left = again

    def _side_by_side(self, cells: Sequence[SetBackCell]) -> Iterator[tuple[Running, Outcome[SetBackCell]]]:
        waiting, active = deque(cells), list[_Active]()
        while waiting or active:
            while waiting and len(active) < AT_ONCE:
                active.append(self._begin(waiting.popleft()))
            for each in active:
                self._look(each)
            for each in [each for each in active if each.over]:
                active.remove(each)
                yield each.one, self._judged(each)
            if active:
                time.sleep(POLL_S)

    def _begin(self, cell: SetBackCell) -> _Active:
        folder, topic = self.around.place(cell.name)
        one = Running(cell, folder, topic, self.around.kafka.broker.bootstrap_servers, self.around.crash_folder)
        active = _Active(one, course(one))
        self._step(active, None, first=True)
        return active

    def _step(self, active: _Active, error: str | None, first: bool = False) -> None:
        """Send the error of the last run, and start the next one if there is one."""
        try:
            active.setup = next(active.course) if first else active.course.send(error)
            active.began_s = time.monotonic()
            self.around.session().start(active.query, active.setup)
        except StopIteration:
            active.over = True
        except SessionError:
            raise  # no cell can run
        except CourseError as trouble:
            active.over, active.trouble = True, str(trouble)
        except Exception as trouble:  # an error of one cell does not affect the others
            active.over, active.trouble = True, f"{type(trouble).__name__}: {trouble}"

    def _look(self, active: _Active) -> None:
        session = self.around.session_or_none()
        over, error = (True, "the Spark session is gone") if session is None else session.ended(active.query)
        if not over and time.monotonic() - active.began_s > RUN_LIMIT_S:
            active.trouble = f"run {active.one.runs} did not end within {RUN_LIMIT_S:g} s"
            active.over = True
            self.around.kill_session()  # the runs of the others end with it, and report that
        elif over:
            self._step(active, error)

    def _judged(self, active: _Active) -> Outcome[SetBackCell]:
        one = active.one
        wrong, found = active.trouble, None
        try:
            found = find(one.cell, one.setup(), one.records, one.files)
            wrong = wrong or self._why_wrong(one, found)
        except Exception as error:  # an unreadable table is a finding, not the end of the run
            wrong = wrong or f"the result cannot be judged: {type(error).__name__}: {error}"
        moments = sorted([*one.moments, *commits(one.setup(), one.began_wall_s)], key=lambda each: each.at_s)
        if not self.around.keep:
            shutil.rmtree(one.folder, ignore_errors=True)
        return Outcome(
            cell=one.cell,
            must_show=Shows.NEITHER,
            records=0 if found is None else found.due,
            lost=0 if found is None else found.lost,
            duplicated=0 if found is None else found.duplicated,
            fired=one.set_back,
            wrong=wrong,
            moments=tuple(moments),
            errors=tuple(one.errors),
            seconds=max((moment.at_s for moment in moments), default=0.0),
            remark=None if found is None else _remark(one, found),
            to_compare=one.cell.compares_only,
        )

    def _why_wrong(self, one: Running, found: Found) -> str | None:
        if one.cell.compares_only:
            return None
        if not found.is_right:
            return f"must show each row that is due once, and no other; found {found}"
        if left := left_behind(one.cell, one.setup()):
            return "; ".join(left)
        result = _AUDITED.get(one.cell.sink)
        if result is None or one.cell.query is Query.FILES:  # files have no stored offsets
            return None
        return self.around.second_opinion(one.setup(), result)


def _remark(one: Running, found: Found) -> str:
    rows = "right rows" if found.is_right else str(found)
    if one.refused is None:
        return rows
    return f"refuses: {one.refused}" if one.cell.compares_only else f"{rows}, after a refusal: {one.refused}"


@dataclass(slots=True)
class _Active:
    """A course, and its current run."""

    one: Running
    course: Course
    setup: Setup | None = None
    began_s: float = 0.0
    over: bool = False
    trouble: str | None = None

    @property
    def query(self) -> str:
        """The name of the current run."""
        return f"{self.one.folder.name}#{self.one.runs}"
