"""Our verdict beside delta-spark's, on the commits that its own statements make."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkonce.offset_store.log.verdict import DomainChanged, Touched, judge
from tests.commit_pairs import CLUSTERING, OURS, grouped
from tests.lab.log.conflict_checker import ConflictChecker

STATEMENTS = (
    "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO {t} SELECT k + 2, v FROM {t}",
    "UPDATE {t} SET v = 'c' WHERE k = 1",
    "DELETE FROM {t} WHERE k = 2",
    "MERGE INTO {t} t USING (SELECT 9L AS k, 'm' AS v) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *",
    "OPTIMIZE {t}",
    "ALTER TABLE {t} ADD COLUMNS (w STRING)",
    "ALTER TABLE {t} ALTER COLUMN k COMMENT 'a key'",
    "ALTER TABLE {t} SET TBLPROPERTIES ('x' = 'y')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('x')",
    "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (k > 0)",
    "ALTER TABLE {t} DROP CONSTRAINT positive",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "DELETE FROM {t} WHERE k = 1",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "INSERT INTO {t} VALUES (5, 'e', 'e')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "UPDATE {t} SET v = 'd' WHERE k = 5",
    "ALTER TABLE {t} CLUSTER BY (k)",
    "OPTIMIZE {t}",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "ALTER TABLE {t} RENAME COLUMN w TO u",
    "REORG TABLE {t} APPLY (PURGE)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "UPDATE {t} SET v = 'f' WHERE k = 5",
    "RESTORE {t} TO VERSION AS OF 3",
    "INSERT OVERWRITE {t} VALUES (6, 'g')",
    "ALTER TABLE {t} DROP FEATURE deletionVectors",
    "DELETE FROM {t}",
    "REPLACE TABLE {t} USING delta AS SELECT 7L AS k, 'z' AS z",
    "DELETE FROM {t}",
    "CREATE OR REPLACE TABLE {t} SHALLOW CLONE {s}",
    "VACUUM {t}",
)
STRICTER = {
    "UPGRADE PROTOCOL": "a feature was added",
    "CLUSTER BY": "features were added, and our files need statistics of the new columns",
    "Deletion Vector Tombstones": "it removes files that are no data files, of which a replace knows nothing",
    "RESTORE": "rows that the decision was based on may be gone",
    "SET TBLPROPERTIES": "row tracking, deletion vectors, and column mapping are taken over by delta-spark",
    "ROW TRACKING BACKFILL": "a replace reads the files again, which have row ids now",
}
"""Where ours refuses and delta-spark does not, by the operation; `test_verdicts` says more."""


@pytest.fixture(scope="module")
def log(delta_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The commits of the statements, one after the other."""
    folder = tmp_path_factory.mktemp("log")
    source, table = folder / "source", folder / "table"
    for each in (source, table):
        delta_spark.sql(f"CREATE TABLE delta.`{each}` (k LONG, v STRING) USING delta")
    for statement in STATEMENTS:
        delta_spark.sql(statement.format(t=f"delta.`{table}`", s=f"delta.`{source}`")).collect()
    delta_spark.range(3).selectExpr("id AS k", "'h' AS v").write.format("delta").mode("append").options(
        txnAppId=OURS, txnVersion=1
    ).save(str(table))
    return sorted((table / "_delta_log").glob("*[0-9].json"))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("replaces", [False, True])
def test_ours_is_never_laxer(delta_spark: SparkSession, log: list[Path], tmp_path: Path, replaces: bool) -> None:
    checker = ConflictChecker(delta_spark, tmp_path)
    touched = Touched(frozenset({OURS}), frozenset({CLUSTERING}), replaces)
    laxer, unlisted, operations = [], [], set()
    for version in range(1, len(log)):
        folder = tmp_path / str(version)
        (folder / "_delta_log").mkdir(parents=True)
        for each in log[:version]:
            shutil.copy(each, folder / "_delta_log")
        landed = grouped([json.loads(line) for line in log[version].read_text().splitlines()])
        operation = landed["commitInfo"][0]["operation"]
        operations.add(operation)
        theirs, ours = checker.beside(folder, log[version], replaces=replaces), judge(touched, version, landed)
        if theirs is not None and ours is None:
            laxer.append((version, operation, theirs))
        is_listed = operation in STRICTER or isinstance(ours, DomainChanged)  # as CLUSTER BY, by whatever wrote it
        if theirs is None and ours is not None and not is_listed:
            unlisted.append((version, operation, str(ours)))
    print(f"RESULT replaces={replaces} commits={len(log) - 1} operations={len(operations)}", sorted(operations))
    assert not laxer
    assert not unlisted
