"""Transactions under coordinators and leaders that change at random: each ends alike in all of its partitions."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.broker_lite.protocol.control_records import read_end_marker
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.records import decode_records, scan
from tests.unit.broker.cluster_transactions import PARTITIONS, end, init, is_settled, leader, write
from tests.unit.broker.coordinator_cluster import Cluster, error_of
from tests.unit.broker.test_transaction_coordinator import World


class _Course:
    """One random course of transactions under a coordinator that changes; markers are lost, late, and sent twice."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(World())
        self.cluster.create_topic("t", [1, 2, 3])
        self.cluster.create_internal_topics([2], [1])
        self.cluster.run()
        self.outcomes: list[tuple[Producer, bool | None]] = []

    def run(self) -> None:
        for number in range(4):
            self._transaction(number)
        self._settle()

    def _coordinator(self) -> int:
        return leader(self.cluster, 0, TRANSACTIONS_TOPIC)

    def _transaction(self, number: int) -> None:
        cluster, chance = self.cluster, self.random
        self._settle()
        producer = init(cluster, self._coordinator(), f"x{number}")
        write(cluster, producer)
        cluster.held = []
        committed = chance.random() < 0.5
        client = cluster.client(self._coordinator())
        end(client, producer, committed)
        for _ in range(chance.randrange(30)):
            self._step()
        acknowledged = bool(client.later) and error_of(client.later[0]) is ErrorCode.NONE
        self.outcomes.append((producer, committed if acknowledged else None))

    def _step(self) -> None:
        cluster, chance = self.cluster, self.random
        assert cluster.held is not None
        what = chance.randrange(7)
        if what == 0:
            cluster.elect(TRANSACTIONS_TOPIC, 0, chance.choice((1, 2, 3)))
        elif what == 1:
            cluster.elect("t", chance.randrange(PARTITIONS), chance.choice((1, 2, 3)))
        elif what == 2:
            cluster.world.pass_time(chance.choice((0, 50, 200)))
        elif what <= 4:
            cluster.replicate()
        elif cluster.held:
            sent = chance.choice(cluster.held)
            cluster.deliver(sent)
            if chance.random() < 0.7:
                cluster.held.remove(sent)

    def _settle(self) -> None:
        """Let the network be as it should, and every transaction come to its end."""
        cluster = self.cluster
        held, cluster.held = cluster.held or [], None
        for sent in held:
            if self.random.random() < 0.5:
                cluster.deliver(sent)
            else:
                sent.then(None)
        for _ in range(3):
            cluster.run()
            cluster.world.pass_time(300)
        for producer, _ in self.outcomes:
            known = cluster.brokers[self._coordinator()].transactions.transactions.get(producer.transactional_id)
            if known is not None and known.state is TransactionState.ONGOING:
                end(cluster.client(self._coordinator()), producer, committed=False)
        for _ in range(3):
            cluster.run()
            cluster.world.pass_time(300)

    def check(self) -> None:
        assert is_settled(self.cluster)
        found = [dict(self._ends(index)) for index in range(PARTITIONS)]
        for producer, acknowledged in self.outcomes:
            ends = {each.get(producer.producer_id) for each in found}
            assert len(ends) == 1, f"{producer} ended differently: {ends}"
            assert acknowledged is None or ends == {acknowledged}, f"{producer} was told {acknowledged}"

    def _ends(self, index: int) -> Iterator[tuple[int, bool]]:
        log = self.cluster.brokers[leader(self.cluster, index)].leading("t", index).log
        ended: dict[int, bool] = {}
        data = log.read(0, 1 << 20, min_one_batch=True).read()
        for position, header in scan(data):
            if header.is_control:
                marker = read_end_marker(decode_records(memoryview(data)[position : position + header.size])[0])
                assert marker is not None
                assert ended.setdefault(header.producer_id, marker.committed) == marker.committed, "ended twice"
        yield from ended.items()


@pytest.mark.parametrize("seed", range(12))
def test_every_transaction_ends_alike_everywhere(seed: int) -> None:
    course = _Course(seed)
    course.run()
    course.check()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12, 1_000))
def test_every_transaction_ends_alike_everywhere_for_long(seed: int) -> None:
    test_every_transaction_ends_alike_everywhere(seed)
