"""Stored offsets beside what a broker says."""

from __future__ import annotations

import pytest

from sparkonce.exactly_once.audit_broker import BrokerTopic, PartitionLog, compare_with_broker
from sparkonce.exactly_once.audit_findings import Chain, Problem
from sparkonce.offset_store.offsets import OffsetRange


def chain(stored: int | None = 20, topic_id: str = "id", partition: int = 0) -> Chain:
    found = Chain("app", "default", "orders", topic_id, partition, stored=stored)
    found.extend(OffsetRange(0, stored or 0), 1)
    return found


def topic(topic_id: str = "id", start: int = 0, end: int = 50) -> BrokerTopic:
    return BrokerTopic(topic_id, {0: PartitionLog(start, end)})


def test_a_lag_is_shown_and_is_no_error() -> None:
    sides, findings = compare_with_broker([chain()], {"orders": topic()})
    assert sides[0].lag == 30
    assert findings == []


@pytest.mark.parametrize(
    ("topic_now", "problem", "words"),
    [
        (None, Problem.TOPIC_DELETED, "the broker has no topic 'orders': it was deleted"),
        (topic("other id"), Problem.TOPIC_RECREATED, "offsets are of id, it is now other id"),
        (topic(end=19), Problem.LOG_TRUNCATED, "20 is stored, and the broker's log ends at 19"),
        (topic(start=21), Problem.RECORDS_EXPIRED, "records [20, 21) were removed before they were read"),
        (BrokerTopic("id", {}), Problem.TOPIC_RECREATED, "no longer has this partition (it has 0)"),
    ],
)
def test_a_chain_that_cannot_go_on_is_an_error(topic_now: BrokerTopic | None, problem: Problem, words: str) -> None:
    _, findings = compare_with_broker([chain()], {"orders": topic_now})
    assert [finding.problem for finding in findings] == [problem]
    assert words in findings[0].message
    assert problem.is_error


def test_the_ends_of_the_log_themselves_are_fine() -> None:
    for log in (topic(end=20), topic(start=20)):
        assert compare_with_broker([chain()], {"orders": log})[1] == []


def test_the_chain_of_an_older_topic_is_over_when_there_is_one_of_the_newer() -> None:
    sides, findings = compare_with_broker([chain(90, "old"), chain(5, "new")], {"orders": topic("new")})
    assert findings == []
    assert (sides[0].lag, sides[1].lag) == (None, 45)


def test_brokers_without_topic_ids_tell_nothing_of_recreation() -> None:
    assert compare_with_broker([chain(topic_id="")], {"orders": topic("")})[1] == []
    assert compare_with_broker([chain()], {"orders": topic("")})[1] == []


def test_a_topic_of_unknown_name_is_told_by_its_id() -> None:
    nameless = Chain("app", "default", "", "id", 0, stored=3)
    _, findings = compare_with_broker([nameless], {"": None})
    assert "topic id id-0" in findings[0].message
    assert "no topic of this id" in findings[0].message
