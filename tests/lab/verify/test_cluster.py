"""Cells on a standalone cluster of Spark's own processes: a few in `make lab`, all pairs in soak runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.standalone import StandaloneCluster
from lab.verify.cluster.cells import Fault
from tests.verify.test_quick import RESULT, verify

pytestmark = pytest.mark.spark

FEW = (
    "cluster_executor-killed_sink.writing_exactly-once_topic_direct",
    "cluster_machine-killed_sink.file_written_at-least-once_topic",
    "cluster_network-cut_sink.file_written_exactly-once_dead-letters_direct",
    "cluster_master-restarted_sink.before_commit_exactly-once_append",
)


def cells(names: tuple[str, ...]) -> list[str]:
    return [word for name in names for word in ("--cell", name)]


@pytest.mark.timeout(900)
def test_a_cluster_is_hurt_and_the_rows_are_right(tmp_path: Path) -> None:
    found = re.fullmatch(RESULT, verify(tmp_path / "page.html", "--cluster", *cells(FEW)))
    assert found is not None
    assert int(found[1]) == len(FEW)
    assert "Faults of the cluster" in (tmp_path / "page.html").read_text()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_all_pairs_on_a_cluster(tmp_path: Path) -> None:
    """The crash matrix, and every fault of a cluster."""
    found = re.fullmatch(RESULT, verify(tmp_path / "page.html", "--cluster", "--pairs"))
    assert found is not None
    page = (tmp_path / "page.html").read_text()
    assert all(f"cluster_{fault.value}_" in page for fault in Fault)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_cluster_that_runs_already(tmp_path: Path) -> None:
    names = (
        "exactly-once_topic_sink.file_written_driver-killed",
        "exactly-once_append_sink.writing_task-retried",
        "cluster_executor-killed_sink.writing_exactly-once_topic",
        "cluster_driver-moved_sink.between_writes_at-most-once_append",
    )
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        result = verify(tmp_path / "page.html", "--master", cluster.url, *cells(names))
    found = re.fullmatch(RESULT, result)
    assert found is not None, result
    assert int(found[1]) == len(names)
