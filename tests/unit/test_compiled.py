"""Machine code that has been cached: of sources that have changed since, or that can no longer be read; and where."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkonce.connectors.runtime.machine_code import own_bytes
from tests.cases import each_case

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
            folder, variables = json.loads(line)
            os.environ.update(variables)
            sys.path.insert(0, folder)
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


def run(folder: Path, cache: Path | None = None, **variables: str) -> str:
    """Call the kernel in a process of its own: its result, and how often its machine code came from the cache."""
    (process,) = _forking
    assert process.stdin is not None
    assert process.stdout is not None
    variables = {"XDG_CACHE_HOME": str(cache or folder / "cache"), **variables}
    process.stdin.write(json.dumps([str(folder), variables]) + "\n")
    process.stdin.flush()
    said: list[str] = []
    for line in process.stdout:
        if line.startswith("ended "):
            assert line == "ended 0\n", "".join([line, *said])
            return "".join(said).strip()
        said.append(line)
    raise AssertionError("the process that forks has ended")


def kept(folder: Path) -> list[Path]:
    """Return the files of the cache in a folder."""
    return sorted((folder / "cache/sparkonce/machine-code").iterdir())


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


def test_the_log_says_once_that_it_compiles(tmp_path: Path) -> None:
    """Nothing else would be seen of a query for that time."""
    write(tmp_path, 1)
    text = (
        (tmp_path / "kernel.py").read_text().replace("area(Shape(2, 3)), ", "area(Shape(2, 3)), area(Shape(2.5, 2)), ")
    )
    (tmp_path / "kernel.py").write_text(f"import logging, sys\nlogging.basicConfig(stream=sys.stdout)\n{text}")
    line, result = run(tmp_path).splitlines()
    assert re.match(r"WARNING:.*sparkonce compiles .* once: some seconds, or up to a minute .*`sparkonce warm`", line)
    assert [result, run(tmp_path)] == ["6 5.0 0", "6 5.0 2"]


def test_a_type_of_the_signature_has_moved(cached: Path) -> None:
    (cached / "shapes_1.py").unlink()
    write(cached, 2)
    assert [run(cached), run(cached)] == ["6 0", "6 1"]


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_file_is_damaged(cached: Path, damage: str) -> None:
    """It would be executed, or end the process within LLVM, each time."""
    (file,) = kept(cached)
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
    files = kept(tmp_path)
    assert len({path.read_bytes() for path in files}) == len(files) == 2
    files[0].unlink()
    assert [run(tmp_path), run(tmp_path)] == ["6 5.0 1", "6 5.0 2"]


def test_two_installations_share_what_is_equal_and_take_nothing_that_is_not(cached: Path, tmp_path: Path) -> None:
    """A new checkout, or environment, need not compile again; what is uninstalled leaves nothing behind."""
    other, cache = tmp_path / "other", cached / "cache"
    other.mkdir()
    write(other, 1)
    assert run(other, cache) == "6 1"
    assert sorted(path.name for path in other.iterdir()) == ["kernel.py", "shapes_1.py"]
    (other / "kernel.py").write_text((other / "kernel.py").read_text().replace("width * shape", "width + shape"))
    assert [run(other, cache), run(cached)] == ["5 0", "6 1"]


@each_case("home", ["cannot be written to", "anybody may write to", "is not there"])
def test_where_code_is_kept_without_a_usable_home(tmp_path: Path, home: str) -> None:
    """In the folder for temporary files, and if nothing there is this user's alone, nowhere; never an error."""
    folder = tmp_path / home
    folder.mkdir()
    write(folder, 1)
    cache = Path("/proc/home") if home == "cannot be written to" else folder / "cache"
    if home == "anybody may write to":
        (cache / "sparkonce/machine-code").mkdir(parents=True)
        (cache / "sparkonce/machine-code").chmod(0o777)
    variables = {"XDG_CACHE_HOME": "~/.cache"} if home == "is not there" else {}
    temporary = {"TMPDIR": str(folder), **variables}
    assert [run(folder, cache, **temporary), run(folder, cache, **temporary)] == ["6 0", "6 1"]
    (used,) = folder.glob("sparkonce-machine-code-*")
    used.chmod(0o777)
    assert run(folder, cache, **temporary) == "6 0"


def test_a_home_that_can_only_be_read(cached: Path) -> None:
    """Such as a container's, whose image has the code: it is used, and what is missing goes elsewhere."""
    kernel = (cached / "kernel.py").read_text()
    two = kernel.replace("area(Shape(2, 3)), ", "area(Shape(2, 3)), area(Shape(2.5, 2)), ")
    (cached / "kernel.py").write_text(f"import os\nos.access = lambda path, _mode: 'cache' not in str(path)\n{two}")
    assert [run(cached, TMPDIR=str(cached)) for _ in "12"] == ["6 5.0 1", "6 5.0 2"]
    assert len(kept(cached)) == 1


def test_what_was_used_longest_ago_goes_when_there_is_too_much(cached: Path) -> None:
    """Only the cache's own files, and not before something is added."""
    (used,) = kept(cached)
    folder, size = used.parent, used.stat().st_size
    for number in range(4):
        shutil.copy(used, folder / f"old-{number}.nbc")
        os.utime(folder / f"old-{number}.nbc", (1_000_000_000 + number,) * 2)
    shutil.copy(used, folder / "not-ours")
    bound = f"from sparkonce.connectors.runtime import machine_code\nmachine_code.MAX_CACHE_BYTES = {3 * size + 200}\n"
    text = (cached / "kernel.py").read_text()
    (cached / "kernel.py").write_text(bound + text)
    assert run(cached) == "6 1"
    assert len(kept(cached)) == 6
    (cached / "kernel.py").write_text(bound + text.replace("width *", "width +"))
    assert run(cached) == "5 0"
    names = {path.name for path in kept(cached)}
    assert {used.name, "not-ours", "old-3.nbc"} < names
    assert len(names) == 4


def test_the_disk_is_full(tmp_path: Path) -> None:
    write(tmp_path, 1)
    full = "from pathlib import Path\ndef write_bytes(self, data):\n    raise OSError(28, 'No space left on device')\n"
    text = (tmp_path / "kernel.py").read_text()
    (tmp_path / "kernel.py").write_text(f"{full}Path.write_bytes = write_bytes\n{text}")
    assert [run(tmp_path), run(tmp_path)] == ["6 0", "6 0"]


INLINED = """
from numba.extending import intrinsic
from sparkonce.connectors.runtime.compiled import compiled

SCALE = {scale}

@compiled
def scaled(number):
    return number * {factor} + added(number)

@compiled
def added(number):
    return number + {addend}

def helper():
    return {helper}

@intrinsic
def more(_context, number):
    def generate(context, builder, signature, arguments):
        return builder.add(arguments[0], context.get_constant(signature.return_type, helper()))
    return number(number), generate
"""
CALLER = """
from inlined import SCALE, more, scaled
from sparkonce.connectors.runtime.compiled import compiled

@compiled
def area(number):
    return more(scaled(number) * SCALE)

if __name__ == "__main__":
    print(area(1), sum(area.stats.cache_hits.values()))
"""


def test_what_is_inlined_has_changed_in_a_file_of_its_own(tmp_path: Path) -> None:
    """Of the same size, and with the same time, as in an image whose files all have one."""

    def write(**parts: int) -> None:
        (tmp_path / "kernel.py").write_text(CALLER)
        (tmp_path / "inlined.py").write_text(
            INLINED.format(**{"scale": 1, "factor": 1, "addend": 1, "helper": 0} | parts)
        )
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
    write(helper=5)  # a plain function, which an intrinsic calls
    assert run(tmp_path) == "8 0"


@each_case(
    "more, use",
    [
        ("import numpy as np; TABLE = np.array([3])", "TABLE[0]"),
        ("import shapes_1", "shapes_1.THREE"),
        ("def made():\n    three = 3\n    return compiled(lambda: three)\nTHREE = made()", "THREE()"),
    ],
)
def test_what_cannot_be_compared_is_not_kept(tmp_path: Path, more: str, use: str) -> None:
    """Or a change of it would not be seen."""
    folder = tmp_path / str(len(more))
    folder.mkdir()
    write(folder, 1)
    (folder / "shapes_1.py").write_text(f"{SHAPES}THREE = 3\n")
    text = KERNEL.format(version=1).replace("shape.height", use).replace("\n@compiled", f"\n{more}\n\n@compiled")
    (folder / "kernel.py").write_text(text)
    assert [run(folder), run(folder)] == ["6 0", "6 0"]


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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file of somebody else's")
def test_a_file_of_somebody_else_is_not_loaded(tmp_path: Path) -> None:
    theirs = tmp_path / "code.nbc"
    theirs.write_bytes(b"x")
    assert own_bytes(theirs) == b"x"
    os.chown(theirs, 12345, 12345)
    with pytest.raises(PermissionError, match="somebody else"):
        own_bytes(theirs)
    link = tmp_path / "link.nbc"
    link.symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic links"):
        own_bytes(link)
