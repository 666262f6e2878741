"""Spark's plans show a source's options, but no secret among them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sparkonce.connectors.reference.tables import REFERENCES

pytestmark = pytest.mark.spark

SECRET = "s3cr3t-pl4nted"
LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'


REGISTRY = {
    "valueFormat": "avro",
    "valueSchema": '"long"',
    "schemaRegistry.url": "http://localhost:1",
}
OAUTH = {
    "schemaRegistry.bearer.auth.issuer.endpoint.url": "http://localhost:1/token",
    "schemaRegistry.bearer.auth.client.id": "id",
}
LOGINS = {
    "schemaRegistry.basic.auth.user.info": {},
    "schemaRegistry.bearer.auth.token": {},
    "schemaRegistry.bearer.auth.client.secret": OAUTH,
    "schemaRegistry.ssl.key.password": {
        "schemaRegistry.url": "https://localhost:1",
        "schemaRegistry.ssl.certificate.location": "client.pem",
        "schemaRegistry.ssl.key.location": "client.key",
    },
}


def _planted() -> dict[str, dict[str, str]]:
    """Return options of streams: the secrets of Kafka and the store in one, each login to a registry in its own."""
    secrets = [
        entry.name for entry in REFERENCES["source"].entries() if entry.sensitive and not entry.name.endswith("*")
    ]
    of_registry = {name for name in secrets if name.startswith("schemaRegistry.")}
    assert of_registry == set(LOGINS)
    kafka = {name: LINE if name.endswith("jaas.config") else SECRET for name in secrets if name not in of_registry}
    kafka |= {"storage.AWS_SECRET_ACCESS_KEY": SECRET, "storage.AZURE_STORAGE_ACCOUNT_KEY": SECRET}
    return {"kafka": kafka} | {name: {name: f"user:{SECRET}", **REGISTRY, **LOGINS[name]} for name in LOGINS}


@pytest.mark.parametrize("named", sorted(["kafka", *LOGINS]))
def test_no_plan_of_a_stream_shows_a_secret(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    planted = _planted()[named]
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", "localhost:9092")
    stream = reader.option("subscribe", "t").options(**planted).load()
    stream.explain(extended=True)
    plan = capsys.readouterr().out
    assert "subscribe=t" in plan
    assert plan.count("(redacted)") >= sum(SECRET in value for value in planted.values())
    assert SECRET not in plan
