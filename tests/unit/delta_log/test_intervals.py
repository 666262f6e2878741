"""Intervals of table properties."""

from __future__ import annotations

import pytest

from sparkonce.offset_store.log.intervals import DAY_MS, interval_ms, retention_ms


def test_intervals_are_read_as_spark_reads_them() -> None:
    hour = DAY_MS // 24
    read = {
        "interval 30 days": 30 * DAY_MS,
        "INTERVAL 1 WEEK": 7 * DAY_MS,
        " interval  36 hours ": 36 * hour,
        "2 weeks": 14 * DAY_MS,
        "interval 1 day 2 hours 3 minutes": DAY_MS + 2 * hour + 180_000,
        "interval 1.5 seconds": 1_500,
        "interval .25 second": 250,
        "interval 2 days -1 hour": 2 * DAY_MS - hour,
        "interval + 5 milliseconds": 5,
        "interval 1999 microseconds": 1,
        "interval 0 days": 0,
    }
    assert {text: interval_ms(text) for text in read} == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "30",
        "days",
        "interval 1 month",
        "1 year",
        "1.5 days",
        "1day",
        "interval 1 day,",
        "-1 day",
        "1 dayss",
    ],
)
def test_other_texts_are_no_intervals(text: str) -> None:
    with pytest.raises(ValueError, match="is no interval"):
        interval_ms(text)


def test_a_retention_that_says_nothing_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    properties = {"delta.logRetentionDuration": "interval of this test"}
    assert [retention_ms(properties, "delta.logRetentionDuration", "interval 1 day") for _ in range(3)] == [None] * 3
    assert retention_ms({}, "delta.logRetentionDuration", "interval 1 day") == DAY_MS
    assert [record.getMessage() for record in caplog.records] == [
        "nothing expires by the table property delta.logRetentionDuration: 'interval of this test' is no interval of "
        "weeks, days, hours, minutes or seconds"
    ]
