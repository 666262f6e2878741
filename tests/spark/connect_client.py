"""What docs/shipping.md shows, by a client of a Connect server: ``python connect_client.py ADDRESS SERVERS FOLDER``.

Each line is one step and its outcome, as JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable

from sparkonce import ForeachBatch, LagListener, MergeWriter, SqlResult, register, spark_session


def main(address: str, servers: str, folder: str) -> None:
    """Run each step, also after one that failed."""
    spark = spark_session("client", **{"spark.remote": address})
    kafka = {"kafka.bootstrap.servers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    sink = {"kafka.bootstrap.servers": servers, "topic": "copied", "appId": "copied"}

    def read() -> int:
        return int(spark.read.format("kafka_once").options(**kafka).load().count())

    def finish(name: str, writer: Callable[[Any], Any], frame: Any = None) -> Any:
        rows = spark.readStream.format("kafka_once").options(**kafka).load() if frame is None else frame
        to = writer(rows.writeStream).option("checkpointLocation", f"{folder}/{name}-checkpoint").queryName(name)
        query = to.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def delta() -> dict[str, Any]:
        with LagListener(spark).start() as lag:
            query = finish("table", lambda to: to.format("delta_once").options(path=f"{folder}/table", appId="a"))
            assert lag.wait(query, timeout_s=120)
            lags = [(each.name, each.rows, each.sources[0].offsets_behind_latest) for each in lag.queries()]
        return {"rows": DeltaTable(f"{folder}/table").to_pyarrow_table().num_rows, "lag": lags}

    def kafka_sink() -> int:
        records = spark.readStream.format("kafka_once").options(**kafka).load().select("key", "value")
        finish("copied", lambda to: to.format("kafka_once").options(**sink), records)
        return int(spark.read.format("kafka_once").options(**{**kafka, "subscribe": "copied"}).load().count())

    def database() -> int:
        path = f"{folder}/rows.db"

        def write(connection: Any, rows: Any) -> None:
            connection.execute("CREATE TABLE IF NOT EXISTS rows (value BLOB)")
            connection.executemany("INSERT INTO rows VALUES (?)", [(row.value,) for row in rows.collect()])

        result = SqlResult(lambda: sqlite3.connect(path), "database", write)
        batch = ForeachBatch(result, f"{folder}/database-checkpoint", "database")
        finish("database", lambda to: to.foreachBatch(batch))
        return int(sqlite3.connect(path).execute("SELECT COUNT(*) FROM rows").fetchone()[0])

    def merge() -> None:
        upsert = MergeWriter(f"{folder}/merged", "m", f"{folder}/merged-checkpoint", keys=["value"])
        finish("merged", lambda to: to.foreachBatch(upsert))

    def registered() -> None:
        register(spark)

    for step in (registered, read, delta, kafka_sink, database, merge):
        try:
            print(json.dumps([step.__name__, "done", step()]), flush=True)
        except Exception as error:  # of many kinds
            print(json.dumps([step.__name__, "failed", str(error)]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
