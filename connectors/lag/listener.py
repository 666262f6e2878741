"""The listener that a user starts: it receives the progress of every query of a session, and serves it to Prometheus.

Spark calls it from its own threads after each batch, off the query's path. Errors in it are counted and logged, and do
not affect the query.

    with LagListener(spark).start(port=9405) as lag:
        query.awaitTermination()
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from sparkonce.connectors.kafka_source.group_commits import SETTLE_S, GroupCommitter
from sparkonce.connectors.kafka_source.options import group_id as checked_group_id
from sparkonce.connectors.lag.lines import BatchLines
from sparkonce.connectors.lag.metrics import LagCollector
from sparkonce.connectors.lag.runs import Runs, RunState
from sparkonce.connectors.lag.state import LagState, QueryLag, Slot, SourceLag, queries_table, read_batch, state_of
from sparkonce.connectors.runtime.failures import explain_text
from sparkonce.connectors.sinks.batch_reports import BatchReports, shared_reports
from sparkonce.connectors.telemetry.switches import METRICS, metrics_are_on
from sparkonce.exactly_once.errors import FencedError
from sparkonce.kafka.client.settings import read_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from sparkonce.connectors.lag.push import MetricsPush

LOOPBACK = "127.0.0.1"
WAIT_S = 10.0

_FENCED = f"{FencedError.__name__}: "
"""The separator after the module name in the text of an error from the JVM."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Follower:
    """A group that follows the query of this name, or every query."""

    query: str | None
    committer: GroupCommitter


class LagListener(StreamingQueryListener):
    """Lag of all streaming queries of a session. ``clock`` returns monotonic seconds."""

    def __init__(
        self,
        spark: SparkSession,
        state: LagState | None = None,
        clock: Callable[[], float] = time.monotonic,
        reports: BatchReports | None = None,
        runs: Runs | None = None,
    ) -> None:
        """Observe ``spark``; ``reports`` and ``runs`` are what its sinks and this leave, by default of this user."""
        self.spark = spark
        self._runs = runs or Runs()
        self._reports = reports or shared_reports()
        self._lines = BatchLines()
        self.registry = CollectorRegistry()
        """Has only these metrics; register it if your own server handles scrapes."""
        self._state = state or LagState()
        self._clock = clock
        self._told = threading.Condition()
        self._errors = 0
        self._followers: list[_Follower] = []
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._push: MetricsPush | None = None
        self._listening = False
        self.registry.register(LagCollector(lambda: (self.queries(), self._clock(), self._errors)))

    def start(self, port: int | None = 0, address: str = LOOPBACK) -> LagListener:
        """Listen to the session, and serve ``/metrics``; port 0 takes any free one, None serves nothing.

        There is no authentication: an address other than loopback shows topic names to every client that reaches it.
        With ``OTEL_METRICS_EXPORTER=otlp`` in the environment the metrics are also sent to a collector.

        Raises:
            RuntimeError: if it was started before.
            OSError: if the port is in use.
            ImportError: if metrics are to be sent, and the extra ``otel`` is not installed.
            ValueError: if the environment's settings for sending are invalid.
        """
        if self._listening:
            raise RuntimeError("this LagListener listens already")
        if port is not None:
            try:
                self._server = start_http_server(port, address, self.registry)
            except OSError as error:
                raise OSError(error.errno, f"metrics cannot be served at {address}:{port}: {error.strerror}") from error
        assert self.spark is not None
        try:
            self._push = _metrics_push(self.registry)
            self.spark.streams.addListener(self)
        except BaseException:
            self._stop_serving()
            raise
        self._listening = True
        return self

    @property
    def port(self) -> int:
        """The port that metrics are served on."""
        if self._server is None:
            raise RuntimeError("no metrics are served: call start() with a port, or 0 for any free one")
        return int(self._server[0].server_port)

    @property
    def url(self) -> str:
        """Where a scraper on this machine finds the metrics."""
        assert self.port
        host = str(self._server[0].server_address[0]) if self._server else LOOPBACK
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def commit_group(self, group_id: str, options: Mapping[str, str], query: str | None = None) -> LagListener:
        """Commit the end of every finished batch to a consumer group, for lag tools.

        ``options`` are the ``kafka.*`` options of the source, ``query`` is the name of the one query that is meant.
        This also works for Spark's own connector, and for the last batch with Trigger.Once. Errors in it do not stop a
        query; no partition of the group goes back.

        Raises:
            OptionError: for settings that cannot work.
        """
        committer = GroupCommitter(read_settings(options), checked_group_id(group_id), self._clock)
        self._followers.append(_Follower(query, committer))
        return self

    def queries(self) -> tuple[QueryLag, ...]:
        """Return the current state of each query."""
        return self._state.queries(self._clock())

    def _repr_html_(self) -> str:
        return queries_table(self.queries())

    def metrics_text(self) -> str:
        """Return the metrics as a scrape does."""
        return generate_latest(self.registry).decode()

    def wait(self, query: StreamingQuery, timeout_s: float = WAIT_S) -> bool:
        """Wait until the end of ``query`` is reported and its group offsets are settled; return whether they are.

        Spark reports a batch shortly after it is done, so a script that ends with its query calls this first. It also
        waits for a commit that is delayed after a failure: that may take ten seconds.
        """
        query_id, run_id = str(query.id), str(query.runId)

        def is_ended() -> bool:
            found = [each for each in self.queries() if (each.query_id, each.run_id) == (query_id, run_id)]
            return bool(found) and found[0].ended_at is not None

        with self._told:
            told = self._told.wait_for(is_ended, timeout_s)
        return all([told, *(follower.committer.settle(timeout_s) for follower in self._followers)])

    def stop(self) -> None:
        """Stop listening and serving; may be called repeatedly, and after the session has ended."""
        if self._listening:
            self._listening = False
            with suppress(Exception):  # the session and its listeners may be gone
                assert self.spark is not None
                self.spark.streams.removeListener(self)
        for query in self.queries():
            if query.ended_at is None:
                self._runs.forget(query.query_id)
        for follower in self._followers:
            follower.committer.close(SETTLE_S)
        self._stop_serving()

    def _stop_serving(self) -> None:
        if self._server is not None:
            (server, thread), self._server = self._server, None
            server.shutdown()
            server.server_close()
            thread.join()
        if self._push is not None:
            self._push.stop()
            self._push = None

    def __enter__(self) -> LagListener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        self._carefully(lambda: self._started(str(event.id), str(event.runId), event.name, self._clock()))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        self._carefully(lambda: self._progressed(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        self._carefully(lambda: self._was_idle(str(event.id), str(event.runId), self._clock()))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """See `StreamingQueryListener`."""
        self._carefully(lambda: self._ended(str(event.id), str(event.runId), event.exception, self._clock()))
        with self._told:
            self._told.notify_all()

    def _started(self, query_id: str, run_id: str, name: str | None, now: float) -> None:
        self._state.started(query_id, run_id, name, now)
        self._runs.note(query_id, RunState.RUNNING)

    def _progressed(self, progress: Any) -> None:
        self._runs.note(str(progress.id), RunState.RUNNING)
        report = self._reports.find(str(progress.id), progress.batchId, _triggered_ms(progress))
        batch = read_batch(progress, None if report is None else report.counts)
        now = self._clock()
        _log_line(self._lines.heard(self._state.progressed(batch, now), now))
        for follower in self._followers:
            if follower.query in (None, batch.name):
                follower.committer.offer(_finished(batch.sources))

    def _was_idle(self, query_id: str, run_id: str, now: float) -> None:
        self._runs.note(query_id, RunState.IDLE)
        _log_line(self._lines.heard(self._state.idle(query_id, run_id, now), now))

    def _ended(self, query_id: str, run_id: str, error: str | None, now: float) -> None:
        fenced = error is not None and _FENCED in error
        query = self._state.ended(query_id, run_id, error is not None, now, fenced=fenced)
        if query is not None:
            self._runs.note(query_id, RunState(state_of(query)), explain_text(error or ""))
            _log_line(self._lines.ended(query))

    def _carefully(self, note: Callable[[], None]) -> None:
        """Call ``note``; Spark would log what it raises with a long stack trace for each batch."""
        try:
            note()
        except Exception as error:
            self._errors += 1
            if self._errors == 1:
                _log.warning("lag listener: could not read an event (%r); more are only counted", error, exc_info=True)


def _metrics_push(registry: CollectorRegistry) -> MetricsPush | None:
    """Start to send metrics, if the environment asks for it."""
    if not metrics_are_on():
        return None
    try:
        from sparkonce.connectors.lag.push import MetricsPush  # its packages are an extra
    except ImportError as error:
        raise ImportError(f"{METRICS}=otlp needs the extra: pip install 'sparkonce[otel]' ({error})") from error
    return MetricsPush(registry.collect)


def _log_line(line: str | None) -> None:
    if line is not None:
        _log.info("%s", line)


def _triggered_ms(progress: Any) -> int:
    """Return when Spark began to plan the batch, in ms since 1970."""
    return int(datetime.fromisoformat(progress.timestamp).timestamp() * 1000)


def _finished(sources: tuple[SourceLag, ...]) -> dict[Slot, int]:
    """Return how far a query is on each partition: of two sources that read it, the one that is further behind."""
    finished: dict[Slot, int] = {}
    for source in sources:
        for each in source.partitions:
            slot = each.topic, each.partition
            finished[slot] = min(each.next, finished.get(slot, each.next))
    return finished
