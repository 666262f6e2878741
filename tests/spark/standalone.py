"""Spark's own cluster manager on one machine: a master, and two workers that look like two machines.

Spark starts no speculative attempt on a machine that runs the task already, and the workers of `local-cluster` are all
of one. Here each worker has a loopback address of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

DEADLINE_S = 120
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class StandaloneCluster:
    """A master and two workers of one core each; a context manager with `.url`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            master = self._start("master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = self._await(master, r"Starting Spark master at (spark://\S+)")
            for number in (1, 2):
                options = ["--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
                work = ["--work-dir", str(folder / f"work-{number}")]
                log = self._start(f"worker-{number}", WORKER, *options, *work, self.url)
                self._await(log, r"(Successfully registered) with master")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, kind: str, *args: str) -> Path:
        log = self._folder / f"{name}.log"
        # What runs in the foreground logs to standard error; at INFO, where it says that it is ready.
        properties = self._folder / "log4j2.properties"
        properties.write_text(
            "rootLogger.level=info\nrootLogger.appenderRef.stderr.ref=console\nappender.console.type=Console\n"
            "appender.console.name=console\nappender.console.target=SYSTEM_ERR\n"
            "appender.console.layout.type=PatternLayout\nappender.console.layout.pattern=%p %c{1}: %m%n\n"
        )
        java = f"-Dlog4j2.configurationFile=file:{properties}"
        environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": java}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(SPARK_CLASS), kind, *args],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _await(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._processes[-1].wait(timeout=0.05)
            assert self._processes[-1].poll() is None, log.read_text()[-3000:]
        return found.group(1)

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
