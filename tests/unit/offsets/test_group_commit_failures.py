"""What a committer of a group's offsets does when commits fail: nothing is lost, and its thread goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from sparkonce.connectors.kafka_source import group_commits
from sparkonce.connectors.kafka_source.group_commits import REFRESH_S, GroupCommitter
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from sparkonce.kafka.client.tls import tls_context
from sparkonce.offset_store.group import Committed

DEADLINE_S = 30


class Group:
    """Stands in for the coordinator: raises what is in ``failures`` first, then takes offsets."""

    failures: list[Exception]
    taken: list[dict[int, int]]

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def update(self, build: Callable[[Committed], Committed]) -> None:
        if Group.failures:
            raise Group.failures.pop(0)
        Group.taken.append({partition: entry.offset for (_, partition), entry in build({}).items()})


@pytest.fixture
def committer(monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupCommitter]:
    Group.failures, Group.taken = [], []
    monkeypatch.setattr(group_commits, "KafkaGroupOffsets", Group)
    monkeypatch.setattr(group_commits, "RETRY_AFTER_S", 0.05)
    made = GroupCommitter(read_settings({"kafka.bootstrap.servers": "h:1"}), "g")
    yield made
    made.close()


def test_what_is_offered_after_a_failure_is_committed_without_a_further_offer(committer: GroupCommitter) -> None:
    """As the last batch of a query that then is idle, or ends: nobody offers again."""
    Group.failures = [ConnectionError("away")]
    committer.offer({("t", 0): 1, ("t", 1): 7})
    assert committer.settle(DEADLINE_S)
    committer.offer({("t", 0): 2})
    assert committer.settle(DEADLINE_S)
    # In one attempt or, if the time to rest is over by then, in two.
    assert {at: offset for each in Group.taken for at, offset in each.items()} == {0: 2, 1: 7}


def test_what_failed_is_tried_again_by_itself(committer: GroupCommitter) -> None:
    Group.failures = [ConnectionError("away"), ConnectionError("still away")]
    committer.offer({("t", 0): 1})
    with committer._state:
        assert committer._state.wait_for(lambda: Group.taken, DEADLINE_S)
    assert Group.taken == [{0: 1}]


@pytest.mark.parametrize("error", [ValueError("999 is not a valid ErrorCode"), KeyError("x")])
def test_an_error_that_nobody_thought_of_is_told_and_does_not_end_it(
    committer: GroupCommitter, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    Group.failures = [error]
    with caplog.at_level(logging.WARNING, "sparkonce.connectors"):
        committer.offer({("t", 0): 1})
        assert committer.settle(DEADLINE_S)
        committer.offer({("t", 0): 2})
        assert committer.settle(DEADLINE_S)
    assert Group.taken[-1] == {0: 2}
    assert repr(error) in caplog.records[0].getMessage()


def test_a_file_that_is_missing_is_told_when_it_is_first_opened(caplog: pytest.LogCaptureFixture) -> None:
    given = {"bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.truststore.location": "/nowhere"}
    with caplog.at_level(logging.WARNING, "sparkonce.connectors"):
        made = GroupCommitter(read_settings({f"kafka.{name}": text for name, text in given.items()}), "g")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(group_commits, "KafkaGroupOffsets", _Opening)
            made.offer({("t", 0): 1})
            assert made.settle(DEADLINE_S)
            made.close()
    assert "kafka_once: option kafka.ssl.truststore.location=/nowhere cannot be read" in caplog.records[0].getMessage()


class _Opening:
    """Goes as far as a connection does before it sends anything."""

    def __init__(self, client: Client, *_: object, **__: object) -> None:
        self._client = client

    def update(self, _build: object) -> None:
        assert self._client.settings.tls is not None
        tls_context(self._client.settings.tls)


def test_offsets_that_stand_still_are_committed_again_without_an_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener of an idle query hears of no batch, and Kafka forgets a group of which nothing is heard."""
    Group.failures, Group.taken = [], []
    monkeypatch.setattr(group_commits, "KafkaGroupOffsets", Group)
    now = [0.0]
    made = GroupCommitter(read_settings({"kafka.bootstrap.servers": "h:1"}), "g", lambda: now[0])
    made.offer({("t", 0): 1})
    assert made.settle(DEADLINE_S)
    with made._state:
        now[0] += REFRESH_S
        made._state.notify_all()
        assert made._state.wait_for(lambda: len(Group.taken) == 2, DEADLINE_S)
    made.close()
    assert Group.taken == [{0: 1}, {0: 1}]
