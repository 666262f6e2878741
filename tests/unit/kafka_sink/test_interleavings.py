"""Two drivers of one application between each other's requests, and a topic that could not be seen for a moment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparkonce.connectors.kafka_sink.driver import Driver
from sparkonce.connectors.kafka_sink.topics import Topics
from sparkonce.connectors.kafka_sink.transactions import FencedProducerError, ProducerIdentity, State
from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.exactly_once.transactions import Decision, Decisions
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import MissingTopicError
from tests.unit.kafka_sink.pipeline import INPUT, Application, check_whole, committed_rows, group_offsets
from tests.unit.kafka_sink.transactions_support import OUTPUT_TOPIC, SOURCE_TOPIC, Pipeline


@pytest.fixture
def pipeline(observer: Client) -> Pipeline:
    Topics(observer).refresh([SOURCE_TOPIC, OUTPUT_TOPIC])
    return Pipeline(observer)


def test_a_decision_of_the_driver_that_took_over_is_not_taken_back(
    pipeline: Pipeline, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes over, undoes and decides between the look of the first one and its claim."""
    gone = pipeline.task(0)
    lost = pipeline.decide(gone)
    pipeline.lose(gone)
    is_current, others = Driver.is_current, []

    def held(driver: Driver, identity: ProducerIdentity) -> bool:
        found = is_current(driver, identity)
        if not others:
            others.append(Pipeline(observer, app_id=pipeline.app_id))
            others[0].decide(others[0].task(1))
        return found

    monkeypatch.setattr(Driver, "is_current", held)
    pipeline.driver.take_back(lost, pipeline.identity)
    taken: list[int] = []
    take = Decisions.take

    def listed(decisions: Decisions, is_note: bool, value: bytes | None) -> None:
        if not is_note:
            taken.append(Decision.from_json((value or b"").decode()).number)
        take(decisions, is_note, value)

    monkeypatch.setattr(Decisions, "take", listed)
    standing = pipeline.another_driver().log.read()
    # In the order of the log: compaction keeps the last record only, whatever its number.
    assert taken == [1, 2, 3]
    assert standing.last is not None
    assert not standing.last.undone
    restarted = Pipeline(observer, app_id=pipeline.app_id)
    assert len(restarted.visible()) == 3
    assert restarted.driver.log.read().unfinished is None


def test_a_weaker_guarantee_fences_a_driver_before_it_aborts_its_tasks(
    pipeline: Pipeline, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise that one could decide, and commit a part, between the list of open transactions and their end."""
    first = pipeline.task(0)
    pipeline.driver.finish(pipeline.decide(first))
    pipeline.next_batch()
    one, two = pipeline.task(1), pipeline.task(2)
    other = pipeline.another_driver()
    states = other.transactions.states

    def held(prefix: str, wanted: Sequence[State]) -> dict[str, State]:
        found = states(prefix, wanted)
        with pytest.raises(FencedProducerError):
            pipeline.decide(one, two)
        return found

    monkeypatch.setattr(other.transactions, "states", held)
    other.settle_earlier()
    again = Pipeline(observer, app_id=pipeline.app_id, batch_id=1)
    again.driver.finish(again.decide(again.task(1), again.task(2)))
    rows = again.visible()
    assert len(rows) == len(set(rows)) == 9


def test_a_source_topic_that_was_not_seen_once_doubles_nothing(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = application.start("first")
    application.run(first, application.batch(first, 0, 0, 2))
    topics, failures = Client.topics, [MissingTopicError("metadata lag behind")]

    def once(client: Client, names: Sequence[str]) -> object:
        if list(names) == [INPUT] and failures:
            raise failures.pop()
        return topics(client, names)

    # Processes that have not seen the topic yet; theirs is the one look that fails.
    second = application.start("first")
    written = application.write(second, application.batch(second, 1, 2, 4))
    with monkeypatch.context() as patch:
        patch.setattr(Client, "topics", once)
        application.finish(second, written)
    assert failures == []
    begins_at = min(group_offsets(observer, application.name).values())
    third = application.start("third")
    if begins_at < 4:  # where a source without a checkpoint would begin
        with pytest.raises(OffsetMismatchError, match="overlap"):
            application.run(third, application.batch(third, 0, begins_at, 6))
    application.run(third, application.batch(third, 0, 4, 6))
    rows = committed_rows(observer, application.topic)
    assert len(rows) == len(set(rows))
    check_whole(observer, application, 6)
