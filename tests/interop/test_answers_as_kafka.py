"""The broker answers as Apache Kafka did when the answers were kept; and Kafka still does."""

from __future__ import annotations

import pytest

from lab.peers import missing_kafka_reason
from sparkonce import EmbeddedBroker
from tests.interop import answers


@pytest.mark.parametrize("chapter", sorted(answers.CHAPTERS))
def test_the_broker_answers_as_kafka_did(chapter: str) -> None:
    with EmbeddedBroker(config=answers.SETTINGS) as broker:
        assert answers.CHAPTERS[chapter](broker.bootstrap_servers) == answers.RECORDED[chapter]


@pytest.mark.java
@pytest.mark.soak
def test_the_answers_that_are_kept_are_kafkas() -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    assert answers.play_kafka() == answers.RECORDED
