"""What `make integration` runs on Apache Kafka in a container, on Apache Kafka as a process: it needs no Docker.

Each test runs pytest in a process of its own, since the fixture `kafka` is one broker for a whole session.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.browser import browser_path
from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason

pytestmark = pytest.mark.java
PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 1500
"""Of one inner run; each of its tests has a shorter one."""
CONNECTORS = [
    "tests/parity",
    "tests/spark/test_direct.py",
    "tests/spark/test_fencing.py",
    "tests/spark/test_kafka_sink.py",
    "tests/spark/test_kafka_sink_batch.py",
    "tests/spark/test_lag.py",
    "tests/spark/test_mirror.py",
    "tests/spark/test_sink_end_to_end.py",
    "tests/spark/test_source_batch.py",
    "tests/spark/test_source_store.py",
    "tests/spark/test_source_stream.py",
    "tests/spark/test_source_triggers.py",
]
"""The source, both sinks, fencing, lag and mirror: a third of the time that all take, which `make integration` runs."""
CONFIG = {"log.cleaner.backoff.ms": 500}
"""As the fixture `kafka` has it for other brokers."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    if reason := missing_kafka_reason():
        pytest.skip(reason)
    with RealKafka(config=CONFIG, java_options=QUICK_JVM) as kafka:
        yield kafka.bootstrap_servers


def run(servers: str, *chosen: str) -> str:
    """Run the tests that `make integration` would choose of these; returns pytest's last line."""
    options = ["-p", "tests.containers.selection", "-m", "not soak", "-q"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen],
        cwd=PROJECT,
        env={**environment, "KAFKA": servers},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"KAFKA={servers}\n{done.stdout[-20_000:]}{done.stderr[-2000:]}"
    return done.stdout.splitlines()[-1]


@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_pages(servers: str) -> None:
    if browser_path() is None:
        pytest.skip("there is no browser: apt-get install chromium, or name one in CHROMIUM")
    last = run(servers, "tests/ui")
    assert re.match(r"\d{3,} passed in", last), last


@pytest.mark.spark
@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_connectors(servers: str) -> None:
    last = run(servers, *CONNECTORS)
    assert re.match(r"\d{3,} passed", last), last
