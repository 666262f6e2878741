"""The command by which Spark starts its Python processes on one machine: this interpreter, with an installed PySpark.

Spark puts its own ``pyspark.zip`` first on the path of every Python process that it starts, and Python compiles what
comes from a zip file again in each process: half a second of processor time for the planner of each query, and as much
for each of the half dozen helpers of a session. A PySpark that pip has installed holds the same modules as files, which
are compiled once. So where Spark itself runs from that installation, a script takes its zip files off the path, and
then becomes the interpreter, or has a process forked that has loaded everything before (`fork_server`).

The script reads variables, and Python processes get those of the JVM, which starts once in a process and outlives its
sessions. A JVM that runs already, as in a notebook that had another session or under ``spark-submit``, has them only if
they were set before it started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import pyspark
from pyspark import SparkContext

from sparkonce.connectors.runtime.fork_client import INTERPRETER

SCRIPT = Path(__file__).with_suffix(".sh")
HOME = "SPARKONCE_SPARK_HOME"
"""Environment variables of the script: the interpreter, and the zip files to remove."""


def command(environment: MutableMapping[str, str]) -> str:
    """Return the value of ``PYSPARK_PYTHON``: the script, whose variables are set, or the bare interpreter."""
    home = Path(pyspark.__file__).parent
    spark_home = environment.get("SPARK_HOME")
    runs_from_here = (home / "jars").is_dir() and (spark_home is None or Path(spark_home) == home)
    if os.name != "posix" or not runs_from_here or not os.access(SCRIPT, os.X_OK):
        return sys.executable
    wanted = {INTERPRETER: sys.executable, HOME: str(home)}
    if jvm_runs(environment):
        return str(SCRIPT) if wanted.items() <= environment.items() else sys.executable
    environment.update(wanted)
    return str(SCRIPT)


def jvm_runs(environment: Mapping[str, str]) -> bool:
    """Whether the JVM of this process runs already, so that its Python processes will not get other variables."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in environment
