"""`sparkonce warm`: afterwards no query compiles anything, and no compiled function is forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkonce.jobs.cli.main import main

PROJECT = Path(__file__).resolve().parents[2]
FORGOTTEN = """
import json, sys
from numba.core.dispatcher import Dispatcher
from sparkonce.jobs.cli.main import main

assert main(["warm"]) == 0
modules = [module for name, module in sys.modules.items() if name.startswith("sparkonce.connectors.")]
found = {each for module in modules for each in vars(module).values() if isinstance(each, Dispatcher)}
names = sorted(f"{each.__module__}.{each.__qualname__}" for each in found if not each.signatures)
print(json.dumps([len(found), names, sum(sum(each.stats.cache_hits.values()) for each in found)]))
"""


OF_DECODERS = (
    "source/test_decode.py",
    "source/test_json_values.py",
    "source/test_avro_values.py",
    "source/test_protobuf_values.py",
    "source/test_value_rows.py",
    "kafka_sink/test_encoding.py",
    "kafka_sink/test_protobuf_columns.py",
    "mirror/test_copying.py",
)


def kept(cache: Path) -> dict[str, int]:
    """Return the files of the cache; a number is another one if the file was written again."""
    return {path.name: path.stat().st_ino for path in cache.rglob("*.nbc")}


def warm(cache: Path) -> tuple[int, list[str], int]:
    """Compile in a process of its own: how many functions there are, which were left out, which came from the cache."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", FORGOTTEN]
    done = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=True)
    found: Any = json.loads(done.stdout.splitlines()[-1])
    return tuple(found)


@pytest.mark.timeout(900)
def test_every_compiled_function_is_compiled_and_kept(tmp_path: Path) -> None:
    functions, forgotten, _ = warm(tmp_path)
    assert functions > 100
    assert forgotten == []
    before = kept(tmp_path)
    _, _, used = warm(tmp_path)
    assert used > 0
    assert kept(tmp_path) == before, "something was compiled again"
    quick = ["-q", "-p", "no:cacheprovider", "-m", "not spark and not lab and not soak"]
    command = [sys.executable, "-m", "pytest", *quick, *(f"tests/unit/{name}" for name in OF_DECODERS)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert sorted(set(kept(tmp_path)) - set(before)) == [], "these are compiled for other types, too"


def test_it_says_what_is_compiled_and_what_needs_a_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    assert main(["warm"]) == 0
    *lines, kept = capsys.readouterr().out.splitlines()
    names = [line.partition(":")[0] for line in lines]
    assert names == ["records", "writing records, and mirrors", "JSON", "Avro", "Protobuf"]
    assert "pip install 'sparkonce[registry]'" in lines[-1]
    assert kept.startswith("kept in ")
