"""A session, its workers, and whether both formats are found there."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.jobs.cli.doctor.findings import SKEW_S, Finding, warning, wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS = 8
"""Enough to reach a few executors; not each of a large cluster."""
_ANYWHERE = "Start the session by sparkonce.spark_session, or set PYSPARK_PYTHON to a Python that has sparkonce"


class Worker(NamedTuple):
    """What one task reports about its process."""

    host: str
    python: str
    executable: str
    sparkonce: str
    """Its version; empty where it cannot be imported."""
    at_s: float


def examine(master: str) -> Iterator[Finding]:
    """Start a session on a master, and look at its workers."""
    from sparkonce.connectors.session import spark_session

    try:
        spark = spark_session("sparkonce doctor", **{"spark.master": master, "spark.log.level": "OFF"})
    except Exception as error:  # of many kinds, py4j's among them
        yield wrong("Spark", _first_line(error), "Try it in a plain PySpark session: pyspark --master " + master)
        return
    try:
        yield Finding("Spark", f"{spark.version} at {spark.sparkContext.master}")
        yield from _workers(spark)
        yield from _formats(spark)
    finally:
        spark.stop()


def _workers(spark: SparkSession) -> Iterator[Finding]:
    began_s = time.time()
    try:
        told = spark.sparkContext.parallelize(range(_TASKS), _TASKS).map(_question()).collect()
    except Exception as error:  # of many kinds, py4j's among them
        yield wrong("workers", _first_line(error), _ANYWHERE)
        return
    ended_s = time.time()
    for worker in {(each[0], each[2]): Worker(*each) for each in told}.values():
        yield _worker(worker, began_s, ended_s)


def _question() -> Callable[[int], tuple[str, str, str, str, float]]:
    """Return what each task runs: a function within a function travels whole, and a worker may have no sparkonce."""

    def tell(_: int) -> tuple[str, str, str, str, float]:
        import platform
        import socket
        import sys
        import time
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("sparkonce")
        except PackageNotFoundError:
            found = ""
        return socket.gethostname(), platform.python_version(), sys.executable, found, time.time()

    return tell


def _worker(worker: Worker, began_s: float, ended_s: float) -> Finding:
    what, text = "worker", f"{worker.host}: Python {worker.python} ({worker.executable})"
    if not worker.sparkonce:
        return wrong(what, f"{text} has no sparkonce", _ANYWHERE)
    if worker.python.split(".")[:2] != list(platform.python_version_tuple()[:2]):
        return wrong(what, text, f"The driver has Python {platform.python_version()}: both need the same minor version")
    if worker.sparkonce != version("sparkonce"):
        return wrong(what, f"{text} has sparkonce {worker.sparkonce}", f"The driver has {version('sparkonce')}")
    ahead_s = max(worker.at_s - ended_s, 0.0) - max(began_s - worker.at_s, 0.0)
    if abs(ahead_s) > SKEW_S:
        return warning(what, f"{text}: its clock is {ahead_s:+.0f} s off the driver's", "Synchronise both clocks (NTP)")
    return Finding(what, f"{text}, sparkonce {worker.sparkonce}")


def _formats(spark: SparkSession) -> Iterator[Finding]:
    """Load each format without its options: what is found complains of those, in a worker."""
    for name, complains_of in (("kafka_once", "one of the following options"), ("delta_once", "only writes")):
        try:
            spark.read.format(name).load()
        except Exception as error:  # of many kinds, py4j's among them
            if complains_of in str(error):
                yield Finding("format", f"{name} is found")
            else:
                yield wrong("format", f"{name}: {_first_line(error)}", "Call sparkonce.register(spark)")


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
