"""A table by its name in a Hive metastore, over processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.hive_job import ROWS
from tests.spark.sink_support import PROJECT

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


def step(folder: Path, name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.spark.hive_job", str(folder), name]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_written_in_one_process_and_read_by_name_in_another(delta_jar_paths: list[str] | str, tmp_path: Path) -> None:
    if isinstance(delta_jar_paths, str):
        pytest.skip(f"needs Delta's jars: {delta_jar_paths}")
    written = step(tmp_path, "write")
    found = step(tmp_path, "read")
    path = str(tmp_path / "warehouse" / "shop.db" / "numbers")
    assert written == {"path": path}
    count = 2 * ROWS
    assert found == {
        "table": count,
        "sql": [count, count],
        "stream": count,
        "partitions": ["partition"],
        "path": path,
    }
    assert DeltaTable(path).to_pyarrow_table().num_rows == count
    bare = step(tmp_path, "bare")
    assert bare["tables"] == ["numbers"]
    for name in ("shop.numbers", "shop.another"):
        assert (
            "Delta's jars are not in this session: start Spark 4.2 (there is no delta-spark for"
            in bare["refused"][name]
        )
        assert "\n" not in bare["refused"][name]
