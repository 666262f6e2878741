"""A thousand hostile connections beside a healthy client."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.kafka.protocol.apis import ApiKey
from tests.unit.broker.test_connection import Client, batch_of, make_topic, produce_body

PROJECT = Path(__file__).resolve().parents[2]
CONNECTIONS = 1_000
REQUESTS = 10_000
ROUNDS = 4
SEED = 20_240


@contextmanager
def hostiles(address: str) -> Iterator[None]:
    """Have them all open for the length of a `with`."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.hostiles", address, str(CONNECTIONS), str(SEED)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "full\n"
            yield
            said = process.communicate("\n", timeout=60)[0]
            assert int(said) > CONNECTIONS // 10, "they were too tame"
        finally:
            process.kill()


def p99(client: Client) -> float:
    """Return the 99th percentile of the time that a produce of 1 KiB takes, in seconds."""
    times = []
    for _ in range(REQUESTS):
        begin = time.perf_counter()
        client.request(ApiKey.PRODUCE, 9, produce_body(batch_of(b"x" * 1024)))
        client.answer(ApiKey.PRODUCE, 9)
        times.append(time.perf_counter() - begin)
    times.sort()
    return times[len(times) * 99 // 100]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_healthy_client_hardly_notices_a_thousand_hostile_ones() -> None:
    """The best of several rounds each: what else runs on the machine is not the broker's doing."""
    alone, beside = [], []
    with EmbeddedBroker(process=True) as broker:
        client = Client(broker)
        make_topic(client, "t")
        p99(client)
        for _ in range(ROUNDS):
            alone.append(p99(client))
            with hostiles(broker.bootstrap_servers):
                beside.append(p99(client))
        client.close()
    print(f"p99 alone {min(alone) * 1e6:.0f} µs, beside {CONNECTIONS} hostile connections {min(beside) * 1e6:.0f} µs")
    assert min(beside) < 2 * min(alone)
