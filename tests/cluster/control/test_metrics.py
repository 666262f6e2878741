"""What Prometheus hears of a cluster: who the controller is, and what lacks replicas."""

from __future__ import annotations

import contextlib
import re
import time
import urllib.request
from collections import Counter
from pathlib import Path

from lab.network import free_port
from sparkonce import EmbeddedBroker
from tests.cluster.control.clients import admin, create

DEADLINE_S = 30.0
GAUGE = re.compile(r'^kafka_(?:server|controller)_\w+_Value\{name="(\w+)"\} (\d+)', re.MULTILINE)


def counts(ports: list[int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            for name, value in GAUGE.findall(page.read().decode()):
                found[name] += int(value)
    return found


def wait_for(ports: list[int], name: str, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while counts(ports)[name] != count:
        assert time.monotonic() < deadline, counts(ports)


def test_the_sum_over_all_brokers_is_that_of_the_cluster(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        brokers = [
            stack.enter_context(
                EmbeddedBroker(
                    data_dir=tmp_path / str(node_id),
                    config={"node.id": node_id, "metrics.port": port, "metadata.log.dir": str(tmp_path / "metadata")},
                )
            )
            for node_id, port in enumerate(ports, 1)
        ]
        create(admin(brokers[0].bootstrap_servers), "t", partitions=4, factor=2)
        for name, count in (("PartitionCount", 8), ("LeaderCount", 4), ("UnderReplicatedPartitions", 0)):
            wait_for(ports, name, count)
        found = counts(ports)
        assert (found["ActiveControllerCount"], found["GlobalTopicCount"], found["GlobalPartitionCount"]) == (1, 1, 4)
        assert (found["ActiveBrokerCount"], found["FencedBrokerCount"]) == (2, 0)
        brokers[0].close()
        wait_for(ports[1:], "FencedBrokerCount", 1)
        wait_for(ports[1:], "UnderReplicatedPartitions", 4)
        assert counts(ports[1:])["ActiveControllerCount"] == 1
