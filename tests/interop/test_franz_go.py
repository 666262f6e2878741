"""franz-go's own test suite against one broker and a cluster, as its authors run it against Apache Kafka.

The suite comes with the Go module, so it needs Go and a module proxy. Its tests of share groups do not apply: the
broker does not serve them. What the brokers have written by the end is read by Kafka's DumpLogSegments.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.peers import missing_kafka_reason
from sparkonce import EmbeddedBroker, EmbeddedCluster
from tests.kafka_files import assert_kafka_finds_nothing_wrong, partitions_below

MODULE = "github.com/twmb/franz-go@v1.22.2"
PACKAGE = Path("pkg", "kgo")
BROKER = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        'org.apache.kafka.common.security.scram.ScramLoginModule required user_gopher="gopher-secret";'
    ),
    "num.partitions": 4,
    "group.min.session.timeout.ms": 100,
}
SKIPPED = {
    "TestIssueProduceBrokerTooOldFailsRecords": "Kafka lists Produce v0 too, for librdkafka; the test wants it unlisted"
}


def go(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(["go", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running(brokers: int, folder: Path) -> Iterator[list[EmbeddedBroker]]:
    """Run a standalone broker, or a cluster of several; their data lie somewhere in the folder."""
    if brokers == 1:
        with EmbeddedBroker(folder / "1", process=True, config=BROKER) as broker:
            yield [broker]
    else:
        with EmbeddedCluster(brokers, folder, process=True, config=BROKER) as cluster:
            yield list(cluster.brokers.values())


def addresses(brokers: list[EmbeddedBroker], listener: str) -> str:
    return ",".join(broker.listeners[listener] for broker in brokers)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("brokers", [1, 3])
def test_every_test_of_franz_go_passes(tmp_path: Path, brokers: int) -> None:
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    folder = Path(json.loads(go("mod", "download", "-json", MODULE, cwd=tmp_path))["Dir"])
    suite = tmp_path / "kgo.test"
    go("test", "-c", "-o", str(suite), f"./{PACKAGE}", cwd=folder)
    with running(brokers, tmp_path / "data") as started:
        environment = {
            **os.environ,
            "KGO_LOG_LEVEL": "none",
            "KGO_SEEDS": addresses(started, "PLAINTEXT"),
            "KGO_TEST_RF": str(brokers),
            "KGO_TEST_RECORDS": "10000",
            "KGO_TEST_SCRAM": "gopher:gopher-secret",
            "KGO_TEST_SCRAM_SEEDS": addresses(started, "SASL_PLAINTEXT"),
        }
        done = subprocess.run(
            [suite, "-test.v", "-test.skip=Share", "-test.timeout=25m"],
            cwd=folder / PACKAGE,  # some tests read the sources
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    verdicts = [line.replace(":", "", 1).split()[1:3] for line in done.stdout.splitlines() if line.startswith("--- ")]
    counts = Counter(verdict for verdict, _ in verdicts)
    print(f"RESULT {' '.join(f'{verdict.lower()}={count}' for verdict, count in sorted(counts.items()))}")
    assert done.returncode == 0, done.stdout[-20_000:]
    assert {name for verdict, name in verdicts if verdict == "SKIP"} == set(SKIPPED)
    assert counts["PASS"] > 100
    if missing_kafka_reason() is None:
        assert_kafka_finds_nothing_wrong(partitions_below(tmp_path / "data"), compacted=True)
