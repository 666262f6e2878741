"""Records at the edges of the format, from topic to topic and into tables: ten thousand headers, times of all kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from sparkonce.kafka.protocol.records import Record
from tests.partition_edges import DAYS, TIMES_US, readings
from tests.record_times import ANY_TIME, FIT, TIMES_MS, send
from tests.required_fields import breaks, delta_takes, random_rows
from tests.spark.sink_support import run
from tests.spark.source_support import Topics, batch, stream
from tests.unit.sink.query_by_hand import make_table, table_actions

pytestmark = pytest.mark.spark

HEADERS = 10_000
OUT_OF_RANGE_MS = tuple(each for each in TIMES_MS if each not in FIT)
JSON = {"valueFormat": "json", "valueSchema": "n INT"}


def test_ten_thousand_headers(spark: SparkSession, topics: Topics) -> None:
    source, copy = topics.create(), topics.create()
    headers = tuple((f"h{number % 7}", None if number % 3 == 0 else b"%d" % number) for number in range(HEADERS))
    send(
        topics.bootstrap_servers,
        source,
        [Record(b"k", b"v", 0, headers), Record(b"k", b"w", 0, ()), Record(b"k", b"x", 0, headers[:1])],
    )
    frame = batch(spark, topics, source, includeHeaders="true").select("key", "value", "headers")
    given = {"kafka.bootstrap.servers": topics.bootstrap_servers, "topic": copy}
    frame.write.format("kafka_once").mode("append").options(**given).save()
    for topic in (source, copy):
        rows = batch(spark, topics, topic, includeHeaders="true").orderBy("offset").collect()
        assert [bytes(row.value) for row in rows] == [b"v", b"w", b"x"]
        found = [[(each.key, each.value and bytes(each.value)) for each in row.headers or ()] for row in rows]
        assert found == [list(headers), [], list(headers[:1])]


def test_timestamps_at_the_edges_of_what_spark_holds(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(**ANY_TIME)
    send(topics.bootstrap_servers, topic, [Record(None, b"%d" % time, time) for time in FIT])
    rows = batch(spark, topics, topic).selectExpr("CAST(value AS STRING) AS v", "unix_micros(timestamp) AS t").collect()
    assert {int(row.v): row.t for row in rows} == {time: 1_000 * time for time in FIT}


def test_a_timestamp_that_spark_cannot_hold_is_refused_where_it_is_asked_for(
    spark: SparkSession, topics: Topics
) -> None:
    for time_ms in OUT_OF_RANGE_MS[1:3]:
        topic = topics.create(**ANY_TIME)
        send(topics.bootstrap_servers, topic, [Record(None, b'{"n":1}', time_ms)])
        with pytest.raises(PySparkException, match=rf"offset 0 has the timestamp {time_ms}, which does not fit"):
            batch(spark, topics, topic).collect()
        given = {**JSON, "columns": "value,offset", "includeDeadLetters": "true"}
        (row,) = batch(spark, topics, topic, **given).collect()
        assert (row.value.n, row._dead_letter) == (1, None)


@pytest.fixture
def every_time(topics: Topics) -> str:
    """A topic with a record of each time; the last one's value does not parse."""
    topic = topics.create(1, **ANY_TIME)
    records = [Record(None, b'{"n":%d}' % number, time) for number, time in enumerate(TIMES_MS)]
    for record in (*records, Record(None, b"{", TIMES_MS[-1])):
        send(topics.bootstrap_servers, topic, [record])  # in one batch their differences would not fit into 64 bits
    return topic


def numbered(path: Path, *columns: str) -> list[dict[str, Any]]:
    """Return rows in order of their first column, with times as numbers: Python does not have all of them."""
    found = DeltaTable(path).to_pyarrow_table(columns=list(columns)).sort_by(columns[0])
    kinds = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in found.schema]
    rows: list[dict[str, Any]] = found.cast(pa.schema(list(zip(columns, kinds, strict=True)))).to_pylist()
    return rows


@pytest.mark.parametrize("hand_over", ["ranges", "rows"])
def test_records_of_every_time_are_rows_or_dead_letters(
    spark: SparkSession, topics: Topics, every_time: str, tmp_path: Path, hand_over: str
) -> None:
    rows = stream(spark, topics, every_time, handOver=hand_over, includeDeadLetters="true", **JSON)
    if hand_over == "rows":
        rows = rows.select("offset", "timestamp", "_dead_letter")
    dead = tmp_path / "dead"
    run(rows, tmp_path / "table", tmp_path / "checkpoint", deadLetters=f"table:{dead}")
    assert numbered(tmp_path / "table", "offset", "timestamp") == [
        {"offset": offset, "timestamp": 1000 * time} for offset, time in enumerate(FIT)
    ]
    letters = numbered(dead, "offset", "timestamp", "reason")
    assert [(each["offset"], each["timestamp"]) for each in letters] == [
        (offset, None) for offset in range(len(FIT), len(TIMES_MS) + 1)
    ]
    for letter, time in zip(letters, [*OUT_OF_RANGE_MS, OUT_OF_RANGE_MS[-1]], strict=True):
        assert f"the timestamp {time}, which does not fit" in letter["reason"]


BY_DAY = "SELECT offset, CAST(timestamp AS DATE) AS day FROM records"
IN_YEARS = [at for at, time in enumerate(FIT) if -62_135_596_800_000 <= time < 253_402_300_800_000]


def test_a_table_partitioned_by_day_gets_what_every_reader_has(
    spark: SparkSession, topics: Topics, every_time: str, tmp_path: Path
) -> None:
    place, dead = tmp_path / "table", tmp_path / "dead"
    direct = stream(spark, topics, every_time, handOver="ranges", includeDeadLetters="true", **JSON)
    run(direct, place, tmp_path / "checkpoint", deadLetters=f"table:{dead}", sql=BY_DAY, partitionBy="day")
    assert [each["offset"] for each in numbered(place, "offset", "day")] == IN_YEARS
    letters = numbered(dead, "offset", "reason")
    assert [each["offset"] for each in letters] == [at for at in range(len(TIMES_MS) + 1) if at not in IN_YEARS]
    far = next(each["reason"] for each in letters if FIT[each["offset"]] == 1_700_000_000_000_000)
    assert far.startswith("column day is +55840-11-08, and a partition's date or time must be of the years 1 to 9999")


def test_rows_that_no_partition_can_have_stop_the_query_until_they_are_left_out(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1, **ANY_TIME)
    send(topics.bootstrap_servers, topic, [Record(None, b"v", time) for time in FIT])
    direct = stream(spark, topics, topic, handOver="ranges", columns="offset,timestamp")
    with pytest.raises(StreamingQueryException, match=r"partition 0, at offset 2 .*column day is 0000-12-31"):
        run(direct, tmp_path / "t2", tmp_path / "c2", sql=BY_DAY, partitionBy="day")
    days = stream(spark, topics, topic).select("offset", f.col("timestamp").cast("date").alias("day"))
    with pytest.raises(StreamingQueryException, match=r"column day is [-+]?\d+-\d\d-\d\d, .*Correct what writes it"):
        run(days, tmp_path / "table", tmp_path / "checkpoint", partitionBy="day")
    near = days.where("day BETWEEN DATE'0001-01-01' AND DATE'9999-12-31'")
    run(near, tmp_path / "table", tmp_path / "checkpoint", partitionBy="day")
    assert [each["offset"] for each in numbered(tmp_path / "table", "offset")] == IN_YEARS


@pytest.mark.java
def test_each_reader_has_the_same_partition_values(delta_spark: SparkSession, tmp_path: Path) -> None:
    """Of dates, points in time, and local times, in one table."""
    count = min(len(DAYS), len(TIMES_US))
    expected = [*zip(range(count), DAYS, TIMES_US, TIMES_US, strict=False)]
    for reader, found in readings(delta_spark, tmp_path / "table", DAYS, TIMES_US[:count]).items():
        assert found == expected, reader


@pytest.mark.java
def test_delta_refuses_the_nulls_that_the_generator_says(delta_spark: SparkSession, tmp_path: Path) -> None:
    """What is refused here is compared with the generator: tests/unit/sink/test_required.py."""
    compared = [
        (delta_takes(delta_spark, tmp_path / f"{seed}-{number}", table, row), not breaks(row, table, may_be_null=True))
        for seed in (0, 6)
        for number, (table, row) in enumerate(random_rows(seed, 2))
    ]
    assert {ours for _, ours in compared} == {True, False}
    assert [theirs for theirs, _ in compared] == [ours for _, ours in compared]


@pytest.mark.parametrize("hand_over", ["ranges", "rows"])
def test_documents_go_into_a_table_with_a_required_field(
    spark: SparkSession, topics: Topics, tmp_path: Path, hand_over: str
) -> None:
    topic, place = topics.create(1), tmp_path / "table"
    x = t.StructField("x", t.IntegerType(), False)
    s = t.StructType([x, t.StructField("y", t.IntegerType())])
    make_table(place, *table_actions(t.StructType([t.StructField("s", s)])))
    rows = stream(spark, topics, topic, handOver=hand_over, valueFormat="json", valueSchema="s STRUCT<x: INT, y: INT>")
    given = {"sql": "SELECT value.s FROM records"} if hand_over == "ranges" else {}
    rows = rows if given else rows.select("value.s")
    topics.produce(topic, [b'{"s":{"x":1}}', b'{"s":{"y":3,"x":2}}'])
    run(rows, place, tmp_path / "checkpoint", **given)
    assert DeltaTable(place).to_pyarrow_table()["s"].to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": 3}]
    topics.produce(topic, [b'{"s":{"x":4}}', b'{"s":{"y":5}}'])
    told = r"column s\.x is NOT NULL in the table, "
    named = rf"record of topic {topic}, partition 0, at offset 3 .*{told}" if given else rf"{told}.*row \d of \d"
    with pytest.raises(StreamingQueryException, match=named):
        run(rows, place, tmp_path / "checkpoint", **given)
    assert DeltaTable(place).to_pyarrow_table().num_rows == 2
