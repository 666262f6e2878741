"""Checks of the executors' Python processes: what they run, and what they reach from their machines."""

from __future__ import annotations

import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkonce.jobs.cli.doctor.findings import SKEW_S, Finding, State, warning, wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkonce.jobs.cli.doctor.worker_checks import Endpoints

PATIENCE_S = 120.0
"""The time limit for a task to get an executor."""
SETTLED_S = 3.0
"""No new executor for this long: all have started."""
_INSTALL = "Install the driver's version there, or set PYSPARK_PYTHON to a Python that has it (docs/shipping.md)"
_NO_EXECUTOR = "Look at the master's page: are there workers, with free cores and memory?"


class Worker(NamedTuple):
    """What one task reports about its process."""

    host: str
    python: str
    executable: str
    sparkonce: str
    """Its version; empty if it cannot be imported."""
    pyspark: str
    at_s: float
    findings: list[tuple[str, str, str, str]]
    """The worker's findings, as the fields of each `Finding`."""


def examine(spark: SparkSession, places: Endpoints) -> Iterator[Finding]:
    """Run a task on each executor at the same time, and report each differing process."""
    began_s = time.time()
    alarm = threading.Timer(PATIENCE_S, spark.sparkContext.cancelAllJobs)
    alarm.start()
    try:
        told = _ask(spark, places)
    except Exception as error:  # of many kinds, including py4j's
        remedy = _INSTALL if alarm.is_alive() else _NO_EXECUTOR
        yield wrong("worker", reason(error), remedy)
        return
    finally:
        alarm.cancel()
    ended_s = time.time()
    for worker in map(Worker._make, told):
        yield _process(worker, spark.version, began_s, ended_s)
        yield from _findings_of(worker)


def _ask(spark: SparkSession, places: Endpoints) -> list[Any]:
    """Return the reports of one task per Python; a barrier starts all together, so that each executor has some."""
    context = spark.sparkContext
    context.parallelize([0], 1).map(lambda _: 0).collect()
    slots = _slots(spark)
    question = _question(places, version("sparkonce"))
    return context.parallelize(range(slots), slots).barrier().mapPartitions(question).collect()


def _slots(spark: SparkSession) -> int:
    """Return how many tasks run at the same time, once that number is stable: executors start one by one."""
    scheduler = spark.sparkContext._jsc.sc()
    profile = scheduler.resourceProfileManager().defaultResourceProfile()
    slots, since_s = scheduler.maxNumConcurrentTasks(profile), time.monotonic()
    while not scheduler.isLocal() and time.monotonic() - since_s < SETTLED_S:
        time.sleep(SETTLED_S / 10)
        found = scheduler.maxNumConcurrentTasks(profile)
        if found != slots:
            slots, since_s = found, time.monotonic()
    return int(slots)


def _question(places: Endpoints, wanted: str) -> Callable[[Iterable[int]], Iterator[tuple[Any, ...]]]:
    """Return the function of each task: nested, so that it is pickled by value; a worker may lack sparkonce."""
    asked = places.as_document()

    def tell(_: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        import platform
        import socket
        import sys
        import time
        from importlib import import_module
        from importlib.metadata import PackageNotFoundError, version

        from pyspark import BarrierTaskContext

        at_s, host = time.time(), socket.gethostname()
        context = BarrierTaskContext.get()
        if context.allGather(f"{host} {sys.executable}").index(f"{host} {sys.executable}") != context.partitionId():
            return  # another task checks this one's machine
        findings = []
        try:
            found = version("sparkonce")
            if found == wanted:
                findings = import_module("sparkonce.jobs.cli.doctor.worker_checks").look(asked)
        except PackageNotFoundError:
            found = ""
        except ImportError as error:
            install = "pip install 'sparkonce[connectors]' there"
            findings = [("packages", f"sparkonce cannot be loaded: {error}", "WRONG", install)]
        spark = import_module("pyspark").__version__
        yield host, platform.python_version(), sys.executable, found, spark, at_s, findings

    return tell


def _process(worker: Worker, spark_version: str, began_s: float, ended_s: float) -> Finding:
    what, text = "worker", f"{worker.host}: Python {worker.python} ({worker.executable})"
    if not worker.sparkonce:
        return wrong(what, f"{text} has no sparkonce", _INSTALL)
    if worker.python.split(".")[:2] != list(platform.python_version_tuple()[:2]):
        return wrong(what, text, f"The driver has Python {platform.python_version()}: both need the same minor version")
    if worker.sparkonce != version("sparkonce"):
        return wrong(
            what, f"{text} has sparkonce {worker.sparkonce}", f"The driver has {version('sparkonce')}. {_INSTALL}"
        )
    if worker.pyspark.split(".")[:2] != spark_version.split(".")[:2]:
        return wrong(what, f"{text} has PySpark {worker.pyspark}", f"Install the driver's there: {spark_version}")
    ahead_s = max(worker.at_s - ended_s, 0.0) - max(began_s - worker.at_s, 0.0)
    if abs(ahead_s) > SKEW_S:
        return warning(what, f"{text}: its clock is {ahead_s:+.0f} s off the driver's", "Synchronise both clocks (NTP)")
    return Finding(what, f"{text}, sparkonce {worker.sparkonce}, PySpark {worker.pyspark}")


def _findings_of(worker: Worker) -> Iterator[Finding]:
    for what, found, state, remedy in worker.findings:
        yield Finding(what, f"from {worker.host}: {found}", State(state), remedy)


def reason(error: BaseException) -> str:
    """Return why a job failed in one line: the machine if Spark names one, and the end of Python's traceback."""
    text = str(error)
    machine = re.search(r"\(([^\s()]+) executor [^\s()]+\): (.*)", text)
    python = re.search(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", text)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    said = python[1] if python else machine[2] if machine else first
    return f"{machine[1]}: {said}" if machine else said
