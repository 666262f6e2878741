"""The courses of cells with one query: what is done to it, equal for Spark's own source and sink and for ours.

A fault of a task or driver strikes in the middle of the last of two batches, when rows of the failing task are in the
output topic, committed or not. Spark runs a task that fails again, within the same batch. A driver that is started
again with its checkpoint runs the batch once more. Deleting a checkpoint deletes all that Spark remembers of the query.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from deltalake import DeltaTable

from lab.crash_plans import arm, fired, release
from lab.spark_process import Login, SparkProcess
from lab.verify.engine import SESSION as SESSION_OF_CELLS
from lab.verify.records import PARTITIONS, await_uncommitted
from lab.verify.shows.cells import Fault, Show
from lab.verify.shows.copies import HELD_PARTITION, STEP
from lab.verify.shows.stage import ShowError, Stage, wait
from sparkonce.crash_points import CrashAction

RECORDS, LATER = 20_000, 2_000
"""Fewer would not fill the buffers between the steps of a query: no row would be sent before its task is struck."""
BATCHES = 2
HELD_AT = RECORDS // PARTITIONS * 3 // 4
ARROW_RECORDS = 100
ROWS_LIMIT_S = 60.0
SESSION = {
    "spark.master": "local[2,4]",  # two cores; a task may fail three times
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_RECORDS),  # a task passes its rows on in small batches
}
_ACTIONS = {Fault.TASK_RAISES: CrashAction.RAISE, Fault.TASK_DIES: CrashAction.KILL}


def course(stage: Stage) -> None:
    """Run a cell.

    Raises:
        ShowError, LoadError: if it cannot be shown.
        SessionError: if Spark's session cannot be used.
    """
    stage.copy = replace(stage.copy, records_per_batch=RECORDS // BATCHES)
    stage.send(range(RECORDS))
    if stage.cell.show is Show.LOST_CHECKPOINT:
        _lose_checkpoint(stage)
    elif stage.cell.fault is Fault.CHECKPOINT:
        stage.run()
        stage.lose_checkpoint()
        stage.run()
    else:
        _strike_while_sending(stage)


def _lose_checkpoint(stage: Stage) -> None:
    """Lose it where nothing new has arrived, then (ours) where something has."""
    stage.copy = replace(stage.copy, from_store=stage.cell.fault is Fault.CHECKPOINT, records_per_batch=RECORDS + LATER)
    stage.run()
    stage.lose_checkpoint()
    stage.run()
    if stage.cell.by_spark:
        return
    stage.send(range(RECORDS, RECORDS + LATER))
    stage.lose_checkpoint()
    if not stage.copy.from_store:
        _expect_refusal(stage)
        stage.copy = replace(stage.copy, from_store=True)  # as the error says, with a new checkpoint
        stage.lose_checkpoint()
    stage.run()


def _expect_refusal(stage: Stage) -> None:
    """Run a query whose batch has old records and new ones: it must stop, and leave the table as it was."""
    table = DeltaTable(stage.copy.table, storage_options=dict(stage.copy.storage_options) or None)
    before, session = table.version(), stage.engine.session()
    error = stage.end(session, stage.start(session))
    if error is None or "OffsetMismatchError" not in error:
        raise ShowError(f"a batch with an overlap did not stop the query as it should: {error}")
    table.update_incremental()
    if table.version() != before:
        raise ShowError("the query stopped, and has changed the table")
    stage.remark = f"refused: {error}"


def _strike_while_sending(stage: Stage) -> None:
    stage.copy = replace(stage.copy, held_at=HELD_AT)
    fault, plans, session = stage.cell.fault, stage.engine.crash_folder, stage.engine.session()
    where = f"{stage.copy.app_id_of_step}:{STEP.value}"
    hold = arm(plans, f"{stage.folder.name}.hold", f"{where}@0={CrashAction.HOLD.value}")
    query = stage.start(session)
    wait(lambda: fired(hold) is not None or session.ended(query)[0], "the fault")
    if fired(hold) is None:
        raise ShowError(f"the query ended before a task came to the fault: {session.ended(query)[1]}")
    _await_rows(stage)
    stage.note("fault", fault.value)
    if fault in _ACTIONS:
        arm(plans, f"{stage.folder.name}.strike", f"{where}@1={_ACTIONS[fault].value}")
        release(hold)
        stage.run(session, query)
    elif fault is Fault.DRIVER:
        session.kill()
        stage.run()
    else:
        _take_over(stage, session)
        release(hold)
        session.resume()
        stage.remark = f"the driver that was presumed dead: {stage.end(session, query) or 'went on without an error'}"


def _await_rows(stage: Stage) -> None:
    """Wait until a row that the waiting task has passed on is in the output topic, committed or not."""
    assert stage.copy.output_topic is not None
    offsets = range(HELD_AT - HELD_AT // 6, HELD_AT - ARROW_RECORDS)  # well within the last batch
    records = stage.copy.records([offset * PARTITIONS + HELD_PARTITION for offset in offsets])
    wanted = {value for _, _, value in records}.__contains__
    await_uncommitted(stage.copy.bootstrap_servers, stage.copy.output_topic, PARTITIONS, wanted, ROWS_LIMIT_S)


def _take_over(stage: Stage, paused: SparkProcess) -> None:
    """Let another driver run the query to its end, with the checkpoint of the one that is paused."""
    paused.pause()
    folder = stage.folder / "another"
    folder.mkdir()
    conf = {**SESSION_OF_CELLS, **stage.engine.conf, **SESSION}
    with closing(SparkProcess(conf, folder, Login(folder))) as other:
        stage.run(other)
