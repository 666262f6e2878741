"""docs/deployment/clusters.md: its commands on one machine, then on a Master and two Workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.standalone import StandaloneCluster
from sparkonce import EmbeddedBroker
from tests.deployment.pages import BIN, CLUSTERS, Place, submissions

REFUSAL = "Cluster deploy mode is currently not supported for python applications on standalone clusters."


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    with EmbeddedBroker(process=True) as broker, StandaloneCluster(tmp_path / "cluster") as cluster:
        place = Place(broker, tmp_path, {"spark://master:7077": cluster.url})
        on_one_machine, on_the_cluster = submissions("One machine", "Standalone")
        place.send(5)
        place.run(on_one_machine)
        place.check()
        place.send(4)
        place.run(on_the_cluster)
        place.check()


@pytest.mark.spark
def test_spark_refuses_drivers_in_python_on_its_own_cluster() -> None:
    assert REFUSAL in " ".join(CLUSTERS.read_text().split())
    command: list[str | Path] = [
        BIN / "spark-submit",
        "--master",
        "spark://127.0.0.1:1",
        "--deploy-mode",
        "cluster",
        "--supervise",
        "x.py",
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert REFUSAL in done.stderr
