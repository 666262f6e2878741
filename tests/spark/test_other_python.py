"""Workers whose Python lacks what the driver has, in the session of all: what the doctor and a job say of it.

`test_worker_environments.py` has the same on a cluster whose machines differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkonce import __version__, register
from sparkonce.jobs.cli.doctor import workers
from sparkonce.jobs.cli.doctor.findings import State
from sparkonce.jobs.cli.doctor.worker_checks import Endpoints
from tests.spark import other_pythons

pytestmark = pytest.mark.spark
DAEMON = "spark.python.daemon.module"


@pytest.fixture
def use(spark: SparkSession) -> Iterator[Callable[[Path], None]]:
    """Have Spark start the workers of what comes next with another Python, by Spark's own daemon.

    They do not look into the working directory, which is this checkout.
    """
    context = spark.sparkContext
    conf = context._jvm.org.apache.spark.SparkEnv.get().conf()  # type: ignore[union-attr]
    python, daemon = context.pythonExec, conf.get(DAEMON)
    conf.set(DAEMON, "pyspark.daemon")

    def use_it(other: Path) -> None:
        context.pythonExec = str(other)
        context.environment["PYTHONSAFEPATH"] = "1"

    yield use_it
    context.pythonExec = python
    context.environment.pop("PYTHONSAFEPATH", None)
    conf.set(DAEMON, daemon)


def test_the_doctor_names_the_python_without_the_package(
    spark: SparkSession, use: Callable[[Path], None], tmp_path: Path
) -> None:
    bare = other_pythons.empty(tmp_path / "bare")
    use(bare)
    (finding,) = workers.examine(spark, Endpoints())
    assert (finding.what, finding.state) == ("worker", State.WRONG)
    assert finding.found.endswith(f"({bare}) has no sparkonce")
    assert finding.remedy.startswith("Install the driver's version there, or set PYSPARK_PYTHON")


def test_a_job_names_the_python_with_another_version(
    spark: SparkSession, use: Callable[[Path], None], tmp_path: Path
) -> None:
    older = other_pythons.with_older_sparkonce(tmp_path / "older")
    use(older)
    session = spark.newSession()  # which has formats of its own
    register(session)
    with pytest.raises(PySparkException) as error:
        session.read.format("kafka_once").options(**{"kafka.bootstrap.servers": "none:1", "subscribe": "a"}).load()
    assert (
        f"({older}) has sparkonce {other_pythons.OLDER}, and the driver {__version__}: install "
        f"sparkonce=={__version__} there, or set PYSPARK_PYTHON to a Python that has it (docs/shipping.md)"
    ) in str(error.value)
