"""An unclean election: who leads then lacks records that were read, and writes others at their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker_lite import EmbeddedCluster
from connectors.kafka_once import client as client_module
from connectors.kafka_once.data_loss import DataLossError
from exactly_once.audit_findings import Problem
from jobs.audit_report import Verdict
from tests.parity.support import DEADLINE_S, Cluster
from tests.unit.replaced.pipeline import Pipeline

QUICK = {
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_500,
    "controller.quorum.fetch.timeout.ms": 500,
    "replica.lag.time.max.ms": 2_000,
}


@pytest.fixture
def brokers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, process=True, config=QUICK) as found:
        yield found
    for kept in client_module._shared.values():
        kept.close()


def test_a_query_reads_on_from_where_the_new_leader_parted(brokers: EmbeddedCluster, tmp_path: Path) -> None:
    cluster, topic = Cluster(brokers.bootstrap_servers), "unclean"
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    leader, follower = (each for each in brokers.brokers if each != brokers.controller_id)
    made = NewTopic(topic, 1, replica_assignment=[[leader, follower]], config=settings)
    admin.create_topics([made])[topic].result(DEADLINE_S)
    cluster.send(topic, range(20), 0)
    brokers.kill(follower)
    brokers.wait_until(lambda: brokers.in_sync_replicas(topic, 0) == (leader,), "the dead follower is in sync")
    cluster.send(topic, range(20, 30), 0)
    options = cluster.source_options(subscribe=topic, startingOffsets="earliest", appId="app")
    with closing(Pipeline(tmp_path, {**options, "failOnDataLoss": "false"})) as pipeline:
        assert pipeline.run() == list(range(30))
        brokers.kill(leader)
        brokers.restart(follower)
        brokers.wait_until(lambda: brokers.leader(topic, 0) == follower, "nobody leads")
        new = list(range(100, 115))
        Cluster(brokers.bootstrap_servers).send(topic, new, 0)
        strict = {**options, "offsetStore": f"delta:{tmp_path / 'table'}"}
        with closing(Pipeline(tmp_path, strict, "strict")) as stops, pytest.raises(DataLossError, match=r"\[20, 30\)"):
            stops.run()
        (found,) = pipeline.audit(brokers.bootstrap_servers).report.findings
        assert found.problem is Problem.LOG_TRUNCATED
        assert pipeline.run() == new  # the very query that was running
        examined = pipeline.audit(brokers.bootstrap_servers, "partition,offset,topic")
        assert examined.verdict is Verdict.PROVEN
