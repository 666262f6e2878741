"""Fixtures that several folders share: brokers, and one Spark session.

`KAFKA` chooses what the connectors' tests run on: `embedded` (the default), `container`, or the address of a broker
that runs already, as `host:port`. A JVM of its own for each module would cost most of the Spark tests' time; a test
that needs another master, or a session to be killed, starts a process of its own.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import socket
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from lab import class_archive
from sparkonce import EmbeddedBroker
from sparkonce.connectors.schema_registry.cache import VARIABLE as SCHEMA_CACHE
from sparkonce.jobs.shared.jars import NO_DELTA_SPARK
from tests.chance import load_profile
from tests.durations import known_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "5",
    # Most plans run once, over a few rows: interpreted, they cost less than to be compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}

# Read by whatever starts Spark, in processes that tests start too.
os.environ.setdefault("SPARK_LAUNCHER_OPTS", class_archive.SHORT_JVM)
if class_archive.VARIABLE not in os.environ:
    os.environ[class_archive.VARIABLE] = class_archive.options()

if SCHEMA_CACHE not in os.environ:
    # Registries of tests have ports and ids that those of former runs had, for other schemas.
    os.environ[SCHEMA_CACHE] = tempfile.mkdtemp(prefix="sparkonce-test-schemas-")
    atexit.register(shutil.rmtree, os.environ[SCHEMA_CACHE], ignore_errors=True)

load_profile()


OWN_DRIVERS = (
    "tests/spark/test_worker_environments.py",
    "tests/spark/test_connect.py",
    "tests/spark/test_fencing.py",
    "tests/spark/test_doctor.py",
)
"""Have drivers in processes of their own, and never the session that the others of their folder share."""


SHARING = {"tests/spark": "spark", "tests/parity/spark": "spark", "tests/ui": "browser"}
"""Folders whose files share what is dear to start, and what that is."""


APART = ("tests/lab/verify/test_larger_choices.py",)
"""Each of their tests takes minutes, in a process of its own."""


def scope_of(file: str) -> str:
    """Return with what a file goes to a process: all that share the Spark session, or a browser, or it alone."""
    return file if file in OWN_DRIVERS else SHARING.get(Path(file).parent.as_posix(), file)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process whole files, and one of them all that share the Spark session.

    What takes longest goes first, so that in the end no process waits for another one. xdist goes by how many tests
    there are.
    """

    seconds: Mapping[str, float] = {}
    """How long each scope took when the table of durations was written."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in APART else scope_of(file)

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda scope: self.seconds.get(scope.partition("::")[0], 0.0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Share the tests out when several processes run them."""
    scheduler = ByFile(config, log)
    seconds = defaultdict[str, float](float)
    for file, seconds_of_file in known_seconds("lab" if config.option.markexpr == "lab" else "test").items():
        seconds[scope_of(file)] += seconds_of_file
    scheduler.seconds = seconds
    return scheduler


LAB = "tests/lab/"
"""Tests of the laboratory itself: what simulates, injects faults, judges, and measures."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put each test into one tier: `soak`, `lab`, or what `make test` runs.

    Raises:
        UsageError: if a test has the marks of two tiers.
    """
    soak, lab = item.get_closest_marker("soak"), item.get_closest_marker("lab")
    if soak and lab:
        raise pytest.UsageError(f"{item.nodeid} is marked as soak and as lab")
    if not soak and item.nodeid.startswith(LAB):
        item.add_marker("lab")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Have the garbage collector ignore what collection leaves: a million objects that live as long as the process.

    It would go through them again and again while they are made, which is half of the time that collection takes, and
    whenever a test has it collect everything.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


_opened_by: dict[int, str] = {}
"""Where each socket was opened, by its descriptor."""
_UNCLOSED = re.compile(r"unclosed <socket\.socket fd=(\d+)")


def _note_who_opens_sockets(open_socket: Callable[..., None] = socket.socket.__init__) -> None:
    """An unclosed one is reported in the test that runs when it is collected: only who opened it tells whose it is."""

    def noted(made: socket.socket, *arguments: Any, **named: Any) -> None:
        open_socket(made, *arguments, **named)
        _opened_by[made.fileno()] = "".join(traceback.format_stack(limit=12)[:-1])

    socket.socket.__init__ = noted  # type: ignore[method-assign]


_note_who_opens_sockets()


COMPARING_FIXTURES = {"delta_spark", "jvm_kafka_spark"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Make a failure of a comparison that is skipped although Maven is here to fetch what it compares with.

    And say who opened a socket that nobody has closed.
    """
    report = yield
    for found in dict.fromkeys(_UNCLOSED.findall(str(report.longrepr)) if report.failed else ()):
        report.sections.append((f"opened socket {found}", _opened_by.get(int(found), "not known")))
    compares = item.get_closest_marker("java") or COMPARING_FIXTURES & set(getattr(item, "fixturenames", ()))
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    if report.skipped and compares and NO_DELTA_SPARK not in str(reason) and shutil.which("mvn"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} must not be skipped where Maven is installed: {reason}"
    return report


@pytest.fixture(scope="module", autouse=True)
def _closed_clients() -> Iterator[None]:
    """Close the connections to brokers that a process keeps for its next task."""
    yield
    client = sys.modules.get("sparkonce.kafka.client.client")
    for kept in client._shared.values() if client is not None else ():
        kept.close()


@pytest.fixture
def kafka_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker in a thread, new for each test, whatever `KAFKA` says: these tests are about this broker."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka() -> Iterator[Any]:
    """The broker that `KAFKA` names, for the whole session; it has `.bootstrap_servers`. Use topics of your own."""
    kind = os.environ.get("KAFKA", "embedded")
    context: Any
    if kind == "embedded":
        context = EmbeddedBroker(process=True, config={"num.partitions": 4, "log.cleaner.backoff.ms": 500})
    elif kind == "container":
        from tests.containers.kafka import start_container

        context = start_container(KAFKA_LOG_CLEANER_BACKOFF_MS="500")
    elif ":" in kind:
        context = nullcontext(SimpleNamespace(bootstrap_servers=kind))
    else:
        raise pytest.UsageError(f"KAFKA={kind!r}: expected embedded, container or host:port")
    with context as broker:
        yield broker


@pytest.fixture(scope="session")
def delta_jar_paths() -> list[str] | str:
    """Delta's jars for Spark's JVM, or why they are not to be had."""
    from sparkonce.jobs.shared.jars import PeerMissingError, delta_jars

    try:
        return delta_jars()
    except PeerMissingError as error:
        return str(error)


@pytest.fixture(scope="session")
def kafka_jar_paths() -> list[str] | str:
    """The jars of Spark's own Kafka connector for its JVM, or why they are not to be had."""
    from lab.peers import spark_kafka_jars
    from sparkonce.jobs.shared.jars import PeerMissingError

    try:
        return spark_kafka_jars()
    except PeerMissingError as error:
        return str(error)


@pytest.fixture(scope="session")
def crash_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the session's processes look into for crash plans."""
    return tmp_path_factory.mktemp("crash-plans")


@pytest.fixture(scope="session")
def spark(
    delta_jar_paths: list[str] | str, kafka_jar_paths: list[str] | str, crash_folder: Path
) -> Iterator[SparkSession]:
    """The session. It has the jars of Delta and of Spark's own Kafka connector where they are to be had."""
    from sparkonce.connectors.session import spark_session
    from sparkonce.crash_points import FOLDER_VARIABLE

    jars = [jar for paths in (delta_jar_paths, kafka_jar_paths) if isinstance(paths, list) for jar in paths]
    conf = {**SPARK_CONF, **(DELTA_CONF if isinstance(delta_jar_paths, list) else {}), "spark.jars": ",".join(jars)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(crash_folder))  # for the JVM and its Python workers, not for other tests
        session = spark_session("tests", **conf)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def delta_spark(spark: SparkSession, delta_jar_paths: list[str] | str) -> SparkSession:
    """The session, for tests that need delta-spark in it."""
    if isinstance(delta_jar_paths, str):
        pytest.skip(f"needs Delta's jars: {delta_jar_paths}")
    return spark


@pytest.fixture(scope="session")
def jvm_kafka_spark(spark: SparkSession, kafka_jar_paths: list[str] | str) -> SparkSession:
    """The session, for tests that need Spark's own Kafka connector in it."""
    if isinstance(kafka_jar_paths, str):
        pytest.skip(f"needs the jars of Spark's own Kafka connector: {kafka_jar_paths}")
    return spark
