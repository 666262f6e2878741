"""Runs the cells of ``--show`` one after the other, and judges them as the cells of the matrix are judged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lab.spark_process import SessionError
from lab.verify.cells import Outcome
from lab.verify.engine import Engine
from lab.verify.outcomes import outcome
from lab.verify.shows import courses, two_drivers
from lab.verify.shows.cells import Fault, ShowCell
from lab.verify.shows.stage import Stage


def run(cells: Sequence[ShowCell], engine: Engine, pauses: int, seed: int) -> Iterator[Outcome[ShowCell]]:
    """Run cells on the Kafka and in the sessions of an `Engine`, and yield each outcome."""
    for cell in cells:
        engine.charge(cell.show.value)
        engine.use(courses.SESSION)
        stage = Stage.begin(cell, engine)
        try:
            if cell.fault is Fault.PAUSED_IN_TURN:
                two_drivers.course(stage, pauses, seed)
            else:
                courses.course(stage)
        except SessionError:
            raise  # no cell can run
        except Exception as error:  # an error of one cell does not affect the others
            stage.trouble = f"{type(error).__name__}: {error}"
            engine.kill_session()
        yield _judged(stage)


def _judged(stage: Stage) -> Outcome[ShowCell]:
    cell, engine = stage.cell, stage.engine
    fired = any(moment.lane == "fault" for moment in stage.moments)
    opinion = (lambda *_: None) if cell.by_spark else engine.second_opinion
    most = (len(stage.acknowledged), 2)
    found = outcome(stage, cell.must_show, most, stage.evidence, opinion, fired=fired, trouble=stage.trouble)
    if not engine.keep:
        shutil.rmtree(stage.folder, ignore_errors=True)
    return replace(found, remark=stage.remark)
