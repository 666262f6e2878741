"""Dead letters: what `mark` makes of records, and where the sink puts them, each once through crashes."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from lab.crash_plans import arm, fired
from sparkonce.connectors.sinks.dead_letters import mark
from sparkonce.connectors.values.letters import COLUMN
from sparkonce.connectors.values.options import COLUMNS, spark_schema
from sparkonce.jobs.cli.main import main
from tests.spark.source_support import DEADLINE_S, Topics

pytestmark = pytest.mark.spark

FIELDS = "flight_id BIGINT, delay INT"
UNPARSED = "value does not parse as JSON with the fields flight_id:bigint,delay:int"
NEGATIVE = "delay is negative"
RECORDS, PARTITIONS = 30, 2


def rules() -> dict[str, Column]:
    return {"no flight_id": f.col("flight_id").isNull(), NEGATIVE: f.col("delay") < 0}


def reasons(marked: Any) -> dict[int, str]:
    """Return the reason of each dead letter by its offset."""
    return {row[COLUMN].offset: row[COLUMN].reason for row in marked.select(COLUMN).collect() if row[COLUMN]}


def test_what_is_marked(spark: SparkSession) -> None:
    expected: dict[bytes | None, str | None] = {
        b'{"flight_id":1,"delay":5,"more":[1]}': None,
        b'{"flight_id":2}': None,
        b'{"flight_id":3,"delay":-5}': NEGATIVE,
        b'{"delay":1}': "no flight_id",
        b"{}": "no flight_id",
        b'{"flight_id":4,"delay":"x"}': UNPARSED,
        b'{"flight_id":5,"delay":3.5}': UNPARSED,
        b'{"flight_id":6,"delay":99999999999}': UNPARSED,
        b'{"flight_id":7,"delay":1': UNPARSED,
        b'[{"flight_id":8}]': UNPARSED,
        b'{"flight_id":9,"x":"\xff"}': UNPARSED,
        b"null": UNPARSED,
        b"": UNPARSED,
        None: "value is null",
    }
    at = dt.datetime(2024, 2, 29)
    rows = [(b"k", value, "t", 0, offset, at, 0) for offset, value in enumerate(expected)]
    records = spark.createDataFrame(rows, spark_schema(COLUMNS))
    marked = mark(records, json=FIELDS, rules=rules(), keep=["timestamp"])
    assert marked.columns == ["flight_id", "delay", "timestamp", COLUMN]
    assert reasons(marked) == {offset: text for offset, text in enumerate(expected.values()) if text}
    third = marked.where("flight_id = 3").first()
    assert third is not None
    assert (bytes(third[COLUMN].key), json.loads(third[COLUMN].value)) == (b"k", {"flight_id": 3, "delay": -5})
    assert (third[COLUMN].topic, third[COLUMN].partition, third[COLUMN].timestamp) == ("t", 0, third.timestamp)
    number = f.col("value").cast("string").try_cast("int").alias("number")
    assert reasons(mark(records, parsed=number)) == dict.fromkeys(range(len(rows)), "record does not parse")
    own = mark(records, rules={"odd": f.col("offset") % 2 == 1})
    assert own.columns == [*records.columns, COLUMN]
    assert list(reasons(own)) == list(range(1, len(rows), 2))
    for wrong, message in (
        ({}, "no condition: pass json, parsed or rules"),
        ({"json": FIELDS, "parsed": number}, "not both"),
        ({"json": "map<string,string>"}, "has no fields"),
        ({"json": "topic STRING", "keep": ["topic"]}, "two columns topic"),
        ({"json": FIELDS, "keep": ["nope"]}, "keep names nope"),
    ):
        with pytest.raises(ValueError, match=message):
            mark(records, **wrong)
    with pytest.raises(ValueError, match="needs the column key, topic, partition, offset, timestamp of the record"):
        mark(records.select("value"), json=FIELDS)
    with pytest.raises(ValueError, match="have a column _dead_letter already"):
        mark(own, rules={"even": f.col("offset") % 2 == 0})


def value(partition: int, number: int) -> bytes:
    """Return a record of which every third does not parse, and every third breaks a rule."""
    flight_id = partition * 1_000 + number
    if number % 3 == 1:
        return f"flight {flight_id}".encode()
    return json.dumps({"flight_id": flight_id, "delay": -1 if number % 3 == 2 else number}).encode()


def fill(topics: Topics) -> str:
    topic = topics.create(PARTITIONS)
    for partition in range(PARTITIONS):
        topics.produce(topic, [value(partition, number) for number in range(RECORDS)], partition=partition)
    return topic


def start(
    spark: SparkSession, topics: Topics, topic: str, folder: Path, letters: str, per_batch: int, app_id: str
) -> None:
    """Run the pipeline over what is there, to its end."""
    servers = {"kafka.bootstrap.servers": topics.bootstrap_servers}
    reader = spark.readStream.format("kafka_once").options(**servers, subscribe=topic, startingOffsets="earliest")
    reader = reader.options(appId=app_id, offsetStore=f"delta:{folder / 'table'}", maxOffsetsPerTrigger=str(per_batch))
    writer = mark(reader.load(), json=FIELDS, rules=rules()).writeStream.format("delta_once")
    writer = writer.options(appId=app_id, deadLetters=letters, **(servers if letters.startswith("topic:") else {}))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query.start(str(folder / "table")).awaitTermination()


def assert_rows_once(folder: Path) -> None:
    flights = DeltaTable(folder / "table").to_pyarrow_table()
    assert flights.column_names == ["flight_id", "delay"]
    good = [partition * 1_000 + number for partition in range(PARTITIONS) for number in range(0, RECORDS, 3)]
    assert Counter(flights["flight_id"].to_pylist()) == Counter(good)


def expected_letters() -> Counter[tuple[int, int, str, bytes]]:
    return Counter(
        (partition, number, UNPARSED if number % 3 == 1 else NEGATIVE, value(partition, number))
        for partition in range(PARTITIONS)
        for number in range(RECORDS)
        if number % 3
    )


def letters_in_table(path: Path) -> Counter[tuple[int, int, str, bytes]]:
    columns = ("partition", "offset", "reason", "value")
    letters = DeltaTable(path).to_pyarrow_table()
    assert set(letters["topic"].to_pylist()) == {letters["topic"][0].as_py()}
    assert letters["timestamp"].null_count == 0
    return Counter(zip(*(letters[name].to_pylist() for name in columns), strict=True))


def test_into_a_table_through_a_crash_between_the_two_and_a_deleted_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Path, crash_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches of another size follow the crash: the dead letters reach into the middle of one."""
    topic, app_id = fill(topics), f"letters-{uuid.uuid4().hex[:8]}"
    table, letters = tmp_path / "table", tmp_path / "letters"
    plan = arm(crash_folder, app_id, f"{app_id}:sink.between_targets@1=raise")
    with pytest.raises(StreamingQueryException, match=r"sink\.between_targets, batch 1"):
        start(spark, topics, topic, tmp_path, f"table:{letters}", 20, app_id)
    assert fired(plan)
    shutil.rmtree(tmp_path / "checkpoint")
    start(spark, topics, topic, tmp_path, f"table:{letters}", 30, app_id)
    assert_rows_once(tmp_path)
    assert letters_in_table(letters) == expected_letters()
    for path in (table, letters):
        assert main(["audit", str(path)]) == 0, capsys.readouterr().out


def letters_in_topic(topics: Topics, topic: str) -> Counter[tuple[int, int, str, bytes]]:
    """Read what a consumer sees that waits for transactions."""
    settings = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": topics.bootstrap_servers, "enable.partition.eof": True, **settings})
    partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    consumer.assign(partitions)
    letters: Counter[tuple[int, int, str, bytes]] = Counter()
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
            continue
        headers = {name: text.decode() for name, text in message.headers()}
        ours, connects = (
            ("topic", "partition", "offset", "reason"),
            ("topic", "partition", "offset", "exception.message"),
        )
        assert headers.keys() == {*ours, "timestamp", *(f"__connect.errors.{name}" for name in connects)}
        assert [headers[name] for name in ours] == [headers[f"__connect.errors.{name}"] for name in connects]
        assert int(headers["timestamp"]) > 0
        letters[int(headers["partition"]), int(headers["offset"]), headers["reason"], message.value()] += 1
    consumer.close()
    return letters


def test_into_a_topic_through_a_crash_and_a_deleted_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Path, crash_folder: Path
) -> None:
    topic, app_id = fill(topics), f"letters-{uuid.uuid4().hex[:8]}"
    dead = topics.create(1)
    arm(crash_folder, app_id, f"{app_id}:sink.between_targets@1=raise")
    with pytest.raises(StreamingQueryException, match=r"sink\.between_targets, batch 1"):
        start(spark, topics, topic, tmp_path, f"topic:{dead}", 20, app_id)
    shutil.rmtree(tmp_path / "checkpoint")
    start(spark, topics, topic, tmp_path, f"topic:{dead}", 30, app_id)
    assert_rows_once(tmp_path)
    assert letters_in_topic(topics, dead) == expected_letters()


@pytest.mark.lab  # the tests above mark and write the same
def test_the_example_of_the_docs(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "dead_letters.md").read_text()
    topic = topics.create(1)
    topics.produce(topic, [b'{"flight_id":1,"origin":"JFK","delay":3}', b'{"flight_id":2,"delay":-1}', b"flight"])
    code = page.partition("```python\n")[2].partition("```")[0]
    for name, here in {
        "broker:9092": topics.bootstrap_servers,
        '"subscribe", "flights"': f'"subscribe", "{topic}"',
        "/lake": str(tmp_path),
    }.items():
        assert name in code
        code = code.replace(name, here)
    exec(code, {"spark": spark})
    flights = DeltaTable(tmp_path / "flights").to_pyarrow_table()
    assert flights.column_names == ["flight_id", "origin", "delay", "timestamp"]
    assert flights["origin"].to_pylist() == ["JFK"]
    letters = DeltaTable(tmp_path / "dead_flights").to_pyarrow_table()
    assert sorted(letters["offset"].to_pylist()) == [1, 2]
