"""Ends that stay words until rows are read: which pieces have them, and what they come to."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_source import reading
from sparkonce.connectors.kafka_source.offset_rules import OffsetRule
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.ranges import FetchRange, KafkaInputPartition, RecreatedTopicError
from sparkonce.connectors.kafka_source.resolving import Slot, close, is_open, leave_open
from sparkonce.kafka.client.client import EARLIEST, LATEST
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition

WORDS = OffsetRule(EARLIEST), OffsetRule(LATEST)


def task(*pieces: tuple[int, int, int]) -> KafkaInputPartition:
    return KafkaInputPartition(tuple(FetchRange("t", "id", *piece) for piece in pieces))


def opened(
    tasks: list[KafkaInputPartition], starting: OffsetRule, ending: OffsetRule, *bounds: tuple[int, int]
) -> list[list[tuple[int, int, int]]]:
    ranges = {TopicPartition("t", "id", number): OffsetRange(*extent) for number, extent in enumerate(bounds)}
    found = leave_open(tasks, ranges, starting, ending)
    return [[(piece.partition, piece.start, piece.end) for piece in each.wanted] for each in found]


def test_only_the_outermost_ends_are_words() -> None:
    tasks = [task((0, 5, 7)), task((0, 7, 9)), task((0, 9, 12)), task((1, 0, 3))]
    assert opened(tasks, *WORDS, (5, 12), (0, 3)) == [
        [(0, EARLIEST, 7)],
        [(0, 7, 9)],
        [(0, 9, LATEST)],
        [(1, EARLIEST, LATEST)],
    ]


def test_numbers_and_timestamps_stay() -> None:
    tasks = [task((0, 5, 7), (1, 0, 3))]
    each = OffsetRule(each={("t", 0): 5, ("t", 1): EARLIEST}), OffsetRule(each={("t", 0): LATEST, ("t", 1): 3})
    assert opened(tasks, *each, (5, 7), (0, 3)) == [[(0, 5, LATEST), (1, EARLIEST, 3)]]
    by_topic = OffsetRule(each_topic={"t": EARLIEST}), OffsetRule(timestamp_ms=1)
    assert opened(tasks, *by_topic, (5, 7), (0, 3)) == [[(0, EARLIEST, 7), (1, EARLIEST, 3)]]


def test_what_is_empty_now_is_read_by_the_last_task_if_it_may_grow() -> None:
    tasks = [task((0, 0, 3)), task((1, 0, 3))]
    assert opened(tasks, *WORDS, (0, 3), (0, 3), (4, 4)) == [
        [(0, EARLIEST, LATEST)],
        [(1, EARLIEST, LATEST), (2, EARLIEST, LATEST)],
    ]
    assert opened([], *WORDS, (0, 0)) == [[(0, EARLIEST, LATEST)]]
    assert opened([], OffsetRule(EARLIEST), OffsetRule(each={("t", 0): 0}), (0, 0)) == []


def test_words_come_to_offsets_by_one_question_each() -> None:
    asked = []

    def ask(word: int, slots: Collection[Slot]) -> dict[Slot, int]:
        asked.append((word, sorted(slots)))
        return {(topic, partition): {EARLIEST: 4, LATEST: 9}[word] + partition for topic, partition in slots}

    wanted = task((0, EARLIEST, LATEST), (1, EARLIEST, 7), (2, 6, LATEST), (3, 1, 2)).wanted
    assert [is_open(piece) for piece in wanted] == [True, True, True, False]
    closed = close(wanted, ask)
    assert [(piece.partition, piece.start, piece.end) for piece in closed] == [
        (0, 4, 9),
        (1, 5, 7),
        (2, 6, 11),
        (3, 1, 2),
    ]
    assert asked == [(EARLIEST, [("t", 0), ("t", 1)]), (LATEST, [("t", 0), ("t", 2)])]


def test_a_task_of_many_ranges_is_one_call_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts calls to find the moment when nothing is garbage, which is not between two ranges."""
    done: list[str] = []

    def read_range(*_: object) -> list[object]:
        done.append("range")
        return []

    monkeypatch.setattr(reading, "begin_call", lambda: done.append("call"))
    monkeypatch.setattr(reading, "read_range", read_range)
    options = SourceOptions.read({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    list(reading.read_ranges(options, task((0, 1, 2), (1, 1, 2), (2, 1, 2)).wanted))
    assert done == ["call", "range", "range", "range"]


def test_a_piece_that_has_aged_out_or_is_still_empty_is_left_out() -> None:
    wanted = task((0, EARLIEST, 6), (0, 8, LATEST)).wanted
    assert close(wanted, lambda word, slots: dict.fromkeys(slots, 8)) == []


def batch_options(broker: EmbeddedBroker, **more: str) -> SourceOptions:
    return SourceOptions.read({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", **more})


@pytest.mark.parametrize("topic_id", ["", "AAAAAAAAAAAAAAAAAAAAAA"], ids=["gone", "another"])
def test_a_topic_that_went_after_planning_stops_the_query_or_is_passed_over(
    topic_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "other" if topic_id else "never"
    wanted = [FetchRange(topic, topic_id, 0, EARLIEST, LATEST)]
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("other", 1)])["other"].result()
        producer.produce("other", b"x")
        assert producer.flush(30) == 0
        with pytest.raises((MissingTopicError, RecreatedTopicError)):
            list(reading.read_ranges(batch_options(broker), wanted))
        assert list(reading.read_ranges(batch_options(broker, failOnDataLoss="false"), wanted)) == []
    assert "some data may have been lost" in caplog.text
