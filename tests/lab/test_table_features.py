"""Tables of delta-spark with what they ask of writers: ours writes beside it, and every reader finds the right rows.

Each feature goes the same way: delta-spark makes the table, both write in turn, a checkpoint of ours replaces all
commits before it, both go on, and at last a batch of ours replaces the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.compaction import Compaction, CompactionError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.checkpoints import write_checkpoint
from sparkonce.offset_store.log.storage import LOG_FOLDER
from sparkonce.offset_store.log.table_log import TableLog
from tests.lab.checkpoint_tables import keep_only, log_of, readings, settings
from tests.unit.sink.query_by_hand import Query

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]

SCHEMA = t.StructType([t.StructField("id", t.LongType()), t.StructField("text", t.StringType())])
Rows = dict[int, str]


@dataclass(frozen=True)
class Feature:
    """A table `{t}` with columns ``id`` and ``text``, and what is done to it before and between our batches."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    columns: str = "id bigint, text string"
    tail: str = ""
    before: Sequence[str] = ()
    between: Sequence[str] = ()
    keeps_rows: bool = False
    compacts: bool = False
    expect: str = "true"
    """What holds for each row."""


FEATURES = [
    Feature("rowTracking", {"delta.enableRowTracking": "true"}),
    Feature("rowTracking, supported", {"delta.feature.rowTracking": "supported"}),
    Feature(
        "rowTracking, later",
        before=["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"],
    ),
    Feature("rowTracking, vectors", {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}),
    Feature(
        "clustering",
        tail="CLUSTER BY (text)",
        before=["ALTER TABLE {t} SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '1')"],
    ),
    Feature(
        "clustering, changed",
        {"delta.columnMapping.mode": "name"},
        tail="CLUSTER BY (text)",
        between=["ALTER TABLE {t} CLUSTER BY (id)"],
    ),
    Feature(
        "typeWidening",
        {"delta.enableTypeWidening": "true"},
        columns="id int, text string",
        before=["ALTER TABLE {t} ALTER COLUMN id TYPE bigint"],
    ),
    Feature("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}),
    Feature(
        "inCommitTimestamp, later",
        before=["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"],
    ),
    Feature(
        "inCommitTimestamp, between",
        between=["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"],
    ),
    Feature("appendOnly", {"delta.appendOnly": "true"}, keeps_rows=True, compacts=True),
    Feature("v2Checkpoint", {"delta.checkpointPolicy": "v2"}, compacts=True),
    Feature("vacuumProtocolCheck", {"delta.feature.vacuumProtocolCheck": "supported"}),
    Feature("checkpointProtection", {"delta.feature.checkpointProtection": "supported"}),
    Feature("domainMetadata", {"delta.feature.domainMetadata": "supported"}),
    Feature(
        "checkConstraints",
        before=["ALTER TABLE {t} ADD CONSTRAINT c CHECK (id >= 0 AND length(text) > 0)"],
        compacts=True,
    ),
    Feature(
        "generatedColumns",
        columns="id bigint, text string, twice bigint GENERATED ALWAYS AS (id * 2)",
        expect="twice = id * 2",
        compacts=True,
    ),
    Feature(
        "allowColumnDefaults",
        {"delta.feature.allowColumnDefaults": "supported"},
        columns="id bigint, text string, origin string DEFAULT 'kafka'",
        expect="origin = 'kafka'",
    ),
    Feature("varchar", columns="id bigint, text varchar(20)", compacts=True),
    Feature(
        "everything",
        {
            "delta.feature.allowColumnDefaults": "supported",
            "delta.columnMapping.mode": "name",
            "delta.enableDeletionVectors": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.enableRowTracking": "true",
            "delta.enableTypeWidening": "true",
        },
        columns="id bigint, text varchar(20), twice bigint GENERATED ALWAYS AS (id * 2), "
        "origin string DEFAULT 'kafka', wide int",
        tail="CLUSTER BY (text)",
        before=[
            "ALTER TABLE {t} ALTER COLUMN wide TYPE bigint",
            "ALTER TABLE {t} ADD CONSTRAINT c CHECK (length(text) > 0)",
        ],
        expect="twice = id * 2 AND origin = 'kafka'",
    ),
]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: each.name)
def test_ours_writes_beside_delta_spark(delta_spark: SparkSession, tmp_path: Path, feature: Feature) -> None:
    turn = _Turns(delta_spark, Query(tmp_path, schema=SCHEMA), feature)
    with settings(delta_spark, {"spark.databricks.delta.clusteredTable.enableClusteringTablePreview": "true"}):
        turn.make()
        turn.ours()
        for statement in feature.between:
            turn.sql(statement)
        turn.ours()
        turn.theirs()
        turn.ours()
        turn.clean_up()
        turn.ours()
        turn.theirs()
        turn.ours(replace=not feature.keeps_rows)
        turn.ours(merge=True)
        turn.theirs()
    turn.judge()
    if not feature.compacts:
        with pytest.raises(CompactionError, match=r"cannot write: .*\. Merge them with delta-spark"):
            Compaction(Location.parse(str(turn.query.table)), {}, 1 << 20, {}).plan()


class _Turns:
    """One table, the rows that it must have, and who writes next."""

    def __init__(self, spark: SparkSession, query: Query, feature: Feature) -> None:
        self.spark, self.query, self.feature = spark, query, feature
        self.rows: Rows = {}
        self.batch_id = self.next_id = self.first_version = 0

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("{t}", f"delta.`{self.query.table}`"))

    def make(self) -> None:
        text = ", ".join(f"'{name}' = '{value}'" for name, value in self.feature.properties.items())
        properties = f"TBLPROPERTIES ({text})" if text else ""
        self.sql(f"CREATE TABLE {{t}} ({self.feature.columns}) USING delta {self.feature.tail} {properties}")
        self.insert()
        for statement in self.feature.before:
            self.sql(statement)

    def ours(self, *, replace: bool = False, merge: bool = False) -> None:
        """Write a batch; with ``merge`` one that adds a column."""
        self.query.replace = replace
        if merge:
            self.query.options["mergeSchema"] = "true"
            self.query.schema = t.StructType([*SCHEMA.fields, t.StructField("more", t.LongType())])
        new = self._new("ours")
        self.query.write(self.batch_id, [{"id": key, "text": text} for key, text in new.items()])
        self.batch_id += 1
        self.rows = new if replace else self.rows | new
        self.check()

    def insert(self) -> None:
        new = self._new("theirs")
        values = ", ".join(f"({key}, '{text}')" for key, text in new.items())
        self.sql(f"INSERT INTO {{t}} (id, text) VALUES {values}")
        self.rows |= new

    def theirs(self) -> None:
        self.insert()
        if not self.feature.keeps_rows:
            self.sql("DELETE FROM {t} WHERE id % 5 = 0")
            self.rows = {key: text for key, text in self.rows.items() if key % 5}
            source = "(SELECT id, concat(text, '+') AS text FROM {t} WHERE id % 3 = 0)"
            self.sql(f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET text = s.text")
            self.rows |= {key: f"{text}+" for key, text in self.rows.items() if key % 3 == 0}
        self.sql("OPTIMIZE {t}")
        self.check()

    def clean_up(self) -> None:
        """Leave a checkpoint of ours, and nothing before it."""
        table = self.query.table
        log = log_of(table)
        for each in (table / LOG_FOLDER).glob("*.checkpoint*"):
            each.unlink()
        (table / LOG_FOLDER / "_last_checkpoint").unlink(missing_ok=True)
        state = TableLog(Location.parse(str(table))).state()
        write_checkpoint(log, state, log.listing(), removed_before_ms=0)
        keep_only(table, state.version)
        self.first_version = state.version
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        self.check()

    def check(self) -> None:
        found = self.spark.read.format("delta").load(str(self.query.table)).select("id", "text").collect()
        assert sorted((row.id, row.text) for row in found) == sorted(self.rows.items())

    def judge(self) -> None:
        """Check the log as a whole, and what other readers find."""
        table = self.query.table
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{table}`").orderBy("version").collect()
        newest = max(log_of(table).listing().commits)
        assert [row.version for row in history] == [*range(self.first_version, newest + 1)]
        ours = [row for row in history if (row.engineInfo or "").startswith("sparkonce") and row.operation == "WRITE"]
        assert [row.operation for row in ours].count("WRITE") >= 2
        assert [row.isBlindAppend for row in ours] == [row.operationParameters["mode"] == "Append" for row in ours]
        assert self.spark.read.format("delta").load(str(table)).where(f"NOT ({self.feature.expect})").count() == 0
        self._judge_timestamps(history)
        self._judge_row_ids()
        self._judge_statistics()
        for name, found in readings(table).items():
            count = len(self.rows)
            assert isinstance(found, str) or len(found) == count, name
            print(
                f"RESULT feature={self.feature.name!r} reader={name!r} {found if isinstance(found, str) else 'equal'}"
            )

    def _judge_timestamps(self, history: Sequence[Any]) -> None:
        state = TableLog(Location.parse(str(self.query.table))).state()
        wanted = self.feature.name.startswith("inCommitTimestamp") or self.feature.name == "everything"
        assert (state.timestamp_ms is not None) == wanted
        if state.timestamp_ms is not None:
            times = [row.timestamp for row in history]
            assert times == sorted(set(times))
            kinds = [next(iter(json.loads(line))) for line in self._lines(state.version)]
            assert kinds[0] == "commitInfo"

    def _judge_row_ids(self) -> None:
        if not self.feature.name.startswith(("rowTracking", "everything")):
            return
        files = {}
        for version in range(self.first_version + 1, max(log_of(self.query.table).listing().commits) + 1):
            for add in (json.loads(line).get("add") for line in self._lines(version)):
                if add is not None:
                    files[add["path"]] = (add["baseRowId"], json.loads(add["stats"])["numRecords"])
                    assert add["defaultRowCommitVersion"] <= version
        taken = [number for first, count in files.values() for number in range(first, first + count)]
        assert len(taken) == len(set(taken))
        state = TableLog(Location.parse(str(self.query.table))).state()
        assert state.next_row_id > max(taken)
        if state.metadata.is_on("delta.enableRowTracking"):
            frame = self.spark.read.format("delta").load(str(self.query.table))
            ids = [row.row_id for row in frame.select("_metadata.row_id").collect()]
            assert len(ids) == len(set(ids)) == len(self.rows)

    def _judge_statistics(self) -> None:
        if not self.feature.name.startswith(("clustering", "everything")):
            return
        state = TableLog(Location.parse(str(self.query.table))).state()
        (column,) = json.loads(state.domains["delta.clustering"])["clusteringColumns"][0]
        versions = range(state.version, self.first_version, -1)  # delta-spark's own lack those beyond the indexed ones
        ours = (
            lines for lines in map(self._lines, versions) if '"mode":"Append"' in lines[0] and "sparkonce" in lines[0]
        )
        (add,) = [json.loads(line)["add"] for line in next(ours) if '"add"' in line]
        assert column in json.loads(add["stats"])["minValues"]
        detail = self.spark.sql(f"DESCRIBE DETAIL delta.`{self.query.table}`").collect()[0]
        assert len(detail.clusteringColumns) == 1

    def _lines(self, version: int) -> list[str]:
        return (self.query.table / LOG_FOLDER / f"{version:020d}.json").read_text().splitlines()

    def _new(self, who: str) -> Rows:
        first, self.next_id = self.next_id, self.next_id + 10
        return {key: f"{who} {key}" for key in range(first, first + 10)}
