"""The pytest plugin, in a pytest of its own; and that every example of docs/testing.md passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
PAGE = (PROJECT / "docs" / "testing.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

STUB = """
class KafkaContainer:
    def __init__(self, image):
        self.image = image
    def with_kraft(self):
        return self
    def __enter__(self):
        return self
    def __exit__(self, *_):
        print("container gone")
    def get_bootstrap_server(self):
        return self.image + ":1"
"""


def run(folder: Path, *files: str, **environment: str) -> str:
    """Run files of tests; returns what pytest says."""
    for number, code in enumerate(files):
        (folder / f"test_{number}.py").write_text(code)
    path = os.pathsep.join([str(folder), str(PROJECT)])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-s",
        "-p",
        "sparkonce.broker_lite.pytest_plugin",
        "-p",
        "sparkonce.registry_lite.pytest_plugin",
        "--strict-markers",
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_ADDOPTS": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": path,
            **environment,
        },
    )
    return done.stdout + done.stderr


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    said = run(tmp_path, *EXAMPLES)
    assert re.search(rf"^{len(EXAMPLES)} passed", said, re.MULTILINE), said


USES = """
import pytest

def test_address(kafka_broker):
    print("at", kafka_broker.bootstrap_servers)

def test_faults(kafka_broker):
    kafka_broker.faults

@pytest.mark.kafka_broker(process=True, config={"num.partitions": 3})
def test_settings(kafka_broker):
    assert kafka_broker.pid is not None
"""


def test_another_broker_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    said = run(tmp_path, USES, KAFKA="somewhere:9092")
    assert "at somewhere:9092" in said
    assert "1 passed, 2 skipped" in said
    assert "kafka_broker.faults needs KAFKA=embedded" in said
    assert "needs KAFKA=embedded" in said


def test_a_container_serves_all_tests(tmp_path: Path) -> None:
    package = tmp_path / "testcontainers" / "community"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "kafka.py").write_text(STUB)
    said = run(tmp_path, USES, KAFKA="container", KAFKA_IMAGE="local-kafka")
    assert "at local-kafka:1" in said
    assert said.count("container gone") == 1
    assert "1 passed, 2 skipped" in said


MARKERS = """
import pytest
from sparkonce import EmbeddedBroker

@pytest.fixture(autouse=True)
def told(monkeypatch):
    def init(self, **arguments):
        print("made with", arguments)
    monkeypatch.setattr(EmbeddedBroker, "__init__", init)
    monkeypatch.setattr(EmbeddedBroker, "close", lambda self: None)

@pytest.mark.kafka_broker(process=True, config={"num.partitions": 3, "log.dirs": "a"})
class TestAll:
    @pytest.mark.kafka_broker(config={"num.partitions": 4})
    def test_nearest(self, kafka_broker):
        pass

    @pytest.mark.kafka_broker(process=False)
    def test_other(self, kafka_broker):
        pass

@pytest.mark.kafka_broker({"num.partitions": 4})
def test_by_position(kafka_broker):
    pass
"""


def test_markers_are_put_together_and_name_their_arguments(tmp_path: Path) -> None:
    said = run(tmp_path, MARKERS)
    assert "made with {'process': True, 'config': {'num.partitions': 4, 'log.dirs': 'a'}}" in said
    assert "made with {'process': False, 'config': {'num.partitions': 3, 'log.dirs': 'a'}}" in said
    expected = "kafka_broker({'num.partitions': 4}): give arguments by name, as in @pytest.mark.kafka_broker(config="
    assert expected in said
    assert "2 passed, 1 error" in said


def test_a_wrong_choice_is_named(tmp_path: Path) -> None:
    assert "KAFKA='kafka': expected embedded, container or host:port" in run(tmp_path, USES, KAFKA="kafka")


def test_the_plugin_is_registered_and_loads_nothing() -> None:
    document = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    plugins = document["project"]["entry-points"]["pytest11"]
    assert plugins == {
        f"sparkonce.{folder}.pytest_plugin": f"sparkonce.{folder}.pytest_plugin"
        for folder in ("broker_lite", "registry_lite")
    }
    code = (
        "import sys, pytest, uuid; before = set(sys.modules); import sparkonce.broker_lite.pytest_plugin; "
        "import sparkonce.registry_lite.pytest_plugin; print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    ).stdout.split()
    assert set(loaded) == {"sparkonce", *plugins, *(name.removesuffix(".pytest_plugin") for name in plugins)}
