"""Reads a Delta table with delta-spark, in a Spark of its own, and prints what it finds as JSON.

Arguments: the jars, separated by commas; the table; a condition that must make files be skipped by their statistics.
"""

from __future__ import annotations

import json
import sys

from connectors.session import spark_session


def main() -> None:
    jars, table, condition = sys.argv[1:]
    spark = spark_session(
        "delta-spark reader",
        **{
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.jars": jars,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.read.format("delta").load(table)
    found = {
        "rows": frame.count(),
        "values": sorted(row.value for row in frame.select("value").collect()),
        "matching": frame.where(condition).count(),
        "kinds": sorted({str(row.kind) for row in frame.select("kind").distinct().collect()}),
        "schema": frame.schema.simpleString(),
    }
    print("FOUND " + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
