"""Writes that the coordinator has agreed to, and whose transaction ends before they are appended (KIP-890).

The coordinator is another broker, so that time passes between its word and the append. A batch that is late must not
open a transaction that nobody ends, and must not fall into the producer's next one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from tests.unit.broker.cluster_transactions import NAME, PARTITIONS, end, init, leader, markers, state, three_brokers
from tests.unit.broker.coordinator_cluster import Client, Cluster, Sent, error_of

GROUP = "g"
LEGACY_PRODUCE, LEGACY_COMMIT, LEGACY_END = 11, 4, 4


@pytest.fixture
def cluster() -> Cluster:
    return three_brokers()


def add(cluster: Cluster, producer: Producer, index: int = 1) -> None:
    """Add a partition as clients without KIP-890's second part do."""
    add_topic(cluster, "t", index, producer)


def add_topic(cluster: Cluster, topic: str, index: int, producer: Producer) -> None:
    client = cluster.client(1)
    fields = {"v3_and_below_transactional_id": NAME, "v3_and_below_topics": [(topic, [index])]}
    fields |= {"v3_and_below_producer_id": producer.producer_id, "v3_and_below_producer_epoch": producer.epoch}
    client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields)
    cluster.run()
    told = client.later.pop().results_by_topic_v3_and_below[0].results_by_partition[0]
    assert ErrorCode(told.partition_error_code) is ErrorCode.NONE


def commit(client: Client, producer: Producer, offset: int = 5, version: int = LEGACY_COMMIT) -> Any:
    return client.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id=NAME,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[("t", [(0, offset, -1, "")])],
    )


def end_legacy(cluster: Cluster, producer: Producer, *, committed: bool) -> None:
    client = cluster.client(1)
    end(client, producer, committed, LEGACY_END)
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.NONE
    assert state(cluster, 1) in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@contextmanager
def answer_held_back(cluster: Cluster) -> Iterator[list[Callable[[], None]]]:
    """Let the coordinator answer what brokers ask it, and keep the answers; the list has what delivers them."""
    answers: list[Callable[[], None]] = []
    with cluster.holding() as held:
        yield answers
    for sent in held:
        assert sent.request.API_KEY == ApiKey.ADD_PARTITIONS_TO_TXN
        cluster.deliver(replace(sent, then=lambda answer, then=sent.then: answers.append(lambda: then(answer))))
    cluster.run()
    assert len(answers) == len(held) == 1


def error_produced(client: Client) -> ErrorCode:
    return ErrorCode(client.later.pop().topics[0].partitions[0].error_code)


def stable(cluster: Cluster, topic: str, index: int) -> bool:
    log = cluster.brokers[leader(cluster, index, topic)].leading(topic, index).log
    return log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_write_opens_no_transaction(cluster: Cluster, committed: bool) -> None:
    producer = init(cluster)
    add(cluster, producer)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        client.produce(producer, 1, version=LEGACY_PRODUCE)
    assert not client.later
    end_legacy(cluster, producer, committed=committed)
    assert markers(cluster, 1) == [committed]
    answers[0]()
    cluster.run()
    assert error_produced(client) is ErrorCode.INVALID_TXN_STATE
    assert stable(cluster, "t", 1)


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_write_opens_no_transaction_where_another_client_has_ended_its_own_without_a_new_epoch(
    cluster: Cluster, committed: bool
) -> None:
    """The write comes from a client with KIP-890's second part, the end from one without; the epoch stays."""
    producer = init(cluster)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        client.produce(producer, 1)
    end_legacy(cluster, producer, committed=committed)
    assert markers(cluster, 1) == [committed]
    answers[0]()
    cluster.run()
    assert error_produced(client) is ErrorCode.INVALID_TXN_STATE
    assert stable(cluster, "t", 1)


def test_late_offsets_open_no_transaction_where_another_client_has_ended_their_own(cluster: Cluster) -> None:
    producer = init(cluster)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        assert commit(client, producer, version=5) is None
    end_legacy(cluster, producer, committed=True)
    answers[0]()
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.INVALID_TXN_STATE
    assert stable(cluster, OFFSETS_TOPIC, 0)


def test_a_late_write_falls_into_no_later_transaction(cluster: Cluster) -> None:
    """The next transaction has the partition as well, but nothing in it yet: the late batch would be its first."""
    producer = init(cluster)
    add(cluster, producer)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        client.produce(producer, 1, b"late", version=LEGACY_PRODUCE)
    end_legacy(cluster, producer, committed=False)
    add(cluster, producer)
    answers[0]()
    cluster.run()
    assert error_produced(client) is ErrorCode.INVALID_TXN_STATE
    client.produce(producer, 1, b"of the next", version=LEGACY_PRODUCE)
    cluster.run()
    assert error_produced(client) is ErrorCode.NONE
    end_legacy(cluster, producer, committed=True)
    assert markers(cluster, 1) == [False, True]
    assert stable(cluster, "t", 1)


def test_a_late_write_of_a_client_with_an_epoch_for_each_transaction_is_fenced(cluster: Cluster) -> None:
    producer = init(cluster)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        client.produce(producer, 1)
    end(cluster.client(1), producer)
    cluster.run()
    answers[0]()
    cluster.run()
    assert error_produced(client) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(cluster, "t", 1)


def test_what_was_asked_before_leadership_came_back_does_not_count(cluster: Cluster) -> None:
    producer = init(cluster)
    add(cluster, producer)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        client.produce(producer, 1, version=LEGACY_PRODUCE)
    for broker_id in (3, 2):
        cluster.elect("t", 1, broker_id)
        cluster.run()
    answers[0]()
    cluster.run()
    assert error_produced(client) is ErrorCode.NOT_LEADER_OR_FOLLOWER  # the client tries again, and aborts nothing
    client.produce(producer, 1, version=LEGACY_PRODUCE)
    cluster.run()
    assert error_produced(client) is ErrorCode.NONE


def test_writes_that_wait_together_are_all_appended(cluster: Cluster) -> None:
    producer = init(cluster)
    add(cluster, producer)
    clients = [cluster.client(2), cluster.client(2)]
    for client in clients:
        client.produce(producer, 1, version=LEGACY_PRODUCE)
    cluster.run()
    assert [error_produced(client) for client in clients] == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("committed", [True, False])
def test_late_offsets_open_no_transaction(cluster: Cluster, committed: bool) -> None:
    producer = init(cluster)
    add_topic(cluster, OFFSETS_TOPIC, 0, producer)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        assert commit(client, producer) is None
    end_legacy(cluster, producer, committed=committed)
    assert markers(cluster, 0, OFFSETS_TOPIC) == [committed]
    answers[0]()
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.INVALID_TXN_STATE
    assert stable(cluster, OFFSETS_TOPIC, 0)
    assert not cluster.brokers[2].pending_offsets


def test_offsets_that_were_asked_about_before_leadership_came_back_come_again(cluster: Cluster) -> None:
    producer = init(cluster)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        commit(client, producer, version=5)
    for broker_id in (3, 2):
        cluster.elect(OFFSETS_TOPIC, 0, broker_id)
        cluster.run()
    answers[0]()
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.COORDINATOR_NOT_AVAILABLE  # the client tries again
    commit(client, producer, version=5)
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.NONE


def test_late_offsets_fall_into_no_later_transaction(cluster: Cluster) -> None:
    producer = init(cluster)
    add_topic(cluster, OFFSETS_TOPIC, 0, producer)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        commit(client, producer, offset=5)
    end_legacy(cluster, producer, committed=False)
    add_topic(cluster, OFFSETS_TOPIC, 0, producer)
    answers[0]()
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.INVALID_TXN_STATE
    end_legacy(cluster, producer, committed=True)
    assert cluster.brokers[2].groups.offsets.of_group(GROUP) == {}
    assert stable(cluster, OFFSETS_TOPIC, 0)


def test_late_offsets_of_a_client_with_an_epoch_for_each_transaction_are_fenced(cluster: Cluster) -> None:
    producer = init(cluster)
    client = cluster.client(2)
    with answer_held_back(cluster) as answers:
        assert commit(client, producer, version=5) is None
    end(cluster.client(1), producer)
    cluster.run()
    answers[0]()
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(cluster, OFFSETS_TOPIC, 0)


class _Course:
    """Transactions of one producer whose writes, answers and markers are late at random.

    `has_epochs`: its client has an epoch for each of them (KIP-890 part 2); else there is one for all. None: each
    of its requests may be by either kind of client, as where an older one helps out.
    """

    def __init__(self, seed: int, has_epochs: bool | None) -> None:
        self.random = random.Random(seed)
        self._has_epochs = has_epochs
        self.ending: list[Client] = []
        self.cluster = three_brokers()
        self.producer = init(self.cluster)
        self.cluster.held = []
        self.answers: list[Callable[[], None]] = []

    @property
    def has_epochs(self) -> bool:
        return self.random.random() < 0.5 if self._has_epochs is None else self._has_epochs

    def run(self) -> None:
        for _ in range(120):
            self.step()
            self.hear()
        self.settle()

    def step(self) -> None:
        chance, cluster = self.random, self.cluster
        what = chance.randrange(16)
        if what <= 2:
            self.write(chance.randrange(PARTITIONS))
        elif what == 3:
            self.commit()
        elif what <= 5:
            self.end(committed=chance.random() < 0.5)
        elif what <= 7:
            cluster.replicate()
            cluster.world.pass_time(chance.choice((0, 0, 50, 200)))
        elif what <= 11 and cluster.held:
            self.deliver(cluster.held.pop(chance.randrange(len(cluster.held))))
        elif what <= 13 and self.answers:
            self.answers.pop(chance.randrange(len(self.answers)))()
        elif what == 14 and chance.random() < 0.3:
            topic, index = chance.choice((("t", 0), ("t", 1), ("t", 2), (TRANSACTIONS_TOPIC, 0), (OFFSETS_TOPIC, 0)))
            cluster.elect(topic, index, chance.choice((1, 2, 3)))

    @property
    def coordinator(self) -> int:
        return leader(self.cluster, 0, TRANSACTIONS_TOPIC)

    def deliver(self, sent: Sent) -> None:
        """Bring a request where it is to go; its answer may be long in coming."""
        if self.random.random() < 0.5:
            sent = replace(sent, then=lambda answer, then=sent.then: self.answers.append(lambda: then(answer)))
        self.cluster.deliver(sent)

    def add(self, topic: str, index: int) -> None:
        fields = {"v3_and_below_transactional_id": NAME, "v3_and_below_topics": [(topic, [index])]}
        fields |= {
            "v3_and_below_producer_id": self.producer.producer_id,
            "v3_and_below_producer_epoch": self.producer.epoch,
        }
        self.cluster.client(self.coordinator).ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields)

    def end(self, *, committed: bool) -> None:
        client = self.cluster.client(self.coordinator)
        answer = end(client, self.producer, committed, 5 if self.has_epochs else LEGACY_END)
        self.ending.append(client)
        client.later += [] if answer is None else [answer]

    def hear(self) -> None:
        """Go on with the epoch that the end of a transaction has given."""
        for client in self.ending:
            for answer in client.later:
                if (
                    answer.API_VERSION >= 5
                    and error_of(answer) is ErrorCode.NONE
                    and answer.producer_epoch > self.producer.epoch
                ):
                    self.producer = Producer(NAME, answer.producer_id, answer.producer_epoch)

    def write(self, index: int) -> None:
        has_epochs = self.has_epochs
        if not has_epochs:
            self.add("t", index)
        broker_id = leader(self.cluster, index)
        entry = self.cluster.brokers[broker_id].leading("t", index).log.producers.get(self.producer.producer_id)
        following = 0 if entry is None or entry.epoch != self.producer.epoch else entry.last_sequence + 1
        version = 12 if has_epochs else LEGACY_PRODUCE
        self.cluster.client(broker_id).produce(self.producer, index, version=version, sequence=following)

    def commit(self) -> None:
        has_epochs = self.has_epochs
        if not has_epochs:
            self.add(OFFSETS_TOPIC, 0)
        client = self.cluster.client(leader(self.cluster, 0, OFFSETS_TOPIC))
        commit(client, self.producer, version=5 if has_epochs else LEGACY_COMMIT)

    def settle(self) -> None:
        """Let the network be as it should, and the last transaction come to its end."""
        cluster = self.cluster
        held, cluster.held = cluster.held or [], None
        for sent in held:
            cluster.deliver(sent)
        for _ in range(5):
            cluster.run()
            while self.answers:
                self.answers.pop()()
            cluster.run()
            cluster.world.pass_time(1_100)
            self.hear()
            self.end(committed=False)
        cluster.run()

    def check(self) -> None:
        assert state(self.cluster, self.coordinator) is not TransactionState.ONGOING
        for topic, index in (("t", 0), ("t", 1), ("t", 2), (OFFSETS_TOPIC, 0)):
            assert stable(self.cluster, topic, index), f"a transaction of {topic}-{index} hangs"
        assert not self.cluster.brokers[leader(self.cluster, 0, OFFSETS_TOPIC)].pending_offsets


@pytest.mark.parametrize("has_epochs", [False, True, None])
@pytest.mark.parametrize("seed", range(20))
def test_no_transaction_hangs(seed: int, has_epochs: bool | None) -> None:
    course = _Course(seed, has_epochs)
    course.run()
    course.check()


@pytest.mark.soak
@pytest.mark.parametrize("has_epochs", [False, True, None])
@pytest.mark.parametrize("seed", range(20, 1_000))
def test_no_transaction_hangs_for_long(seed: int, has_epochs: bool | None) -> None:
    test_no_transaction_hangs(seed, has_epochs)
