"""Ingestions one of whose tables refuses rows, or was restored, dropped or emptied, before the crash.

Before the run that crashes, the ingestion has run once to its end: with a table that refuses the rows of its second
batch, or with tables that take all, of which one is changed then. In the run that crashes, the query of the others
leaves that table out, and a query of its own reads what it lacks.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from lab.spark_process import SparkProcess
from lab.verify.cells import Cell, Fate
from lab.verify.pipelines import COLUMNS, Pipeline
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.locations import Location

_TYPES = (pa.binary(), pa.binary(), pa.int32(), pa.int64())
_RULE = "early"
_ACCEPTED = 4
"""A table that refuses rows takes the offsets below this: those of the first batch."""
AWAY = frozenset({Fate.CATCHING_UP, Fate.BESIDE_AWAY})
"""Fates in which a table refuses rows."""


def struck(cell: Cell) -> int:
    """Return the index of the table with the fate; its neighbour is hit by the crash if that is beside it."""
    assert cell.shared is not None
    return (cell.shared.hit + (cell.fate is Fate.BESIDE_AWAY)) % cell.shared.tables


def make_refusing(pipeline: Pipeline, index: int) -> None:
    """Make a table that takes the rows of the first batch only."""
    schema = pa.schema(zip(COLUMNS, _TYPES, strict=True))
    options = dict(pipeline.storage_options) or None
    made = DeltaTable.create(pipeline.tables[index][0], schema, storage_options=options)
    made.alter.add_constraint({_RULE: f"offset < {_ACCEPTED}"})


def mend(pipeline: Pipeline, index: int) -> None:
    """Have it take all."""
    _table(pipeline, index).alter.drop_constraint(_RULE)


def befall(pipeline: Pipeline, fate: Fate, index: int) -> None:
    """Change a table that an ingestion has written."""
    table, app_id = pipeline.tables[index]
    if fate is Fate.CATCHING_UP:
        mend(pipeline, index)
    elif fate is Fate.RESTORED:
        options = [word for each in pipeline.storage_options.items() for word in ("--storage", "=".join(each))]
        to = str(_table(pipeline, index).version() - 1)
        rewind = ["offsets", "rewind", table, "--to-version", to, "--app-id", app_id, "--restore", "--apply"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*rewind, *options]) == 0
    elif fate is Fate.DROPPED:
        remove(table, pipeline.storage_options)
    elif fate is Fate.EMPTIED:
        _table(pipeline, index).delete("offset >= 0")


def run_first(session: SparkProcess, pipeline: Pipeline, name: str, fate: Fate) -> None:
    """Run an ingestion to its end, before anything is done to its tables.

    Raises:
        RuntimeError: if it does not end as it must.
    """
    error = session.run(name, pipeline)
    if (error is None) is (fate in AWAY) or (error is not None and _RULE not in error):
        raise RuntimeError(f"the ingestion before the crash ended so: {error}")


def remove(table: str, storage_options: Mapping[str, str]) -> None:
    """Delete all files in a folder, which may not exist."""
    location = Location.parse(table)
    if location.is_local:
        shutil.rmtree(location.text, ignore_errors=True)
        return
    filesystem, root = location.filesystem(storage_options)
    for info in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True)):
        if info.type is fs.FileType.File:
            filesystem.delete_file(info.path)


def _table(pipeline: Pipeline, index: int) -> DeltaTable:
    return DeltaTable(pipeline.tables[index][0], storage_options=dict(pipeline.storage_options) or None)
