"""The queries of an ingestion while they run: one thread looks after them.

Each round of it (`Ingestion.look`) finds queries that have ended, topics that are new, tables to compact, and tables
that a shared query has left behind (`connectors.ingest.catching_up`). A query that an outage has ended is started again
(`connectors.ingest.restarts`). One that fails otherwise ends the ingestion: the others are stopped when their batch is
complete, and the failure is raised by `Ingestion.awaitTermination`. All queries are started and stopped by that thread,
or before it starts.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyspark.sql import SparkSession

from sparkonce.connectors.ingest.catching_up import CatchingUp
from sparkonce.connectors.ingest.checkpoints import committed, usable, was_shared
from sparkonce.connectors.ingest.compacting import Compactor, is_due
from sparkonce.connectors.ingest.query import (
    batch_of,
    ends_of,
    has_newer_schema,
    is_under_way,
    made_table,
    may_stop,
    placed,
    start_query,
    table_path_of,
    was_planned,
)
from sparkonce.connectors.ingest.restarts import RESTARTS, Restart, is_due_again, is_outage
from sparkonce.connectors.ingest.routing import SHARED, Flow, Route, flows, flows_of_new
from sparkonce.connectors.ingest.settings import IngestSettings, trigger_arguments
from sparkonce.connectors.ingest.topics import existing_topics, unread
from sparkonce.connectors.kafka_source.tables import TopicsNotReadError
from sparkonce.connectors.lag.listener import LagListener
from sparkonce.connectors.lag.state import state_of
from sparkonce.connectors.runtime.active_session import active_in_thread
from sparkonce.connectors.runtime.failures import explain, is_behind
from sparkonce.connectors.values.evolution import REMEDY, NoSchemaYetError
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.notebook import table
from sparkonce.offset_store import OffsetStore, OffsetStoreError
from sparkonce.offset_store.offsets import SourceOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_INTERVAL_S = 0.5
STARTING_AT_ONCE = max(2, (os.cpu_count() or 2) // 2)
"""Queries that have not done their first batch: each starts two Python processes, and Spark waits only seconds for
them to answer."""
STOP_INTERVAL_S = 0.02
LAST_REPORT_S = 2.0
CATCHING_UP = "catching-up"
"""The folder, beside those of the queries, of the checkpoints of tables that catch up."""
POOL = "spark.scheduler.pool"
_TARGET_FILE_BYTES = "targetfilebytes"

_log = logging.getLogger("sparkonce.ingest")


class IngestError(RuntimeError):
    """An ingestion that has ended because one of its queries failed; the message names the table and why."""


@dataclass(slots=True)
class _Running:
    """A query, and its state."""

    flow: Flow
    query: StreamingQuery
    batch: int | None = None
    """The batch up to which compactions were considered."""
    compared: int = -1
    """The batch up to which the tables of a shared query were compared."""
    stood_at: SourceOffset = field(default_factory=lambda: SourceOffset("", {}))
    """Where it stood then."""
    commits: Counter[str] = field(default_factory=Counter)
    """How often each of its topics has moved since its table was compacted."""
    successor: Flow | None = None
    """With other tables: what is to run in place of it, once it is between two batches."""
    under_way: bool = False
    ended: bool = False
    unread: BaseException | None = None
    """With availableNow: why it has not read some of its topics; of the others it has read all."""


class Ingestion:
    """Queries that belong together; a context manager that stops them at its end."""

    def __init__(
        self, spark: SparkSession, settings: IngestSettings, routes: Sequence[Route], lag: LagListener | None = None
    ) -> None:
        """Use `sparkonce.ingest` instead."""
        self._spark, self._settings, self._routes = spark, settings, routes
        self.lag = lag
        """The listener that knows how far each table is behind, and logs what was read; None with Spark Connect."""
        self._trigger = trigger_arguments(settings.trigger)
        self._tables: dict[str, Flow] = {}
        """What is read into each table, by name; several of them may be one query."""
        self._catching_up = CatchingUp(
            lambda flow, trigger: start_query(self._spark, flow, trigger),
            settings.storage,
            f"{settings.checkpoint.rstrip('/')}/{CATCHING_UP}",
        )
        self._running: dict[str, _Running] = {}
        self._waiting: dict[str, Flow] = {}
        """Flows whose queries start once others have done their first batch."""
        self._without_schema: set[str] = set()
        """Names of flows whose values had no schema in the registry when they were to start."""
        self._restarts: dict[str, Restart] = {}
        """The last start after an outage, by the name of the flow."""
        self._was_answered = False
        """Whether brokers have answered any of the queries: else their address may be a wrong one."""
        self._compactor = Compactor()
        self._topics_at = time.monotonic()
        self._failure: IngestError | None = None
        self._stopping, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="sparkonce-ingest", daemon=True)

    def start(self) -> Self:
        """Start the first queries of the topics that exist, and the thread that starts the others and looks after all.

        Raises:
            OptionError, SchemaError: for what cannot work; then no query runs.
            KafkaUnreachableError, KafkaError, PermissionError: if the topics cannot be listed.
        """
        try:
            existing = existing_topics(self._settings, self._routes)
            flows(self._routes, existing)
            self._find_flows(existing)
            for flow in self._waiting.values():
                if not flow.is_shared:  # else its tables are found, or made, right before it starts
                    table_path_of(self._spark, flow)
            self._start_waiting()
        except BaseException:
            self._stop_queries()
            self._close()
            raise
        self._thread.start()
        return self

    @property
    def queries(self) -> Mapping[str, StreamingQuery]:
        """The queries that were started, by the names of their tables; those that have ended stay."""
        running = self._running.copy()  # another thread adds to it
        return {name: running[flow.query].query for name, flow in self._tables.copy().items() if flow.query in running}

    @property
    def flows(self) -> Sequence[Flow]:
        """What is read into each table: topics and options."""
        return [*self._tables.copy().values()]

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it has not ended."""
        return not self._done.is_set()

    def _repr_html_(self) -> str:
        known = {} if self.lag is None else {query.name: query for query in self.lag.queries()}
        rows = []
        for flow in self.flows:
            running = self._running.get(flow.query)
            query = None if running is None else known.get(running.flow.query_name)
            state = "waiting" if running is None else "started" if query is None else state_of(query)
            counts = None if query is None else (query.batch_id, query.rows, query.offsets_behind_latest)
            rows.append((flow.topics, flow.place, state, *(counts or (None, None, None))))
        head = ("topics", "table", "state", "batch", "records read", "behind")
        return table(head, rows, title="Ingestion", note=str(self._failure or ""))

    def exception(self) -> IngestError | None:
        """Return why it has ended; None while it runs, and after it was stopped or has read all data."""
        return self._failure

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait until it ends, for ``timeout`` seconds at most; return whether it has ended.

        Raises:
            IngestError: if a query failed.
        """
        ended = self._done.wait(timeout)
        if self._failure is not None and ended:
            raise self._failure
        return ended

    def request_stop(self) -> None:
        """Stop it when its batches are complete, and return at once; a signal handler may call this."""
        self._stopping.set()

    def stop(self) -> None:
        """Stop it when its batches are complete, or after ``stop_timeout_s``; may be called repeatedly."""
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def look(self) -> None:
        """Check all queries, topics and tables once. The thread does this; tests may, too."""
        for running in self._running.values():
            self._find_behind(running)
            self._compact_if_due(running)
            self._was_answered = self._was_answered or was_planned(running.query)
            if not running.ended and not running.query.isActive:
                error = self._note_end(running)
                if error is not None and not self._begins_again(running, error):
                    self._end_by(f"{running.flow} has failed: {explain(error)}", error)
                    return
            self._replace(running)
        self._catching_up.look(again=self._settings.goes_on)
        if self._settings.goes_on:
            self._find_moved(self._catching_up.caught_up())
            self._find_new_topics()
        else:
            self._begin_again_behind()
        try:
            self._start_waiting()
        except Exception as error:
            self._end_by(f"a query cannot be started: {explain(error)}", error)

    def _note_end(self, running: _Running) -> BaseException | None:
        """Note that a query has ended; return its error, unless that only names topics that it has not read."""
        running.ended = True
        self._find_behind(running)
        self._compact_if_due(running)
        error = running.query.exception()
        if error is not None and is_behind(TopicsNotReadError, error):
            running.unread, error = error, None
        if error is None and not self._settings.goes_on:
            try:
                self._find_behind(running, again=True)
            except (ConnectionError, KafkaError) as outage:
                return outage
        return error

    def _find_behind(self, running: _Running, *, again: bool = False) -> None:
        """Compare the tables of a shared query with where it stands, once for each batch, or all of them ``again``."""
        batch = batch_of(running.query)
        if again and running.flow.is_shared:  # topics and tables may have come and gone while it ran
            self._find_tables()
            self._catching_up.forget(running.flow)
        if running.flow.is_shared and (again or batch != running.compared):
            running.compared = batch
            for end in ends_of(running.query):
                later = again and any(at.origin for at in end.positions.values())
                earlier = unread(running.flow, end) if later else ()
                self._catching_up.compare(end, self._tables_of(running.flow), *earlier)
                moved = {tp.topic for tp, at in end.moved_since(running.stood_at).items() if at.next > at.origin}
                running.commits.update(moved)
                running.stood_at = end

    def _find_waiting(self) -> None:
        """Compare the tables of topics that have records which no batch reads, as after a table was restored."""
        for running in self._running.values():
            for end in ends_of(running.query) if running.flow.is_shared and not running.ended else ():
                self._catching_up.compare(end, self._tables_of(running.flow), *unread(running.flow, end))

    def _begin_again_behind(self) -> None:
        """With availableNow: read on once all tables have caught up; end with the reason if one does not."""
        if self._waiting or self._catching_up.is_running or not all(each.ended for each in self._running.values()):
            return
        for flow, why in self._catching_up.failed:
            self._end_by(f"{flow} has failed: {why}", IngestError(why))
            return
        for flow, error in self._unreadable():
            self._end_by(f"{flow} has failed: {explain(error)}", error)
            return
        caught_up = self._catching_up.caught_up()
        self._find_moved(caught_up)
        for running in self._running.values():
            if running.unread is not None and not caught_up:
                self._end_by(f"{running.flow} has failed: {explain(running.unread)}", running.unread)
                return
        if caught_up:
            for running in self._running.values():
                if running.flow.is_shared:
                    self._waiting[running.flow.name] = running.flow

    def _unreadable(self) -> Iterator[tuple[Flow, OffsetStoreError]]:
        """Yield the tables that a shared query did not begin with, since they cannot be read, and why."""
        for running in self._running.values():
            ends = ends_of(running.query) if running.flow.is_shared else []
            begun = {tp.topic for end in ends for tp in end.positions}
            for topic, flow in self._tables_of(running.flow).items() if running.flow.is_shared else ():
                store = None if topic in begun else self._store_of(flow)
                try:
                    if store is not None:
                        store.read("", [])
                except OffsetStoreError as error:
                    yield flow, error

    def _find_moved(self, caught_up: Sequence[Flow]) -> None:
        """Have queries replaced whose tables were created again by name, in another place."""
        for flow in caught_up:
            if flow.table is not None and (path := table_path_of(self._spark, flow)) != flow.path:
                self._tables[flow.name] = replace(flow, path=path)
                running = self._running[flow.query]
                running.successor = running.successor or running.flow

    def _replace(self, running: _Running) -> None:
        """Stop a query that has a successor between two batches, and have that started."""
        if running.successor is None or running.ended:
            return
        batch, until = batch_of(running.query), time.monotonic() + LOOK_INTERVAL_S
        while not may_stop(running.query, batch):
            if time.monotonic() > until:
                return  # tried again at the next look
            time.sleep(STOP_INTERVAL_S)
        running.query.stop()
        running.ended = True
        self._waiting[running.flow.name] = running.successor

    def _begins_again(self, running: _Running, error: BaseException) -> bool:
        """Have a query that has ended started again, if that may help."""
        flow = running.flow
        if has_newer_schema(flow, error):
            _log.info("%s begins again: %s", flow, explain(error).removesuffix(REMEDY).rstrip())
        else:
            if running.query.lastProgress is not None:
                self._restarts.pop(flow.name, None)
            if not self._waits_for_outage(flow, error):
                return False
        self._waiting[flow.name] = flow
        return True

    def _waits_for_outage(self, flow: Flow, error: BaseException) -> bool:
        """Note when a flow's query is to be started again, if an outage has ended it, and it was not too often."""
        if not (self._was_answered and is_outage(error)):
            return False
        restart = Restart.after(self._restarts.get(flow.name), time.monotonic())
        if restart is None:
            return False
        self._restarts[flow.name] = restart
        _log.warning(
            "%s: an outage has ended its query, which is started again in %g s (%d of %d times); the others go on: %s",
            flow,
            restart.pause_s,
            restart.number,
            RESTARTS,
            explain(error),
        )
        return True

    def _look_after(self) -> None:
        try:
            active_in_thread(self._spark)
            while not self._is_over():
                self.look()
                if not self._is_over():
                    self._stopping.wait(LOOK_INTERVAL_S)
        except Exception as error:
            self._end_by(f"the ingestion has failed: {explain(error)}", error)
        for what, step in (("stop all queries", self._stop_queries), ("close the ingestion", self._close)):
            try:
                step()
            except Exception as error:  # such as a session that has ended
                self._end_by(f"cannot {what}: {explain(error)}", error)
        self._done.set()

    def _end_by(self, said: str, error: BaseException) -> None:
        """Note why the ingestion ends, and log it; the first failure is the one that is raised."""
        _log.error("%s", said)
        if self._failure is None:
            self._failure = IngestError(said)
            self._failure.__cause__ = error

    def _is_over(self) -> bool:
        if self._stopping.is_set() or self._failure is not None:
            return True
        goes_on = self._settings.goes_on or self._waiting or self._catching_up
        return not goes_on and all(each.ended for each in self._running.values())

    @property
    def _finds_topics(self) -> bool:
        return any(route.finds_topics for route in self._routes)

    def _find_new_topics(self) -> None:
        if not self._finds_topics and not any(each.flow.is_shared for each in self._running.values()):
            return
        now = time.monotonic()
        if now - self._topics_at < self._settings.topic_interval_s:
            return
        self._topics_at = now
        try:
            self._find_flows()
            self._find_waiting()
        except (ConnectionError, KafkaError) as error:
            _log.warning("new topics cannot be looked for now: %s", error)
        except Exception as error:
            self._end_by(f"a new topic cannot be read: {explain(error)}", error)

    def _find_flows(self, existing: Sequence[str] | None = None) -> None:
        """Note the tables of the topics that exist, which are asked for if not given, and the flows without a query."""
        existing = self._find_tables(existing)
        for route in self._routes:
            for flow in route.queries(existing):
                running = self._running.get(flow.name)
                if running is None:
                    self._waiting[flow.name] = flow
                elif not flow.tables.keys() <= running.flow.tables.keys():
                    running.successor = flow
        if not self._running and not self._waiting:
            _log.warning("no topic matches yet%s", ", waiting for one" if self._settings.goes_on else "")

    def _find_tables(self, existing: Sequence[str] | None = None) -> Sequence[str]:
        """Note the tables of the topics that exist, and return these topics."""
        known = {flow.topics for flow in self._tables.values()}
        existing = existing_topics(self._settings, self._routes) if existing is None else existing
        found, existing = flows_of_new(self._routes, existing, known)
        self._tables = {flow.name: flow for flow in found} | self._tables
        return existing

    def _start_waiting(self) -> None:
        """Start as many queries as may start at once."""
        for each in self._running.values():
            each.under_way = each.under_way or is_under_way(each.query)
        starting = sum(not (each.under_way or each.ended) for each in self._running.values())
        now = time.monotonic()
        due = [each for each in self._waiting.values() if is_due_again(self._restarts.get(each.name), now)]
        for flow in due[: max(STARTING_AT_ONCE - starting, 0)]:
            how = "direct" if flow.direct else "through Spark"
            try:
                query = self._in_pool(self._with_checkpoint(flow))
            except Exception as error:
                if self._waits_for_outage(flow, error):
                    continue
                if not (self._settings.goes_on and self._finds_topics and is_behind(NoSchemaYetError, error)):
                    raise
                if flow.name not in self._without_schema:
                    _log.warning("%s is not read yet: %s", flow, explain(error))
                self._without_schema.add(flow.name)
                # It is found again when topics are looked for, also if it has run before.
                del self._waiting[flow.name]
                self._running.pop(flow.name, None)
                continue
            _log.info("%s: appId %s, %s: %s", flow, flow.app_id, how, flow.why)
            self._running[flow.name] = _Running(flow, query)
            del self._waiting[flow.name]

    def _with_checkpoint(self, flow: Flow) -> Flow:
        """Return a flow with the checkpoint to begin with; of a shared query, compare its tables with that first."""
        storage = self._settings.storage
        if flow.is_shared:
            self._catching_up.stop(flow.name)  # where they end is where a query stood that is not there any more
            flow = self._placed(self._as_topics_are(flow))
            tables = self._tables_of(flow)
            stores = {topic: self._store_of(each) for topic, each in tables.items()}
            found = usable(flow, storage, stores.get, lambda end: unread(flow, end)[1])
            for end in committed(found.checkpoint, storage):
                begun_later = any(at.origin for at in end.positions.values())
                self._catching_up.compare(end, tables, *(unread(found, end) if begun_later else ()))
            return found
        # What a function adds to the records may come from other sources, whose offsets only the checkpoint has.
        if flow.transform is not None or not was_shared(self._settings.checkpoint, storage, SHARED):
            return flow
        path = flow.path or table_path_of(self._spark, flow)
        return usable(flow, storage, lambda _: self._store_of(replace(flow, path=path)))

    def _as_topics_are(self, shared: Flow) -> Flow:
        """Return a shared query that names the topics of its tables with those of them that exist."""
        if not shared.tables:
            return shared
        existing = existing_topics(self._settings, self._routes)
        found = (each for route in self._routes for each in route.queries(existing) if each.name == shared.name)
        return next(found, shared)

    def _placed(self, shared: Flow) -> Flow:
        """Return a shared query with the places of its tables, if these have names in a catalog.

        Raises:
            OptionError, SchemaError: if none of them can be, or the first query cannot have one.
        """
        if not shared.tables:
            return shared
        places: dict[str, str] = {}
        for topic, flow in self._tables_of(shared).items():
            if topic not in shared.tables:
                continue  # it is gone
            try:
                # Where tables were found stays known: to ask for a thousand takes a minute, for each new topic.
                places[topic] = flow.path or made_table(self._spark, flow)
            except Exception as error:
                if shared.name not in self._running:
                    raise
                _log.warning("%s is not read before the next start: %s", flow, explain(error))
            else:
                self._tables[flow.name] = replace(flow, path=places[topic])
        return placed(shared, places)

    def _store_of(self, flow: Flow) -> OffsetStore | None:
        return None if flow.path is None else self._catching_up.store_of(flow)

    def _tables_of(self, shared: Flow) -> dict[str, Flow]:
        """Return the tables of a shared query, by topic."""
        return {flow.topics: flow for flow in self._tables.values() if flow.query == shared.name}

    def _in_pool(self, flow: Flow) -> StreamingQuery:
        """Start a query in a pool of its own, so that with spark.scheduler.mode=FAIR a large table starves no other."""
        context = getattr(self._spark, "_sc", None)
        if context is not None:
            context.setLocalProperty(POOL, flow.name)
        try:
            return start_query(self._spark, flow, self._trigger)
        finally:
            if context is not None:
                context.setLocalProperty(POOL, None)

    def _compact_if_due(self, running: _Running) -> None:
        flow = running.flow
        if not flow.compact_every:
            return
        batch = batch_of(running.query)
        if batch < 0:
            return
        before = batch - 1 if running.batch is None else running.batch
        running.batch = batch
        if not is_due(flow.compact_every, before, batch):
            return
        if not flow.is_shared:
            self._compact(flow)
            return
        tables = self._tables_of(flow)
        self._compactor.submit_failed()
        for topic in sorted(running.commits.keys() & tables.keys()):  # in others there is nothing new
            if self._compact(tables[topic], running.commits[topic]):
                del running.commits[topic]

    def _compact(self, flow: Flow, commits: int = 1) -> bool:
        """Have a table compacted; return whether it is known where the table is."""
        try:
            path = table_path_of(self._spark, flow)
        except Exception as error:  # such as that of a catalog that does not answer
            _log.warning("%s: its table cannot be compacted now: %s", flow, explain(error))
            return False
        size = next((text for name, text in flow.sink.items() if name.lower() == _TARGET_FILE_BYTES), None)
        if path is not None:
            self._compactor.submit(path, self._settings.storage, int(size) if size else None, commits)
        return True

    def _stop_queries(self) -> None:
        """Stop running queries, each between two batches, or when its time is up; note failures until then."""
        self._catching_up.stop()
        deadline = time.monotonic() + self._settings.stop_timeout_s
        waiting = {name: batch_of(each.query) for name, each in self._running.items() if not each.ended}
        while waiting:
            for name, batch in list(waiting.items()):
                if self._has_stopped(self._running[name], batch, in_time=time.monotonic() < deadline):
                    del waiting[name]
            if waiting:
                time.sleep(STOP_INTERVAL_S)

    def _has_stopped(self, running: _Running, batch: int, *, in_time: bool) -> bool:
        """Stop a query that is between batches, or has completed one since ``batch``; return whether it has ended."""
        flow, query = running.flow, running.query
        if not query.isActive:
            error = query.exception()
            if error is not None and not has_newer_schema(flow, error):
                self._end_by(f"{flow} has failed: {explain(error)}", error)
            return True
        if not may_stop(query, batch):
            if in_time:
                return False
            _log.warning(
                "%s: its batch has not completed in %g s and is stopped; the next start repeats it",
                flow,
                self._settings.stop_timeout_s,
            )
        try:
            query.stop()
        except Exception as error:  # such as spark.sql.streaming.stopTimeout; the others are stopped too
            self._end_by(f"{flow} cannot be stopped: {explain(error)}", error)
        return True

    def _close(self) -> None:
        ended_by_itself = self._failure is None and not self._stopping.is_set()
        self._compactor.close(None if ended_by_itself else self._settings.stop_timeout_s)
        if self.lag is not None:
            try:
                # Last batches are reported after their queries have ended; an unreported one does not delay others.
                all(self.lag.wait(each.query, LAST_REPORT_S) for each in self._running.values())
            finally:
                self.lag.stop()
