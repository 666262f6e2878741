"""A broker whose data was put back to an older copy between two runs of a query: which rows the table has then."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.cli.audit import add_arguments, examine
from tests.parity.support import Cluster
from tests.unit.replaced.brokers import restorable

pytestmark = pytest.mark.spark
DEADLINE_S = 120


def test_the_records_that_took_the_offsets_of_lost_ones_are_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """The log has grown past what was read, so no offset shows it."""
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    with restorable("process", tmp_path / "broker") as broker:
        cluster = Cluster(broker.bootstrap_servers)
        topic = cluster.create()
        cluster.send(topic, range(20), 0)
        broker.copy()
        cluster.send(topic, range(20, 30), 0)

        def run() -> list[int]:
            options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
            stream = spark.readStream.format("kafka_once").options(**cluster.source_options(**options)).load()
            rows = stream.selectExpr("cast(value AS string) AS value", "topic", "partition", "offset")
            writer = rows.writeStream.format("delta_once").option("checkpointLocation", str(checkpoint))
            query = writer.option("appId", "app").trigger(availableNow=True).start(str(table))
            assert query.awaitTermination(DEADLINE_S)
            return sorted(map(int, DeltaTable(table).to_pyarrow_table()["value"].to_pylist()))

        assert run() == list(range(30))
        broker.put_back()
        cluster = Cluster(broker.bootstrap_servers)
        cluster.send(topic, range(100, 125), 0)
        assert run() == [*range(30), *range(100, 125)]
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        words = [str(table), "--bootstrap-servers", broker.bootstrap_servers, "--coordinates", "partition,offset,topic"]
        assert examine(parser.parse_args(words)).verdict is Verdict.PROVEN
