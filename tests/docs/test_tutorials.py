"""The first result and the tutorials, typed as their readers do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from sparkonce import EmbeddedBroker
from tests.docs.typed_commands import Typed, program, typed_under

pytestmark = pytest.mark.lab
KILL = "kill_it_yourself.md"
SOONER = {"KILL 12": "KILL 6", "KILL 10": "KILL 5"}
"""A fast machine is done in less than a reader's ten seconds."""


@pytest.mark.spark
def test_the_first_result_is_exactly_once(tmp_path: Path) -> None:
    *_, run, audit = typed_under("first_result.md")
    (tmp_path / "first_result.py").write_text(program("first_result.md"))
    for typed in (run, audit):
        ended = typed.run(tmp_path)
        assert ended.returncode == 0, ended.stderr
        typed.check(ended.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the reader of the tutorial works in."""
    (tmp_path / "copy_orders.py").write_text(program(KILL))
    (tmp_path / "kill").mkdir()
    return tmp_path


@pytest.fixture
def broker(folder: Path) -> Iterator[EmbeddedBroker]:
    """The broker of the first terminal, with the records of the second."""
    broker_command, producer = typed_under(KILL, "A broker, records, and a query")
    assert broker_command.command.startswith("sparkonce broker --port 9092")
    with EmbeddedBroker() as started:
        (folder / "copy_orders.py").write_text(program(KILL).replace("localhost:9092", started.bootstrap_servers))
        sent = producer.run(folder, **{"localhost:9092": started.bootstrap_servers})
        producer.check(sent.stdout)
        yield started


def check(folder: Path, broker: EmbeddedBroker, commands: list[Typed]) -> None:
    killed: dict[str, bool] = {}
    for typed in commands:
        ended = typed.run(folder, **{"localhost:9092": broker.bootstrap_servers, **SOONER})
        typed.check(ended.stdout)
        if typed.command.startswith("timeout"):
            killed[typed.command] = ended.returncode != 0
        elif "SPARKONCE_CRASH" in typed.command:
            assert ended.returncode != 0, f"{typed.command} was not killed"
        elif "sparkonce audit" not in typed.command:
            assert ended.returncode == 0, ended.stderr
    assert not killed or any(killed.values()), f"none of {list(killed)} was killed"


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", ["Kill it, as often as you like", "Kill it at the worst moment"])
def test_the_tutorial_goes_as_it_says(folder: Path, broker: EmbeddedBroker, part: str) -> None:
    check(folder, broker, typed_under(KILL, part))


def test_the_consumer_of_the_tutorial_loses_an_order_and_its_correction_does_not(tmp_path: Path) -> None:
    page = "tutorial_testing.md"
    wrong, test, right = (program(page, number) for number in range(3))
    (run,) = typed_under(page)
    (tmp_path / "totals.py").write_text(wrong)
    (tmp_path / "test_totals.py").write_text(test)
    failed = run.run(tmp_path)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    run.check(failed.stdout)
    assert "rdkafka" not in failed.stdout + failed.stderr  # no client of the failed test outlives its broker
    (tmp_path / "totals.py").write_text(right)
    last = 'assert total.read_text() == "15"'
    assert last in test
    corrected = test.replace(last, 'assert json.loads(total.read_text())["total"] == 15')
    (tmp_path / "test_totals.py").write_text(f"import json\n{corrected}")
    passed = run.run(tmp_path)
    assert passed.returncode == 0, passed.stdout + passed.stderr


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_avro_of_the_tutorial_is_read_with_both_schemas(tmp_path: Path) -> None:
    (tmp_path / "avro_orders.py").write_text(program("tutorial_avro.md"))
    _, run = typed_under("tutorial_avro.md")
    ended = run.run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    run.check(ended.stdout)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_table_of_the_tutorial_is_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, *exports, bucket, run, audit = typed_under("tutorial_s3.md")
    assert server.command == "moto_server -H 127.0.0.1 -p 7070"
    started = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    started.start()
    try:
        address = f"http://127.0.0.1:{started.get_host_and_port()[1]}"
        for export in exports:
            for name, value in (pair.split("=") for pair in export.command.removeprefix("export ").split()):
                monkeypatch.setenv(name, value.replace("http://127.0.0.1:7070", address))
        (tmp_path / "to_s3.py").write_text(program("tutorial_s3.md"))
        for typed in (bucket, run, audit):
            ended = typed.run(tmp_path, **{"http://127.0.0.1:7070": address})
            assert ended.returncode == 0, ended.stderr
            typed.check(ended.stdout)
    finally:
        started.stop()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_shell_of_make_try_copies_each_order_once(tmp_path: Path) -> None:
    counts = "read().count(), table().count(), table().distinct().count()"
    typed = f"copy()\nsend(10)\ncopy()\nprint('counts', {counts})\n"
    command = [sys.executable, "-m", "sparkonce.jobs.demo.sandbox"]
    shell = subprocess.run(command, input=typed, cwd=tmp_path, capture_output=True, text=True)
    assert shell.returncode == 0, shell.stderr
    assert "counts 1010 1010 1010" in shell.stdout, shell.stdout + shell.stderr
    named = re.findall(r"(\S+) (?:peek orders|audit|ui) ", shell.stderr)
    assert len(named) == 3, shell.stderr
    assert all(os.access(path, os.X_OK) for path in named), named
