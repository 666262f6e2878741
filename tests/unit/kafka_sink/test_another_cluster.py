"""Records of one cluster written to another: the group there cannot keep offsets of topics that it does not have."""

from __future__ import annotations

import pytest

from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.kafka.client.client import Client
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord
from tests.unit.kafka_sink.pipeline import (
    INPUT,
    SOURCE,
    Application,
    check_nothing_open,
    committed_rows,
    group_offsets,
)
from tests.unit.kafka_sink.test_driver_recovery import claim, die_at

ELSEWHERE = TopicPartition("elsewhere", "AAAAAAAAAAAAAAAAAAAAAQ", 0)
NAMESAKE = TopicPartition(INPUT, "AAAAAAAAAAAAAAAAAAAAAQ", 0)
"""A topic of another cluster that has the name of one here."""


def batch(application: Application, tp: TopicPartition, query_id: str, batch_id: int, start: int, end: int) -> Batch:
    extent = {(SOURCE, tp): OffsetRange(start, end)}
    return Batch(BatchRecord(application.name, query_id, batch_id, f"{query_id}-{batch_id}", extent), False)


@pytest.mark.parametrize("tp", [ELSEWHERE, NAMESAKE], ids=["unknown here", "of the same name"])
def test_offsets_of_another_cluster_are_in_the_decisions(
    application: Application, observer: Client, tp: TopicPartition
) -> None:
    first = application.start("first")
    application.run(first, batch(application, tp, "first", 0, 0, 2), ["a", "b"])
    application.run(first, batch(application, tp, "first", 1, 2, 3), ["c"])
    assert group_offsets(observer, application.name) == {}
    second = application.start("second")
    with pytest.raises(OffsetMismatchError, match="stored 3, batch start 0"):
        application.write(second, batch(application, tp, "second", 0, 0, 4), ["a", "b", "c", "d"])
    application.run(second, batch(application, tp, "second", 0, 3, 4), ["d"])
    assert committed_rows(observer, application.topic) == ["a", "b", "c", "d"]
    check_nothing_open(observer, application)


def test_a_decision_about_records_of_another_cluster_is_taken_back(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = application.start("first")
    application.run(first, batch(application, ELSEWHERE, "first", 0, 0, 2), ["a", "b"])
    again = batch(application, ELSEWHERE, "first", 1, 2, 3)
    written = die_at(application, first, again, TransactionPoint.DECIDED, monkeypatch, ["c"])
    claim(observer, *written.parts)
    application.run(application.start("first"), again, ["c"])
    assert committed_rows(observer, application.topic) == ["a", "b", "c"]
    check_nothing_open(observer, application)
