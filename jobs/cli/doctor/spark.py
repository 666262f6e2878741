"""Checks of a session, its workers, and whether both formats are found there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparkonce.jobs.cli.doctor import workers
from sparkonce.jobs.cli.doctor.findings import Finding, wrong
from sparkonce.jobs.cli.doctor.worker_checks import Endpoints
from sparkonce.jobs.cli.doctor.workers import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_TIMEOUT_S: Final = 5.0
MAX_PORT: Final = 65535
_STANDALONE: Final = "spark://"
_CONF = {
    "spark.log.level": "OFF",
    "spark.dynamicAllocation.enabled": "false",  # incompatible with barriers, which give each executor a task
}


def examine(master: str, places: Endpoints) -> Iterator[Finding]:
    """Start a session on a master, and check its workers; from other machines than this one, also ``places``."""
    from sparkonce.connectors.session import spark_session

    silent = no_master(master)
    if silent is not None:
        yield wrong("Spark", silent, "Start the master, or correct --master")
        return
    try:
        spark = spark_session("sparkonce doctor", **_CONF, **{"spark.master": master})
    except Exception as error:  # of many kinds, including py4j's
        yield wrong("Spark", reason(error), "Try it in a plain PySpark session: pyspark --master " + master)
        return
    try:
        yield Finding("Spark", f"{spark.version} at {spark.sparkContext.master}")
        elsewhere = not spark.sparkContext._jsc.sc().isLocal()
        yield from workers.examine(spark, places if elsewhere else Endpoints())
        yield from _formats(spark)
    finally:
        spark.stop()


def no_master(master: str) -> str | None:
    """Return why no standalone master can be reached, which Spark would try for minutes; None for other masters."""
    if not master.startswith(_STANDALONE):
        return None
    found = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > MAX_PORT:
            found.append(f"{address!r} is not host:port")
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            found.append(f"no master answers at {address} ({error.strerror or error})")
        else:
            return None
    return "; ".join(found)


def _formats(spark: SparkSession) -> Iterator[Finding]:
    """Load each format without its options: in a worker, a format that is found complains about missing ones."""
    for name, complains_of in (("kafka_once", "one of the following options"), ("delta_once", "only writes")):
        try:
            spark.read.format(name).load()
        except Exception as error:  # of many kinds, including py4j's
            if complains_of in str(error):
                yield Finding("format", f"{name} is found")
            else:
                yield wrong("format", f"{name}: {reason(error)}", "Call sparkonce.register(spark)")
