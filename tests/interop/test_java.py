"""Apache Kafka's own command-line tools against the broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.peers import missing_kafka_reason
from sparkonce import EmbeddedBroker
from tests.interop.tools import KafkaTools

pytestmark = pytest.mark.java
RECORDS = 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    data_dir = tmp_path_factory.mktemp("java") / "data"
    settings = {"num.partitions": 2, "log.segment.bytes": 1_000_000}
    with EmbeddedBroker(data_dir, process=True, config=settings) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def tools(broker: EmbeddedBroker) -> Iterator[KafkaTools]:
    with KafkaTools(broker.bootstrap_servers) as running:
        yield running


def test_java_produces_and_consumes_and_the_files_are_kafkas(broker: EmbeddedBroker, tools: KafkaTools) -> None:
    def tool(name: str, *arguments: str) -> str:
        said = tools.run_alone(name, *arguments)
        assert said.status == 0, said.text
        return said.text

    servers = broker.bootstrap_servers
    properties = [f"bootstrap.servers={servers}", "acks=all", "compression.type=lz4"]
    said = tool(
        "ProducerPerformance",
        *("--topic", "perf", "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"),
        *("--command-property", *properties),
    )
    assert f"{RECORDS} records sent" in said
    said = tool(
        "ConsumerPerformance",
        *("--bootstrap-server", servers, "--topic", "perf", "--num-records", str(RECORDS), "--timeout", "30000"),
    )
    assert re.search(rf", {RECORDS}, ", said), said
    said = tool("GetOffsetShell", "--bootstrap-server", servers, "--topic", "perf")
    assert sum(int(line.split(":")[2]) for line in said.splitlines() if line.startswith("perf:")) == RECORDS
    said = tool("TopicCommand", "--bootstrap-server", servers, "--list")
    assert "perf" in said.split()

    broker.restart()  # cleanly: index files are complete when a broker has stopped
    logs = sorted(str(path) for path in Path(broker.data_dir).glob("perf-*/*.log"))
    said = tool("DumpLogSegments", "--deep-iteration", "--files", ",".join(logs))
    assert said.count("payload:") in (0, RECORDS)
    assert "Found timestamp mismatch" not in said
    assert "mismatch" not in said.lower()
