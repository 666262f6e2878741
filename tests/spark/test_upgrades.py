"""Queries of older code go on with this one, from the checkpoints and tables in `tests/upgrades`."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkonce import EmbeddedBroker
from sparkonce.jobs.cli.main import main
from tests.upgrades import queries

pytestmark = pytest.mark.spark

ARCHIVES = sorted(Path(queries.__file__).parent.glob("*.tar.xz"))
OLD = Counter(range(9))
NEW, AGAIN = range(9, 12), range(3)
"""What is sent now: new records, and some with values that were there before."""


@dataclass
class Older:
    """What a version of the code left behind, on a broker of today."""

    spark: SparkSession
    servers: str
    folder: Path

    def run(self, name: str) -> None:
        queries.run(name, self.spark, self.servers, self.folder)

    def rows(self, name: str) -> Counter[int]:
        """Count the rows of each number in a query's result."""
        if name == "kafka":
            options = {"subscribe": queries.COPY, "kafka.isolation.level": "read_committed"}
            reader = self.spark.read.format("kafka_once").option("kafka.bootstrap.servers", self.servers)
            found = [row.value.decode() for row in reader.options(**options).load().collect()]
        else:
            found = DeltaTable(self.table(name)).to_pyarrow_table()["value"].to_pylist()
        return Counter(int(value.removeprefix("order-")) for value in found)

    def table(self, name: str) -> str:
        return str(self.folder / name / "table")


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def older(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Older]:
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(request.param) as archive:
        # Python has filters since 3.11.4, and warns from 3.12 on where none is chosen.
        chosen: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **chosen)
    with EmbeddedBroker(data_dir=folder / queries.BROKER) as broker:
        older = Older(spark, broker.bootstrap_servers, folder / queries.QUERIES)
        assert {name: older.rows(name) for name in queries.WRITERS} == dict.fromkeys(queries.WRITERS, OLD)
        queries.produce(broker.bootstrap_servers, NEW)
        queries.produce(broker.bootstrap_servers, AGAIN)
        yield older


def test_there_is_something_to_upgrade() -> None:
    assert ARCHIVES


@pytest.mark.parametrize("name", ["delta", "kafka"])
def test_a_query_goes_on_after_its_last_batch(older: Older, name: str) -> None:
    """Its second batch has landed, which Spark does not know: it runs once more, and is written once."""
    older.run(name)
    assert older.rows(name) == OLD + Counter(NEW) + Counter(AGAIN)


def test_state_goes_on_too(older: Older) -> None:
    older.run("stateful")
    assert older.rows("stateful") == OLD + Counter(NEW)


def test_the_offsets_are_proven_over_the_upgrade(older: Older, capsys: pytest.CaptureFixture[str]) -> None:
    older.run("delta")
    assert main(["audit", older.table("delta"), "--bootstrap-servers", older.servers]) == 0, capsys.readouterr().out
