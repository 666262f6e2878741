"""Trigger.AvailableNow: what a run reads is fixed when it begins, or where it first sees a partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkonce.connectors.kafka_source.group_commits import GroupCommitter
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.source import KafkaOnceStreamReader
from sparkonce.kafka.client.metadata import EpochEnd, Leader, MissingTopicError, TopicMetadata

LEADER = Leader("h", 1, 0)
CHECKPOINT = {
    "source": "kafka",
    "sparkonce": 1,
    "topics": {"t": {"id": "id", "partitions": {str(each): {"next": 5, "origin": 0} for each in (0, 1)}}},
}


class Brokers:
    """Stands in for the client: each question for offsets finds ten records more."""

    def __init__(self) -> None:
        self.known: tuple[int, ...] = (0, 1)
        self.end = 100
        self.failures = 0

    def existing_topics(self, _names: object, _: set[str] | None = None) -> dict[str, TopicMetadata]:
        return {"t": TopicMetadata("t", "id", dict.fromkeys(self.known, LEADER))}

    def send_behind(self, _wanted: object, _known: object) -> None:
        pass

    def epoch_ends(self, _wanted: object, _known: object) -> dict[tuple[str, int], EpochEnd]:
        return {}  # as brokers before Kafka 2.1

    def offsets(self, wanted: Mapping[tuple[str, int], int], _known: object, **_: bool) -> dict[tuple[str, int], int]:
        if self.failures:
            self.failures -= 1
            raise MissingTopicError("topic t does not exist")
        self.end += 10
        return dict.fromkeys(wanted, self.end)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def made(brokers: Brokers, **options: str) -> KafkaOnceStreamReader:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "fetchOffset.retryIntervalMs": "0", **options}
    reader = KafkaOnceStreamReader(SourceOptions.read(given))
    reader._plan()._client = brokers  # type: ignore[assignment]
    return reader


@pytest.fixture
def reader(brokers: Brokers) -> KafkaOnceStreamReader:
    return made(brokers)


def test_a_batch_with_records_does_not_wait_for_the_group(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a planning that finds nothing waits: Spark may end the process after it."""
    told: list[str] = []
    monkeypatch.setattr(GroupCommitter, "offer", lambda *_: told.append("offered"))
    monkeypatch.setattr(GroupCommitter, "settle_once", lambda *_: told.append("waited"))
    reader = made(brokers, commitGroup="g")
    reader.prepareForTriggerAvailableNow()
    end, _ = plan(reader, CHECKPOINT)
    assert told == ["offered"]
    assert plan(reader, end)[0] == end
    assert told == ["offered", "offered", "waited"]


def test_the_next_batch_is_planned_while_this_one_runs(
    reader: KafkaOnceStreamReader, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.prepareForTriggerAvailableNow()
    end, _ = plan(reader, CHECKPOINT)
    assert len(reader.partitions(CHECKPOINT, end)) == 1
    assert reader._ahead is not None
    reader._ahead.wait()
    asked = brokers.end
    assert len(reader.partitions(CHECKPOINT, end)) == 1, "as for each use of the rows in foreachBatch"
    reader._ahead.wait()
    assert brokers.end == asked, "and the plan that is there is kept: only one thread may use the planner"
    monkeypatch.setattr(Planner, "survey", None)
    assert plan(reader, end)[0] == end
    assert brokers.end == asked, "nothing is asked again"


def test_a_plan_that_failed_is_made_again_when_it_is_needed(reader: KafkaOnceStreamReader, brokers: Brokers) -> None:
    reader.prepareForTriggerAvailableNow()
    end, _ = plan(reader, CHECKPOINT)
    brokers.failures = 99
    reader.partitions(CHECKPOINT, end)
    assert reader._ahead is not None
    reader._ahead.wait()
    assert 0 < brokers.failures < 99
    with pytest.raises(MissingTopicError):
        plan(reader, end)
    brokers.failures = 0
    assert plan(reader, end)[0] == end


def test_a_query_that_goes_on_plans_each_batch_when_it_begins(reader: KafkaOnceStreamReader) -> None:
    end, offsets = plan(reader, CHECKPOINT)
    reader.partitions(CHECKPOINT, end)
    assert reader._ahead is None
    assert plan(reader, end)[1]["0"] == offsets["0"] + 10


def plan(reader: KafkaOnceStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    end = reader.latestOffset(start, ReadAllAvailable())
    return end, {number: at["next"] for number, at in end["topics"]["t"]["partitions"].items()}


def test_a_partition_that_was_missing_at_the_beginning_ends_where_it_is_first_seen(
    reader: KafkaOnceStreamReader, brokers: Brokers
) -> None:
    """Metadata of a broker that is behind; to the latest offset of each planning, the run would never end."""
    brokers.known = (0,)
    reader.prepareForTriggerAvailableNow()
    brokers.known = (0, 1)
    first, offsets = plan(reader, CHECKPOINT)
    assert offsets == {"0": 110, "1": 120}
    second, _ = plan(reader, first)
    assert second == first
    assert brokers.end > 120


def test_a_topic_that_vanishes_between_the_questions_is_looked_for_again(
    reader: KafkaOnceStreamReader, brokers: Brokers
) -> None:
    brokers.failures = 1
    reader.prepareForTriggerAvailableNow()
    assert plan(reader, CHECKPOINT)[1] == {"0": 110, "1": 110}
