"""`make try`: a Python shell with a broker, a Spark session and a topic of orders, all deleted at its end."""

from __future__ import annotations

import code
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from deltalake import DeltaTable
from kafka import KafkaProducer

from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.connectors.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

Reader = TypeVar("Reader", "DataFrameReader", "DataStreamReader")

TOPIC, PARTITIONS, ORDERS = "orders", 2, 1000
CITIES = ("Lagos", "Lima", "Oslo", "Osaka")
FIELDS = "id BIGINT, city STRING, cents BIGINT"

BANNER = """
A broker listens on {servers}; its topic orders has {orders} records, such as
{example}

  spark            the session
  servers, broker  the broker: its address, and the EmbeddedBroker (docs/testing.md)
  folder           a folder that is removed at the end
  read()           the topic as a DataFrame: read().show()
  send(10)         ten more orders
  copy()           a streaming query into a table, exactly once, until all is there; again: only what is new
  table()          the table as a DataFrame: table().groupBy("city").count().show()

From another terminal: {sparkonce} peek orders --bootstrap-servers {servers}
                       {sparkonce} audit {table}
                       {sparkonce} ui --bootstrap-servers {servers} {folder}
Ctrl-D ends it.
"""


class Sandbox:
    """The objects of the shell."""

    def __init__(self, folder: Path, broker: EmbeddedBroker) -> None:
        self.folder, self.broker, self.servers = folder, broker, broker.bootstrap_servers
        self._sent = 0
        self.send(ORDERS)
        self.spark = spark_session("try", **{"spark.master": "local[2]", "spark.ui.enabled": "false"})
        self.spark.sparkContext.setLogLevel("ERROR")

    @property
    def path(self) -> str:
        """The table's path."""
        return str(self.folder / TOPIC)

    def send(self, count: int) -> None:
        """Send more orders."""
        producer = KafkaProducer(bootstrap_servers=self.servers)
        for number in range(self._sent, self._sent + count):
            producer.send(TOPIC, order(number), partition=number % PARTITIONS)
        producer.close()
        self._sent += count

    def read(self) -> DataFrame:
        """Return the topic's current orders."""
        return self._reader(self.spark.read).load().select("value.*", "partition", "offset")

    def copy(self) -> None:
        """Copy new records of the topic into the table, exactly once."""
        reader = self._reader(self.spark.readStream).option("offsetStore", f"delta:{self.path}").option("appId", "try")
        rows = reader.load().select("value.*", "partition", "offset")
        writer = rows.writeStream.format("delta_once").option("appId", "try").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(self.path).awaitTermination()

    def table(self) -> DataFrame:
        """Return the rows of the table."""
        return self.spark.read.parquet(*DeltaTable(self.path).file_uris())

    def _reader(self, reader: Reader) -> Reader:
        reader = reader.format("kafka_once").option("kafka.bootstrap.servers", self.servers).option("subscribe", TOPIC)
        reader = reader.option("startingOffsets", "earliest")
        return reader.option("valueFormat", "json").option("valueSchema", FIELDS)


def order(number: int) -> bytes:
    """Return the JSON value of an order."""
    return json.dumps({"id": number, "city": CITIES[number % len(CITIES)], "cents": 100 + number * 37 % 9900}).encode()


def banner(sandbox: Sandbox) -> str:
    """Return the shell's banner."""
    return BANNER.format(
        servers=sandbox.servers,
        orders=ORDERS,
        example=order(0).decode(),
        table=sandbox.path,
        folder=sandbox.folder,
        sparkonce=Path(sys.executable).with_name("sparkonce"),  # another terminal has not activated this environment
    )


def main() -> None:
    """Start the services, and the shell."""
    if importlib.util.find_spec("readline"):
        importlib.import_module("readline")  # for line editing and history
    config = {"num.partitions": PARTITIONS}
    with TemporaryDirectory(prefix="sparkonce-try-") as folder, EmbeddedBroker(config=config) as broker:
        sandbox = Sandbox(Path(folder), broker)
        names = ("spark", "servers", "broker", "folder", "read", "send", "copy", "table")
        code.interact(banner(sandbox), local={name: getattr(sandbox, name) for name in names}, exitmsg="")
        sandbox.spark.stop()


if __name__ == "__main__":
    main()
