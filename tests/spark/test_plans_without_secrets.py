"""Spark's plans show a source's options, but no secret among them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sparkonce.connectors.reference.tables import REFERENCES

pytestmark = pytest.mark.spark

SECRET = "s3cr3t-pl4nted"
LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'


def test_no_plan_of_a_stream_shows_a_secret(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = [
        entry.name for entry in REFERENCES["source"].entries() if entry.sensitive and not entry.name.endswith("*")
    ]
    planted = {name: LINE if name.endswith("jaas.config") else SECRET for name in secrets}
    planted |= {"storage.AWS_SECRET_ACCESS_KEY": SECRET, "storage.AZURE_STORAGE_ACCOUNT_KEY": SECRET}
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", "localhost:9092")
    stream = reader.option("subscribe", "t").options(**planted).load()
    stream.explain(extended=True)
    plan = capsys.readouterr().out
    assert "subscribe=t" in plan
    assert plan.count("(redacted)") >= len(planted)
    assert SECRET not in plan
