"""Machine code that numba has cached: of what has changed since, and what can no longer be read."""

from __future__ import annotations

import os
import shutil
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
    """Call the kernel in a process of its own: its result, and how often its machine code came from the cache."""
    code = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_module('kernel', run_name='__main__')"
    command = [sys.executable, "-B", "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write(folder: Path, version: int) -> None:
    (folder / f"shapes_{version}.py").write_text(SHAPES)
    (folder / "kernel.py").write_text(KERNEL.format(version=version))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    write(folder, 1)
    assert run(folder) == "6 0"
    return folder


@pytest.fixture
def cached(filled: Path, tmp_path: Path) -> Path:
    return shutil.copytree(filled, tmp_path / "cached")


def test_machine_code_is_used_again(cached: Path) -> None:
    assert run(cached) == "6 1"


def test_a_type_of_the_signature_has_moved(cached: Path) -> None:
    (cached / "shapes_1.py").unlink()
    write(cached, 2)
    assert [run(cached), run(cached)] == ["6 0", "6 1"]


@pytest.mark.parametrize("left", [b"", b"no pickle"])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_file_is_damaged(cached: Path, kind: str, left: bytes) -> None:
    (damaged,) = cached.rglob(f"*.{kind}")
    damaged.write_bytes(left)
    assert run(cached) == "6 0"


INLINED = """
from sparkonce.connectors.runtime.compiled import compiled

SCALE = {scale}

@compiled
def scaled(number):
    return number * {factor} + added(number)

@compiled
def added(number):
    return number + {addend}
"""
CALLER = """
from inlined import SCALE, scaled
from sparkonce.connectors.runtime.compiled import compiled

@compiled
def area(number):
    return scaled(number) * SCALE

if __name__ == "__main__":
    print(area(1), sum(area.stats.cache_hits.values()))
"""


def test_what_is_inlined_has_changed_in_a_file_of_its_own(tmp_path: Path) -> None:
    """Of the same size, and with the same time, as in an image whose files all have one."""

    def write(**parts: int) -> None:
        (tmp_path / "kernel.py").write_text(CALLER)
        (tmp_path / "inlined.py").write_text(INLINED.format(**{"scale": 1, "factor": 1, "addend": 1} | parts))
        for name in ("kernel.py", "inlined.py"):
            os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))

    write()
    assert run(tmp_path) == "3 0"
    write(scale=2)
    assert run(tmp_path) == "6 0"
    write(factor=2)
    assert run(tmp_path) == "4 0"
    write(addend=2)
    assert [run(tmp_path), run(tmp_path)] == ["4 0", "4 1"]
