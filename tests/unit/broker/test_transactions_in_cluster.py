"""Transactions whose coordinator, or whose partitions' leaders, change half way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkonce.broker_lite.cluster.member import CONTROLLER_TIMEOUT_MS
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.node.markers import ENDING_WAIT_S
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.handling import when
from tests.unit.broker.script import Call, PlantedError, Script, error_of
from tests.unit.broker.scripted_transactions import (
    NAME,
    add_partition,
    all_markers,
    decide,
    end,
    error_told,
    init,
    is_settled,
    send_write,
    state,
    three_brokers,
    write,
)

BLOCK = 1_000
"""How many producer ids the controller hands out at once."""


@pytest.fixture
def script() -> Iterator[Script]:
    with three_brokers() as script:
        yield script


@pytest.fixture
def producer(script: Script) -> Producer:
    """One that has written to all three partitions in a transaction."""
    producer = init(script)
    write(script, producer)
    return producer


def test_a_transaction_over_partitions_of_three_leaders(script: Script, producer: Producer) -> None:
    with script.unheard(1):
        call = end(script, producer)
        script.settle()
        assert call.answer is None, "the decision is not safe yet"
        assert all_markers(script) == [[], [], []]
    answer = script.answer(call)
    assert (error_of(answer), answer.producer_epoch) == (ErrorCode.NONE, producer.epoch + 1)
    script.settle()
    assert all_markers(script) == [[True], [True], [True]]
    assert state(script, 1) is TransactionState.COMPLETE_COMMIT
    assert is_settled(script)


def ask_for_id(script: Script, broker_id: int) -> Call:
    return script.send(broker_id, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1)


def test_producer_ids_come_in_blocks(script: Script) -> None:
    with script.holding(ApiKey.ALLOCATE_PRODUCER_IDS) as held:
        calls = [ask_for_id(script, broker_id) for broker_id in (1, 2)]
        script.settle()
        assert [sent.sender for sent in held] == [1, 2]
        assert [call.answer for call in calls] == [None, None]
        for sent in held:
            sent.deliver()
        assert [script.answer(call).producer_id for call in calls] == [0, BLOCK]
        for number in range(1, BLOCK):
            assert script.answer(ask_for_id(script, 1)).producer_id == number
        assert [sent.sender for sent in held] == [1, 2, 1], "the next block has been asked for in time"
        held[-1].deliver()
        assert script.answer(ask_for_id(script, 1)).producer_id == 2 * BLOCK


def test_without_a_controller_a_producer_is_told_to_try_again(script: Script) -> None:
    with script.holding(ApiKey.ALLOCATE_PRODUCER_IDS):
        call = ask_for_id(script, 1)
        script.pass_time(CONTROLLER_TIMEOUT_MS + 100)
    assert error_of(call.answer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_one_who_waits_for_a_producer_id_and_fails_keeps_no_other_waiting(script: Script) -> None:
    def mistaken(_: None) -> None:
        raise PlantedError

    with script.holding(ApiKey.ALLOCATE_PRODUCER_IDS) as held:
        when(script.broker(1).producer_ids.ready(), mistaken)
        call = ask_for_id(script, 1)
        script.settle()
    held[0].deliver()
    assert error_of(script.answer(call)) is ErrorCode.NONE
    assert len(script.noted) == 1


def test_the_coordinator_dies_before_the_end(script: Script, producer: Producer) -> None:
    script.kill(1)
    script.until(lambda: error_here(script, 2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    script.settle()
    assert state(script, 2) is TransactionState.ONGOING
    assert error_of(script.answer(end(script, producer, coordinator=2))) is ErrorCode.NONE
    script.settle()
    assert all_markers(script) == [[True], [True], [True]]


def error_here(script: Script, broker_id: int) -> ErrorCode:
    return script.broker(broker_id).transactions.partitions.error_of(NAME)


def test_the_coordinator_dies_when_the_decision_is_safe_and_no_marker_is_out(
    script: Script, producer: Producer
) -> None:
    with script.holding(ApiKey.WRITE_TXN_MARKERS):
        assert error_of(script.answer(end(script, producer))) is ErrorCode.NONE
        script.kill(1)
    script.settle()
    assert [ends[-1] for ends in all_markers(script)] == [True, True, True]
    assert state(script, 2) is TransactionState.COMPLETE_COMMIT
    assert is_settled(script)


def test_a_decision_that_was_not_safe_never_was(script: Script, producer: Producer) -> None:
    """No marker went out for it, and nobody was told: the next coordinator may decide otherwise."""
    with script.unheard(1):
        call = end(script, producer)
        script.settle()
        assert state(script, 1) is TransactionState.PREPARE_COMMIT
        script.kill(1, power=True)
    script.settle()
    assert call.answer is None
    assert state(script, 2) is TransactionState.ONGOING
    assert error_of(script.answer(end(script, producer, committed=False, coordinator=2))) is ErrorCode.NONE
    script.settle()
    assert all_markers(script) == [[False], [False], [False]]


def test_a_coordinator_that_is_replaced_does_not_acknowledge(script: Script, producer: Producer) -> None:
    with script.unheard(1):
        call = end(script, producer)
        script.settle()
        script.let_lead(TRANSACTIONS_TOPIC, 0, 2)
        assert error_of(script.answer(call)) is ErrorCode.NOT_COORDINATOR
        script.settle()
    script.settle()
    assert state(script, 1) is None
    assert state(script, 2) is TransactionState.ONGOING


@pytest.mark.parametrize("delivered", [2, 3])
def test_the_coordinator_dies_with_half_of_the_markers_out(script: Script, producer: Producer, delivered: int) -> None:
    held = decide(script, producer)
    assert {sent.receiver for sent in held} == {2, 3}
    next(sent for sent in held if sent.receiver == delivered).deliver()
    script.settle()
    script.kill(1)
    script.settle()
    assert state(script, 2) is TransactionState.COMPLETE_COMMIT
    assert [set(ends) for ends in all_markers(script)] == [{True}, {True}, {True}]
    assert is_settled(script)


def test_markers_go_to_whoever_leads_when_a_leader_dies(script: Script, producer: Producer) -> None:
    held = decide(script, producer)
    script.kill(3)
    for sent in held:
        sent.deliver()
    script.pass_time(1_000)
    assert state(script, 1) is TransactionState.COMPLETE_COMMIT
    assert is_settled(script)


def test_the_answer_of_who_does_not_lead_any_more_is_not_waited_for(script: Script, producer: Producer) -> None:
    """A broker that is paused keeps its connections: no answer comes for a long time, and no error either."""
    held = decide(script, producer)
    for_2, for_3 = (next(sent for sent in held if sent.receiver == receiver) for receiver in (2, 3))
    for_2.deliver()
    script.settle()
    script.let_lead("t", 2, 1)
    script.pass_time(500)
    assert state(script, 1) is TransactionState.COMPLETE_COMMIT
    for_3.deliver()  # it wakes up, and does not lead
    script.settle()
    assert all_markers(script) == [[True], [True], [True]]


def test_a_marker_of_the_former_coordinator_ends_no_later_transaction(script: Script, producer: Producer) -> None:
    late = decide(script, producer)
    script.let_lead(TRANSACTIONS_TOPIC, 0, 2)
    script.settle()
    assert state(script, 2) is TransactionState.COMPLETE_COMMIT
    write(script, Producer(NAME, producer.producer_id, producer.epoch + 1))
    before = all_markers(script)
    for sent in late:
        sent.deliver()
    script.settle()
    assert all_markers(script) == before
    assert state(script, 2) is TransactionState.ONGOING


@pytest.mark.parametrize("how", ["init", "add", "offsets", "write here", "write there"])
def test_what_comes_while_a_transaction_ends_waits_for_its_end(script: Script, producer: Producer, how: str) -> None:
    """The client was told of the decision, and goes on at once; the markers take a moment more."""
    held = decide(script, producer)
    assert state(script, 1) is TransactionState.PREPARE_COMMIT
    call = ask(script, how, Producer(NAME, producer.producer_id, producer.epoch + 1))
    script.pass_time(int(ENDING_WAIT_S * 1000 / 2))
    assert call.answer is None
    for sent in held:
        sent.deliver()
    assert error_told(script.answer(call)) is ErrorCode.NONE
    assert state(script, 1) is (TransactionState.EMPTY if how == "init" else TransactionState.ONGOING)


@pytest.mark.parametrize("how", ["init", "add", "offsets", "write here", "write there"])
def test_it_does_not_wait_for_long(script: Script, producer: Producer, how: str) -> None:
    decide(script, producer)
    call = ask(script, how, Producer(NAME, producer.producer_id, producer.epoch + 1))
    script.pass_time(int(ENDING_WAIT_S * 1000))
    assert error_told(call.answer) is ErrorCode.CONCURRENT_TRANSACTIONS


def ask(script: Script, how: str, producer: Producer) -> Call:
    """Ask for something that only a transaction at rest lets happen."""
    known = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    if how.startswith("write"):
        return send_write(script, producer, 1 if how == "write there" else 0)
    if how == "init":
        asked = {"transactional_id": NAME, "transaction_timeout_ms": 60_000, **known}
        return script.send(1, ApiKey.INIT_PRODUCER_ID, 4, **asked)
    if how == "offsets":
        return script.send(1, ApiKey.ADD_OFFSETS_TO_TXN, 4, transactional_id=NAME, group_id="g", **known)
    return add_partition(script, producer, 0)


def test_a_marker_that_cannot_become_safe_is_not_written() -> None:
    """It would be again each time that it is tried."""
    with three_brokers({"min.insync.replicas": "3"}) as script:
        producer = init(script)
        write(script, producer)
        script.kill(3)
        end(script, producer)
        script.pass_time(20_000)
        assert all_markers(script) == [[], [], []]
        assert state(script, 1) is TransactionState.PREPARE_COMMIT
        script.revive(3)
        script.pass_time(2_000)
        assert all_markers(script) == [[True], [True], [True]]
        assert state(script, 1) is TransactionState.COMPLETE_COMMIT


def test_an_error_that_nobody_knows_keeps_no_marker_from_being_sent_again(script: Script, producer: Producer) -> None:
    """As a broker of a later version may answer it."""
    for sent in decide(script, producer):
        ((_, _, _, places, *_),) = sent.request.markers
        topics = [(topic, [(index, 9_999) for index in indexes]) for topic, indexes in places]
        sent.answer(markers=[(producer.producer_id, topics)])
    script.pass_time()
    assert all_markers(script) == [[True], [], []]
    script.pass_time(500)
    assert all_markers(script) == [[True], [True], [True]]
    assert state(script, 1) is TransactionState.COMPLETE_COMMIT


def test_a_transaction_that_takes_too_long_is_aborted_by_the_next_coordinator(script: Script) -> None:
    write(script, init(script, timeout_ms=5_000))
    script.kill(1)
    script.pass_time(20_000)
    assert state(script, 2) is TransactionState.COMPLETE_ABORT
    assert all_markers(script) == [[False], [False], [False]]


@pytest.mark.parametrize("version", [11, 12])
def test_a_leader_asks_the_coordinator_of_a_transaction(script: Script, version: int) -> None:
    producer = init(script)
    if version == 11:
        assert error_told(script.answer(add_partition(script, producer, 1))) is ErrorCode.NONE
    with script.holding(ApiKey.ADD_PARTITIONS_TO_TXN) as held:
        call = send_write(script, producer, 1, version=version)
        script.settle()
    assert [(sent.sender, sent.receiver) for sent in held] == [(2, 1)]
    assert call.answer is None
    held[0].deliver()
    assert error_of(script.answer(call)) is ErrorCode.NONE
    known = script.broker(1).transactions.transactions.get(NAME)
    assert known is not None
    assert known.partitions == {("t", 1)}


def test_a_partition_that_was_not_added_is_refused_by_the_coordinator(script: Script) -> None:
    call = send_write(script, init(script), 1, version=11)
    assert error_of(script.answer(call)) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_write_is_tried_again_while_there_is_no_coordinator(script: Script) -> None:
    producer = init(script)
    script.brokers[1].die()  # nobody has noticed yet
    call = send_write(script, producer, 1)
    script.pass_time()
    assert error_of(call.answer) is ErrorCode.NOT_ENOUGH_REPLICAS


def commit_offset(script: Script, producer: Producer, offset: int) -> None:
    answer = script.ask(
        2,
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
    assert error_of(answer) is ErrorCode.NONE


def offset_of(script: Script, coordinator: int) -> int | ErrorCode:
    answer = script.ask(
        coordinator, ApiKey.OFFSET_FETCH, 9, groups=[("g", None, -1, [("t", [0])])], require_stable=True
    )
    assert error_of(answer) is ErrorCode.NONE
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code) or int(found.committed_offset)


def test_offsets_count_when_the_transaction_is_committed(script: Script) -> None:
    """The transaction's coordinator is broker 1, the group's broker 2."""
    producer = init(script)
    commit_offset(script, producer, 5)
    assert offset_of(script, 2) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(script, producer)
    script.settle()
    assert offset_of(script, 2) == 5


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_wait_for_their_transaction_under_the_next_coordinator(script: Script, committed: bool) -> None:
    producer = init(script)
    commit_offset(script, producer, 5)
    script.let_lead(OFFSETS_TOPIC, 0, 1)
    script.settle()
    assert not script.broker(2).pending_offsets
    script.kill(2)
    script.settle()
    assert offset_of(script, 1) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(script, producer, committed)
    script.settle()
    assert offset_of(script, 1) == (5 if committed else -1)


def test_a_marker_that_comes_while_a_group_is_read_back_counts(script: Script) -> None:
    producer = init(script)
    commit_offset(script, producer, 5)
    with script.holding(ApiKey.WRITE_TXN_MARKERS):
        end(script, producer)
        script.settle()
        script.let_lead(OFFSETS_TOPIC, 0, 3)
        new = script.broker(3)
        script.until(lambda: new.groups.partitions.error_of("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        marker = Marker(producer.producer_id, producer.epoch + 1, True, 0, 2)
        assert isinstance(new.transactions.write_marker(OFFSETS_TOPIC, 0, marker), int)
        script.settle()
        (committed,) = new.groups.offsets.of_group("g").values()
    assert (committed.offset, committed.topic_id) == (5, script.image.topic_ids["t"])


def test_transactions_are_listed_and_described_by_their_coordinator_alone(script: Script) -> None:
    init(script)
    described = script.ask(2, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME])
    assert ErrorCode(described.transaction_states[0].error_code) is ErrorCode.NOT_COORDINATOR
    described = script.ask(1, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME])
    assert described.transaction_states[0].transaction_state == "Empty"
    for broker_id, names in ((1, [NAME]), (2, [])):
        listed = script.ask(broker_id, ApiKey.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
        assert [each.transactional_id for each in listed.transaction_states] == names
