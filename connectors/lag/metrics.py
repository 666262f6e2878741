"""Lag as Prometheus metrics: every scrape takes a snapshot of all queries and returns its metrics.

Nothing is stored here, so the series of a query or a partition end with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sparkonce.connectors.lag.state import BATCH_BOUNDS_S, QueryLag

QUERY = ("query", "query_id")
SOURCE = (*QUERY, "source", "position")
PARTITION = (*SOURCE, "topic", "partition")

_Row = tuple[tuple[str, ...], float]


class LagCollector:
    """Yields the metrics of what ``picture`` returns: the queries, the time now, the errors of the listener so far."""

    def __init__(self, picture: Callable[[], tuple[tuple[QueryLag, ...], float, int]]) -> None:
        self._picture = picture

    def collect(self) -> Iterator[Metric]:
        """Yield all current metrics."""
        queries, now, errors = self._picture()
        yield from _of_queries(queries, now)
        yield from _of_sources(queries)
        yield from _of_partitions(queries)
        failures = CounterMetricFamily("sparkonce_listener_errors", "Events that the listener could not parse.")
        failures.add_metric([], errors)
        yield failures


def _of_queries(queries: Iterable[QueryLag], now: float) -> Iterator[Metric]:
    by_query = [((query.name, query.query_id), query) for query in queries]
    begun = [(labels, query) for labels, query in by_query if query.batch_at is not None]
    yield _gauge(
        "sparkonce_query_active",
        "1 while the query runs, 0 after its end.",
        QUERY,
        ((labels, float(query.ended_at is None)) for labels, query in by_query),
    )
    yield _gauge(
        "sparkonce_query_failed",
        "1 after the query ended with an error.",
        QUERY,
        ((labels, float(query.failed)) for labels, query in by_query),
    )
    yield _gauge(
        "sparkonce_query_fenced",
        "1 after the query ended because another driver wrote with its appId.",
        QUERY,
        ((labels, float(query.fenced)) for labels, query in by_query),
    )
    yield _gauge(
        "sparkonce_query_silence_seconds",
        "Time since the last event of the query: a batch, or that it is idle.",
        QUERY,
        ((labels, now - query.heard_at) for labels, query in by_query),
    )
    yield _gauge(
        "sparkonce_batch_age_seconds",
        "Time since the last batch was done; the lag is older than this by the duration of the batch.",
        QUERY,
        ((labels, now - query.batch_at) for labels, query in begun if query.batch_at is not None),
    )
    yield _gauge(
        "sparkonce_batch_id",
        "Number of the last batch that is done.",
        QUERY,
        ((labels, query.batch_id) for labels, query in begun),
    )
    yield _gauge(
        "sparkonce_last_batch_duration_seconds",
        "How long the last batch took, from its trigger to its end.",
        QUERY,
        ((labels, query.batch_duration_ms / 1000) for labels, query in begun),
    )
    durations = HistogramMetricFamily("sparkonce_batch_duration_seconds", "Batches that are done.", labels=QUERY)
    rows = CounterMetricFamily("sparkonce_rows", "Records that batches have read.", labels=QUERY)
    for labels, query in begun:
        up_to = zip((*map(str, BATCH_BOUNDS_S), "+Inf"), accumulate(query.duration_buckets), strict=True)
        durations.add_metric(labels, list(up_to), query.duration_sum_ms / 1000)
        rows.add_metric(labels, query.rows)
    yield durations
    yield rows
    yield _gauge(
        "sparkonce_last_batch_records_per_second",
        "Records that the last batch has read, by its duration.",
        QUERY,
        ((labels, query.records_per_second) for labels, query in begun),
    )
    yield from _of_counts([(labels, query) for labels, query in begun if query.counted_batches])


def _of_counts(reported: Sequence[tuple[tuple[str, ...], QueryLag]]) -> Iterator[Metric]:
    """Yield the counts of sparkonce's sinks; no series for queries into other sinks."""
    yield _counter(
        "sparkonce_counted_batches",
        "Batches whose sink has reported what it has read and written: those that the next counters cover.",
        ((labels, query.counted_batches) for labels, query in reported),
    )
    yield _counter(
        "sparkonce_read_bytes",
        "Bytes that brokers returned to tasks of the sink, in queries with handOver=ranges.",
        ((labels, query.counts.read_bytes) for labels, query in reported if query.counts.read_bytes is not None),
    )
    for name, field, text in (
        ("sparkonce_written_rows", "rows", "Rows written, without dead letters."),
        ("sparkonce_dead_letters", "dead_letters", "Dead letters written."),
        ("sparkonce_written_files", "files", "Data files written."),
        ("sparkonce_written_bytes", "written_bytes", "Bytes of data files, or of record batches."),
    ):
        yield _counter(name, text, ((labels, getattr(query.counts, field)) for labels, query in reported))


def _of_sources(queries: Iterable[QueryLag]) -> Iterator[Metric]:
    by_source = [
        ((query.name, query.query_id, source.name, str(source.position)), source)
        for query in queries
        for source in query.sources
    ]
    yield _gauge(
        "sparkonce_source_rows",
        "Rows that the last batch read of this source.",
        SOURCE,
        ((labels, source.rows) for labels, source in by_source),
    )
    kafka = [(labels, source) for labels, source in by_source if source.partition_count]
    for name, text in (("min", "Least"), ("max", "Most"), ("avg", "Mean")):
        yield _gauge(
            f"sparkonce_source_{name}_offsets_behind_latest",
            f"{text} lag of a partition, as {name}OffsetsBehindLatest of Spark's progress.",
            SOURCE,
            ((labels, source.metrics[f"{name}OffsetsBehindLatest"]) for labels, source in kafka),
        )
    yield _gauge(
        "sparkonce_source_lag_records",
        "Total lag of all partitions.",
        SOURCE,
        ((labels, source.offsets_behind_latest) for labels, source in kafka),
    )
    yield _gauge(
        "sparkonce_source_partitions",
        "Partitions of this source.",
        SOURCE,
        ((labels, source.partition_count) for labels, source in kafka),
    )
    yield _gauge(
        "sparkonce_source_partitions_left_out",
        "Partitions without series of their own, because there are too many.",
        SOURCE,
        ((labels, source.partitions_left_out) for labels, source in kafka),
    )


def _of_partitions(queries: Iterable[QueryLag]) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "sparkonce_partition_lag_records", "Latest offset minus next offset, after the last batch.", labels=PARTITION
    )
    reached = GaugeMetricFamily("sparkonce_partition_next_offset", "The offset to read next.", labels=PARTITION)
    latest = GaugeMetricFamily(
        "sparkonce_partition_latest_offset", "The latest offset when the last batch was planned.", labels=PARTITION
    )
    for query in queries:
        for source in query.sources:
            front = (query.name, query.query_id, source.name, str(source.position))
            for each in source.partitions:
                labels = (*front, each.topic, str(each.partition))
                reached.add_metric(labels, each.next)
                if each.latest is not None:
                    lag.add_metric(labels, each.records)
                    latest.add_metric(labels, each.latest)
    yield from (lag, reached, latest)


def _counter(name: str, text: str, rows: Iterable[_Row]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=QUERY)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Row]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
