"""What users import from `sparkonce`: all of it is there, documented, and loaded only when it is used."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import sparkonce
from tests.cases import each_case

PROJECT = Path(__file__).resolve().parents[2]
HEAVY = {"numba", "numpy", "pyarrow", "pyspark", "deltalake", "kafka", "asyncio", "sparkonce.broker_lite"}
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


@each_case("name", sorted({*sparkonce.__all__} - {"__version__"}))
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(sparkonce, name)
    assert found.__name__ == name
    assert found.__doc__
    assert name in dir(sparkonce)


def test_the_version_is_that_of_the_distribution() -> None:
    assert sparkonce.__version__ == version("sparkonce")


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'sparkonce' has no attribute 'no_such_thing'"):
        _ = sparkonce.no_such_thing


def test_importing_it_loads_nothing() -> None:
    code = "import sys, sparkonce; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY.isdisjoint(loaded)


def test_commits_are_made_without_delta_rs(tmp_path: Path) -> None:
    code = "import sys; sys.modules['deltalake'] = None; import pyspark_delta_once, sparkonce; "
    code += "sparkonce.open_store(f'delta:{sys.argv[1]}', 'app', create_missing=True).snapshot()"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=True)
    assert (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").exists()


@each_case("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_imports_is_from_there(page: Path) -> None:
    """But for what finds the jars of delta-spark."""
    imported = re.findall(r"^ *from (sparkonce[\w.]*) import (.+)$", page.read_text(), re.MULTILINE)
    for module, names in imported:
        if module != "sparkonce.jobs.shared.jars":
            assert module == "sparkonce", f"{page.name} imports {names} from {module}"
            assert {name.strip() for name in names.split(",")} <= {*sparkonce.__all__}
