"""Machines that lack what the driver has: the doctor and the job name the machine, what it lacks and what to do.

`test_other_python.py` has the same in the session of all, without a cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.standalone import StandaloneCluster
from sparkonce import EmbeddedBroker, __version__
from tests.spark import other_pythons

pytestmark = [pytest.mark.spark, pytest.mark.lab, pytest.mark.timeout(900)]
RECORDS = 100
JOB = Path(__file__).with_name("copy_job.py")
REMEDY = f"install sparkonce=={__version__} there, or set PYSPARK_PYTHON to a Python that has it (docs/shipping.md)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A master, two workers and a broker with records; `.run` starts a program with some Python for the workers."""
    folder = tmp_path_factory.mktemp("cluster")
    with StandaloneCluster(folder) as spark, EmbeddedBroker(config={"num.partitions": 2}) as broker:
        servers = broker.bootstrap_servers
        sent = ["verifiable-producer", "--bootstrap-servers", servers, "--topic", "orders"]
        subprocess.run([sys.executable, "-m", "sparkonce", *sent, "--max-messages", str(RECORDS)], check=True)

        of_spark = other_pythons.one_core_each(folder / "conf")

        def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
            environment = {**os.environ, **of_spark, "PYSPARK_PYTHON": str(python)}
            return subprocess.run(
                [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
            )

        yield SimpleNamespace(url=spark.url, servers=servers, folder=folder, run=run)


def test_the_doctor_names_the_machine_without_the_package(cluster: SimpleNamespace) -> None:
    bare = other_pythons.empty(cluster.folder / "bare")
    python = other_pythons.by_machine(cluster.folder / "python-bare", {"worker-1": bare})
    asked = ["--bootstrap-servers", cluster.servers, "--topic", "orders", "--table", str(cluster.folder / "no-table")]
    done = cluster.run(python, "-m", "sparkonce", "doctor", "--master", cluster.url, *asked)
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout.splitlines()
    (wrong,) = (line for line in told if line.startswith("WRONG"))
    assert f"({bare}) has no sparkonce. Install the driver's version there, or set PYSPARK_PYTHON" in wrong
    (good,) = (line for line in told if line.startswith("ok      worker:"))
    assert f"({sys.executable}), sparkonce {__version__}, PySpark" in good
    from_there = [line.split(": ")[0].split(maxsplit=1)[1] for line in told if ": from " in line]
    assert from_there == ["machine code", "Kafka", "table"]
    assert told[-1] == "1 wrong"


def test_a_job_names_the_machine_with_another_version(cluster: SimpleNamespace) -> None:
    older = other_pythons.with_older_sparkonce(cluster.folder / "older")
    python = other_pythons.by_machine(cluster.folder / "python-older", {"worker-1": older, "worker-2": older})
    done = cluster.run(python, str(JOB), cluster.url, cluster.servers, str(cluster.folder / "table"))
    assert done.returncode == 1, done.stdout + done.stderr
    (error,) = {line for line in done.stdout.splitlines() if line.startswith("ImportError: ")}
    assert f"({older}) has sparkonce {other_pythons.OLDER}, and the driver {__version__}: {REMEDY}" in error
