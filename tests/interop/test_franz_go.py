"""franz-go's own test suite against the broker, as its authors run it against Apache Kafka.

The suite comes with the Go module, so it needs Go and a module proxy. Its tests of share groups do not apply: the
broker does not serve them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker

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


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_test_of_franz_go_passes(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    folder = Path(json.loads(go("mod", "download", "-json", MODULE, cwd=tmp_path))["Dir"])
    suite = tmp_path / "kgo.test"
    go("test", "-c", "-o", str(suite), f"./{PACKAGE}", cwd=folder)
    with EmbeddedBroker(tmp_path / "data", process=True, config=BROKER) as broker:
        environment = {
            **os.environ,
            "KGO_LOG_LEVEL": "none",
            "KGO_SEEDS": broker.listeners["PLAINTEXT"],
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": "10000",
            "KGO_TEST_SCRAM": "gopher:gopher-secret",
            "KGO_TEST_SCRAM_SEEDS": broker.listeners["SASL_PLAINTEXT"],
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
