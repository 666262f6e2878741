"""One run of the `numbers` stream into a table, as a driver of its own: what the crash tests kill.

The argument is JSON: the options of the source, the table, the checkpoint and the options of the sink.
"""

from __future__ import annotations

import json
import sys

from connectors.session import spark_session
from tests.spark.sink_support import NumbersSource, numbers, run


def main() -> None:
    arguments = json.loads(sys.argv[1])
    spark = spark_session("sink-job", **{"spark.master": "local[1]", "spark.driver.memory": "512m"})
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(NumbersSource)
    frame = numbers(spark, **arguments["source"])
    run(frame, arguments["table"], arguments["checkpoint"], **arguments.get("sink", {}))
    spark.stop()


if __name__ == "__main__":
    main()
