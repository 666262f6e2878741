"""One process of a user with a Hive metastore (embedded Derby): ``python -m tests.spark.hive_job FOLDER STEP``.

The steps are ``write``, ``read`` and ``bare``.

Derby serves one process at a time, as here. ``bare`` is a session without Delta's jars. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from sparkonce import OptionError, spark_session, table_path, write_stream
from sparkonce.jobs.shared.jars import delta_jars
from tests.conftest import DELTA_CONF, SPARK_CONF
from tests.spark.sink_support import NumbersSource, numbers

NAME = "spark_catalog.shop.numbers"
ROWS = 20


def session(folder: Path, *, with_delta: bool) -> SparkSession:
    conf = {
        **SPARK_CONF,
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    }
    if with_delta:
        conf |= {**DELTA_CONF, "spark.jars": ",".join(delta_jars())}
    spark = spark_session("hive", **conf)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(NumbersSource)
    return spark


def write(spark: SparkSession, folder: Path) -> None:
    options = {"appId": "app", "checkpointLocation": str(folder / "checkpoint")}
    writer = write_stream(numbers(spark, end=ROWS, perBatch=7)).options(**options).partitionBy("partition")
    writer.trigger(availableNow=True).toTable(NAME).awaitTermination()


def read(spark: SparkSession, folder: Path) -> dict[str, object]:
    stream = spark.readStream.table(NAME).writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
    stream.option("checkpointLocation", str(folder / "reader")).start().awaitTermination()
    (counted,) = spark.sql("SELECT count(*) AS n, count(DISTINCT value) AS d FROM shop.numbers").collect()
    return {
        "table": spark.table(NAME).count(),
        "sql": [counted["n"], counted["d"]],
        "stream": spark.table("streamed").count(),
        "partitions": spark.sql(f"DESCRIBE DETAIL {NAME}").collect()[0]["partitionColumns"],
        "path": table_path(spark, "shop.numbers"),
    }


def run(folder: Path, step: str) -> dict[str, object]:
    spark = session(folder, with_delta=step != "bare")
    if step == "read":
        return read(spark, folder)
    if step == "write":
        spark.sql("CREATE SCHEMA shop")
        write(spark, folder)
        return {"path": table_path(spark, NAME)}
    refused = {}
    for name in ("shop.numbers", "shop.another"):
        options = {"appId": "app", "checkpointLocation": str(folder / name)}
        try:
            write_stream(numbers(spark, end=1)).options(**options).toTable(name)
        except OptionError as error:
            refused[name] = str(error)
    return {"refused": refused, "tables": [table.name for table in spark.catalog.listTables("shop")]}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2])))
