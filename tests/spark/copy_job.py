"""Count a topic, then copy it into a table: ``python copy_job.py MASTER SERVERS TABLE``, or ``-`` under spark-submit.

The last line is ``RESULT counted=… rows=…``, or it ends with the text of the error and status 1.
"""

from __future__ import annotations

import sys

from deltalake import DeltaTable

from sparkonce import spark_session


def main(master: str, servers: str, table: str) -> None:
    """Run both queries in one session."""
    conf = {} if master == "-" else {"spark.master": master}
    spark = spark_session("copy", **conf, **{"spark.log.level": "OFF"})
    kafka = {"kafka.bootstrap.servers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    try:
        query = (
            spark.readStream.format("kafka_once")
            .options(**kafka)
            .load()
            .writeStream.format("delta_once")
            .options(path=table, checkpointLocation=f"{table}-checkpoint", appId="copy")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        counted = spark.read.format("kafka_once").options(**kafka).load().count()
    except Exception as error:  # of many kinds, py4j's among them
        print(error)
        sys.exit(1)
    finally:
        spark.stop()
    print(f"RESULT counted={counted} rows={DeltaTable(table).to_pyarrow_table().num_rows}")


if __name__ == "__main__":
    main(*sys.argv[1:])
