"""Spark Connect, with server and client in processes of their own: what docs/shipping.md says works or is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkonce import __version__
from tests.spark import other_pythons
from tests.spark.connect_server import connect_server

pytest.importorskip("grpc", reason="the client of Spark Connect needs grpcio")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
CLIENT = Path(__file__).with_name("connect_client.py")
RECORDS = 100


def steps(address: str, servers: str, folder: Path) -> dict[str, tuple[str, Any]]:
    """Run the client; return of each step whether it is done, and its outcome."""
    sent = ["verifiable-producer", "--bootstrap-servers", servers, "--topic", "orders", "--max-messages", str(RECORDS)]
    subprocess.run([sys.executable, "-m", "sparkonce", *sent], check=True, capture_output=True)
    command = [sys.executable, str(CLIENT), address, servers, str(folder)]
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return {name: (how, outcome) for name, how, outcome in map(json.loads, done.stdout.splitlines())}


@pytest.mark.lab
def test_what_works_and_what_is_refused(kafka_broker: Any, tmp_path: Path) -> None:
    with connect_server(tmp_path / "server.log") as address:
        found = steps(address, kafka_broker.bootstrap_servers, tmp_path)
    how, refusal = found.pop("merge")
    assert how == "failed"
    assert "MergeWriter runs delta-spark in the driver's own session, and this query is of Spark Connect" in refusal
    assert found == {
        "registered": ("done", None),
        "read": ("done", RECORDS),
        "delta": ("done", {"rows": RECORDS, "lag": [["table", RECORDS, 0]]}),
        "kafka_sink": ("done", RECORDS),
        "database": ("done", RECORDS),
    }


@pytest.mark.soak
@pytest.mark.parametrize(
    ("python", "lacks"),
    [
        (other_pythons.with_older_sparkonce, f"has sparkonce {other_pythons.OLDER}, and the driver {__version__}"),
        (other_pythons.without_sparkonce, "has no sparkonce (No module named 'sparkonce')"),
    ],
)
def test_a_server_that_differs(python: Callable[[Path], Path], lacks: str, kafka_broker: Any, tmp_path: Path) -> None:
    of_server = python(tmp_path / "other")
    with connect_server(tmp_path / "server.log", of_server) as address:
        found = steps(address, kafka_broker.bootstrap_servers, tmp_path)
    assert found.pop("registered") == ("done", None)  # what is sent is loaded when it is used
    for step, (how, refusal) in found.items():
        assert how == "failed", step
        assert f"({of_server}) {lacks}: install sparkonce=={__version__} there" in refusal, step
