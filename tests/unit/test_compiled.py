"""Machine code that has been cached: of sources that have changed since, or that can no longer be read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


FORKING = """
import json, os, runpy, sys, traceback
import numba
from sparkonce.connectors.runtime import compiled

numba.njit(lambda: 1)()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            sys.path.insert(0, json.loads(line))
            runpy.run_module("kernel", run_name="__main__")
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(status)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""
"""A process that has the compiler, which takes a second, and forks for each folder it is given."""
_forking: list[subprocess.Popen[str]] = []


@pytest.fixture(scope="module", autouse=True)
def _forking_process() -> Iterator[None]:
    command = [sys.executable, "-B", "-c", FORKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        _forking.append(process)
        yield
        _forking.clear()
        assert process.stdin is not None
        process.stdin.close()


def run(folder: Path) -> str:
    """Call the kernel in a process of its own: its result, and how often its machine code came from the cache."""
    (process,) = _forking
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(str(folder)) + "\n")
    process.stdin.flush()
    said: list[str] = []
    for line in process.stdout:
        if line.startswith("ended "):
            assert line == "ended 0\n", "".join([line, *said])
            return "".join(said).strip()
        said.append(line)
    raise AssertionError("the process that forks has ended")


def run_apart(folder: Path, **more: Any) -> str:
    """Do what `run` does in an interpreter of its own, which reads its environment anew."""
    code = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_module('kernel', run_name='__main__')"
    command = [sys.executable, "-B", "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, **more)
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


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_file_is_damaged(cached: Path, damage: str) -> None:
    """It would be executed, or end the process within LLVM, each time."""
    (file,) = cached.rglob("*.nbc")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data if damage == "changed" else b"")
    assert [run(cached), run(cached)] == ["6 0", "6 1"]


def test_each_signature_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Two processes that compile for two signatures at once must not take each other's code."""
    code = KERNEL.replace("area(Shape(2, 3)), ", "area(Shape(2, 3)), area(Shape(2.5, 2)), ")
    (tmp_path / "kernel.py").write_text(code.format(version=1))
    (tmp_path / "shapes_1.py").write_text(SHAPES)
    assert run(tmp_path) == "6 5.0 0"
    files = sorted(tmp_path.rglob("*.nb?"))
    assert len({path.read_bytes() for path in files}) == len(files) == 2
    files[0].unlink()
    assert [run(tmp_path), run(tmp_path)] == ["6 5.0 1", "6 5.0 2"]


def test_nothing_can_be_written(tmp_path: Path) -> None:
    """Not even the folder of last resort: the function is compiled in each process."""
    write(tmp_path, 1)
    with zipfile.ZipFile(tmp_path / "code.egg", "w") as archive:  # numba knows only what is named .zip
        for name in ("kernel.py", "shapes_1.py"):
            archive.write(tmp_path / name, name)
    assert run(tmp_path / "code.egg") == "6 0"


def test_the_disk_is_full(tmp_path: Path) -> None:
    write(tmp_path, 1)
    full = "from pathlib import Path\ndef write_bytes(self, data):\n    raise OSError(28, 'No space left on device')\n"
    text = (tmp_path / "kernel.py").read_text()
    (tmp_path / "kernel.py").write_text(f"{full}Path.write_bytes = write_bytes\n{text}")
    assert [run(tmp_path), run(tmp_path)] == ["6 0", "6 0"]


def test_a_user_without_a_home(tmp_path: Path) -> None:
    """Numba would create a folder `~` in the current directory, and execute what others have put there."""
    write(tmp_path, 1)
    (tmp_path / "__pycache__").touch()  # so nothing can be cached beside the source
    (tmp_path / "here").mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": "~/.cache", "TMPDIR": str(tmp_path)}
    assert [run_apart(tmp_path, cwd=tmp_path / "here", env=environment) for _ in "12"] == ["6 0", "6 1"]
    assert list((tmp_path / "here").iterdir()) == []


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


def test_the_fields_of_a_tuple_have_changed_places(tmp_path: Path) -> None:
    """Machine code knows them by their places."""
    (tmp_path / "kernel.py").write_text(
        KERNEL.format(version=1)
        .replace("area(shape)", "area(shape: Shape)", 1)
        .replace("shape.width * shape.height", "shape.width")
    )
    (tmp_path / "shapes_1.py").write_text(SHAPES)
    assert run(tmp_path) == "2 0"
    swapped = SHAPES.replace("width", "x").replace("height", "width").replace("x:", "height:")
    (tmp_path / "shapes_1.py").write_text(swapped)
    assert run(tmp_path) == "3 0"


def test_the_fields_of_a_tuple_inside_another_have_changed_places(tmp_path: Path) -> None:
    """No name of it is in the function."""
    kernel = KERNEL.format(version=1).replace("shape.width * shape.height", "shape.inner.width")
    (tmp_path / "kernel.py").write_text(
        kernel.replace("Shape(2, 3)", "Outer(Shape(2, 3))").replace("import Shape", "import Outer, Shape")
    )
    outer = "class Outer(NamedTuple):\n    inner: Shape\n"
    (tmp_path / "shapes_1.py").write_text(SHAPES + outer)
    assert run(tmp_path) == "2 0"
    swapped = SHAPES.replace("width", "x").replace("height", "width").replace("x:", "height:")
    (tmp_path / "shapes_1.py").write_text(swapped + outer)
    assert run(tmp_path) == "3 0"
