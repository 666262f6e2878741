"""Find and start the software to compare with: Apache Kafka and its tools, Spark's JVM Kafka connector, Delta's sink.

Kafka's jars come from a directory named by `KAFKA_LIBS`, those of Spark's connector from the comma-separated list
`SPARK_KAFKA_JARS`, otherwise from Maven, copied once into the user's cache. If both are missing, callers get None
or `PeerMissingError`, with the reason and the remedy.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lab.network import free_port
from sparkonce.jobs.shared.jars import (
    PeerMissingError,
    cache_directory,
    copy_artifacts,
    delta_jars,
    java_command,
    spark_jars,
)

KAFKA_VERSION = "4.3.0"
KAFKA_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
TOOL_TIMEOUT_S = 300
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a short-lived Java that is not measured: the slower compiler would pay back nothing."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
SPARK_KAFKA_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    # Named explicitly, since Maven has no 4.2.0 of it; the connector works with 4.1.1.
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.1"),
)
SPARK_AVRO_ARTIFACTS = (("org.apache.spark", "spark-avro_2.13", "4.1.1"),)
"""Maven has no 4.2.0 of it; from_avro works with Spark 4.2."""
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id={node.node_id}
controller.quorum.voters={node.voters}
listeners=PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{node.port}
controller.listener.names=CONTROLLER
log.dirs={data_dir}
num.partitions=4
offsets.topic.replication.factor={node.nodes}
transaction.state.log.replication.factor={node.nodes}
transaction.state.log.min.isr={least}
share.coordinator.state.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""


def kafka_classpath() -> str | None:
    """Return a Java classpath with Apache Kafka's server, clients and tools, or None: see `missing_kafka_reason`."""
    try:
        return _kafka_classpath()
    except PeerMissingError:
        return None


def missing_kafka_reason() -> str | None:
    """Return why `kafka_classpath` is None, or None if it is not."""
    try:
        _kafka_classpath()
    except PeerMissingError as error:
        return str(error)
    return None


def run_tool(
    class_name: str, *args: str, timeout_s: float = TOOL_TIMEOUT_S, java_options: Sequence[str] = QUICK_JVM
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's own tools and return its output; the caller checks for a non-zero exit code.

    Raises:
        PeerMissingError: if Kafka's jars or a Java are missing.
    """
    command = [java_command(), *java_options, "-cp", _kafka_classpath(), class_name, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def spark_kafka_jars() -> list[str]:
    """Return the jars of Spark's JVM Kafka connector, for `spark.jars`: `SPARK_KAFKA_JARS`, or from Maven.

    Raises:
        PeerMissingError: if they are not available.
    """
    named = os.environ.get("SPARK_KAFKA_JARS")
    if named:
        jars = [jar for jar in named.split(",") if jar]
        for jar in jars:
            if not Path(jar).is_file():
                raise PeerMissingError(f"SPARK_KAFKA_JARS names {jar}, which is not there")
        return jars
    try:
        return spark_jars(f"spark-kafka-{SPARK_KAFKA_ARTIFACTS[0][2]}", SPARK_KAFKA_ARTIFACTS)
    except PeerMissingError as error:
        raise PeerMissingError(f"{error}; name the connector's jars, as a comma list, in SPARK_KAFKA_JARS") from error


def spark_avro_jars() -> list[str]:
    """Return the jars of Spark's from_avro, for `spark.jars`.

    Raises:
        PeerMissingError: if Maven cannot fetch them.
    """
    return spark_jars(f"spark-avro-{SPARK_AVRO_ARTIFACTS[0][2]}", SPARK_AVRO_ARTIFACTS)


def jvm_session() -> dict[str, str]:
    """Return the settings of a session with Spark's JVM Kafka connector and Delta's JVM sink.

    Raises:
        PeerMissingError: if the jars of one of the two are not available.
    """
    return {
        "spark.jars": ",".join([*spark_kafka_jars(), *delta_jars()]),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """A node of a cluster, both broker and controller: its id, its ports, and all the controllers."""

    node_id: int
    port: int
    controller_port: int
    voters: str

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.voters.count(",") + 1


def kafka_nodes(count: int) -> list[KafkaNode]:
    """Return the nodes of a cluster, on free ports of the loopback address; ids count from 1."""
    ports = [free_port() for _ in range(2 * count)]
    pairs = list(zip(ports[:count], ports[count:], strict=True))
    voters = ",".join(f"{node_id}@127.0.0.1:{quorum}" for node_id, (_, quorum) in enumerate(pairs, 1))
    return [KafkaNode(node_id, port, quorum, voters) for node_id, (port, quorum) in enumerate(pairs, 1)]


class RealKafka:
    """A real Apache Kafka (KRaft) on ephemeral ports of the loopback address, single or a node; a context manager.

    Args:
        data_dir: its log directory; by default a temporary folder that is deleted at the end.
        config: settings added to those a node needs.
        heap: of the Java process.
        java_options: further ones of that process; `QUICK_JVM` if it is not measured.
        node: its node in a cluster. By default it is a single node; else `await_ready` returns when it serves, since a
            node does so only when most of the others are running.

    Raises:
        PeerMissingError: if Kafka's jars or a Java are missing, or Kafka does not start.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, object] | None = None,
        heap: str = "512m",
        java_options: Sequence[str] = ("-XX:+UseG1GC",),
        node: KafkaNode | None = None,
    ) -> None:
        classpath, java = _kafka_classpath(), java_command()
        self._temporary = data_dir is None
        self._directory = Path(tempfile.mkdtemp(prefix="kafka-") if data_dir is None else data_dir)
        self._directory.mkdir(parents=True, exist_ok=True)
        self.node = node or kafka_nodes(1)[0]
        self.bootstrap_servers = f"127.0.0.1:{self.node.port}"
        data, least = self._directory / "data", 1 + self.node.nodes // 2
        properties = _SERVER_PROPERTIES.format(node=self.node, data_dir=data, least=least)
        properties += "".join(f"{name}={value}\n" for name, value in (config or {}).items())
        settings = self._directory / "server.properties"
        settings.write_text(properties)
        self._log = self._directory / "server.log"
        run_tool(
            "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", _CLUSTER_ID, "-c", str(settings)
        ).check_returncode()
        self._command = [
            java, f"-Xms{heap}", f"-Xmx{heap}", *java_options, "-cp", classpath, "kafka.Kafka", str(settings)
        ]  # fmt: skip
        self._begin()
        if node is None:
            self.await_ready()

    @property
    def pid(self) -> int:
        """The Java process."""
        return self._child.pid

    def kill(self) -> None:
        """SIGKILL Kafka; `restart` starts it again."""
        self._child.kill()
        self._child.wait()

    def restart(self) -> None:
        """Start again on the same port and data, after `kill`; returns when it serves.

        Raises:
            PeerMissingError: if Kafka does not start.
        """
        self._begin()
        self.await_ready()

    def close(self) -> None:
        """Stop Kafka and remove a temporary folder; a second call does nothing."""
        self._child.terminate()
        try:
            self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> RealKafka:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def await_ready(self) -> None:
        """Wait until it serves.

        Raises:
            PeerMissingError: if it does not in time; then it is stopped.
        """
        try:
            self._await_port(self.node.port)
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        with open(self._log, "ab") as log:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _await_port(self, port: int) -> None:
        """Wait for the listener, which Kafka opens last."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._child.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        tail = self._log.read_text(errors="replace")[-1000:]
        raise PeerMissingError(f"Kafka did not start within {START_TIMEOUT_S:.0f} s; its log ends with: {tail}")


class RealKafkaCluster:
    """Several nodes of Apache Kafka on this machine; a context manager.

    Args:
        nodes: how many; each is a broker and a controller, with ids from 1.
        config: settings of each, added to those that a node needs.
        heap: of each Java process.

    Raises:
        PeerMissingError: if Kafka's jars or a Java are missing, or one does not start.
    """

    def __init__(self, nodes: int = 3, config: Mapping[str, object] | None = None, heap: str = "512m") -> None:
        self._nodes: dict[int, RealKafka] = {}
        try:
            for node in kafka_nodes(nodes):
                self._nodes[node.node_id] = RealKafka(config=config, heap=heap, node=node)
            for each in self._nodes.values():
                each.await_ready()
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes."""
        return ",".join(each.bootstrap_servers for each in self._nodes.values())

    @property
    def pids(self) -> list[int]:
        """The Java processes."""
        return [each.pid for each in self._nodes.values()]

    def kill(self, node_id: int) -> None:
        """SIGKILL a node; `restart` starts it again."""
        self._nodes[node_id].kill()

    def restart(self, node_id: int) -> None:
        """Start a node again after `kill`; returns when it serves.

        Raises:
            PeerMissingError: if it does not start.
        """
        self._nodes[node_id].restart()

    def close(self) -> None:
        """Kill all, and delete their files; a second call does nothing.

        By SIGKILL: the last ones would wait for a controlled shutdown, and the files are not needed any more.
        """
        for each in self._nodes.values():
            each.kill()
        while self._nodes:
            self._nodes.popitem()[1].close()

    def __enter__(self) -> RealKafkaCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _kafka_classpath() -> str:
    named = os.environ.get("KAFKA_LIBS")
    if named:
        if not any(Path(named).glob("kafka-clients-*.jar")):
            raise PeerMissingError(f"KAFKA_LIBS={named} holds no kafka-clients jar: name the directory of Kafka's jars")
        return os.path.join(named, "*")
    directory = cache_directory() / f"kafka-{KAFKA_VERSION}"
    copy_artifacts(directory, KAFKA_ARTIFACTS)
    return str(directory / "*")
