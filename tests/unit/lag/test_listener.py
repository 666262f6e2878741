"""The listener, fed with events as Spark makes them from JSON: what it serves, and that nothing goes through it."""

from __future__ import annotations

import logging
import socket
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from sparkonce import LagListener
from sparkonce.connectors.lag.runs import Runs
from sparkonce.connectors.lag.state import LagState
from sparkonce.connectors.sinks.batch_reports import BatchReports
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from sparkonce.offset_store.record import BatchCounts
from sparkonce.options import OptionError

QUERY, RUN = uuid.uuid4(), uuid.uuid4()
AT = "2026-01-02T03:04:05.000Z"


class Streams:
    """Stands in for `spark.streams`."""

    def __init__(self) -> None:
        self.listeners: list[object] = []

    def addListener(self, listener: object) -> None:  # noqa: N802
        self.listeners.append(listener)

    def removeListener(self, listener: object) -> None:  # noqa: N802
        self.listeners.remove(listener)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def streams() -> Streams:
    return Streams()


@pytest.fixture
def reports(tmp_path: Path) -> BatchReports:
    return BatchReports(tmp_path)


@pytest.fixture
def listener(streams: Streams, clock: Clock, reports: BatchReports, tmp_path: Path) -> Iterator[LagListener]:
    (tmp_path / "runs").mkdir()
    spark = SimpleNamespace(streams=streams)
    made = LagListener(spark, LagState(), clock, reports, Runs(tmp_path / "runs"))  # type: ignore[arg-type]
    yield made
    made.stop()


def offset(*next_offsets: int, source: str = "kafka") -> str:
    positions = {TopicPartition("flights", "id", number): Position(0, at) for number, at in enumerate(next_offsets)}
    return SourceOffset(source, positions).to_json()


def progress(*sources: tuple[str | None, str | None], name: str | None = "orders", batch_id: int = 0) -> Any:
    return QueryProgressEvent.fromJson(
        {
            "progress": {
                "id": str(QUERY), "runId": str(RUN), "name": name, "timestamp": AT, "batchId": batch_id,
                "batchDuration": 1500, "durationMs": {}, "stateOperators": [], "numInputRows": 4 * len(sources),
                "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0,
                "sources": [
                    {
                        "description": "d", "startOffset": None, "endOffset": end, "latestOffset": latest,
                        "numInputRows": 4, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0,
                    }
                    for end, latest in sources
                ],
                "sink": {"description": "s", "numOutputRows": -1},
            }
        }
    )  # fmt: skip


def idle() -> Any:
    return QueryIdleEvent(QUERY, RUN, AT)


def started() -> Any:
    return QueryStartedEvent(QUERY, RUN, "orders", AT, set())


def terminated(exception: str | None = None) -> Any:
    return QueryTerminatedEvent(QUERY, RUN, exception, None)


def scraped(listener: LagListener) -> str:
    with urlopen(listener.url, timeout=30) as answer:
        return str(answer.read().decode())


def metrics(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_are_served_on_loopback_until_it_stops(listener: LagListener, streams: Streams) -> None:
    listener.start()
    assert listener.url == f"http://127.0.0.1:{listener.port}/metrics"
    assert streams.listeners == [listener]
    url = listener.url
    listener.onQueryStarted(started())
    listener.onQueryProgress(progress((offset(10, 7), offset(25, 7))))
    found = metrics(scraped(listener))
    query = {"query": "orders", "query_id": str(QUERY)}
    source = {**query, "source": "kafka", "position": "0"}
    first, second = ({**source, "topic": "flights", "partition": str(number)} for number in (0, 1))
    assert found["sparkonce_partition_lag_records"] == [(first, 15), (second, 0)]
    assert found["sparkonce_partition_next_offset"] == [(first, 10), (second, 7)]
    assert found["sparkonce_partition_latest_offset"] == [(first, 25), (second, 7)]
    assert found["sparkonce_source_lag_records"] == [(source, 15)]
    assert found["sparkonce_source_min_offsets_behind_latest"] == [(source, 0)]
    assert found["sparkonce_source_max_offsets_behind_latest"] == [(source, 15)]
    assert found["sparkonce_source_avg_offsets_behind_latest"] == [(source, 7.5)]
    assert found["sparkonce_source_rows"] == [(source, 4)]
    assert found["sparkonce_source_partitions"] == [(source, 2)]
    assert found["sparkonce_rows_total"] == [(query, 4)]
    assert found["sparkonce_last_batch_duration_seconds"] == [(query, 1.5)]
    assert found["sparkonce_batch_duration_seconds_count"] == [(query, 1)]
    buckets = {labels["le"]: count for labels, count in found["sparkonce_batch_duration_seconds_bucket"]}
    assert (buckets["1.0"], buckets["2.5"], buckets["+Inf"]) == (0, 1, 1)
    assert found["sparkonce_batch_duration_seconds_sum"] == [(query, 1.5)]
    assert found["sparkonce_query_active"] == [(query, 1)]
    assert found["sparkonce_listener_errors_total"] == [({}, 0)]
    listener.stop()
    assert streams.listeners == []
    with pytest.raises(OSError, match="refused"):
        urlopen(url, timeout=5)


def test_counts_of_the_sink_add_up_and_each_batch_is_in_a_line(
    listener: LagListener, reports: BatchReports, caplog: pytest.LogCaptureFixture
) -> None:
    counts = BatchCounts(records=4, read_bytes=600, rows=3, dead_letters=1, files=1, written_bytes=200)
    query = {"query": "orders", "query_id": str(QUERY)}
    with caplog.at_level(logging.INFO, "sparkonce"):
        listener.onQueryProgress(progress((offset(1), offset(2)), batch_id=6))
        assert "sparkonce_written_rows_total" not in metrics(listener.metrics_text()), "another sink reports nothing"
        for batch_id in (7, 8):
            reports.add(str(QUERY), batch_id, counts)
            listener.onQueryProgress(progress((offset(1), offset(2)), batch_id=batch_id))
        listener.onQueryTerminated(terminated())
    found = metrics(listener.metrics_text())
    assert found["sparkonce_counted_batches_total"] == [(query, 2)]
    assert found["sparkonce_batch_duration_seconds_count"] == [(query, 3)]
    assert found["sparkonce_rows_total"] == [(query, 12)]
    assert found["sparkonce_read_bytes_total"] == [(query, 1200)]
    assert found["sparkonce_written_rows_total"] == [(query, 6)]
    assert found["sparkonce_dead_letters_total"] == [(query, 2)]
    assert found["sparkonce_written_files_total"] == [(query, 2)]
    assert found["sparkonce_written_bytes_total"] == [(query, 400)]
    assert [value for _, value in found["sparkonce_last_batch_records_per_second"]] == [pytest.approx(4 / 1.5)]
    (known,) = listener.queries()
    assert known.batch_counts == counts
    assert (known.read_bytes_per_second, known.written_rows_per_second) == (400, pytest.approx(4 / 1.5))
    assert [line.message[:40] for line in caplog.records] == [
        "orders: batch 6: 4 records read in 1.5 s",
        "orders: ended after 3 batches: 12 record",
    ]


def test_age_and_silence_grow_with_the_clock(listener: LagListener, clock: Clock) -> None:
    listener.onQueryProgress(progress((offset(1), offset(1))))
    clock.now += 30
    listener.onQueryIdle(idle())
    clock.now += 12
    found = metrics(listener.metrics_text())
    assert [value for _, value in found["sparkonce_batch_age_seconds"]] == [42]
    assert [value for _, value in found["sparkonce_query_silence_seconds"]] == [12]


@pytest.mark.parametrize(
    ("exception", "failed", "fenced"),
    [(None, 0, 0), ("boom", 1, 0), ("… sparkonce.exactly_once.errors.FencedError: batch 0 of query q …", 1, 1)],
)
def test_an_end_shows_until_it_is_forgotten(
    listener: LagListener, clock: Clock, exception: str | None, failed: int, fenced: int
) -> None:
    listener.onQueryStarted(started())
    assert "sparkonce_batch_age_seconds" not in metrics(listener.metrics_text())
    listener.onQueryTerminated(terminated(exception))
    found = metrics(listener.metrics_text())
    assert [value for _, value in found["sparkonce_query_active"]] == [0]
    assert [value for _, value in found["sparkonce_query_failed"]] == [failed]
    assert [value for _, value in found["sparkonce_query_fenced"]] == [fenced]
    clock.now += 301
    assert "sparkonce_query_active" not in metrics(listener.metrics_text())


def test_two_sources_of_one_name_and_one_of_another_kind_are_told_apart(listener: LagListener) -> None:
    listener.onQueryProgress(
        progress((offset(1), offset(2)), (offset(3), offset(5)), ('{"logOffset":0}', None), name=None)
    )
    found = metrics(listener.metrics_text())
    lags = {labels["position"]: value for labels, value in found["sparkonce_partition_lag_records"]}
    assert lags == {"0": 1, "1": 2}
    assert {labels["query"] for labels, _ in found["sparkonce_source_rows"]} == {str(QUERY)}
    assert len(found["sparkonce_source_rows"]) == 3


def test_an_event_that_makes_no_sense_is_counted_and_logged_once(
    listener: LagListener, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            listener.onQueryProgress(SimpleNamespace(progress=None))  # type: ignore[arg-type]
    assert len(caplog.records) == 1
    listener.onQueryProgress(progress((offset(1), offset(2))))
    found = metrics(listener.metrics_text())
    assert found["sparkonce_listener_errors_total"] == [({}, 3)]
    assert [value for _, value in found["sparkonce_partition_lag_records"]] == [1]


def test_it_starts_once_and_stops_at_leisure(listener: LagListener) -> None:
    with pytest.raises(RuntimeError, match="no metrics are served"):
        _ = listener.port
    listener.start(port=None)
    with pytest.raises(RuntimeError, match="listens already"):
        listener.start()
    with pytest.raises(RuntimeError, match="no metrics are served"):
        _ = listener.url
    listener.onQueryProgress(progress((offset(1), offset(2))))
    assert "sparkonce_partition_lag_records{" in listener.metrics_text()
    listener.stop()
    listener.stop()


def test_a_port_that_is_taken_is_named(listener: LagListener, streams: Streams) -> None:
    listener.start()
    other = LagListener(SimpleNamespace(streams=streams))  # type: ignore[arg-type]
    with pytest.raises(OSError, match=f"metrics cannot be served at 127.0.0.1:{listener.port}: "):
        other.start(listener.port)
    assert streams.listeners == [listener]


def test_nothing_is_served_for_a_session_that_takes_no_listener(streams: Streams) -> None:
    def gone(_: object) -> None:
        raise RuntimeError("the session is gone")

    streams.addListener = gone  # type: ignore[method-assign]
    lag = LagListener(SimpleNamespace(streams=streams))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the session is gone"):
        lag.start()
    with pytest.raises(RuntimeError, match="no metrics are served"):
        _ = lag.port


def test_an_address_of_ipv6_stands_in_brackets(listener: LagListener) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    listener.start(address="::1")
    assert listener.url == f"http://[::1]:{listener.port}/metrics"
    assert "sparkonce" in scraped(listener)


def test_a_session_that_is_gone_does_not_hinder_the_end(listener: LagListener, streams: Streams) -> None:
    listener.start(port=None)
    streams.listeners.clear()
    listener.stop()


def test_a_group_without_kafka_or_a_name_is_refused(listener: LagListener) -> None:
    with pytest.raises(OptionError, match=r"option kafka\.bootstrap\.servers"):
        listener.commit_group("lag", {})
    with pytest.raises(ValueError, match="expected the id of a consumer group"):
        listener.commit_group(" ", {"kafka.bootstrap.servers": "localhost:9"})


def test_memory_stays_flat_over_batches_of_a_thousand_partitions(listener: LagListener) -> None:
    def batches(count: int) -> None:
        for batch_id in range(count):
            end = offset(*range(batch_id, batch_id + 1_000))
            listener.onQueryProgress(progress((end, end), batch_id=batch_id))

    batches(2)
    tracemalloc.start()
    try:
        batches(2)
        before, _ = tracemalloc.get_traced_memory()
        batches(6)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000


def test_others_on_the_machine_read_whether_a_query_runs(listener: LagListener, tmp_path: Path) -> None:
    def noted() -> str | None:
        found = Runs(tmp_path / "runs").find(str(QUERY))
        return None if found is None else found.state

    listener.start(port=None)
    events: list[tuple[Callable[[Any], None], Any, str]] = [
        (listener.onQueryStarted, started(), "running"),
        (listener.onQueryIdle, idle(), "idle"),
        (listener.onQueryProgress, progress((offset(1), offset(2))), "running"),
        (listener.onQueryTerminated, terminated("x"), "failed"),
        (listener.onQueryStarted, started(), "running"),
        (listener.onQueryTerminated, terminated("org.x: FencedError: y"), "fenced"),
        (listener.onQueryStarted, started(), "running"),
        (listener.onQueryTerminated, terminated(), "ended"),
    ]
    for call, event, state in events:
        call(event)
        assert noted() == state
    listener.onQueryStarted(QueryStartedEvent(QUERY, uuid.uuid4(), "orders", AT, set()))
    assert noted() == "running"
    listener.stop()
    assert noted() is None, "nobody hears of it any more"
