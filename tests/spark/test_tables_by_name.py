"""`sparkonce.write_stream`: tables by name, created in Spark's catalog and read there by name."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import lit

from sparkonce import EmbeddedBroker, OptionError, read_stream, table_path, write_stream
from sparkonce.connectors.formats.table_writer import DeltaStreamWriter
from sparkonce.jobs.cli.main import main
from tests.parity.support import Cluster
from tests.spark.sink_support import PROJECT, numbers

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.usefixtures("delta_session")]


@pytest.fixture
def schema(delta_spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A schema of its own, in a folder whose name needs care in URIs."""
    name = f"names_{uuid.uuid4().hex}"
    delta_spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path}/ware house é'")
    yield name
    delta_spark.catalog.dropTempView("passing")
    delta_spark.sql(f"DROP SCHEMA {name} CASCADE")


def writer(rows: DataFrame, tmp_path: Path) -> DeltaStreamWriter:
    return (
        write_stream(rows)
        .trigger(availableNow=True)
        .options(appId="app", checkpointLocation=str(tmp_path / "checkpoint"))
    )


def values(rows: DataFrame) -> Counter[str]:
    return Counter(row["value"] for row in rows.collect())


def expected(end: int) -> Counter[str]:
    return Counter(f"{index}-{offset}" for index in range(2) for offset in range(end))


def tables(spark: SparkSession, schema: str) -> list[str]:
    """Return the tables of a schema; Spark lists the temporary views of the session too, and others have made some."""
    return [row.tableName for row in spark.sql(f"SHOW TABLES IN {schema}").collect() if not row.isTemporary]


def test_a_new_table_is_read_by_its_name(delta_spark: SparkSession, schema: str, tmp_path: Path) -> None:
    name = f"spark_catalog.{schema}.`Numbers`"
    for end in (10, 25):
        rows = numbers(delta_spark, end=end, perBatch=10)
        writer(rows, tmp_path).partitionBy(["partition"]).toTable(name).awaitTermination()

    session = delta_spark.newSession()
    assert values(session.table(name)) == expected(25)
    assert session.sql(f"SELECT count(*) AS n FROM {schema}.numbers WHERE partition = 1").collect() == [Row(n=25)]
    stream = session.readStream.table(name).writeStream.format("memory").queryName("by_name").trigger(availableNow=True)
    stream.start().awaitTermination()
    assert values(session.table("by_name")) == expected(25)
    (detail,) = session.sql(f"DESCRIBE DETAIL {name}").collect()
    assert detail["partitionColumns"] == ["partition"]

    path = table_path(delta_spark, name)
    assert path.startswith(f"{tmp_path}/ware house é/")
    assert Counter(DeltaTable(path).to_pyarrow_table()["value"].to_pylist()) == expected(25)
    assert main(["audit", path]) == 0
    assert "createTable" not in str(DeltaTable(path).history())


def test_the_examples_of_the_page(delta_spark: SparkSession, schema: str, tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "catalogs.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    code = code.replace("shop.", f"{schema}.").replace("/data/", f"{tmp_path}/")
    names: dict[str, Any] = {
        "spark": delta_spark,
        "rows": numbers(delta_spark, end=4).withColumn("day", lit("2026-11-23")),
    }
    exec(code, names)
    names["query"].awaitTermination()
    assert values(delta_spark.table(f"{schema}.orders")) == expected(4)
    path = table_path(delta_spark, f"{schema}.orders")
    assert main(["audit", path]) == main(["offsets", "show", path]) == 0


def test_a_query_says_its_table_once(delta_spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """By name: the first start creates it, the second finds its offsets, though the checkpoint is new."""
    name = f"{schema}.orders"
    with EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers)
        cluster.create(1, "orders")
        for number in range(2):
            cluster.send("orders", [number])
            rows = (
                read_stream(delta_spark, "orders", table=name, app_id="orders")
                .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "startingOffsets": "earliest"})
                .load()
            )
            writer = write_stream(rows.selectExpr("CAST(value AS STRING) AS order"))
            writer = writer.option("checkpointLocation", f"{tmp_path}/{number}").trigger(availableNow=True)
            (writer.start() if number else writer.toTable(name)).awaitTermination()
        assert sorted(row.order for row in delta_spark.table(name).collect()) == ["0", "1"]
        with pytest.raises(OptionError, match=rf"are read for the table {name}, and are to be written into /elsewhere"):
            writer.start("/elsewhere")
        two = [read_stream(delta_spark, topic_pattern="o.*", table=f"{tmp_path}/{each}", app_id="app") for each in "ab"]
        both = [each.option("kafka.bootstrap.servers", broker.bootstrap_servers).load().select("value") for each in two]
        with pytest.raises(OptionError, match="is required"):
            write_stream(both[0].union(both[1])).option("checkpointLocation", f"{tmp_path}/c").start()
    for chosen in ({}, {"topics": "a", "topic_pattern": "b"}):
        with pytest.raises(OptionError, match="give one of the two"):
            read_stream(delta_spark, table=name, app_id="orders", **chosen)


def test_existing_tables_are_found(delta_spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """Managed or not, without the schema in the current one, and by the option in place of toTable."""
    columns = "partition int, offset bigint, value string"
    outside = tmp_path / "out side é"
    delta_spark.sql(f"CREATE TABLE {schema}.managed ({columns}) USING delta PARTITIONED BY (partition)")
    delta_spark.sql(f"CREATE TABLE {schema}.`external` ({columns}) USING delta LOCATION '{outside}'")
    rows = numbers(delta_spark, end=5)
    current = delta_spark.catalog.currentDatabase()
    delta_spark.catalog.setCurrentDatabase(schema)
    try:
        writer(rows, tmp_path / "1").option("table", "managed").start().awaitTermination()
    finally:
        delta_spark.catalog.setCurrentDatabase(current)
    writer(rows, tmp_path / "2").toTable(f"{schema}.external").awaitTermination()
    assert (
        values(delta_spark.table(f"{schema}.managed")) == values(delta_spark.table(f"{schema}.external")) == expected(5)
    )
    assert table_path(delta_spark, f"{schema}.external") == str(outside)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("{schema}.view", r"table=\S+\.view is a view"),
        ("passing", "table=passing is a temporary view"),
        ("{schema}.parquet", r"table=\S+ is a table of the format parquet, and delta_once writes Delta: drop it"),
        ("{schema}.`new-one`", "has only names of letters, digits and _, and 'new-one' is none"),
        ("no_schema_of_this_name.t", r"does not exist, and cannot be created: \[SCHEMA_NOT_FOUND\]"),
        ("no_catalog.a.t", r"table=no_catalog.a.t: the catalog does not tell where it is: \[REQUIRES_SINGLE_PART_NAME"),
        ("delta.`/data/t`", "is the path of a table, not a name: use start"),
        ("a-b", "table='a-b' is not the name of a table"),
    ],
)
def test_what_is_not_a_table_of_delta(
    delta_spark: SparkSession, schema: str, tmp_path: Path, name: str, told: str
) -> None:
    delta_spark.sql(f"CREATE VIEW {schema}.view AS SELECT 1 AS a")
    delta_spark.sql(f"CREATE TABLE {schema}.parquet (a int) USING parquet")
    delta_spark.createDataFrame([], "a int").createOrReplaceTempView("passing")
    with pytest.raises(OptionError, match=told) as error:
        writer(numbers(delta_spark, end=1), tmp_path).toTable(name.format(schema=schema))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "checkpoint").exists()
    assert not list((tmp_path / "ware house é").rglob("_delta_log"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": "/data/t"}, "path=/data/t and table=.* exclude each other"),
        ({"partionBy": "value"}, "did you mean 'partitionBy'"),
        ({"partitionBy": "nothing"}, "nothing"),
        ({"deliveryGuarantee": "twice"}, "deliveryGuarantee"),
        ({"deadLetters": "topic:dead"}, "deadLetters=topic:dead"),
        ({"format": "delta"}, r"for format\('delta'\) use rows.writeStream"),
    ],
)
def test_no_table_is_created_for_options_that_cannot_work(
    delta_spark: SparkSession, schema: str, tmp_path: Path, given: dict[str, str], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        writer(numbers(delta_spark, end=1), tmp_path).toTable(f"{schema}.t", **given)
    assert tables(delta_spark, schema) == []


def test_a_dropped_table_is_not_created_beside_the_catalog(
    delta_spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    """What the sink does when the table of a running query was dropped, and what the next start by name does."""
    name = f"{schema}.dropped"
    writer(numbers(delta_spark, end=30), tmp_path).toTable(name).awaitTermination()
    path = Path(table_path(delta_spark, name))
    delta_spark.sql(f"DROP TABLE {name}")
    rows = numbers(delta_spark, end=40)
    with pytest.raises(StreamingQueryException, match="is not there, and createTable=false"):
        writer(rows, tmp_path).start(str(path), createTable=False).awaitTermination()
    assert not path.exists()
    with pytest.raises(StreamingQueryException, match="beginsLate=true"):
        writer(rows, tmp_path).toTable(name).awaitTermination()
    writer(rows, tmp_path).toTable(name, beginsLate="true").awaitTermination()
    assert values(delta_spark.table(name)) == expected(40) - expected(30)


def test_a_plain_writer_says_what_to_use(delta_spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """Its toTable leaves an entry that nothing can read, and that says so."""
    plain = numbers(delta_spark, end=1).writeStream.format("delta_once").trigger(availableNow=True)
    plain = plain.options(appId="app", checkpointLocation=str(tmp_path / "checkpoint"))
    instead = r"sparkonce.write_stream\(rows\) in place of rows.writeStream"
    with pytest.raises(StreamingQueryException, match=instead):
        plain.option("table", f"{schema}.t").start().awaitTermination()
    assert tables(delta_spark, schema) == []
    again = numbers(delta_spark, end=1).writeStream.format("delta_once").trigger(availableNow=True)
    again = again.options(appId="app", checkpointLocation=str(tmp_path / "another"))
    with pytest.raises(StreamingQueryException, match=instead):
        again.toTable(f"{schema}.t").awaitTermination()
    with pytest.raises(AnalysisException, match="delta_once is not a valid Spark SQL Data Source"):
        delta_spark.table(f"{schema}.t").collect()
    with pytest.raises(OptionError, match=r"of the format delta_once.*toTable of rows.writeStream made this entry"):
        writer(numbers(delta_spark, end=1), tmp_path).toTable(f"{schema}.t")
    delta_spark.sql(f"DROP TABLE {schema}.t")
    writer(numbers(delta_spark, end=1), tmp_path / "new").toTable(f"{schema}.t").awaitTermination()
    assert values(delta_spark.table(f"{schema}.t")) == expected(1)


def test_paths_and_modes_work_too(delta_spark: SparkSession, tmp_path: Path) -> None:
    counts = numbers(delta_spark, end=3).groupBy("partition").count()
    complete = writer(counts, tmp_path).outputMode("complete").queryName("counts").partitionBy("partition")
    complete.start(str(tmp_path / "table")).awaitTermination()
    named = "the options path=.* and table=t .* exclude each other"
    with pytest.raises(OptionError, match=named):
        complete.option("path", str(tmp_path / "table")).toTable("t")
    table = DeltaTable(tmp_path / "table")
    assert sorted(map(tuple, (row.values() for row in table.to_pyarrow_table().to_pylist()))) == [(0, 3), (1, 3)]
    assert table.metadata().partition_columns == ["partition"]
    with pytest.raises(OptionError, match="these are of a batch"):
        write_stream(delta_spark.range(1))


def test_a_writer_starts_queries_one_after_the_other(delta_spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """What is said of a place, and whether the table there may be created, is for one query only."""
    twice = writer(numbers(delta_spark, end=2), tmp_path / "first")
    twice.toTable(f"{schema}.t").awaitTermination()
    checkpoint = str(tmp_path / "second")
    twice.option("checkpointLocation", checkpoint).start(str(tmp_path / "table")).awaitTermination()
    assert values(delta_spark.read.format("delta").load(str(tmp_path / "table"))) == expected(2)
    assert values(delta_spark.table(f"{schema}.t")) == expected(2)


def test_a_session_without_delta_says_what_is_missing(delta_spark: SparkSession, schema: str, tmp_path: Path) -> None:
    session = delta_spark.newSession()
    session.conf.unset("spark.sql.catalog.spark_catalog")
    with pytest.raises(OptionError, match=r"Delta is not configured in this session: start Spark 4\.2 "):
        writer(session.readStream.format("rate").load(), tmp_path).toTable(f"{schema}.t")
    assert tables(delta_spark, schema) == []
    with pytest.raises(OptionError, match=r"there is no such table in the schema spark_catalog\.default"):
        table_path(delta_spark, "nothing_of_this_name")
