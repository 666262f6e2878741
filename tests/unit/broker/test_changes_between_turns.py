"""Requests whose work takes several turns, while the cluster moves on: each partition has its answer all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparkonce.broker_lite.handlers import produce as produce_handler
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node import turns
from sparkonce.kafka.protocol import apis, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.unit.broker.script import CONTROLLER, Call, Script

TOPIC = "d"
PARTITIONS = range(4)
TIMEOUT_MS = 1_000


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Return brokers that do a partition in each turn, and a topic whose partitions broker 1 leads."""
    monkeypatch.setattr(turns, "MAX_UNITS_PER_TURN", 1)
    monkeypatch.setattr(produce_handler, "MAX_PARTITIONS_AT_ONCE", 0)
    with Script() as script:
        script.create_topic(TOPIC, [1] * len(PARTITIONS))
        yield script


def first_log(script: Script) -> PartitionLog:
    return script.broker(1).leading(TOPIC, 0).log


def hear_after(
    script: Script, change: Callable[[], object], send: Callable[[], Call], begun: Callable[[], bool]
) -> Call:
    """Let broker 1 hear of a change when it has begun to handle a request, and has more of it to do."""
    with script.blind(1):
        change()
        with script.unheard(1):
            call = send()
            script.until(begun)
            script.hear(1)
            script.pass_time(TIMEOUT_MS)
    return call


def test_records_are_deleted_where_another_broker_leads_by_now(script: Script) -> None:
    script.answer(write(script))
    script.settle()
    kind = apis.request_class(ApiKey.DELETE_RECORDS).DeleteRecordsTopic
    partitions = [kind.DeleteRecordsPartition(version=1, partition_index=index, offset=1) for index in PARTITIONS]
    topics = [kind(version=1, name=TOPIC, partitions=partitions)]
    log = first_log(script)
    call = hear_after(
        script,
        lambda: let_lead_elsewhere(script, 0, 3),
        lambda: script.send(1, ApiKey.DELETE_RECORDS, 1, topics=topics, timeout_ms=TIMEOUT_MS),
        lambda: log.log_start_offset == 1,
    )
    (answered,) = script.answer(call).topics
    is_gone, timed_out = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT
    assert [each.error_code for each in answered.partitions] == [is_gone, timed_out, timed_out, is_gone]


def let_lead_elsewhere(script: Script, *indexes: int) -> None:
    for index in indexes:
        script.let_lead(TOPIC, index, 2)


def write(script: Script) -> Call:
    batch = encode_batch([Record(None, b"v", script.brokers[1].now_ms())])
    wanted = produce.ProduceTopic(TOPIC, ZERO_UUID, [produce.ProducePartition(index, batch) for index in PARTITIONS])
    body = produce.encode_request(9, produce.ProduceRequest(None, -1, TIMEOUT_MS, [wanted]))
    return script.send_bytes(1, ApiKey.PRODUCE, 9, body)


def test_records_are_written_to_a_topic_that_is_deleted_meanwhile(script: Script) -> None:
    log = first_log(script)
    call = hear_after(
        script,
        lambda: script.ask(CONTROLLER, ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=TIMEOUT_MS),
        lambda: write(script),
        lambda: log.log_end_offset == 1,
    )
    (answered,) = script.answer(call).topics
    is_gone, unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in answered.partitions] == [is_gone, is_gone, unknown, unknown]
