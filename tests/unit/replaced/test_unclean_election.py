"""An unclean election: who leads then lacks records that were read, and writes others at their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from lab.peers import RealKafkaCluster, missing_kafka_reason
from sparkonce import EmbeddedCluster
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.exactly_once.audit_findings import Problem
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.kafka.client import client as client_module
from sparkonce.offset_store.offsets import Position, SourceOffset
from tests.parity.support import DEADLINE_S, Cluster, wait_for
from tests.unit.replaced.pipeline import Pipeline

TOPIC, OTHER = "unclean", "other"
QUICK = {
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_500,
    "controller.quorum.fetch.timeout.ms": 500,
    "replica.lag.time.max.ms": 2_000,
}


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.soak)])
def brokers(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster | RealKafkaCluster]:
    if request.param == "real" and (reason := missing_kafka_reason()) is not None:
        pytest.skip(reason)
    made = EmbeddedCluster(3, process=True, config=QUICK) if request.param == "embedded" else RealKafkaCluster(3, QUICK)
    with made as found:
        yield found
    for kept in client_module._shared.values():
        kept.close()


def test_a_query_reads_on_from_where_the_new_leader_parted(
    brokers: EmbeddedCluster | RealKafkaCluster, tmp_path: Path
) -> None:
    cluster, admin = Cluster(brokers.bootstrap_servers), AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    controller = brokers.controller_id if isinstance(brokers, EmbeddedCluster) else 1
    leader, follower = (each for each in (1, 2, 3) if each != controller)
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    made = NewTopic(TOPIC, 1, replica_assignment=[[leader, follower]], config=settings)
    for topic in (made, NewTopic(OTHER, 1, replica_assignment=[[controller]])):
        admin.create_topics([topic])[topic.topic].result(DEADLINE_S)
    cluster.send(TOPIC, range(20), 0)
    brokers.kill(follower)
    wait_for(lambda: partition(admin).isrs == [leader], "an ISR of the leader alone")
    cluster.send(TOPIC, range(20, 30), 0)
    options = cluster.source_options(subscribe=TOPIC, startingOffsets="earliest", appId="app")
    with closing(Pipeline(tmp_path, {**options, "failOnDataLoss": "false"})) as pipeline:
        assert pipeline.run() == list(range(30))
        isolated = Isolated(cluster, tmp_path)
        brokers.kill(leader)
        if isinstance(brokers, EmbeddedCluster):  # of three of Kafka's, one alone elects nobody
            wait_for(lambda: partition(admin).leader == -1, "the end of its leadership")
            assert isolated.ends() == {TOPIC: 30, OTHER: 1}, "nobody leads, and the other is read"
        brokers.restart(follower)
        wait_for(lambda: partition(admin).leader == follower, "the election of the one that lacks records")
        new = list(range(100, 115))
        Cluster(brokers.bootstrap_servers).send(TOPIC, new, 0)
        assert isolated.ends() == {TOPIC: 30, OTHER: 1}
        assert isolated.planner.tables.lost.keys() == {TOPIC}
        isolated.planner.close()
        strict = {**options, "offsetStore": f"delta:{tmp_path / 'table'}"}
        with closing(Pipeline(tmp_path, strict, "strict")) as stops, pytest.raises(DataLossError, match=r"\[20, 30\)"):
            stops.run()
        (found,) = pipeline.audit(brokers.bootstrap_servers).report.findings
        assert found.problem is Problem.LOG_TRUNCATED
        assert pipeline.run() == new  # the very query that was running
        examined = pipeline.audit(brokers.bootstrap_servers, "partition,offset,topic")
        assert examined.verdict is Verdict.PROVEN


class Isolated:
    """A query over both topics, with a table for each: it has read all of the one and nothing of the other."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        cluster.send(OTHER, [1], 0)
        stores = {"offsetStore": f"delta:{folder}/{{topic}}", "appId": "app", "isolateTables": "true"}
        chosen = {"subscribe": f"{TOPIC},{OTHER}", "startingOffsets": "earliest", "handOver": "ranges"}
        self.planner = Planner(SourceOptions.read(cluster.source_options(**chosen, **stores)))
        begin = SourceOffset("kafka", {tp: Position(0, 0) for tp in self.planner.refresh()})
        latest = {tp: at for tp, at in self.planner.latest(begin).items() if tp.topic == TOPIC}
        self.read = self.planner.with_epochs(begin, self.planner.advance(begin, latest, None))

    def ends(self) -> dict[str, int]:
        """Return where the next batch would end."""
        self.planner.survey(self.read.to_document())
        latest = self.planner.latest(self.read, waits_for_leaders=False)
        return {tp.topic: at for tp, at in self.planner.without_those_behind(self.read, latest).items()}


def partition(admin: AdminClient) -> PartitionMetadata:
    return admin.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions[0]
