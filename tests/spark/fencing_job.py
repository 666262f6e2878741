"""A driver that another process tells what to do: crash points need a Spark of their own, started with them armed.

Each line of standard input is a JSON object, and each is answered by one line that begins with `ANSWER`:
`{"start": name, "source": …, "table": …, "checkpoint": …, "sink": …}` starts a query and `{"wait": name}` waits for its
end and tells its error. `source` has the options of the stream `numbers`, or of `kafka_once` if it has a broker; with
`shuffle` in it, rows go through a shuffle on their way.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from connectors.session import spark_session
from tests.spark.sink_support import NumbersSource, numbers, start

ANSWER = "ANSWER "


def frame(spark: SparkSession, source: dict[str, Any]) -> DataFrame:
    shuffle = source.pop("shuffle", None)
    if "kafka.bootstrap.servers" in source:
        rows = spark.readStream.format("kafka_once").options(**source).load()
        rows = rows.selectExpr("partition", "offset", "cast(value as string) as value")
    else:
        rows = numbers(spark, **source)
    return rows.repartition(shuffle, "value") if shuffle else rows


def main() -> None:
    spark = spark_session("fencing-job", **json.loads(sys.argv[1]))
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(NumbersSource)
    queries: dict[str, StreamingQuery] = {}
    print(ANSWER + "{}", flush=True)
    for line in sys.stdin:
        told, error = json.loads(line), None
        if "start" in told:
            rows = frame(spark, told["source"])
            queries[told["start"]] = start(rows, told["table"], told["checkpoint"], **told["sink"])
        else:
            try:
                queries[told["wait"]].awaitTermination()
            except StreamingQueryException as failure:
                error = str(failure)
        print(ANSWER + json.dumps({"error": error}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
