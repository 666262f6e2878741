"""The tables with features are what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.log.files import judge_table
from lab.verify.cells import Features
from lab.verify.features import Making

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]

ASKED = {
    Features.RULES: {"allowColumnDefaults", "checkConstraints", "generatedColumns", "invariants"},
    Features.TRACKED: {"clustering", "domainMetadata", "inCommitTimestamp", "rowTracking"},
    Features.MAPPED: {"changeDataFeed", "columnMapping", "deletionVectors"},
    Features.WIDENED: {"appendOnly", "typeWidening", "v2Checkpoint"},
}


def test_delta_spark_makes_what_the_names_say(delta_spark: SparkSession, tmp_path: Path) -> None:
    Making(str(tmp_path)).run(delta_spark)
    assert ASKED.keys() == set(Features)
    for features, names in ASKED.items():
        log = judge_table(str(tmp_path / features.value), {}, "exactly-once")
        assert not log.violations, features
        assert names <= {*log.table.features}, features
        assert any(each.startswith("checkpoint ") for each in log.events) is (features is not Features.WIDENED)
        (add,) = log.table.adds.values()
        assert ("deletionVector" in add) is (features is Features.MAPPED)
        assert ("typeChanges" in log.table.metadata["schemaString"]) is (features is Features.WIDENED)
        assert ("__CHAR_VARCHAR_TYPE_STRING" in log.table.metadata["schemaString"]) is (features is Features.RULES)
