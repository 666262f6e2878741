"""What a producer knows of topics is asked for anew when it is old, or too little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from sparkonce.connectors.kafka_sink.topics import Topics
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import Leader, TopicMetadata


class FakeClient:
    """A cluster with one topic, to which partitions can be added."""

    def __init__(self) -> None:
        self.partitions = 2
        self.asked = 0
        self.settings: Any = type("Settings", (), {"api_timeout_ms": 1, "retry_backoff_ms": 1})

    def topics_now(self, names: list[str], *, create: bool) -> dict[str, TopicMetadata]:
        assert create
        self.asked += 1
        leaders = {partition: Leader("h", 1, 0) for partition in range(self.partitions)}
        return {name: TopicMetadata(name, "", leaders) for name in names}

    def retry(self, _what: str, attempt: Callable[[], Any]) -> Any:
        return attempt()


def test_partitions_that_are_added_are_seen_when_the_number_is_old() -> None:
    client, now_s = FakeClient(), [100.0]
    topics = Topics(cast(Client, client), 5_000, lambda: now_s[0])
    assert topics.partition_count("t") == 2
    client.partitions = 3
    now_s[0] += 4.9
    assert (topics.partition_count("t"), client.asked) == (2, 1)
    now_s[0] += 0.1
    assert (topics.partition_count("t"), client.asked) == (3, 2)
    assert (topics.partition_count("t"), client.asked) == (3, 2)


def test_a_partition_that_is_not_known_is_asked_for_at_once() -> None:
    client = FakeClient()
    topics = Topics(cast(Client, client))
    assert topics.partition_count("t", 1) == 2
    client.partitions = 3
    assert (topics.partition_count("t", 2), client.asked) == (3, 2)
    assert topics.leader("t", 2) == Leader("h", 1, 0)
    assert client.asked == 2
