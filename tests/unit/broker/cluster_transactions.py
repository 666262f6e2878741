"""Transactions of one producer over a topic of three partitions, in a cluster of three brokers without sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.control_records import read_end_marker
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.records import decode_records, scan
from tests.unit.broker.coordinator_cluster import Client, Cluster, Sent, error_of
from tests.unit.broker.test_transaction_coordinator import World

NAME = "x"
PARTITIONS = 3
BLOCK = 1_000


def three_brokers(settings: Mapping[str, str] | None = None) -> Cluster:
    """The coordinator of transactions is broker 1, of groups broker 2; all three lead a partition each of topic t."""
    cluster = Cluster(World())
    cluster.create_topic("t", [1, 2, 3], settings)
    cluster.create_internal_topics([2], [1])
    cluster.run()
    return cluster


def init(cluster: Cluster, coordinator: int = 1, name: str = NAME) -> Producer:
    client = cluster.client(coordinator)
    answer = client.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=60_000)
    give_block(cluster)
    cluster.run()
    answer = answer or client.later.pop()
    assert error_of(answer) is ErrorCode.NONE
    return Producer(name, answer.producer_id, answer.producer_epoch)


def give_block(cluster: Cluster) -> None:
    for _ in list(cluster.to_controller):
        first = cluster.image.next_producer_id
        cluster.image.next_producer_id += BLOCK
        cluster.answer_controller(producer_id_start=first, producer_id_len=BLOCK)


def write(cluster: Cluster, producer: Producer, indexes: range = range(PARTITIONS)) -> None:
    """Write to partitions; KIP-890's second part adds them to the transaction."""
    for index in indexes:
        client = cluster.client(leader(cluster, index))
        client.produce(producer, index)
        cluster.run()
        assert client.later.pop().topics[0].partitions[0].error_code == 0


def leader(cluster: Cluster, index: int, topic: str = "t") -> int:
    found = cluster.image.topic(topic)
    assert found is not None
    return found.partitions[index].leader


def end(client: Client, producer: Producer, committed: bool = True, version: int = 5) -> Any:
    return client.ask(
        ApiKey.END_TXN,
        version,
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=committed,
    )


def decide(cluster: Cluster, producer: Producer, turns: int = 1) -> list[Sent]:
    """Commit, and let that become safe; returns what the brokers send each other then, which is held back."""
    with cluster.holding() as held:
        end(cluster.client(1), producer)
        for _ in range(turns):
            cluster.replicate()
            cluster.world.pass_time(0)
    return held


def markers(cluster: Cluster, index: int, topic: str = "t") -> list[bool]:
    """Return the ends of transactions in a partition, as its leader has them."""
    log = cluster.brokers[leader(cluster, index, topic)].leading(topic, index).log
    data = log.read(0, 1 << 20, min_one_batch=True).read() if log.log_end_offset else b""
    found = []
    for position, header in scan(data):
        if header.is_control:
            marker = read_end_marker(decode_records(memoryview(data)[position : position + header.size])[0])
            assert marker is not None
            found.append(marker.committed)
    return found


def state(cluster: Cluster, coordinator: int, name: str = NAME) -> TransactionState | None:
    known = cluster.brokers[coordinator].transactions.transactions.get(name)
    return None if known is None else known.state


def is_settled(cluster: Cluster) -> bool:
    logs = [cluster.brokers[leader(cluster, index)].leading("t", index).log for index in range(PARTITIONS)]
    return all(log.last_stable_offset == log.log_end_offset for log in logs)
