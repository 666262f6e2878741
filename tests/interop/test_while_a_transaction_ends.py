"""What is answered about a transactional id while the markers of its last transaction are being written, as by Kafka.

The broker that leads the transaction's only partition is stopped (SIGSTOP), so that its marker cannot be written.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.peers import RealKafkaCluster, missing_kafka_reason
from sparkonce import EmbeddedCluster
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.interop.plain_client import PlainClient

pytestmark = [pytest.mark.java, pytest.mark.soak]
BROKERS = (1, 2, 3)
DEADLINE_S = 60.0
SETTINGS = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
"""Internal topics of one copy, so that the broker that is stopped does not hold up what they decide."""
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
NAME = "x"
Pids = Mapping[int, int | None]


def patiently(ask: Callable[[], Any], again: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = ask()
        if not again(answer) or time.monotonic() > deadline:
            return answer


def coordinator_of(client: PlainClient, kind: int, name: str) -> Any:
    return patiently(
        lambda: client.ask(ApiKey.FIND_COORDINATOR, 3, key=name, key_type=kind),
        lambda answer: ErrorCode(answer.error_code) in LOADING,
    )


def play(servers: str, pids: Pids) -> list[object]:
    """Return what was asked and answered, with ids and epochs told from those of the transaction that ends."""
    with PlainClient(servers.split(",")[0]) as client:
        coordinator = coordinator_of(client, 1, NAME)
        names = [f"g{each}" for each in range(100)]
        group = next(each for each in names if coordinator_of(client, 0, each).node_id == coordinator.node_id)
    stopped = next(each for each in BROKERS if each != coordinator.node_id)
    admin = AdminClient({"bootstrap.servers": servers})
    places = NewTopic("t", 2, replica_assignment=[[coordinator.node_id], [stopped]])
    admin.create_topics([places])["t"].result(DEADLINE_S)
    pid = pids[stopped]
    assert pid is not None
    with PlainClient(f"127.0.0.1:{coordinator.port}") as client:
        return Answers(client, group).play(pid)


class Answers:
    """Requests to the broker that coordinates the transactional id and the group, and leads partition 0."""

    def __init__(self, client: PlainClient, group: str) -> None:
        self.client = client
        self.group = group

    def play(self, stopped: int) -> list[object]:
        found = patiently(lambda: self.init((-1, -1)), lambda answer: answer.error_code != 0)
        first, epoch = found.producer_id, found.producer_epoch
        self.commit_offsets((first, epoch), group_only=True)
        said: list[object] = []
        for committed in (True, False):
            producer = (first, epoch)
            added = patiently(lambda producer=producer: self.add(producer, 1), lambda error: error == 51)  # type: ignore[misc]
            assert added is ErrorCode.NONE
            os.kill(stopped, signal.SIGSTOP)
            try:
                ended = self.end(producer, committed, 5)
                assert ended[1:] == (ErrorCode.NONE, first, epoch + 1)
                said += self.ask_all(first, epoch, committed)
            finally:
                os.kill(stopped, signal.SIGCONT)
            epoch += 1
            following = patiently(
                lambda epoch=epoch: self.end((first, epoch), False, 5),  # type: ignore[misc]
                lambda answer: answer[1] is ErrorCode.CONCURRENT_TRANSACTIONS,
            )
            said.append(("then", following[1], following[3] - epoch))
            epoch += 1
        return said

    def ask_all(self, first: int, epoch: int, committed: bool) -> list[object]:
        said: list[object] = []
        producers = {"itself": (first, epoch), "the next": (first, epoch + 1), "an old one": (first, epoch - 1)}
        producers |= {"a later one": (first, epoch + 2), "another": (first + 1_000, 0)}
        for who, producer in producers.items():
            if producer[1] < 0:
                continue
            said += [
                (who, committed, wanted, version, self.end(producer, wanted, version)[1])
                for wanted in (True, False)
                for version in (5, 4)
            ]
            said.append((who, "init", ErrorCode(self.init(producer).error_code)))
            said.append((who, "add", self.add(producer, 0)))
            said.append((who, "offsets", self.commit_offsets(producer)))
            said.append((who, "write", self.client.produce("t", [b"v"], NAME, producer)))
        said.append(("a new one", "init", ErrorCode(self.init((-1, -1)).error_code)))
        answer = self.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME])
        (state,) = answer.transaction_states
        said.append(("state", state.transaction_state, state.producer_epoch - epoch))
        return said

    def init(self, producer: tuple[int, int]) -> Any:
        return self.client.ask(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id=NAME, transaction_timeout_ms=60_000,
            producer_id=producer[0], producer_epoch=producer[1],
        )  # fmt: skip

    def end(self, producer: tuple[int, int], committed: bool, version: int) -> tuple[str, ErrorCode, int, int]:
        answer = self.client.ask(
            ApiKey.END_TXN, version, transactional_id=NAME, producer_id=producer[0], producer_epoch=producer[1],
            committed=committed,
        )  # fmt: skip
        ids = (answer.producer_id, answer.producer_epoch) if version >= 5 else (-1, -1)
        return ("end", ErrorCode(answer.error_code), *ids)

    def add(self, producer: tuple[int, int], partition: int) -> ErrorCode:
        answer = self.client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=producer[0], v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[("t", [partition])],
        )  # fmt: skip
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def commit_offsets(self, producer: tuple[int, int], *, group_only: bool = False) -> ErrorCode:
        """Commit offsets in the transaction, or (`group_only`) only wait until the group is coordinated here."""
        if group_only:
            topics = [("t", [(0, 1, -1, None)])]
            return patiently(
                lambda: ErrorCode(
                    self.client.ask(
                        ApiKey.OFFSET_COMMIT, 7, group_id=self.group, generation_id_or_member_epoch=-1, member_id="",
                        group_instance_id=None, topics=topics,
                    ).topics[0].partitions[0].error_code
                ),
                lambda error: error in LOADING,
            )  # type: ignore[no-any-return]  # fmt: skip
        answer = self.client.ask(
            ApiKey.TXN_OFFSET_COMMIT, 5, transactional_id=NAME, group_id=self.group,
            producer_id=producer[0], producer_epoch=producer[1], generation_id=-1, member_id="",
            group_instance_id=None, topics=[("t", [(0, 5, -1, None)])],
        )  # fmt: skip
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_the_answers_are_kafkas() -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    with RealKafkaCluster(len(BROKERS), SETTINGS, heap="300m") as cluster:
        kafkas = play(cluster.bootstrap_servers, dict(zip(BROKERS, cluster.pids, strict=True)))
    with EmbeddedCluster(len(BROKERS), process=True, config=SETTINGS) as embedded:
        ours = play(embedded.bootstrap_servers, {each: broker.pid for each, broker in embedded.brokers.items()})
    assert len(ours) > 60
    assert ours == kafkas
