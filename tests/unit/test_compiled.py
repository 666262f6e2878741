"""Machine code that numba has cached, and that can no longer be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
from sparkonce.connectors.runtime.compiled import compiled
from shapes_{version} import Shape

@compiled
def area(shape):
    return shape.width * shape.height

if __name__ == "__main__":
    print(area(Shape(2, 3)), sum(area.stats.cache_hits.values()))
"""
SHAPES = "from typing import NamedTuple\nclass Shape(NamedTuple):\n    width: int\n    height: int\n"


def run(folder: Path) -> str:
    command = [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import runpy; "
               "runpy.run_module('kernel', run_name='__main__')", str(folder)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write(folder: Path, version: int) -> None:
    (folder / f"shapes_{version}.py").write_text(SHAPES)
    (folder / "kernel.py").write_text(KERNEL.format(version=version))


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    write(tmp_path, 1)
    assert [run(tmp_path), run(tmp_path)] == ["6 0", "6 1"]
    return tmp_path


def test_a_type_of_the_signature_has_moved(cached: Path) -> None:
    (cached / "shapes_1.py").unlink()
    write(cached, 2)
    assert [run(cached), run(cached)] == ["6 0", "6 1"]


@pytest.mark.parametrize("left", [b"", b"no pickle"])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_file_is_damaged(cached: Path, kind: str, left: bytes) -> None:
    (damaged,) = cached.rglob(f"*.{kind}")
    damaged.write_bytes(left)
    assert [run(cached), run(cached)] == ["6 0", "6 1"]
