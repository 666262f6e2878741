"""Requests about transactions: what each error means, and that lost requests and answers make no difference."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.coordinators import transactions as broker_transactions
from sparkonce.connectors.kafka_sink.transactions import (
    FencedProducerError,
    ProducerIdentity,
    State,
    TransactionClient,
    TransactionError,
    transactional_prefix,
)
from sparkonce.kafka.client.client import Client, KafkaUnreachableError
from sparkonce.kafka.client.metadata import leader_of
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from sparkonce.kafka.protocol.records import Record, encode_batch
from sparkonce.offset_store.group import CommittedOffset
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from tests.unit.kafka_sink.pipeline import (
    INPUT,
    Application,
    Machine,
    check_whole,
    committed_rows,
    create_topics,
    held_back,
    impatient_client,
    settings_of,
)

TIMEOUT_MS = 60_000
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"id-{next(_numbers)}"


@pytest.fixture
def topic(observer: Client, name: str) -> str:
    create_topics(observer, f"of-{name}", partitions=2)
    return f"of-{name}"


@pytest.fixture
def transactions(observer: Client) -> TransactionClient:
    return TransactionClient(observer)


@pytest.fixture
def impatient(shared_broker: EmbeddedBroker) -> Iterator[TransactionClient]:
    """Gives up soon."""
    client = impatient_client(shared_broker)
    yield TransactionClient(client)
    client.close()


def send(client: Client, topic: str, identity: ProducerIdentity, value: str, partition: int = 0) -> None:
    batch = encode_batch(
        [Record(None, value.encode(), 0)],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        transactional=True,
    )
    wanted = ProduceTopic(topic, ZERO_UUID, [ProducePartition(partition, batch)])
    body = produce.encode_request(9, ProduceRequest(identity.name, -1, 30_000, [wanted]))
    address = leader_of(client.topics([topic]), topic, partition).address
    answer = produce.decode_response(9, client.connection(address).request(ApiKey.PRODUCE, 9, body))
    assert answer.topics[0].partitions[0].error_code == 0


def begin(transactions: TransactionClient, client: Client, name: str, topic: str) -> ProducerIdentity:
    identity = transactions.init_producer_id(name, TIMEOUT_MS)
    transactions.add_partitions(identity, [(topic, 1), (topic, 0)])
    send(client, topic, identity, name)
    return identity


def test_a_transaction_from_begin_to_end(
    transactions: TransactionClient, observer: Client, name: str, topic: str
) -> None:
    identity = begin(transactions, observer, name, topic)
    found = transactions.describe([name, "nobody"])
    assert list(found) == [name]
    assert found[name].is_of(identity)
    assert (found[name].state, found[name].timeout_ms) == (State.ONGOING, TIMEOUT_MS)
    assert sorted(found[name].partitions) == [(topic, 0), (topic, 1)]
    assert found[name].started_ms > 0
    assert transactions.open_transactions(name) == [name]
    assert committed_rows(observer, topic) == []
    transactions.end(identity, commit=True)
    transactions.end(identity, commit=True)
    assert committed_rows(observer, topic) == [name]
    assert transactions.describe([name])[name].state.is_committed
    assert transactions.open_transactions(name) == []
    assert held_back(observer, topic) == {}


def test_an_abort(transactions: TransactionClient, observer: Client, name: str, topic: str) -> None:
    identity = begin(transactions, observer, name, topic)
    transactions.end(identity, commit=False)
    transactions.end(identity, commit=False)
    assert committed_rows(observer, topic) == []
    assert held_back(observer, topic) == {}
    found = transactions.describe([name])[name]
    assert (found.state, found.is_of(identity)) == (State.COMPLETE_ABORT, True)


@pytest.mark.parametrize("commit", [True, False])
def test_it_cannot_be_ended_the_other_way(
    commit: bool, transactions: TransactionClient, observer: Client, name: str, topic: str
) -> None:
    identity = begin(transactions, observer, name, topic)
    transactions.end(identity, commit=commit)
    with pytest.raises(TransactionError, match=r"INVALID_TXN_STATE") as refused:
        transactions.end(identity, commit=not commit)
    assert not isinstance(refused.value, FencedProducerError)
    assert committed_rows(observer, topic) == [name] * commit


def test_every_claim_has_an_epoch_of_its_own_and_aborts_what_was_open(
    transactions: TransactionClient, observer: Client, name: str, topic: str
) -> None:
    first = begin(transactions, observer, name, topic)
    second = transactions.init_producer_id(name, TIMEOUT_MS)
    assert (second.producer_id, second.name) == (first.producer_id, name)
    assert second.epoch > first.epoch
    assert committed_rows(observer, topic) == []
    assert transactions.open_transactions(name) == []
    transactions.end(begin(transactions, observer, name, topic), commit=True)
    assert committed_rows(observer, topic) == [name]


STEPS: dict[str, Callable[[TransactionClient, ProducerIdentity, str], None]] = {
    "add_partitions": lambda client, identity, topic: client.add_partitions(identity, [(topic, 0)]),
    "add_offsets": lambda client, identity, topic: client.add_partitions(identity, (), "group"),
    "commit_offsets": lambda client, identity, topic: client.commit_offsets(
        identity, "group", {(INPUT, 0): CommittedOffset(1)}
    ),
    "commit": lambda client, identity, topic: client.end(identity, commit=True),
    "abort": lambda client, identity, topic: client.end(identity, commit=False),
}


@pytest.mark.parametrize("step", STEPS)
def test_whoever_lost_the_id_is_fenced(
    step: str, transactions: TransactionClient, observer: Client, name: str, topic: str
) -> None:
    lost = transactions.init_producer_id(name, TIMEOUT_MS)
    transactions.add_partitions(lost, [(topic, 0)])
    transactions.add_partitions(lost, (), "group")
    transactions.init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(FencedProducerError, match="group" if "offsets" in step else name):
        STEPS[step](transactions, lost, topic)


@pytest.mark.parametrize("step", ["add_partitions", "add_offsets", "commit", "abort"])
def test_an_id_that_nobody_knows_is_fenced(step: str, transactions: TransactionClient, name: str, topic: str) -> None:
    with pytest.raises(FencedProducerError, match="INVALID_PRODUCER_ID_MAPPING"):
        STEPS[step](transactions, ProducerIdentity(name, 4711, 0), topic)


def test_another_producer_id_is_fenced(transactions: TransactionClient, name: str, topic: str) -> None:
    identity = transactions.init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(FencedProducerError):
        transactions.end(ProducerIdentity(name, identity.producer_id + 1, identity.epoch), commit=True)


def test_nothing_to_end(transactions: TransactionClient, name: str) -> None:
    identity = transactions.init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(TransactionError, match="INVALID_TXN_STATE"):
        transactions.end(identity, commit=True)
    transactions.add_partitions(identity, [])
    assert transactions.describe([name])[name].state is State.EMPTY


def test_producers_without_transactions_have_ids_of_their_own(transactions: TransactionClient) -> None:
    made = {transactions.init_producer_id(None, 0) for _ in range(3)}
    assert len({each.producer_id for each in made}) == 3
    assert {each.transactional_id for each in made} == {None}


def test_a_time_out_that_the_brokers_do_not_allow(transactions: TransactionClient, name: str) -> None:
    with pytest.raises(TransactionError, match=r"transaction\.max\.timeout\.ms.*kafka\.transaction\.timeout\.ms lower"):
        transactions.init_producer_id(name, 2**31 - 1)


HINTS = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "begin with sparkonce/",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ and DESCRIBE on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE",
}


@pytest.mark.parametrize("code", HINTS, ids=lambda code: code.name)
def test_rights_that_are_missing_are_named(
    code: ErrorCode, shared_broker: EmbeddedBroker, transactions: TransactionClient, name: str
) -> None:
    identity = transactions.init_producer_id(name, TIMEOUT_MS)
    with (
        shared_broker.faults.fail(code, api="AddOffsetsToTxn", times=1),
        pytest.raises(TransactionError, match=HINTS[code]),
    ):
        transactions.add_partitions(identity, (), "group")


def test_a_topic_that_does_not_exist_is_refused_in_the_end(impatient: TransactionClient, name: str) -> None:
    identity = impatient.init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(TransactionError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        impatient.add_partitions(identity, [("there is none", 0)])


def test_offsets_of_a_topic_of_another_cluster(impatient: TransactionClient, name: str) -> None:
    identity = impatient.init_producer_id(name, TIMEOUT_MS)
    impatient.add_partitions(identity, (), f"group-{name}")
    with pytest.raises(TransactionError, match="on the cluster that the sink writes to"):
        impatient.commit_offsets(identity, f"group-{name}", {("elsewhere", 0): CommittedOffset(1)})


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_when_their_transaction_is_committed(
    commit: bool, transactions: TransactionClient, observer: Client, name: str
) -> None:
    identity, group = transactions.init_producer_id(name, TIMEOUT_MS), KafkaGroupOffsets(observer, f"group-{name}")
    offsets = {(INPUT, 0): CommittedOffset(7, "note"), (INPUT, 1): CommittedOffset(9)}
    transactions.add_partitions(identity, (), f"group-{name}")
    transactions.commit_offsets(identity, f"group-{name}", offsets)
    transactions.end(identity, commit=commit)
    assert group.fetch() == (offsets if commit else {})


APIS = ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn",
        "DescribeTransactions", "ListTransactions"]  # fmt: skip


def whole_transaction(client: Client, transactions: TransactionClient, name: str, topic: str) -> None:
    identity = begin(transactions, client, name, topic)
    transactions.add_partitions(identity, (), f"group-{name}")
    transactions.commit_offsets(identity, f"group-{name}", {(INPUT, 0): CommittedOffset(7)})
    assert transactions.open_transactions(name) == [name]
    assert transactions.describe([name])[name].is_of(identity)
    transactions.end(identity, commit=True)


@pytest.mark.parametrize("trouble", ["drop_before", "drop_after"])
@pytest.mark.parametrize("api", APIS)
def test_a_lost_request_and_a_lost_answer(
    api: str, trouble: str, shared_broker: EmbeddedBroker, observer: Client, name: str, topic: str
) -> None:
    with getattr(shared_broker.faults, trouble)(api=api, times=2):
        whole_transaction(observer, TransactionClient(observer), name, topic)
    assert committed_rows(observer, topic) == [name]
    assert held_back(observer, topic) == {}


PASSING = {
    "a coordinator that has moved": ErrorCode.NOT_COORDINATOR,
    "a coordinator that is loading": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "no coordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "the transaction before": ErrorCode.CONCURRENT_TRANSACTIONS,
}


@pytest.mark.parametrize("error", PASSING)
@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"])
def test_errors_that_pass(
    api: str, error: str, shared_broker: EmbeddedBroker, observer: Client, name: str, topic: str
) -> None:
    with shared_broker.faults.fail(PASSING[error], api=api, times=3):
        whole_transaction(observer, TransactionClient(observer), name, topic)
    assert committed_rows(observer, topic) == [name]


def test_errors_that_do_not_pass_in_time(
    shared_broker: EmbeddedBroker, impatient: TransactionClient, name: str
) -> None:
    with (
        shared_broker.faults.fail("CONCURRENT_TRANSACTIONS", api="InitProducerId"),
        pytest.raises(TransactionError, match="CONCURRENT_TRANSACTIONS"),
    ):
        impatient.init_producer_id(name, TIMEOUT_MS)
    with (
        shared_broker.faults.drop_before(api="InitProducerId"),
        pytest.raises(KafkaUnreachableError, match="claim the transactional id"),
    ):
        impatient.init_producer_id(name, TIMEOUT_MS)


def test_a_partition_that_is_refused_is_named_and_not_the_others(
    impatient: TransactionClient, name: str, topic: str
) -> None:
    identity = impatient.init_producer_id(name, TIMEOUT_MS)
    with pytest.raises(TransactionError, match=f"UNKNOWN_TOPIC_OR_PARTITION: {topic}-9"):
        impatient.add_partitions(identity, [(topic, 0), (topic, 9), (topic, 1)])


def test_many_ids_are_looked_at_in_one_go(
    machine: Machine, transactions: TransactionClient, shared_broker: EmbeddedBroker, name: str
) -> None:
    names = [f"{name}-{number}" for number in range(30)]
    for each in names:
        transactions.init_producer_id(each, TIMEOUT_MS)
    before = machine.requests
    assert sorted(transactions.describe(names)) == sorted(names)
    assert machine.requests == before + 1


def test_only_ids_with_the_prefix_are_listed(
    transactions: TransactionClient, observer: Client, name: str, topic: str
) -> None:
    mine, other = transactional_prefix(name, "1"), transactional_prefix(name, "10")
    begin(transactions, observer, mine + "a", topic)
    begin(transactions, observer, other + "a", topic)
    assert transactions.open_transactions(mine) == [mine + "a"]
    assert transactions.open_transactions(transactional_prefix(name)) == [mine + "a", other + "a"]
    assert transactions.open_transactions(mine, (State.COMPLETE_COMMIT,)) == []


def test_epochs_that_are_used_up(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last epoch a transactional id gets another producer id, and batches go on."""
    monkeypatch.setattr(broker_transactions, "MAX_EPOCH", 6)
    with EmbeddedBroker(config={"num.partitions": 1}) as own:
        client = Client(settings_of(own))
        create_topics(client, INPUT, partitions=2)
        application = Application(machine, own, "exhausted", tasks=2, reuses_workers=True)
        create_topics(client, application.topic)
        incarnation = application.start()
        producer_ids: dict[str, set[int]] = {}
        for batch_id in range(16):
            batch = application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2)
            written = application.run(incarnation, batch)
            identities: list[Any] = [written.plan.identity, *written.parts]
            for each in identities:
                producer_ids.setdefault(each.transactional_id, set()).add(each.producer_id)
        check_whole(client, application, 32)
        client.close()
    assert all(len(found) > 1 for found in producer_ids.values()), producer_ids
