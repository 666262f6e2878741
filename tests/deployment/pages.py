"""The commands of docs/deployment, run on this machine: paths, addresses and names are those of a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from deltalake import DeltaTable

from sparkonce import EmbeddedBroker
from tests.spark.source_support import Topics, values

PROJECT = Path(__file__).resolve().parents[2]
PAGES = PROJECT / "docs" / "deployment"
CLUSTERS = PAGES / "clusters.md"
BIN = Path(sys.executable).parent
JARS = Path(pyspark.__file__).with_name("jars")
DEADLINE_S = 500


def submissions(*sections: str) -> list[str]:
    """Return the blocks of sections of clusters.md that submit the job, in order."""
    found = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", CLUSTERS.read_text(), re.DOTALL | re.MULTILINE))
    blocks = [block for section in sections for block in re.findall(r"```bash\n(.*?)```", found[section], re.DOTALL)]
    return [block for block in blocks if "spark-submit" in block]


class Place:
    """A topic `orders` on a broker, and the pages' commands about it."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, meanings: Mapping[str, str]) -> None:
        self._topics = Topics(broker.bootstrap_servers)
        self._topics.create(2, "orders")
        self._sent = 0
        self._folder = folder
        self._meanings = {
            "/opt/etl/orders.py": str(PROJECT / "deploy" / "orders.py"),
            "/opt/etl/bin/": f"{BIN}/",
            "/data/": f"{folder}/",
            "localhost:9092": broker.bootstrap_servers,
            "spark-submit ": "spark-submit --executor-memory 600m --driver-memory 600m ",
            **meanings,
        }

    def send(self, count: int) -> None:
        """Put records into the topic."""
        self._topics.produce("orders", values("order", count, start=self._sent), partition=self._sent % 2)
        self._sent += count

    def run(self, command: str) -> str:
        """Run a block, and return what it printed."""
        for name, meant in self._meanings.items():
            command = command.replace(name, meant)
        done = subprocess.run(
            ["bash", "-euc", command],
            env={**os.environ, "SPARK_JARS": str(JARS), "PYTHONPATH": str(PROJECT)},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}"
        return done.stdout

    def check(self) -> None:
        """See that the table has each record once."""
        rows = DeltaTable(self._folder / "tables" / "orders").to_pyarrow_table()["value"].to_pylist()
        assert sorted(rows) == sorted(value.decode() for value in values("order", self._sent))
