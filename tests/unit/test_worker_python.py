"""What Spark starts its Python processes by."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext

from sparkonce.connectors.runtime import worker_python
from sparkonce.connectors.runtime.fork_client import INTERPRETER

HOME = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)


@pytest.mark.parametrize("submitted", [False, True])
def test_a_jvm_that_runs_without_the_variables_gets_the_bare_interpreter(
    submitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment is what Python processes get, whatever the driver sets now."""
    port = {"PYSPARK_GATEWAY_PORT": "1"} if submitted else {}
    if not submitted:
        monkeypatch.setattr(SparkContext, "_gateway", object())
    environment = {**port, INTERPRETER: "/another/python"}
    assert worker_python.command(environment) == sys.executable
    assert environment == {**port, INTERPRETER: "/another/python"}
    known = {**port, INTERPRETER: sys.executable, worker_python.HOME: str(HOME)}
    assert worker_python.command(known) == str(worker_python.SCRIPT)


def test_the_script_says_what_it_lacks() -> None:
    done = subprocess.run([str(worker_python.SCRIPT)], env={}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "SPARKONCE_PYTHON: is not set: set PYSPARK_PYTHON to an interpreter" in done.stderr


def test_an_installed_pyspark_is_not_read_from_its_zip_file() -> None:
    environment: dict[str, str] = {}
    assert worker_python.command(environment) == str(worker_python.SCRIPT)
    assert environment == {INTERPRETER: sys.executable, worker_python.HOME: str(HOME)}
    assert worker_python.command({"SPARK_HOME": str(HOME)}) == str(worker_python.SCRIPT)


def test_another_spark_keeps_its_zip_file(tmp_path: Path) -> None:
    environment = {"SPARK_HOME": str(tmp_path)}
    assert worker_python.command(environment) == sys.executable
    assert list(environment) == ["SPARK_HOME"]


def test_a_script_that_cannot_be_run_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_python, "SCRIPT", tmp_path / "missing.sh")
    assert worker_python.command({}) == sys.executable


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("{home}/python/lib/pyspark.zip:{home}/python/lib/py4j-0.10-src.zip:/own/lib.zip:/a b", "/own/lib.zip:/a b"),
        ("{home}/jars/spark-core.jar", "{home}/jars/spark-core.jar"),
        ("{home}/python/lib/pyspark.zip", ""),
        ("/*:/x", "/*:/x"),
    ],
)
def test_only_sparks_own_zip_files_leave_the_path(tmp_path: Path, path: str, left: str) -> None:
    home = str(tmp_path / "a home")
    environment = {
        **os.environ,
        INTERPRETER: sys.executable,
        worker_python.HOME: home,
        "PYTHONPATH": path.format(home=home),
    }
    script = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sep='|')"
    arguments = [str(worker_python.SCRIPT), "-I", "-S", "-c", script, "x y", "*"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{left.format(home=home)}|['x y', '*']\n"
