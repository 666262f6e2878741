"""The source's option handOver=ranges: the sink reads the records, and nothing may be in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from sparkonce import LagListener, OptionError, write_stream
from sparkonce.connectors.lag.state import offsets_moved
from tests.spark.random_topics import compacted_topic
from tests.spark.sink_support import run, start
from tests.spark.source_support import DEADLINE_S, PER_PARTITION, Topics, assert_each_record_once, fill, stream, values
from tests.unit.sink.query_by_hand import make_table, table_actions

pytestmark = pytest.mark.spark


def ranges(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> DataFrame:
    return stream(spark, topics, topic, **{"handOver": "ranges", **options})


def test_records_arrive_once_over_restarts(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    run(ranges(spark, topics, topic, maxOffsetsPerTrigger=250, minPartitions=5), table, checkpoint)
    assert_each_record_once(table, PER_PARTITION)
    fill(topics, topic, PER_PARTITION)
    run(ranges(spark, topics, topic).repartition(2), table, checkpoint)
    assert_each_record_once(table, 2 * PER_PARTITION)


@pytest.mark.parametrize(
    ("between", "message"),
    [
        (lambda rows: rows.filter(f.col("kafka_once_range").contains('"partition":1')), "tasks were told to read"),
        (lambda rows: rows.withColumn("more", f.lit(1)), "it gets kafka_once_range, more"),
        (lambda rows: rows.select(f.lit(1).alias("one")), "planned with handOver=ranges"),
        (lambda rows: rows.dropDuplicates(), "keeps state"),
    ],
    ids=["filter", "withColumn", "select", "dropDuplicates"],
)
def test_operators_in_between_are_refused(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    between: Callable[[DataFrame], DataFrame],
    message: str,
) -> None:
    with pytest.raises(StreamingQueryException, match=message):
        run(between(ranges(spark, topics, topic)), tmp_path / "table", tmp_path / "checkpoint")
    is_table = DeltaTable.is_deltatable(str(tmp_path / "table"))
    assert not is_table or DeltaTable(tmp_path / "table").file_uris() == []


@pytest.mark.parametrize(
    ("between", "named"),
    [
        (lambda rows: rows.filter("kafka_once_range is not null"), "filter"),
        (lambda rows: rows.selectExpr("kafka_once_range", "1 as one"), "select or withColumn"),
        (lambda rows: rows.selectExpr("1 as one"), "select or withColumn"),
        (lambda rows: rows.union(rows).repartition(3), "repartition, union"),
        (lambda rows: rows.groupBy().count(), "groupBy"),
        (lambda rows: rows.dropDuplicates(), "dropDuplicates"),
        (lambda rows: rows.join(rows.sparkSession.range(2)), "join"),
        (lambda rows: rows.sample(0.5).limit(3), "limit, sample"),
    ],
)
def test_write_stream_names_the_operators(
    spark: SparkSession, topics: Topics, topic: str, between: Callable[[DataFrame], DataFrame], named: str
) -> None:
    rows = between(ranges(spark, topics, topic))
    options = {"appId": "app", "checkpointLocation": "/nowhere"}
    with pytest.raises(OptionError, match=f"between it and the sink there is: {named}"):
        write_stream(rows).start("/nowhere/table", **options)


def send_in_transaction(topics: Topics, topic: str, partition: int, sent: list[bytes], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": f"{topic}-{commit}"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for value in sent:
        producer.produce(topic, value, partition=partition)
    if commit:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.flush(DEADLINE_S)  # so that there is something to abort
        producer.abort_transaction(DEADLINE_S)


def test_progress_and_commits_count_records_where_spark_counts_ranges(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    with_gaps = compacted_topic(topics.bootstrap_servers, seed=1).name
    topic = topics.create(2)
    topics.produce(topic, [b'{"id":1}'] * 20 + [b"no JSON"] * 5, partition=0)
    send_in_transaction(topics, topic, 1, [b'{"id":2}'] * 30, commit=True)
    send_in_transaction(topics, topic, 1, [b'{"id":3}'] * 7, commit=False)
    options = {"subscribe": f"{topic},{with_gaps}", "valueFormat": "json", "valueSchema": "id INT", "minPartitions": 3}
    letters_wanted = {"includeDeadLetters": "true", "kafka.isolation.level": "read_committed"}
    table, letters, checkpoint = tmp_path / "table", tmp_path / "letters", tmp_path / "checkpoint"
    with LagListener(spark).start(port=None) as lag:
        rows = ranges(spark, topics, topic, **options, **letters_wanted)
        query = start(rows, table, checkpoint, deadLetters=f"table:{letters}")
        query.awaitTermination()
        assert lag.wait(query, DEADLINE_S)
        (found,) = [each for each in lag.queries() if each.query_id == str(query.id)]
        text = lag.metrics_text()
    written, dead = DeltaTable(table), DeltaTable(letters)
    in_gaps = [row for row in dead.to_pyarrow_table().to_pylist() if row["topic"] == with_gaps]
    assert written.count() == 50
    assert dead.count() == 5 + len(in_gaps)
    records = 55 + len(in_gaps)
    (progress,) = query.recentProgress
    assert progress.numInputRows == 3, "Spark counts ranges"
    assert [found.batches, found.counted_batches, found.rows, found.batch_rows] == [1, 1, records, records]
    assert offsets_moved(None, progress.sources[0].endOffset) > records + 7, "gaps, markers and aborted records"
    sizes = [size for each in (written, dead) for size in each.get_add_actions().column("size_bytes").to_pylist()]
    counts = found.counts
    assert (counts.records, counts.rows, counts.dead_letters) == (records, 50, dead.count())
    assert (counts.files, counts.written_bytes) == (len(sizes), sum(sizes))
    assert counts.read_bytes is not None
    assert counts.read_bytes > 55 * len(b'{"id":1}')
    labels = f'{{query="{found.name}",query_id="{query.id}"}}'
    assert f"sparkonce_rows_total{labels} {records}.0" in text
    assert f"sparkonce_dead_letters_total{labels} {dead.count()}.0" in text
    in_log = written.history(1)[0]["sparkonce"]["counts"]
    assert (in_log["records"], in_log["rows"], in_log["deadLetters"]) == (records, 50, 0)
    assert dead.history(1)[0]["sparkonce"]["counts"]["deadLetters"] == dead.count()


def test_records_are_copied_to_a_topic_with_keys_and_headers(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(1), topics.create(1)
    headers = [("h", b"1")]
    topics.produce(source, values("v", 50), keys=values("k", 50), headers=headers)
    rows = ranges(spark, topics, source, columns="key,value,headers")
    writer = rows.writeStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    writer = writer.option("topic", target).option("appId", target)
    with LagListener(spark).start(port=None) as lag:
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        assert lag.wait(query, DEADLINE_S)
        (counts,) = [each.counts for each in lag.queries() if each.query_id == str(query.id)]
    assert (counts.records, counts.rows, counts.files) == (50, 50, 0)
    copied = spark.read.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    found = copied.option("subscribe", target).option("includeHeaders", "true").load().collect()
    expected = list(zip(values("k", 50), values("v", 50), [headers] * 50, strict=True))
    assert [(bytes(row.key), bytes(row.value), [(h.key, bytes(h.value)) for h in row.headers]) for row in found] == [
        *expected
    ]


def test_sql_makes_the_rows_and_what_fails_is_a_dead_letter(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    documents = [b'{"n": %d, "text": "%d"}' % (n, n) for n in range(100)]
    topics.produce(topic, [*documents, b'{"n": 100, "text": "many"}', b"no json", None])
    json = {"valueFormat": "json", "valueSchema": "n INT, text STRING", "includeDeadLetters": True}
    rows = ranges(spark, topics, topic, columns="value,offset", **json)
    sql = "SELECT value.n * 2 AS twice, CAST(value.text AS BIGINT) AS number FROM records WHERE value.n % 10 = 0"
    run(rows, tmp_path / "table", tmp_path / "checkpoint", sql=sql, deadLetters=f"table:{tmp_path / 'dead'}")
    table = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert sorted((row["twice"], row["number"]) for row in table) == [(20 * n, 10 * n) for n in range(10)]
    dead = DeltaTable(tmp_path / "dead").to_pyarrow_table().sort_by("offset").to_pylist()
    assert [(row["offset"], row["value"]) for row in dead] == [
        (100, b'{"n": 100, "text": "many"}'),
        (101, b"no json"),
        (102, None),
    ]
    assert "many" in dead[0]["reason"]


RULED = t.StructType(
    [
        t.StructField("n", t.IntegerType(), False),
        t.StructField("text", t.StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        t.StructField("twice", t.IntegerType(), True, {"delta.generationExpression": "n * 2"}),
        t.StructField("i", t.IntegerType(), True, {"delta.invariants": '{"expression":{"expression":"i < 10"}}'}),
    ]
)
BROKEN = {
    '{"n": null}': "column n is NOT NULL in the table, and there is a null in it",
    '{"n": 2, "text": "long", "twice": 4}': "column text is VARCHAR(3) in the table, and there is a longer value in it",
    '{"n": 2, "twice": 5, "i": 1}': "column twice is generated as n * 2, and the row has another value",
    '{"n": 2, "twice": 4, "i": 10}': "an invariant of column i (i < 10) is not kept",
    '{"n": 1, "twice": 2, "i": 1}': "the check constraint even (n % 2 = 0) is not kept",
}


def test_a_row_that_breaks_a_rule_of_the_table_is_a_dead_letter_that_names_the_rule(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, table, dead = topics.create(1), tmp_path / "table", tmp_path / "dead"
    good = [b'{"n": %d, "text": "abc", "twice": %d, "i": 9}' % (n, 2 * n) for n in range(0, 20, 2)]
    topics.produce(topic, [*good[:5], *map(str.encode, BROKEN), b"no json", *good[5:]])
    checked = {"delta.constraints.even": "n % 2 = 0"}
    make_table(table, *table_actions(RULED, versions=(1, 4), configuration=checked))
    fields = "n INT, text STRING, twice INT, i INT"
    json = {"valueFormat": "json", "valueSchema": fields, "includeDeadLetters": True}
    rows, sql = ranges(spark, topics, topic, **json), "SELECT value.* FROM records"
    run(rows, table, tmp_path / "checkpoint", deadLetters=f"table:{dead}", sql=sql)
    assert sorted(row["n"] for row in DeltaTable(table).to_pyarrow_table().to_pylist()) == list(range(0, 20, 2))
    letters = DeltaTable(dead).to_pyarrow_table().sort_by("offset").to_pylist()
    assert {row["value"].decode(): row["reason"] for row in letters if row["value"] != b"no json"} == BROKEN
    assert [row["offset"] for row in letters] == list(range(5, 5 + len(BROKEN) + 1))


def test_a_row_of_sparks_that_breaks_a_rule_stops_the_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """It names no record that could be a dead letter."""
    topic, table = topics.create(1), tmp_path / "table"
    topics.produce(topic, [b'{"n": 2}', b'{"n": 1}'])
    make_table(
        table,
        *table_actions(
            t.StructType(RULED.fields[:1]), versions=(1, 3), configuration={"delta.constraints.even": "n % 2 = 0"}
        ),
    )
    given = {"valueFormat": "json", "valueSchema": "n INT", "includeDeadLetters": True, "handOver": "rows"}
    rows = ranges(spark, topics, topic, **given).select("value.n", "_dead_letter")
    told = r"check constraint even \(n % 2 = 0\) is not kept.*mark them as dead letters \(sparkonce\.mark\)"
    with pytest.raises(StreamingQueryException, match=told):
        run(rows, table, tmp_path / "checkpoint", deadLetters=f"table:{tmp_path / 'dead'}")
    assert DeltaTable(table).to_pyarrow_table().num_rows == 0


def test_sql_needs_a_source_that_hands_over_ranges(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    rows = ranges(spark, topics, topic, handOver="rows")
    with pytest.raises(StreamingQueryException, match="option sql is for a source with handOver=ranges"):
        run(rows, tmp_path / "table", tmp_path / "checkpoint", sql="SELECT value FROM records")
