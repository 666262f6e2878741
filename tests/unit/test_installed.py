"""The wheel, as after `pip install sparkonce` (`base`) and `pip install 'sparkonce[spark]'` (`installed`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.jobs.shared.extras import EXTRAS
from tests.wheel import build_wheel

PROJECT = Path(__file__).resolve().parents[2]
LINKED = ("broker_lite", "connectors", "exactly_once", "jobs", "offset_store", "registry_lite")
"""Folders of the checkout that are inside the package `sparkonce`."""
OF_THE_CHECKOUT = (
    "conf/broker.properties",
    "conf/demo.toml",
    "conf/verifiable_consumer.properties",
    "conf/verifiable_producer.properties",
    "jobs/demo/*",
    "README.md",
)
"""What is run, read or taken as an example in a checkout alone."""
IMPORTED = {"sparkonce", "pyspark_delta_once", "pyspark_kafka_once"}
BLOCKED = """
import sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, NotInstalled())
"""
HELP_OF_ALL = """
from sparkonce.jobs.cli.main import COMMANDS, main
for command in COMMANDS:
    try:
        main([command.name, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, command
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel holds, and a start-up file that hides the packages of the other extras."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(build_wheel(folder)).extractall(folder / "site")
    hidden = {module for module, (_, extra) in EXTRAS.items() if extra not in ("connectors", "spark")}
    (folder / "site/sitecustomize.py").write_text(BLOCKED.format(modules=hidden))
    return folder


@pytest.fixture(scope="module")
def base(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with the packages of all extras hidden."""
    folder = tmp_path_factory.mktemp("base")
    shutil.copytree(installed / "site", folder / "site")
    (folder / "site/sitecustomize.py").write_text(BLOCKED.format(modules=set(EXTRAS)))
    return folder


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed / "site")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_code_that_runs_is_the_wheels(installed: Path) -> None:
    done = run(installed, "-c", "import sparkonce.jobs.cli.main; print(sparkonce.jobs.cli.main.__file__)")
    assert done.stdout.strip() == str(installed / "site/sparkonce/jobs/cli/main.py"), done.stderr


def test_what_is_compiled_is_not_kept_beside_the_package(installed: Path) -> None:
    """`pip uninstall` would leave it there, and the rest of the package could still be imported."""
    before = set((installed / "site").rglob("*"))
    done = run(installed, "-c", "import sparkonce.connectors.kafka_sink.warm")
    assert done.returncode == 0, done.stderr
    added = set((installed / "site").rglob("*")) - before
    assert {path.suffix for path in added if path.is_file()} <= {".pyc"}, "pip removes no others"


def test_a_broker_runs_as_a_process_of_its_own(base: Path) -> None:
    code = """if __name__ == "__main__":
    from sparkonce import EmbeddedBroker

    with EmbeddedBroker(process=True) as broker:
        broker.kill()
        broker.restart()
"""
    done = run(base, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_needs_spark_names_the_extra(base: Path) -> None:
    done = run(base, "-c", "import sparkonce; sparkonce.spark_session")
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: sparkonce.spark_session needs the package pyspark, which is not installed: "
        "pip install 'sparkonce[spark]'"
    )


FIXTURES = """
def test_a_broker(kafka_broker):
    assert kafka_broker.bootstrap_servers

def test_a_registry(schema_registry):
    assert schema_registry.url
"""


def test_the_fixture_of_a_broker_needs_no_extra_and_that_of_a_registry_names_its_own(base: Path) -> None:
    (base / "test_fixtures.py").write_text(FIXTURES)
    done = run(base, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_fixtures.py")
    assert done.stdout.splitlines()[-1].strip("= ").startswith("1 passed, 1 error in "), done.stdout + done.stderr
    assert "sparkonce.EmbeddedRegistry needs the package uvicorn, which is not installed: " in done.stdout
    assert "pip install 'sparkonce[registry-server]'" in done.stdout


def test_the_command_runs_where_the_environment_is_not_activated(installed: Path) -> None:
    assert run(installed, "-m", "sparkonce", "--version").stdout.startswith("sparkonce ")


def test_the_wheel_holds_the_files_of_its_packages_and_no_others(installed: Path) -> None:
    folders = [*LINKED, "conf", *IMPORTED]
    listed = subprocess.run(["git", "ls-files", *folders], cwd=PROJECT, capture_output=True, text=True, check=True)
    names = [Path(name) for name in listed.stdout.splitlines() if not (PROJECT / name).is_symlink()]
    left_out = {name for name in names if any(name.match(each) for each in OF_THE_CHECKOUT)}
    assert {name for name in names if not (installed / "site" / place(name)).is_file()} == left_out


def place(name: Path) -> Path:
    """Where a file of the checkout is in an installation."""
    if name.parts[0] == "conf":
        return Path("sparkonce/jobs") / name
    return Path("sparkonce") / name if name.parts[0] in LINKED else name


def test_the_wheel_brings_three_names(installed: Path) -> None:
    names = {path.name for path in (installed / "site").iterdir()} - {"sitecustomize.py", "__pycache__"}
    assert {name for name in names if not name.endswith(".dist-info")} == IMPORTED


def test_what_makes_the_pages_of_the_reference_is_not_installed(installed: Path) -> None:
    sources = (installed / "site").rglob("*.py")
    assert [path for path in sources if "Generated from the code" in path.read_text()] == []


def test_each_command_shows_its_arguments_also_without_the_extra_that_it_needs(base: Path) -> None:
    done = run(base, "-c", HELP_OF_ALL)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--coordinates PARTITION,OFFSET[,TOPIC]" in done.stdout, "of sparkonce audit"


def test_records_are_sent_by_command(base: Path) -> None:
    with EmbeddedBroker() as broker:
        words = ("--bootstrap-servers", broker.bootstrap_servers, "--value", "1", "--value", "zwei")
        sent = run(base, "-m", "sparkonce", "send", "orders", *words)
        assert (sent.returncode, sent.stdout) == (0, "2 records in orders\n"), sent.stderr


def test_the_verifiable_clients_need_no_extra(base: Path) -> None:
    with EmbeddedBroker() as broker:
        given = ("--bootstrap-servers", broker.bootstrap_servers, "--topic", "t", "--timeout", "60")
        produced = run(base, "-m", "sparkonce", "verifiable-producer", *given, "--max-messages", "3")
        consumed = run(base, "-m", "sparkonce", "verifiable-consumer", *given, "--assign", "--final", "--verbose")
    assert (produced.returncode, produced.stderr, consumed.returncode, consumed.stderr) == (0, "", 0, "")
    events = [json.loads(line) for line in consumed.stdout.splitlines()]
    assert sorted(event["value"] for event in events if event["name"] == "record_data") == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("words", "extra"),
    [(("audit", "/t"), "connectors"), (("peek", "t", "--bootstrap-servers", "localhost:1"), "spark")],
)
def test_a_command_that_needs_an_extra_ends_with_2_and_names_all_that_it_needs(
    words: tuple[str, ...], extra: str, base: Path
) -> None:
    done = run(base, "-m", "sparkonce.jobs.cli.main", *words)
    assert done.returncode == 2
    assert f"pip install 'sparkonce[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("job", ["enrich_flights", "hourly_delays", "route_flights"])
def test_an_example_finds_its_configuration_and_names_the_extra_of_its_sample(installed: Path, job: str) -> None:
    done = run(installed, "-m", f"sparkonce.jobs.etl.{job}", "--sample", "10")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"python -m sparkonce.jobs.etl.{job}: needs the package ")
    assert "pip install 'sparkonce[" in done.stderr
    assert "Traceback" not in done.stderr


def declared() -> dict[str, list[str]]:
    """The requirements of each extra."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return dict(project["optional-dependencies"])


def test_the_extras_are_those_of_the_distribution() -> None:
    for distribution, extra in EXTRAS.values():
        assert any(re.match(rf"{distribution}(\[\w+\])?[>=]", each) for each in declared()[extra]), distribution
