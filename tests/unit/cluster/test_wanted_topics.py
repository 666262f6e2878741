"""What a broker logs of a topic that it cannot have yet: once, with what to do about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.node import cluster_topics
from sparkonce.broker_lite.node.cluster_topics import WantedTopics
from sparkonce.kafka.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("topic", "setting"),
    [
        ("__consumer_offsets", "offsets.topic.replication.factor"),
        ("__transaction_state", "transaction.state.log.replication.factor"),
        ("orders", "default.replication.factor"),
    ],
)
def test_a_topic_for_which_brokers_are_missing_is_logged_once(
    topic: str, setting: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[ErrorCode] = []

    def answered(*_: object) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(error_code=codes[-1], error_message="1 is registered")])

    monkeypatch.setattr(cluster_topics, "enclosed_answer", answered)
    envelope = SimpleNamespace(error_code=ErrorCode.NONE)

    async def ask_controller(*_: object) -> Any:
        return envelope

    member: Any = SimpleNamespace(poll=lambda: None, ask_controller=ask_controller)
    dynamic: Any = SimpleNamespace(config=BrokerConfig())
    wanted = WantedTopics(member, dynamic)
    missing = ErrorCode.INVALID_REPLICATION_FACTOR
    for code in (missing, missing, ErrorCode.NONE, missing):
        codes.append(code)
        wanted.request(topic)
    line = (
        f"topic {topic} is not created yet: INVALID_REPLICATION_FACTOR (1 is registered); "
        f"start more brokers, or set a lower {setting}"
    )
    assert [each.message for each in caplog.records] == [line, line]
