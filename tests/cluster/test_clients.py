"""Clients of three languages ride through the deaths of leaders within their own default time-outs.

confluent-kafka is in the other tests of this folder as well; here are Kafka's Java client, by its VerifiableProducer,
and franz-go, by the tests of groups that its authors run against Apache Kafka.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.peers import kafka_classpath, missing_kafka_reason
from sparkonce import EmbeddedCluster
from sparkonce.jobs.shared.jars import java_command
from tests.cluster.files import check_files
from tests.interop.test_franz_go import MODULE, PACKAGE, go

TOPIC = "t"
RECORDS = 3000
CONFIG = {"num.partitions": 4, "group.min.session.timeout.ms": 100}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, tmp_path / "data", process=True, config=CONFIG) as embedded:
        admin = AdminClient({"bootstrap.servers": embedded.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(60)
        embedded.wait_in_sync()
        yield embedded
    check_files(tmp_path / "data")


def kill_the_leader(cluster: EmbeddedCluster) -> None:
    victim = cluster.leader(TOPIC, 0)
    cluster.kill(victim)
    cluster.wait_until(lambda: cluster.leader(TOPIC, 0) not in (victim, -1), "another leader")
    cluster.restart(victim)
    cluster.wait_in_sync()


def test_librdkafka_with_its_defaults(cluster: EmbeddedCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    outcomes: list[object] = []
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)
        if number == RECORDS // 2:
            kill_the_leader(cluster)
    assert producer.flush(60) == 0
    assert outcomes == [None] * RECORDS


@pytest.mark.java
def test_the_java_client_with_its_defaults(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The tool turns retries off, which are on by default."""
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    classpath = kafka_classpath()
    assert classpath is not None
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", TOPIC, "--acks", "-1"]
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\n")
    arguments += ["--command-config", str(config), "--max-messages", str(RECORDS), "--throughput", "1000"]
    command = [java_command(), "-Xmx128m", "-cp", classpath, "org.apache.kafka.tools.VerifiableProducer", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acknowledged, summary = 0, {}
        for line in child.stdout:
            event = json.loads(line)
            if event["name"] == "producer_send_success":
                acknowledged += 1
                if acknowledged == RECORDS // 3:
                    kill_the_leader(cluster)
            elif event["name"] == "tool_data":
                summary = event
    assert (acknowledged, summary["sent"], summary["acked"]) == (RECORDS, RECORDS, RECORDS)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_franz_go_s_groups_while_brokers_die(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Its tests of transactions take the first error of a produce for the end, so that no death may happen in them."""
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    folder = Path(json.loads(go("mod", "download", "-json", MODULE, cwd=tmp_path))["Dir"])
    suite = tmp_path / "kgo.test"
    go("test", "-c", "-o", str(suite), f"./{PACKAGE}", cwd=folder)
    environment = {
        **os.environ,
        "KGO_LOG_LEVEL": "none",
        "KGO_SEEDS": cluster.bootstrap_servers,
        "KGO_TEST_RF": "2",  # it makes topics while one broker of three is away
        "KGO_TEST_RECORDS": "20000",
    }
    ended, deaths = threading.Event(), []

    def kill_one_after_the_other() -> None:
        while not ended.wait(5):
            kill_the_leader(cluster)
            deaths.append(1)

    killer = threading.Thread(target=kill_one_after_the_other)
    killer.start()
    try:
        done = subprocess.run(
            [suite, "-test.v", "-test.run=TestGroupETL", "-test.timeout=20m"],
            cwd=folder / PACKAGE,  # some tests read the sources
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        ended.set()
        killer.join()
    print(f"deaths={len(deaths)}")
    assert done.returncode == 0, done.stdout[-20_000:]
    assert deaths
