"""Tables with what `delta_once` must keep: delta-spark makes one of each kind, and each cell writes to a copy.

A copy has rows before those of the pipeline, which must still be there at the end. A checkpoint is due after every
commit, so whoever is started again reads one that the process before it has written. At the end delta-spark reads the
table, since delta-rs refuses some features. The rows of the pipeline are judged like those of other cells; this judges
what else the table asks for, and its log as a whole.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from lab.log.files import judge_table
from lab.spark_process import SessionError, SparkProcess
from lab.verify.cells import Features
from lab.verify.judge import Row
from lab.verify.pipelines import Pipeline
from lab.verify.records import TopicRecord
from sparkonce.offset_store.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = -1
"""The partition of the rows that are there before."""
_OFFSETS = (0, 1, 2, 3)
"""Their offsets."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How delta-spark makes a table ``{t}``."""

    properties: Mapping[str, str]
    columns: str = "key BINARY, value BINARY, partition INT, offset BIGINT, topic STRING"
    tail: str = ""
    statements: Sequence[str] = ()
    """What it does after it has inserted the first rows."""
    offsets: Sequence[int] = _OFFSETS
    """Those of the first rows that it leaves."""
    expect: str = "true"
    """What holds for each row, in SQL."""
    row_id: str = "monotonically_increasing_id()"
    """What is another number for each row."""

    def make(self, spark: SparkSession, path: Path) -> None:
        properties = {"delta.checkpointInterval": "1", **self.properties}
        text = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        seeds = ", ".join(f"(X'00', X'00', {SEED}, {offset}, 'before')" for offset in _OFFSETS)
        in_one_file = f"SELECT /*+ COALESCE(1) */ * FROM VALUES {seeds}"  # noqa: S608 - a vector needs rows beside
        for statement in (
            f"CREATE TABLE {{t}} ({self.columns}) USING delta {self.tail} TBLPROPERTIES ({text})",
            f"INSERT INTO {{t}} (key, value, partition, offset, topic) {in_one_file}",
            *self.statements,
        ):
            spark.sql(statement.replace("{t}", f"delta.`{path}`"))


_RECIPES = {
    Features.RULES: _Recipe(
        {"delta.feature.allowColumnDefaults": "supported"},
        "key BINARY NOT NULL, value BINARY, partition INT, offset BIGINT NOT NULL, topic VARCHAR(40), "
        "next BIGINT GENERATED ALWAYS AS (offset + 1), origin STRING DEFAULT 'kafka'",
        statements=["ALTER TABLE {t} ADD CONSTRAINT known CHECK (offset >= 0 AND partition < 2)"],
        expect="next = offset + 1 AND origin = 'kafka'",
    ),
    Features.TRACKED: _Recipe(
        {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"},
        tail="CLUSTER BY (offset)",
        row_id="_metadata.row_id",
    ),
    Features.MAPPED: _Recipe(
        {
            "delta.columnMapping.mode": "name",
            "delta.enableDeletionVectors": "true",
            "delta.enableChangeDataFeed": "true",
        },
        statements=["DELETE FROM {t} WHERE offset = 1"],
        offsets=(0, 2, 3),
    ),
    Features.WIDENED: _Recipe(
        {
            "delta.enableTypeWidening": "true",
            "delta.checkpointPolicy": "v2",
            "delta.appendOnly": "true",
        },
        "key BINARY, value BINARY, partition SMALLINT, offset INT, topic STRING",
        statements=[
            "ALTER TABLE {t} ALTER COLUMN partition TYPE INT",
            "ALTER TABLE {t} ALTER COLUMN offset TYPE BIGINT",
        ],
    ),
}


@dataclass(frozen=True, slots=True)
class Making:
    """The request to a session to make a table of each kind in a folder."""

    folder: str

    def run(self, spark: SparkSession) -> None:
        """Make them; called in the session's process."""
        for features, recipe in _RECIPES.items():
            recipe.make(spark, Path(self.folder) / features.value)


@dataclass(frozen=True, slots=True)
class Reading:
    """The request to a session to read a table into a file."""

    table: str
    features: str
    path: str

    def run(self, spark: SparkSession) -> None:
        """Read it; called in the session's process."""
        recipe = _RECIPES[Features(self.features)]
        content = "base64(key) AS key", "base64(value) AS value", "partition", "offset"
        frame = spark.read.format("delta").load(self.table)
        frame = frame.selectExpr(*content, f"{recipe.row_id} AS row_id", f"({recipe.expect}) IS TRUE AS is_right")
        Path(self.path).write_text(json.dumps([row.asDict() for row in frame.collect()]))


class _Over:
    """In place of a streaming query: a request is over when it has been served."""

    isActive = False  # noqa: N815 - as in PySpark

    def exception(self) -> None:
        """Return its error."""


def start(spark: SparkSession, request: Making | Reading) -> _Over:
    """Serve a request; called in the session's process."""
    request.run(spark)
    return _Over()


def make(session: SparkProcess, folder: Path) -> Path:
    """Have a session with delta-spark make a table of each kind, named by its features; return the folder.

    Raises:
        SessionError: if it cannot.
    """
    if error := session.run(str(folder), Making(str(folder))):
        raise SessionError(f"delta-spark cannot make tables with features: {error}")
    return folder


def copy_to(pipeline: Pipeline, template: Path) -> None:
    """Copy a table to where a pipeline writes."""
    filesystem, root = Location.parse(pipeline.table).filesystem(pipeline.storage_options)
    fs.copy_files(str(template), root, source_filesystem=fs.LocalFileSystem(), destination_filesystem=filesystem)


def read(session: SparkProcess, pipeline: Pipeline) -> None:
    """Have delta-spark read the table of a pipeline, for `rows` and `broken_rule`.

    Raises:
        RuntimeError: if it cannot.
    """
    path = _read_file(pipeline)
    if error := session.run(str(path), Reading(pipeline.table, pipeline.features, str(path))):
        raise RuntimeError(f"delta-spark cannot read {pipeline.table}: {error}")


def _read_file(pipeline: Pipeline) -> Path:
    return Path(pipeline.folder) / "read.json"


def _found(pipeline: Pipeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_read_file(pipeline).read_text())
    return found


def rows(pipeline: Pipeline) -> list[Row]:
    """Return the rows of a pipeline that were read."""
    return [
        Row(TopicRecord(row["partition"], row["offset"], *map(base64.b64decode, (row["key"], row["value"]))), 1)
        for row in _found(pipeline)
        if row["partition"] != SEED
    ]


def broken_rule(pipeline: Pipeline) -> str | None:
    """Return what is wrong with a table with features, other than the rows of the pipeline; None if nothing.

    Raises:
        OSError: if its log cannot be read.
    """
    if not pipeline.features:
        return None
    log, found = judge_table(pipeline.table, pipeline.storage_options, pipeline.guarantee), _found(pipeline)
    broken, newest = list(log.violations), log.table.version
    if f"checkpoint {newest:020d}.checkpoint.parquet" not in log.events:
        broken.append(f"checkpoint: version {newest} has none")
    recipe = _RECIPES[Features(pipeline.features)]
    before = sorted(row["offset"] for row in found if row["partition"] == SEED)
    if before != [*recipe.offsets]:
        broken.append(f"rows: of those before the pipeline's, the offsets {before} are left")
    if not all(row["is_right"] for row in found):
        broken.append(f"rows: not all have {recipe.expect}")
    if len({row["row_id"] for row in found}) < len(found):
        broken.append("row-ids: delta-spark reads one twice")
    return "; ".join(broken) or None
