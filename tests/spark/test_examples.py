"""docs/examples.md: every example is run as it stands there, with another address and another folder."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkonce import EmbeddedBroker

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "examples.md").read_text()
EXAMPLES = {
    section.partition("\n")[0]: section.partition("```python\n")[2].partition("```")[0]
    for section in PAGE.split("\n## ")[1:]
    if "```python" in section
}
STORES = PROJECT / "tests" / "unit" / "source" / "key_stores"
HOUR_MS = 60 * 60 * 1000
NOW_MS = int(time.time() * 1000)
FLIGHTS = [
    ("AA", '{"carrier":"AA","flight":1141,"delay":12.5}', NOW_MS - 26 * HOUR_MS),
    ("UA", '{"carrier":"UA","flight":1545,"delay":2.0}', NOW_MS - 22 * HOUR_MS),
    ("B6", '{"carrier":"B6","flight":725,"delay":-3.0}', NOW_MS - 5 * HOUR_MS),
    ("DL", "{not JSON", NOW_MS - 1),
    ("UA", '{"carrier":"UA","flight":1696,"delay":-0.0}', NOW_MS + 50 * HOUR_MS),
    ("B6", '{"carrier":"B6","flight":507,"delay":null}', NOW_MS + 51 * HOUR_MS),
]
PRODUCES = "A topic to try them on"
"""Run on a broker of its own, which has no topic yet: the others count the records of theirs."""
UPPER = sorted(value.upper() for _, value, _ in FLIGHTS)


@dataclass(frozen=True)
class Scene:
    """Where an example was run, and what it printed."""

    broker: EmbeddedBroker
    data: Path
    spark: SparkSession
    printed: str

    def table(self, name: str) -> list[dict[str, object]]:
        return DeltaTable(self.data / name).to_pyarrow_table().to_pylist()


def refused_or_not(error: KafkaError | None, _: Message) -> None:
    assert error is None, error


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": STORES / "broker.pem",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram."
        'ScramLoginModule required user_alice="alice-s3cret";',
    }
    with EmbeddedBroker(config=config) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        any_time = {"message.timestamp.after.max.ms": str(99 * HOUR_MS)}
        topics = [NewTopic("flights", 1, 1, config=any_time), NewTopic("flights-upper", 1, 1)]
        for made in admin.create_topics(topics).values():
            made.result()
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for index, (key, value, timestamp) in enumerate(FLIGHTS):
            headers = [("source", b"radar")] if index % 2 else [("source", b"tower"), ("more", b"")]
            producer.produce("flights", value, key, headers=headers, timestamp=timestamp, on_delivery=refused_or_not)
        assert producer.flush(60) == 0
        del admin, producer  # they would miss the broker, and say so
        yield running


def spark_s_own_checkpoint(folder: Path) -> None:
    """Write what `format("kafka")` leaves after a batch that read three records, and committed them."""
    files = {
        "metadata": [json.dumps({"id": str(uuid.uuid4())})],
        "offsets/0": ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}', '{"flights":{"0":3}}'],
        "commits/0": ["v1", '{"nextBatchWatermarkMs":0}'],
    }
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines))


def check_produced(scene: Scene) -> None:
    read = scene.spark.read.format("kafka_once").option("kafka.bootstrap.servers", scene.broker.bootstrap_servers)
    found = read.option("subscribe", "flights").option("includeHeaders", "true").load().collect()
    rows = {(bytes(row.key).decode(), bytes(row.value).decode()) for row in found}
    assert rows == {(key, value) for key, value, _ in FLIGHTS[:4]}
    assert sorted((header.key, bytes(header.value)) for row in found for header in row.headers) == [
        *[("source", b"radar")] * 2,
        *[("source", b"tower")] * 2,
    ]
    assert all(row.timestamp.timestamp() * 1000 > NOW_MS - HOUR_MS for row in found)


def check_stream(scene: Scene) -> None:
    assert scene.printed.count("|AA") == 1
    assert scene.spark.table("seen").count() == len(FLIGHTS)


def check_between(scene: Scene) -> None:
    assert [number in scene.printed for number in ("1141", "1545", "725", "not JSON", "1696", "507")] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]


def check_headers(scene: Scene) -> None:
    assert re.search(r"\|\s*radar\|\s+3\|", scene.printed)
    assert re.search(r"\|\s*tower\|\s+3\|", scene.printed)


def check_delta(scene: Scene) -> None:
    rows = scene.table("flights")
    assert sorted((row["offset"], row["carrier"], row["flight"]) for row in rows) == [
        (offset, key, value) for offset, (key, value, _) in enumerate(FLIGHTS)
    ]


def check_topic(scene: Scene) -> None:
    read = scene.spark.read.format("kafka_once").option("kafka.bootstrap.servers", scene.broker.bootstrap_servers)
    committed = read.option("subscribe", "flights-upper").option("kafka.isolation.level", "read_committed").load()
    assert sorted(row.text for row in committed.selectExpr("CAST(value AS STRING) AS text").collect()) == UPPER


def check_json(scene: Scene) -> None:
    assert re.search(r"\|AA\s*\|1141\s*\|12.5\s*\|NULL\s*\|0\s*\|", scene.printed)
    assert re.search(r"\|NULL\s*\|NULL\s*\|NULL\s*\|\{not JSON\s*\|3\s*\|", scene.printed)
    assert re.search(r"\|B6\s*\|507\s*\|NULL\s*\|NULL\s*\|5\s*\|", scene.printed)


def check_dead_letters(scene: Scene) -> None:
    assert sorted(str(row["flight"]) for row in scene.table("parsed")) == ["1141", "1545", "1696", "507"]
    dead = {(row["offset"], row["reason"]) for row in scene.table("dead_flights")}
    assert {offset for offset, _ in dead} == {2, 3}
    assert (2, "delay is negative") in dead


def check_lag(scene: Scene) -> None:
    assert "metrics for Prometheus at http://127.0.0.1:" in scene.printed


def check_login(scene: Scene) -> None:
    assert scene.printed.strip() == str(len(FLIGHTS))


def check_carried_on(scene: Scene) -> None:
    lines = [line for file in (scene.data / "old").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["offset"] for line in lines) == [3, 4, 5]


CHECKS: dict[str, Callable[[Scene], None]] = {
    PRODUCES: check_produced,
    "Read a stream": check_stream,
    "What came between two moments": check_between,
    "Headers": check_headers,
    "Kafka to Delta, exactly once": check_delta,
    "Kafka to Kafka, exactly once": check_topic,
    "JSON to typed columns": check_json,
    "Dead letters": check_dead_letters,
    "How far behind": check_lag,
    "Logging in over TLS": check_login,
    "A query of Spark's own connector, carried on": check_carried_on,
}


def test_every_example_has_a_check() -> None:
    assert list(EXAMPLES) == list(CHECKS)
    assert PAGE.count("```python") == len(CHECKS)


@pytest.mark.parametrize("title", CHECKS)
def test_the_example_does_what_it_says(
    title: str, broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedBroker() if title == PRODUCES else nullcontext(broker) as used:
        run(title, used, broker.listeners["SASL_SSL"], tmp_path)
        CHECKS[title](Scene(used, tmp_path, spark, capsys.readouterr().out))


def run(title: str, broker: EmbeddedBroker, listener_with_login: str, tmp_path: Path) -> None:
    code = EXAMPLES[title]
    for written, here in {
        "localhost:9092": broker.bootstrap_servers,
        "localhost:9093": listener_with_login,
        "/etc/kafka/": f"{STORES}/",
        "/data/": f"{tmp_path}/",
    }.items():
        code = code.replace(written, here)
    if "checkpoints/old" in code:
        spark_s_own_checkpoint(tmp_path / "checkpoints" / "old")
    exec(code, {"__name__": "example"})
