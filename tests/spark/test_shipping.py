"""docs/shipping.md: ways to bring the package to a cluster whose machines do not have it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from lab.standalone import StandaloneCluster
from sparkonce import EmbeddedBroker
from tests.spark import other_pythons
from tests.wheel import build_wheel

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1800)]
PROJECT = Path(__file__).resolve().parents[2]
JOB = Path(__file__).with_name("copy_job.py")
HOME = Path(pyspark.__file__).parent
RECORDS = 100
COPIED = f"RESULT counted={RECORDS} rows={RECORDS}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A master, two workers, a broker with records, and a wheel; `.submit` runs the job with spark-submit's options."""
    folder = tmp_path_factory.mktemp("cluster")
    wheel = build_wheel(folder)
    with StandaloneCluster(folder) as spark, EmbeddedBroker(config={"num.partitions": 2}) as broker:
        servers = broker.bootstrap_servers
        sent = ["verifiable-producer", "--bootstrap-servers", servers, "--topic", "orders"]
        subprocess.run(
            [sys.executable, "-m", "sparkonce", *sent, "--max-messages", str(RECORDS)], check=True, capture_output=True
        )
        of_spark = other_pythons.one_core_each(folder / "conf")

        def submit(table: str, python: str, *options: str) -> str:
            environment = {**os.environ, **of_spark, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": python}
            command = [str(HOME / "bin/spark-submit"), "--master", spark.url, *options]
            done = subprocess.run(
                [*command, str(JOB), "-", servers, str(folder / table)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=900,
            )
            return done.stdout + done.stderr[-5000:] * bool(done.returncode)

        yield SimpleNamespace(folder=folder, wheel=wheel, submit=submit)


def test_a_packed_environment(cluster: SimpleNamespace) -> None:
    """All but PySpark, which spark-submit has; as ``./environment`` on the driver, and unpacked on the executors."""
    environment = cluster.folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--copies", str(environment)], check=True)
    needed = [each for each in requires("sparkonce") or [] if not re.search(r"^pyspark\b|extra ==", each)]
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(PROJECT / "constraints.txt"), *needed], check=True)
    subprocess.run([*pip, "--no-deps", str(cluster.wheel)], check=True)
    with tarfile.open(cluster.folder / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        for entry in sorted(environment.iterdir()):
            archive.add(entry, entry.name)
    archives = ["--archives", "environment.tar.gz#environment"]
    assert COPIED in cluster.submit("packed", "./environment/bin/python", *archives)


@pytest.mark.parametrize("name", ["sparkonce.zip", "the wheel"])
def test_py_files(cluster: SimpleNamespace, name: str) -> None:
    python = other_pythons.without_sparkonce(cluster.folder / f"python of {name}")
    file = cluster.wheel if name == "the wheel" else cluster.folder / name
    file.write_bytes(cluster.wheel.read_bytes())
    assert COPIED in cluster.submit(file.suffix[1:], str(python), "--py-files", str(file))


def test_a_python_that_is_not_here(cluster: SimpleNamespace) -> None:
    told = cluster.submit("nowhere", sys.executable, "--conf", "spark.pyspark.python=./nowhere/bin/python", "--conf",
                          f"spark.pyspark.driver.python={sys.executable}")  # fmt: skip
    assert "PYSPARK_PYTHON=./nowhere/bin/python is no program on this machine" in told
