"""Transactions whose coordinator, or whose partitions' leaders, change half way."""

from __future__ import annotations

from typing import Any

import pytest

from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, CommittedOffset
from sparkonce.broker_lite.coordinators.producer_state import Marker
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.broker_lite.node.markers import ENDING_WAIT_S
from sparkonce.broker_lite.node.producer_ids import ProducerIds
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from tests.unit.broker.cluster_transactions import (
    BLOCK,
    NAME,
    PARTITIONS,
    decide,
    end,
    give_block,
    init,
    is_settled,
    markers,
    state,
    three_brokers,
    write,
)
from tests.unit.broker.coordinator_cluster import Client, Cluster, error_of


@pytest.fixture
def cluster() -> Cluster:
    return three_brokers()


@pytest.fixture
def producer(cluster: Cluster) -> Producer:
    """One that has written to all three partitions in a transaction."""
    producer = init(cluster)
    write(cluster, producer)
    return producer


def test_a_transaction_over_partitions_of_three_leaders(cluster: Cluster, producer: Producer) -> None:
    client = cluster.client(1)
    assert end(client, producer) is None, "the decision is not safe yet"
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[], [], []]
    cluster.run()
    answer = client.later.pop()
    assert (error_of(answer), answer.producer_epoch) == (ErrorCode.NONE, producer.epoch + 1)
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[True], [True], [True]]
    assert state(cluster, 1) is TransactionState.COMPLETE_COMMIT
    assert is_settled(cluster)


def test_producer_ids_come_in_blocks(cluster: Cluster) -> None:
    first, second = cluster.client(1), cluster.client(2)
    for client in (first, second):
        assert client.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1) is None
    assert [sender for sender, _, _ in cluster.to_controller] == [1, 2]
    give_block(cluster)
    assert [client.later.pop().producer_id for client in (first, second)] == [0, BLOCK]
    for number in range(1, BLOCK):
        answer = first.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1)
        assert answer.producer_id == number
    assert len(cluster.to_controller) == 1, "the next block has been asked for in time"
    give_block(cluster)
    answer = first.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1)
    assert answer.producer_id == 2 * BLOCK


def test_without_a_controller_a_producer_is_told_to_try_again(cluster: Cluster) -> None:
    client = cluster.client(1)
    assert client.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1) is None
    cluster.to_controller.pop()[2](None)
    assert error_of(client.later.pop()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_one_who_waits_for_a_producer_id_and_fails_keeps_no_other_waiting(cluster: Cluster) -> None:
    def mistaken() -> None:
        raise ZeroDivisionError("by the test")

    client, ids = cluster.client(1), cluster.brokers[1].producer_ids
    assert isinstance(ids, ProducerIds)
    ids.when_asked(mistaken)
    assert client.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1) is None
    give_block(cluster)
    assert error_of(client.later.pop()) is ErrorCode.NONE


def test_the_coordinator_dies_before_the_end(cluster: Cluster, producer: Producer) -> None:
    cluster.kill(1)
    assert error_of(end(cluster.client(2), producer)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.run()
    assert state(cluster, 2) is TransactionState.ONGOING
    client = cluster.client(2)
    end(client, producer)
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.NONE
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[True], [True], [True]]


def test_the_coordinator_dies_when_the_decision_is_safe_and_no_marker_is_out(
    cluster: Cluster, producer: Producer
) -> None:
    client = cluster.client(1)
    with cluster.holding():
        end(client, producer)
        cluster.replicate()
        assert error_of(client.later.pop()) is ErrorCode.NONE
    cluster.kill(1)
    cluster.run()
    assert [markers(cluster, index)[-1] for index in range(PARTITIONS)] == [True, True, True]
    assert state(cluster, 2) is TransactionState.COMPLETE_COMMIT
    assert is_settled(cluster)


def test_a_decision_that_was_not_safe_never_was(cluster: Cluster, producer: Producer) -> None:
    """No marker went out for it, and nobody was told: the next coordinator may decide otherwise."""
    client = cluster.client(1)
    end(client, producer)
    cluster.world.pass_time(0)
    cluster.kill(1)
    assert not client.later
    cluster.run()
    assert state(cluster, 2) is TransactionState.ONGOING
    other = cluster.client(2)
    end(other, producer, committed=False)
    cluster.run()
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[False], [False], [False]]


def test_a_coordinator_that_is_replaced_does_not_acknowledge(cluster: Cluster, producer: Producer) -> None:
    client = cluster.client(1)
    end(client, producer)
    cluster.elect(TRANSACTIONS_TOPIC, 0, 2)
    assert error_of(client.later.pop()) is ErrorCode.NOT_COORDINATOR
    cluster.run()
    assert state(cluster, 1) is None
    assert state(cluster, 2) is TransactionState.ONGOING


@pytest.mark.parametrize("delivered", [2, 3])
def test_the_coordinator_dies_with_half_of_the_markers_out(
    cluster: Cluster, producer: Producer, delivered: int
) -> None:
    held = decide(cluster, producer, turns=3)
    assert {sent.receiver for sent in held} == {2, 3}
    cluster.deliver(next(sent for sent in held if sent.receiver == delivered))
    cluster.run()
    cluster.kill(1)
    cluster.run()
    assert state(cluster, 2) is TransactionState.COMPLETE_COMMIT
    for index in range(PARTITIONS):
        assert set(markers(cluster, index)) == {True}
    assert is_settled(cluster)


def test_markers_go_to_whoever_leads_when_a_leader_dies(cluster: Cluster, producer: Producer) -> None:
    held = decide(cluster, producer)
    cluster.kill(3)
    for sent in held:
        cluster.deliver(sent)
    cluster.run()
    cluster.world.pass_time(200)
    cluster.run()
    assert state(cluster, 1) is TransactionState.COMPLETE_COMMIT
    assert is_settled(cluster)


def test_the_answer_of_who_does_not_lead_any_more_is_not_waited_for(cluster: Cluster, producer: Producer) -> None:
    """A broker that is paused keeps its connections: no answer comes for a long time, and no error either."""
    held = decide(cluster, producer)
    for_2, for_3 = ([sent for sent in held if sent.receiver == receiver] for receiver in (2, 3))
    for sent in for_2:
        cluster.deliver(sent)
    cluster.run()
    cluster.elect("t", 2, 1)
    cluster.run()
    cluster.world.pass_time(200)
    cluster.run()
    assert state(cluster, 1) is TransactionState.COMPLETE_COMMIT
    for sent in for_3:
        cluster.deliver(sent)  # it wakes up, and does not lead
    cluster.run()
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[True], [True], [True]]


def test_a_marker_of_the_former_coordinator_ends_no_later_transaction(cluster: Cluster, producer: Producer) -> None:
    late = decide(cluster, producer)
    cluster.elect(TRANSACTIONS_TOPIC, 0, 2)
    cluster.run()
    assert state(cluster, 2) is TransactionState.COMPLETE_COMMIT
    following = Producer(NAME, producer.producer_id, producer.epoch + 1)
    write(cluster, following)
    before = [markers(cluster, index) for index in range(PARTITIONS)]
    for sent in late:
        cluster.deliver(sent)
    cluster.run()
    assert [markers(cluster, index) for index in range(PARTITIONS)] == before
    assert state(cluster, 2) is TransactionState.ONGOING


@pytest.mark.parametrize("how", ["init", "add", "offsets", "write here", "write there"])
def test_what_comes_while_a_transaction_ends_waits_for_its_end(cluster: Cluster, producer: Producer, how: str) -> None:
    """The client was told of the decision, and goes on at once; the markers take a moment more."""
    held = decide(cluster, producer)
    assert state(cluster, 1) is TransactionState.PREPARE_COMMIT
    following = Producer(NAME, producer.producer_id, producer.epoch + 1)
    client = cluster.client(2 if how == "write there" else 1)
    ask(client, how, following)
    cluster.replicate()
    cluster.world.pass_time(0)
    assert not client.later
    for sent in held:
        cluster.deliver(sent)
    cluster.run()
    assert error_told(client.later.pop()) is ErrorCode.NONE
    assert state(cluster, 1) is (TransactionState.EMPTY if how == "init" else TransactionState.ONGOING)


@pytest.mark.parametrize("how", ["init", "add", "offsets", "write here", "write there"])
def test_it_does_not_wait_for_long(cluster: Cluster, producer: Producer, how: str) -> None:
    decide(cluster, producer)
    client = cluster.client(2 if how == "write there" else 1)
    ask(client, how, Producer(NAME, producer.producer_id, producer.epoch + 1))
    for _ in range(4):
        cluster.run()
        cluster.world.pass_time(ENDING_WAIT_S * 1000 / 2)
    assert error_told(client.later.pop()) is ErrorCode.CONCURRENT_TRANSACTIONS


def ask(client: Client, how: str, producer: Producer) -> None:
    """Ask for something that only a transaction at rest lets happen."""
    known = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    if how.startswith("write"):
        client.produce(producer, 1 if how == "write there" else 0)
    elif how == "init":
        asked = {"transactional_id": NAME, "transaction_timeout_ms": 60_000, **known}
        assert client.ask(ApiKey.INIT_PRODUCER_ID, 4, **asked) is None
    elif how == "offsets":
        assert client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, transactional_id=NAME, group_id="g", **known) is None
    else:
        fields = {f"v3_and_below_{name}": value for name, value in known.items()}
        fields |= {"v3_and_below_transactional_id": NAME, "v3_and_below_topics": [("t", [0])]}
        assert client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields) is None


def error_told(answer: Any) -> ErrorCode:
    for each in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        return ErrorCode(each.results_by_partition[0].partition_error_code)
    for each in getattr(answer, "topics", ()):
        return ErrorCode(each.partitions[0].error_code)
    return ErrorCode(answer.error_code)


def test_a_marker_that_cannot_become_safe_is_not_written() -> None:
    """It would be again each time that it is tried."""
    cluster = three_brokers({"min.insync.replicas": "3"})
    producer = init(cluster)
    write(cluster, producer)
    cluster.kill(3)
    end(cluster.client(1), producer)
    for _ in range(10):
        cluster.run()
        cluster.world.pass_time(10_000)
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[], [], []]
    assert state(cluster, 1) is TransactionState.PREPARE_COMMIT
    cluster.revive(3)
    for _ in range(2):
        cluster.world.pass_time(1_000)
        cluster.run()
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[True], [True], [True]]
    assert state(cluster, 1) is TransactionState.COMPLETE_COMMIT


def test_an_error_that_nobody_knows_keeps_no_marker_from_being_sent_again(cluster: Cluster, producer: Producer) -> None:
    """As a broker of a later version may answer it."""
    for sent in decide(cluster, producer):
        ((_, _, _, places, *_),) = sent.request.markers
        topics = [(topic, [(index, 9_999) for index in indexes]) for topic, indexes in places]
        cluster.answer(sent, markers=[(producer.producer_id, topics)])
    cluster.world.pass_time(0)
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[True], [], []]
    cluster.world.pass_time(200)
    cluster.run()
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[True], [True], [True]]
    assert state(cluster, 1) is TransactionState.COMPLETE_COMMIT


@pytest.mark.usefixtures("producer")
def test_a_transaction_that_takes_too_long_is_aborted_by_the_next_coordinator(cluster: Cluster) -> None:
    cluster.kill(1)
    cluster.run()
    for _ in range(10):
        cluster.world.pass_time(10_000)
        cluster.run()
    assert state(cluster, 2) is TransactionState.COMPLETE_ABORT
    assert [markers(cluster, index) for index in range(PARTITIONS)] == [[False], [False], [False]]


@pytest.mark.parametrize("version", [11, 12])
def test_a_leader_asks_the_coordinator_of_a_transaction(cluster: Cluster, version: int) -> None:
    producer = init(cluster)
    if version == 11:
        fields = {"v3_and_below_transactional_id": NAME, "v3_and_below_topics": [("t", [1])]}
        fields |= {"v3_and_below_producer_id": producer.producer_id, "v3_and_below_producer_epoch": producer.epoch}
        cluster.client(1).ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields)
        cluster.run()
    client = cluster.client(2)
    client.produce(producer, 1, version=version)
    assert not client.later
    cluster.run()
    assert client.later.pop().topics[0].partitions[0].error_code == 0
    known = cluster.brokers[1].transactions.transactions.get(NAME)
    assert known is not None
    assert known.partitions == {("t", 1)}


def test_a_partition_that_was_not_added_is_refused_by_the_coordinator(cluster: Cluster) -> None:
    producer = init(cluster)
    client = cluster.client(2)
    client.produce(producer, 1, version=11)
    cluster.run()
    assert ErrorCode(client.later.pop().topics[0].partitions[0].error_code) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_write_is_tried_again_while_there_is_no_coordinator(cluster: Cluster) -> None:
    producer = init(cluster)
    cluster.dead.add(1)  # nobody has noticed yet
    client = cluster.client(2)
    client.produce(producer, 1)
    cluster.run()
    assert ErrorCode(client.later.pop().topics[0].partitions[0].error_code) is ErrorCode.NOT_ENOUGH_REPLICAS


def commit_offset(cluster: Cluster, producer: Producer, coordinator: int, offset: int) -> None:
    client = cluster.client(coordinator)
    answer = client.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        transactional_id=NAME,
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[("t", [(0, offset, -1, "")])],
    )
    assert answer is None
    cluster.run()
    assert error_of(client.later.pop()) is ErrorCode.NONE


def offset_of(cluster: Cluster, coordinator: int) -> int | ErrorCode:
    client = cluster.client(coordinator)
    answer = client.committed("g")
    cluster.run()
    answer = answer or client.later.pop()
    assert error_of(answer) is ErrorCode.NONE
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code) or int(found.committed_offset)


def test_offsets_count_when_the_transaction_is_committed(cluster: Cluster) -> None:
    """The transaction's coordinator is broker 1, the group's broker 2."""
    producer = init(cluster)
    commit_offset(cluster, producer, 2, 5)
    assert offset_of(cluster, 2) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(cluster.client(1), producer)
    cluster.run()
    assert offset_of(cluster, 2) == 5


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_wait_for_their_transaction_under_the_next_coordinator(cluster: Cluster, committed: bool) -> None:
    producer = init(cluster)
    commit_offset(cluster, producer, 2, 5)
    cluster.elect(OFFSETS_TOPIC, 0, 1)
    assert not cluster.brokers[2].pending_offsets
    cluster.kill(2)
    cluster.run()
    assert offset_of(cluster, 1) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(cluster.client(1), producer, committed)
    cluster.run()
    assert offset_of(cluster, 1) == (5 if committed else -1)


def test_a_marker_that_comes_while_a_group_is_read_back_counts(cluster: Cluster) -> None:
    producer = init(cluster)
    commit_offset(cluster, producer, 2, 5)
    held = decide(cluster, producer)
    cluster.elect(OFFSETS_TOPIC, 0, 3)
    partitions = cluster.brokers[3].groups.partitions
    assert partitions.error_of("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for sent in held:
        cluster.deliver(sent)  # to the former leader
    assert isinstance(cluster.brokers[3].transactions.write_marker(OFFSETS_TOPIC, 0, _marker(producer)), int)
    cluster.run()
    assert cluster.brokers[3].groups.offsets.of_group("g") == {("t", 0): _offset(cluster, 5)}


def _marker(producer: Producer) -> Marker:
    return Marker(producer.producer_id, producer.epoch + 1, True, 0, 2)


def _offset(cluster: Cluster, offset: int) -> CommittedOffset:
    topic = cluster.image.topic("t")
    assert topic is not None
    return CommittedOffset(offset, -1, "", cluster.world.now_ms, topic.topic_id)


def test_transactions_are_listed_and_described_by_their_coordinator_alone(cluster: Cluster) -> None:
    init(cluster)
    described = cluster.client(2).ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME])
    assert ErrorCode(described.transaction_states[0].error_code) is ErrorCode.NOT_COORDINATOR
    described = cluster.client(1).ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME])
    assert described.transaction_states[0].transaction_state == "Empty"
    for broker_id, names in ((1, [NAME]), (2, [])):
        listed = cluster.client(broker_id).ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
        assert [each.transactional_id for each in listed.transaction_states] == names
