"""An archive of Spark's loaded Java classes, so that a Spark session that runs for seconds starts faster.

Before its first query ends, Spark loads and verifies some fifteen thousand classes, half of the cost of such a
start. Java can map them from an archive of an earlier run (JEP 350). The archive fits one Java and one
installation of PySpark, so it is inside the environment: 150 MB. A JVM that it does not fit continues
without it.

``python -m lab.class_archive`` (called by ``make test``) makes it, if there is none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from lab.child_process import kill_session
from sparkonce.connectors.runtime.java_check import java_command

_ON_LINUX = " -Djdk.lang.Process.launchMechanism=VFORK -XX:+UseTransparentHugePages" if sys.platform == "linux" else ""
SHORT_JVM = f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC{_ON_LINUX}"
"""For a JVM that runs for seconds or minutes: the slower compiler takes a third of its CPU time, and pays back
nothing. Without it Java reserves room for a fifth of the code only, and discards some to compile it again. Hadoop runs
`chmod` for each file of a checkpoint; starting a process without a helper halves the cost. Huge pages save
about a tenth of a start's CPU time on a virtual machine, where a TLB miss costs twice as much."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Do not warn about an archive that does not fit."""
VARIABLE = "SPARK_SUBMIT_OPTS"
"""The environment variable with options for Spark's JVM."""
LIMIT_S = 300.0


def archive() -> Path | None:
    """Return where the archive of this environment's Spark and Java is, or would be; None without a Java."""
    java = java_command()
    if java is None or not os.path.exists(java):
        return None
    real = os.path.realpath(java)
    kind = hashlib.sha256(f"{real} {os.stat(real).st_mtime_ns}".encode()).hexdigest()[:8]
    return Path(sys.prefix) / f"spark-{version('pyspark')}-java-{kind}.jsa"


def options() -> str:
    """Return the options of a short-lived JVM, with the archive if there is one."""
    path = archive()
    return f"{SHORT_JVM} -XX:SharedArchiveFile={path} {QUIET}" if path is not None and path.exists() else SHORT_JVM


def make() -> None:
    """Make the archive if there is none; report an error, and continue without it."""
    path = archive()
    if path is None or path.exists():
        return
    if not os.access(path.parent, os.W_OK):
        return
    print("Keeping Spark's classes for faster starts (a minute or two, once)", flush=True)
    with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as folder:
        made = Path(folder, path.name)
        program = [sys.executable, "-m", "lab.class_archive", "--run-queries", folder]
        environment = {**os.environ, VARIABLE: f"{SHORT_JVM} -XX:ArchiveClassesAtExit={made} {QUIET}"}
        with subprocess.Popen(
            program,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            start_new_session=True,
        ) as job:
            try:
                # Its JVM, which has the same pipe, writes the archive after Python has ended.
                printed, _ = job.communicate(timeout=LIMIT_S)
            except BaseException as error:
                kill_session(job.pid)  # Python has not been waited for yet, so no other process has its id
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                print(f"Spark took more than {LIMIT_S:.0f} s; going on without it", file=sys.stderr)
                return
        if made.exists():
            made.rename(path)
        else:
            print(f"Java wrote none; going on without it: {printed[-1000:]}", file=sys.stderr)


def run_queries(folder: Path) -> None:
    """Load the classes: a stream from a topic to a table, a windowed aggregation, and a query over the table."""
    from lab.verify.records import Sending, create_topic
    from lab.verify.records import make as make_records
    from sparkonce.broker_lite.embedded import EmbeddedBroker
    from sparkonce.connectors.session import register, spark_session

    spark = spark_session("classes", **{"spark.master": "local[2]", "spark.sql.shuffle.partitions": "1"})
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    with EmbeddedBroker(data_dir=str(folder / "data")) as broker:
        create_topic(broker.bootstrap_servers, "topic")
        Sending.begin(broker.bootstrap_servers, "topic", make_records(range(8))).finish()
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka_once").options(**options, subscribe="topic").load()
        counts = rows.withWatermark("timestamp", "1 second").groupBy("topic", "partition").count()
        for name, frame, mode in (("rows", rows, "append"), ("counts", counts, "complete")):
            writer = frame.writeStream.format("delta_once").outputMode(mode).trigger(availableNow=True)
            writer.options(appId=name, checkpointLocation=str(folder / f"{name}-checkpoint"))
            writer.start(str(folder / name)).awaitTermination()
    files = [str(path) for path in (folder / "rows").glob("*.parquet")]
    spark.read.parquet(*files).groupBy("partition").count().collect()
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run-queries"]:
        run_queries(Path(sys.argv[2]))
    else:
        make()
