"""minOffsetsPerTrigger, minOffsetsPerTopic and maxTriggerDelay: what is put off, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkonce.connectors.kafka_source.planning import TopicDelays, TriggerDelay


def test_a_small_backlog_waits_until_it_is_large_or_time_is_up() -> None:
    """KafkaMicroBatchStream.delayBatch, with a first batch that never waits."""
    delay = TriggerDelay(min_records=10, max_delay_ms=1000)
    assert not delay.holds_back(1, 0)
    assert delay.holds_back(9, 999)
    assert not delay.holds_back(9, 1000)
    assert not delay.holds_back(10, 1001)
    assert delay.holds_back(9, 2000)
    assert not delay.holds_back(0, 2001)
    assert delay.holds_back(9, 3000)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 700)), max_size=50))
def test_no_record_waits_longer_than_the_delay(looks: list[tuple[int, int]]) -> None:
    delay, now_ms, triggered_ms = TriggerDelay(10, 1000), 0, 0
    for index, (available, later_ms) in enumerate(looks):
        now_ms += later_ms
        held = delay.holds_back(available, now_ms)
        assert held == (index > 0 and available < 10 and now_ms - triggered_ms < 1000)
        triggered_ms = triggered_ms if held else now_ms


def test_each_topic_waits_for_itself() -> None:
    delays = TopicDelays(min_records=10, max_delay_ms=1000)
    assert delays.held_back({"a": 1, "b": 0}, 0) == set()
    assert delays.held_back({"a": 9, "b": 1}, 500) == {"a"}
    assert delays.held_back({"a": 9, "b": 9}, 999) == {"a", "b"}
    assert delays.held_back({"a": 10, "b": 9}, 999) == {"b"}
    assert delays.held_back({"b": 9}, 1500) == set()
    assert delays.held_back({"a": 1}, 1600) == set(), "a topic that was gone is new"
