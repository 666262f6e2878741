"""Transactions of one producer over a topic of three partitions, in a cluster that does what a script says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.control_records import read_end_marker
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, decode_records, encode_batch, scan
from tests.unit.broker.script import Call, Script, Sent, error_of

NAME = "x"
PARTITIONS = 3


@contextmanager
def three_brokers(settings: Mapping[str, str] | None = None) -> Iterator[Script]:
    """The coordinator of transactions is broker 1, of groups broker 2; all three lead a partition each of topic t."""
    internal = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
    with Script(**internal) as script:
        script.create_topic("t", [1, 2, 3], settings)
        script.create_topic(OFFSETS_TOPIC, [2])
        script.create_topic(TRANSACTIONS_TOPIC, [1])
        yield script


def init(script: Script, coordinator: int = 1, name: str = NAME, timeout_ms: int = 60_000) -> Producer:
    answer = script.ask(
        coordinator, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=timeout_ms
    )
    assert error_of(answer) is ErrorCode.NONE
    return Producer(name, answer.producer_id, answer.producer_epoch)


def send_write(
    script: Script, producer: Producer, index: int, value: bytes = b"v", version: int = 12, sequence: int = 0
) -> Call:
    """Write a record to partition `index` of topic t, as the first of its transaction there."""
    leader = script.leader("t", index)
    batch = encode_batch(
        [Record(None, value, script.brokers[leader].now_ms())],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    wanted = produce.ProduceTopic("t", ZERO_UUID, [produce.ProducePartition(index, batch)])
    asked = produce.ProduceRequest(producer.transactional_id, -1, 1_000, [wanted])
    return script.send_bytes(leader, ApiKey.PRODUCE, version, produce.encode_request(version, asked))


def write(script: Script, producer: Producer, indexes: range = range(PARTITIONS)) -> None:
    """Write to partitions; KIP-890's second part adds them to the transaction."""
    for index in indexes:
        assert error_of(script.answer(send_write(script, producer, index))) is ErrorCode.NONE


def add_partition(script: Script, producer: Producer, index: int, topic: str = "t", coordinator: int = 1) -> Call:
    """Add a partition as clients without KIP-890's second part do."""
    return script.send(
        coordinator,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[(topic, [index])],
    )


def error_told(answer: Any) -> ErrorCode:
    """Return the error of an answer about a partition to be added, or about anything else."""
    for each in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        return ErrorCode(each.results_by_partition[0].partition_error_code)
    return error_of(answer)


def end(script: Script, producer: Producer, committed: bool = True, version: int = 5, coordinator: int = 1) -> Call:
    return script.send(
        coordinator,
        ApiKey.END_TXN,
        version,
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=committed,
    )


def decide(script: Script, producer: Producer) -> list[Sent]:
    """Commit, and let that become safe; returns the markers that the coordinator sends then, which are held back."""
    with script.holding(ApiKey.WRITE_TXN_MARKERS) as held:
        assert error_of(script.answer(end(script, producer))) is ErrorCode.NONE
        script.until(lambda: len(held) == 2)
        script.pass_time()
    return held


def markers(script: Script, index: int, topic: str = "t") -> list[bool]:
    """Return the ends of transactions in a partition, as its leader has them."""
    log = script.log(topic, index)
    data = log.read(0, 1 << 20, min_one_batch=True).read() if log.log_end_offset else b""
    found = []
    for position, header in scan(data):
        if header.is_control:
            marker = read_end_marker(decode_records(memoryview(data)[position : position + header.size])[0])
            assert marker is not None
            found.append(marker.committed)
    return found


def all_markers(script: Script) -> list[list[bool]]:
    """Return the same of all partitions of topic t."""
    return [markers(script, index) for index in range(PARTITIONS)]


def state(script: Script, coordinator: int, name: str = NAME) -> TransactionState | None:
    known = script.broker(coordinator).transactions.transactions.get(name)
    return None if known is None else known.state


def is_settled(script: Script) -> bool:
    logs = [script.log("t", index) for index in range(PARTITIONS)]
    return all(log.last_stable_offset == log.log_end_offset for log in logs)
