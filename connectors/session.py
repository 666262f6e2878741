"""A Spark session that can run the connectors of this package.

Spark starts Python workers as ``python3`` from PATH by default, and a worker with another interpreter cannot import
what the driver has. The rest are defaults, which the caller may override; those for one machine are omitted if
the master is a cluster.
"""

from __future__ import annotations

import sparkonce.connectors.runtime.spark_version  # noqa: F401 - complains, before others fail, where Spark is too old

# isort: split

import os
import shutil
import sys
from collections.abc import Mapping

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from sparkonce.connectors.runtime import fork_server, java_check, worker_daemon, worker_python
from sparkonce.connectors.runtime.active_session import active_in_thread

REDACTED = "(?i)url|[.]user[.]info$|^kafka[.]ssl[.]keystore[.]key$|^storage[.].*key"
"""Options whose text Spark redacts in plans, besides those named like passwords: Spark's own default, and ours."""

_OF_THE_DRIVER = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_OF_A_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.redaction.options.regex": REDACTED,
    # As large as the Arrow batches of the source: fewer, larger transfers between the JVM and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
_ON_ONE_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Loads what the connectors need once, and not in each worker: half the processor time of small batches.
    "spark.python.daemon.module": worker_daemon.MODULE,
}


def register(spark: SparkSession) -> None:
    """Make the formats known to a session where PySpark does not find them, and the session active in this thread.

    It finds them if this package is installed, through the modules ``pyspark_kafka_once`` and ``pyspark_delta_once``,
    but only in the session that is active in the calling thread, and only the thread that started Spark has one. So
    call this, or `spark_session`, in every other thread that reads or writes with them.

    Formats that it finds run in the Python of ``PYSPARK_DRIVER_PYTHON`` if that is set, on the executors too, and
    without the files of ``--py-files``; registered ones in that of ``PYSPARK_PYTHON``, with these files.
    """
    from sparkonce.connectors.formats.delta_once import DeltaOnceDataSource
    from sparkonce.connectors.formats.kafka_once import KafkaOnceDataSource

    active_in_thread(spark)
    spark.dataSource.register(KafkaOnceDataSource)
    spark.dataSource.register(DeltaOnceDataSource)


def spark_session(app_name: str, **conf: str) -> SparkSession:
    """Start Spark, or return the active session, with Python workers of this interpreter.

    ``conf`` holds Spark settings, which override the defaults here. Their names have dots, so pass them as
    ``spark_session("etl", **{"spark.master": "local[2]"})``; without a master it is ``local[*]``, or the master
    of ``spark-submit``. Call it in every thread that starts queries: Spark finds the formats only in a session that
    is active in the thread.

    On a cluster Python workers are those of ``PYSPARK_PYTHON`` if that is set, such as ``./environment/bin/python`` of
    a packed environment.

    With ``spark.remote``, or the variable ``SPARK_REMOTE``, it is a session of Spark Connect. Python workers are
    then those of the server.

    Raises:
        ValueError: for a name without a dot, which Spark would ignore with a warning.
        FileNotFoundError: if ``PYSPARK_PYTHON`` is no program on this machine.
        JavaError: if there is no Java that Spark can run on.
    """
    for name in conf:
        if "." not in name:
            raise ValueError(f"{name!r} is not a Spark setting; write spark_session(…, **{{'spark.{name}': …}})")
    if "spark.remote" in conf or "SPARK_REMOTE" in os.environ:
        return _configured(app_name, {**_OF_A_SESSION, **conf})
    local = _is_local(conf)
    python = worker_python.command(os.environ) if local else _python_of_cluster(conf)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    if python == str(worker_python.SCRIPT) and not worker_python.jvm_runs(os.environ):
        fork_server.start(os.environ)
    defaults = {**_OF_A_SESSION, **_OF_THE_DRIVER, **(_ON_ONE_MACHINE if local else {})}
    session = active_in_thread(_configured(app_name, {**defaults, **conf}))
    if not local:
        register(session)
    return session


def _configured(app_name: str, conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(app_name)
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        complaint = java_check.complaint() if error.getCondition() == "JAVA_GATEWAY_EXITED" else None
        if complaint is None:
            raise
        raise java_check.JavaError(complaint) from None


def _python_of_cluster(conf: Mapping[str, str]) -> str:
    """Return the workers' Python, which Spark starts by the same path on the executors and on the driver."""
    python = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if shutil.which(python) is None:
        raise FileNotFoundError(
            f"PYSPARK_PYTHON={python} is no program on this machine (in {os.getcwd()}), and Spark plans batches with "
            "it on the driver too: unpack the environment here as it is on the executors (docs/shipping.md)"
        )
    return python


def _is_local(conf: Mapping[str, str]) -> bool:
    """Whether the master is local; the master of ``spark-submit`` is only known to its JVM."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    return conf.get("spark.master", "" if submitted else "local").startswith("local")
