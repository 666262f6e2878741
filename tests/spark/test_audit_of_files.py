"""What delta-spark does to the files of a table is no error of the audit, with and without deletion vectors."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkonce.exactly_once.audit_active import ActiveFiles
from sparkonce.exactly_once.audit_findings import CommitName
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.data_files import names_of
from sparkonce.offset_store.locations import Location

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STATEMENTS = [
    "INSERT INTO {t} SELECT id, concat('a b%', id % 3) FROM range({n}, {n} + 20)",
    "DELETE FROM {t} WHERE v % 7 = {n} % 7",
    "UPDATE {t} SET v = v + 1 WHERE v % 5 = {n} % 5",
    "MERGE INTO {t} t USING (SELECT id v, 'é' p FROM range(10)) s ON t.v = s.v WHEN MATCHED THEN UPDATE SET p = s.p "
    "WHEN NOT MATCHED THEN INSERT *",
    "OPTIMIZE {t}",
    "OPTIMIZE {t} ZORDER BY (v)",
    "REORG TABLE {t} APPLY (PURGE)",
    "RESTORE TABLE {t} TO VERSION AS OF {old}",
    "INSERT OVERWRITE {t} SELECT id, 'x=y' FROM range(30)",
    "CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (p) {with_} AS SELECT id v, 'q' p FROM range(9)",
    "TRUNCATE TABLE {t}",
]


@pytest.mark.parametrize("vectors", [False, True])
def test_statements_of_delta_spark(delta_spark: SparkSession, tmp_path: Path, vectors: bool) -> None:
    path, chance = tmp_path / "table", random.Random(7)
    properties = f"'delta.enableDeletionVectors'='{str(vectors).lower()}', 'delta.checkpointInterval'='6'"
    with_ = f"TBLPROPERTIES ({properties})"
    table = f"delta.`{path}`"
    delta_spark.sql(f"CREATE TABLE {table} (v BIGINT, p STRING) USING delta PARTITIONED BY (p) {with_}")
    rest = chance.choices(STATEMENTS[:8], k=8)
    for number, statement in enumerate([STATEMENTS[0], *chance.sample(STATEMENTS, len(STATEMENTS)), *rest]):
        old = chance.randrange(number + 1)
        delta_spark.sql(statement.format(t=table, n=number, old=old, with_=with_))
    log = CommitLog.open(Location.parse(str(path)))
    commits = list(log.commits())
    assert any(vector for commit in commits for _, vector in commit.removed) is vectors
    names = {each: names_of(each, log.location) for each in pa.table(log.table.get_add_actions())["path"].to_pylist()}
    for first in range(0, len(commits), 3):
        active = ActiveFiles()
        found = [each for commit in commits[first:] for each in active.follow(commit, CommitName.of(commit))]
        assert [*found, *active.differences(names)] == []
