"""A Spark Connect server in a process of its own, from PySpark's own jars."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from lab.child_process import kill_session
from sparkonce.connectors.runtime import worker_daemon, worker_python

DEADLINE_S = 240
HOME = Path(pyspark.__file__).parent
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.memory": "800m",
    "spark.ui.enabled": "false",
    # Compiling code for a few rows takes longer than interpreting it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextlib.contextmanager
def connect_server(log: Path, python: Path | None = None) -> Iterator[str]:
    """Start a server whose Python workers are ``python``, and return its ``sc://`` address.

    Without it they are this interpreter, which starts as it does in a session on one machine.
    """
    variables = dict(os.environ)
    command_of_python = worker_python.command(variables) if python is None else str(python)
    daemon = {"spark.python.daemon.module": worker_daemon.MODULE} if python is None else {}
    conf = [word for name, value in {**CONF, **daemon}.items() for word in ("--conf", f"{name}={value}")]
    command = [str(HOME / "bin/spark-submit"), "--master", "local[2]", "--class", SERVER, *conf, "spark-internal"]
    pythons = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), command_of_python)
    environment = {**variables, **pythons, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while (found := re.search(r"Connect server started at: \S+:(\d+)", log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
            assert process.poll() is None, log.read_text()[-3000:]
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        kill_session(process.pid)  # its Python processes, too, which are in groups of their own
        process.wait()
