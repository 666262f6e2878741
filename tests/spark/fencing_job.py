"""A driver that another process tells what to do: crash points need a Spark of their own, started with them armed.

Each line of standard input is a JSON object, and each is answered by one line that begins with `ANSWER`:
`{"start": name, "source": …, "table": …, "checkpoint": …, "sink": …}` starts a query and `{"wait": name}` waits for its
end and tells its error, and how often a stage of it was tried. `source` has the options of the stream `numbers`, or of
`kafka_once` if it has a broker, as it comes if it hands over ranges; `shuffle` in it sends the rows through a shuffle,
`window` counts them in windows of five minutes, one record a minute, and `union` is a list of sources instead.
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from sparkonce.connectors.session import spark_session
from tests.spark.sink_support import NumbersSource, numbers, start

ANSWER = "ANSWER "


def frame(spark: SparkSession, source: dict[str, Any]) -> DataFrame:
    if "union" in source:
        frames = [frame(spark, each) for each in source["union"]]
        return reduce(DataFrame.union, frames)
    shuffle, window = source.pop("shuffle", None), source.pop("window", False)
    if "kafka.bootstrap.servers" in source:
        rows = spark.readStream.format("kafka_once").options(**source).load()
        if source.get("handOver") != "ranges":
            rows = rows.selectExpr("partition", "offset", "cast(value as string) as value")
    else:
        rows = numbers(spark, **source)
    if window:
        timed = rows.withColumn("at", f.timestamp_seconds(f.col("offset") * 60)).withWatermark("at", "0 seconds")
        counted = timed.groupBy(f.window("at", "5 minutes")).count()
        return counted.select(f.concat(f.minute("window.start"), f.lit("-"), f.col("count")).alias("value"))
    return rows.repartition(shuffle, rows.columns[-1]) if shuffle else rows


def stage_attempts(spark: SparkSession, run_id: str) -> int:
    """Return the most attempts that a stage of a query took."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForGroup(run_id)]
    stages = [tracker.getStageInfo(stage_id) for job in jobs if job for stage_id in job.stageIds]
    return max((stage.currentAttemptId + 1 for stage in stages if stage), default=0)


def main() -> None:
    spark = spark_session("fencing-job", **json.loads(sys.argv[1]))
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(NumbersSource)
    queries: dict[str, StreamingQuery] = {}
    print(ANSWER + "{}", flush=True)
    for line in sys.stdin:
        told, answer = json.loads(line), {}
        if "start" in told:
            rows = frame(spark, told["source"])
            queries[told["start"]] = start(rows, told["table"], told["checkpoint"], **told["sink"])
        else:
            query = queries[told["wait"]]
            try:
                query.awaitTermination()
            except StreamingQueryException as failure:
                answer["error"] = str(failure)
            answer["stage_attempts"] = stage_attempts(spark, str(query.runId))
        print(ANSWER + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
