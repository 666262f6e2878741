"""Producer ids: none is given twice, whatever the directory came from, and a full disk is an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, Producer
from sparkonce.broker_lite.coordinators.transactions import MAX_EPOCH
from sparkonce.broker_lite.node.producer_ids import BLOCK_SIZE, ProducerIds, blocks_in_file
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.test_group_coordinator import Asker
from tests.unit.broker.test_group_coordinator import start as start_with_topic
from tests.unit.broker.test_transaction_coordinator import World, begin

FULL_DISK = OSError(28, "No space left on device")


@pytest.fixture
def world() -> World:
    return World()


def take_over(world: World) -> Asker:
    """Start on what a Kafka broker leaves behind: the same directory without the two files of this one."""
    world.storage.locks.clear()
    for name in ("topics.json", "producer-id-block"):
        del world.storage.files[f"/data/{name}"]
    return Asker(world.start())


def new_producer(asker: Asker, transactional_id: str | None = None) -> Any:
    return asker.ask(
        ApiKey.INIT_PRODUCER_ID,
        5,
        transactional_id=transactional_id,
        transaction_timeout_ms=1_000,
        producer_id=-1,
        producer_epoch=-1,
    )


def test_ids_go_on_over_restarts_and_skip_what_was_left_of_a_block() -> None:
    storage = SimulatedDisk()
    ids = ProducerIds(blocks_in_file(storage, "/ids", lambda: -1))
    assert [ids.take() for _ in range(BLOCK_SIZE + 1)] == list(range(BLOCK_SIZE + 1))
    assert ProducerIds(blocks_in_file(storage, "/ids", lambda: 5)).take() == 2 * BLOCK_SIZE


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"many", b"0\n", b"-5000\n", b"2000\n"])
def test_a_file_that_is_damaged_or_older_than_the_logs_gives_no_id_again(content: bytes) -> None:
    """A new producer's records would be taken for duplicates of a former one's, acknowledged, and not written."""
    storage = SimulatedDisk()
    storage.write("/ids", content, durable=True)
    known = 2 * BLOCK_SIZE + 5
    ids = ProducerIds(blocks_in_file(storage, "/ids", lambda: known))
    assert [ids.take() for _ in range(BLOCK_SIZE + 1)] == list(range(3 * BLOCK_SIZE, 4 * BLOCK_SIZE + 1))
    assert storage.read("/ids") == b"%d\n" % (5 * BLOCK_SIZE)


def test_a_file_that_cannot_be_read_for_a_while_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests during the failure get a retriable error; later ones get an id."""
    storage = SimulatedDisk()
    ids = ProducerIds(blocks_in_file(storage, "/ids", lambda: -1))

    def read(path: str) -> bytes:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "read", read)
        for _ in range(2):
            assert ids.ready().is_complete
            with pytest.raises(KafkaError) as refused:
                ids.take()
            assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ids.take() == 0


@pytest.mark.parametrize(("largest", "first"), [(-1, 0), (0, BLOCK_SIZE), (BLOCK_SIZE, 2 * BLOCK_SIZE)])
def test_without_a_file_they_begin_with_a_block_that_nobody_knows(largest: int, first: int) -> None:
    storage = SimulatedDisk()
    ids = ProducerIds(blocks_in_file(storage, "/ids", lambda: largest))
    assert [ids.take(), ids.take()] == [first, first + 1]
    assert storage.read("/ids") == b"%d\n" % (first + BLOCK_SIZE)


def test_a_directory_that_is_taken_over_has_used_the_ids_of_its_logs(world: World) -> None:
    broker = world.start()
    producer = begin(broker, partitions=1)
    broker.logs.abandon()
    given = new_producer(take_over(world))
    assert given.error_code == 0
    assert given.producer_id == producer.producer_id + BLOCK_SIZE


def test_a_directory_that_is_taken_over_has_used_the_ids_of_its_transactions(world: World) -> None:
    """A producer that has not written anything yet may still do so under its id."""
    asker = start_with_topic(world)
    for _ in range(BLOCK_SIZE):
        asker.broker.producer_ids.take()
    used = new_producer(asker, "x").producer_id
    assert used == BLOCK_SIZE
    asker.broker.logs.abandon()
    assert new_producer(take_over(world)).producer_id == 2 * BLOCK_SIZE


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_disk_that_is_full_is_an_answer(world: World, transactional_id: str | None) -> None:
    asker = start_with_topic(world)
    world.storage.write_error = FULL_DISK
    refused = new_producer(asker, transactional_id)
    assert ErrorCode(refused.error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert refused.producer_id == -1
    world.storage.write_error = None
    assert new_producer(asker, transactional_id).producer_id == 0


def test_the_end_of_the_last_epoch_on_a_full_disk_decides_nothing(world: World) -> None:
    asker = start_with_topic(world)
    broker = asker.broker
    producer_id = new_producer(asker, "x").producer_id
    transactions = broker.transactions.transactions
    known = transactions.get("x")
    assert known is not None
    transactions.applied(replace(known, epoch=MAX_EPOCH - 1))
    producer = Producer("x", producer_id, MAX_EPOCH - 1)
    broker.transactions.carry_out(transactions.add_partitions(producer, [("t", 0)], EPOCH_BUMP, 1))
    for _ in range(BLOCK_SIZE - 1):
        broker.producer_ids.take()

    def commit() -> Any:
        fields = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": MAX_EPOCH - 1}
        return asker.ask(ApiKey.END_TXN, 5, committed=True, **fields)

    world.storage.write_error = FULL_DISK
    assert ErrorCode(commit().error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.storage.write_error = None
    answer = commit()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, BLOCK_SIZE, 0)


def test_offsets_of_a_transaction_are_refused_while_the_topic_that_keeps_them_is_not_there(world: World) -> None:
    asker = Asker(world.start())
    asker.broker.create_topic("t", 2, {})
    answer = asker.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        transactional_id="x",
        group_id="g",
        producer_id=0,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[("t", [(0, 5, -1, "")])],
    )
    assert ErrorCode(answer.topics[0].partitions[0].error_code) is ErrorCode.NOT_COORDINATOR
