"""Run many of Kafka's command-line tools in one Java."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, NamedTuple

from lab.peers import QUICK_JVM, kafka_classpath
from sparkonce.jobs.shared.jars import java_command

TOOLS = "org.apache.kafka.tools."
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
RUNNER = Path(__file__).parent / "ToolRunner.java"
JAVA_OPTIONS = (*QUICK_JVM, "-Xmx128m")


class Said(NamedTuple):
    status: int
    text: str


class KafkaTools:
    """`run("TopicCommand", "--list")` runs a tool against one broker; a context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        classpath = kafka_classpath()
        assert classpath is not None
        self._servers = bootstrap_servers
        self._complaints: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._java = subprocess.Popen(
            [java_command(), *JAVA_OPTIONS, "-cp", classpath, str(RUNNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        self._java.stdin.close()
        self._java.wait()
        self._java.stdout.close()
        self._complaints.close()

    def run(self, tool: str, *arguments: str) -> Said:
        """Run a tool of `org.apache.kafka.tools`, or of `kafka.admin` by its whole name, with `--bootstrap-server`."""
        return self.run_alone(tool, "--bootstrap-server", self._servers, *arguments)

    def run_alone(self, tool: str, *arguments: str) -> Said:
        """Run a tool with nothing but these arguments."""
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        name = tool if tool.startswith(("kafka.", TOOLS)) else TOOLS + tool
        line = "\t".join((name, *arguments))
        self._java.stdin.write(line.encode() + b"\n")
        self._java.stdin.flush()
        answer = self._java.stdout.readline()
        if not answer:
            self._complaints.seek(0)
            raise AssertionError(f"{tool}: Java ended: {self._complaints.read().decode()}")
        status, size = answer.split()
        text = self._java.stdout.read(int(size)).decode()
        # A tool that catches everything complains of its own end.
        return Said(int(status), re.sub(r"^ToolRunner\$Exited: *\n", "", text, flags=re.MULTILINE))

    def do(self, tool: str, *arguments: str) -> str:
        """Run a tool that must succeed; returns what it said."""
        status, text = self.run(tool, *arguments)
        assert status == 0, f"{tool} {arguments}: {text}"
        return text

    def configs(self, *arguments: str) -> str:
        """Run ConfigCommand, which must succeed."""
        return self.do(CONFIG_COMMAND, *arguments)
