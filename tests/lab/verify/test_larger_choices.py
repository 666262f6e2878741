"""Larger choices from the crash matrix: some cells on S3 in ``make lab``, all pairs and all cells in ``make soak``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.verify.cells import Features, Shared
from tests.verify.test_quick import RESULT, has_merges, verify

pytestmark = pytest.mark.spark


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("part", ["1/4", "2/4", "3/4", "4/4"])
def test_all_pairs_show_what_they_must(tmp_path: Path, part: str) -> None:
    """In parts, which two processes of the tests share: the whole takes half an hour."""
    result = verify(tmp_path / "page.html", "--pairs", "--part", part)
    found = re.fullmatch(RESULT, result)
    assert found, result
    assert int(found[1]) > 20


STORED = (
    "exactly-once_append_sink.file_written_worker-killed_no-checkpoint_direct",
    "exactly-once_append_sink.before_commit_driver-killed",
    "exactly-once_append_sink.rows_landed_lost-acknowledgement",
)


@pytest.mark.timeout(900)
def test_more_cells_with_table_and_checkpoint_on_s3(tmp_path: Path) -> None:
    result = verify(tmp_path / "page.html", "--store", "moto", *(word for name in STORED for word in ("--cell", name)))
    assert result == f"RESULT cells={len(STORED)} lost=0 duplicated=0 wrong=0"


FEATURED = ("--guarantee", "exactly-once", "--point", "sink.rows_landed", "--kind", "driver-killed", "--path", "direct")


@pytest.mark.java
@pytest.mark.timeout(900)
@pytest.mark.skipif(not has_merges(), reason="delta-spark makes these tables, and its jars are missing")
def test_tables_with_features_on_s3(tmp_path: Path) -> None:
    result = verify(tmp_path / "page.html", "--store", "moto", "--features", "all", *FEATURED)
    assert result == f"RESULT cells={2 * len(Features)} lost=0 duplicated=0 wrong=0"


@pytest.mark.timeout(900)
def test_several_tables_by_one_query_on_s3(tmp_path: Path) -> None:
    result = verify(tmp_path / "page.html", "--store", "moto", "--shared", "all", "--fate", "none", *FEATURED)
    assert result == f"RESULT cells={4 * len(Shared)} lost=0 duplicated=0 wrong=0", "with dead letters and without"


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_all_pairs_with_tables_and_checkpoints_on_s3(tmp_path: Path) -> None:
    result = verify(tmp_path / "page.html", "--store", "s3", "--pairs")
    found = re.fullmatch(RESULT, result)
    assert found, result
    assert int(found[1]) > 30


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_every_cell_shows_what_it_must(tmp_path: Path) -> None:
    result = verify(tmp_path / "page.html")
    assert re.fullmatch(RESULT, result), result
