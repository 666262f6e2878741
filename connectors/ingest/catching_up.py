"""Tables that a shared query has left behind, and the queries that write what they lack.

A table is behind if its stored offset is before where its query stands: it has refused its part of a batch, or was
restored, or dropped. Nothing else is remembered: after a crash the same offsets say the same. While it is behind, the
shared query does not read its topic (``isolateTables``). A query of the table's own, with a new checkpoint, reads from
the table's offset and ends exactly where the shared query stands, which then goes on with the topic. If the table
refuses again, that is logged with what to do about it, and tried again after a pause, with another checkpoint.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from sparkonce.connectors.ingest.restarts import Restart, is_due_again
from sparkonce.connectors.ingest.routing import Flow
from sparkonce.connectors.ingest.settings import AVAILABLE_NOW, trigger_arguments
from sparkonce.connectors.kafka_source.tables import ends_in_cut_log
from sparkonce.connectors.runtime.cache import MAX_TABLES, LruCache
from sparkonce.connectors.runtime.failures import explain
from sparkonce.connectors.values.registered import subjects
from sparkonce.offset_store import OffsetStore, OffsetStoreError, open_store
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

AT_ONCE = 2
"""How many tables catch up at once: each query starts two processes."""

Positions = Mapping[TopicPartition, Position]
_log = logging.getLogger("sparkonce.ingest")


@dataclass(slots=True)
class _Behind:
    """A table that is behind, and its query."""

    flow: Flow
    until: SourceOffset
    """Where the shared query stands on the table's topic."""
    earlier: Set[TopicPartition] = frozenset()
    """Partitions of which it may lack what is before the shared query's origin."""
    query: StreamingQuery | None = None
    checkpoint: str = ""
    """The checkpoint of its query, which no other query uses."""
    restart: Restart | None = None
    why: str = ""
    """Why its query failed last."""


class CatchingUp:
    """The tables of the shared queries that are behind."""

    def __init__(
        self, start: Callable[[Flow, Mapping[str, Any]], StreamingQuery], storage: Mapping[str, str], checkpoints: str
    ) -> None:
        """Start queries by ``start``, with new checkpoints in the folder ``checkpoints``."""
        self._start, self._storage, self._checkpoints = start, storage, checkpoints
        self._stores: LruCache[tuple[str, str], OffsetStore] = LruCache(MAX_TABLES)
        self._seen: dict[tuple[str, str], Positions] = {}
        """Where its shared query stood when a table was last compared, by the names of query and table."""
        self._behind: dict[str, _Behind] = {}
        self._caught_up: list[Flow] = []
        self._again = True
        """Whether what has failed is tried again."""

    def caught_up(self) -> list[Flow]:
        """Return the tables that have caught up since this was last asked."""
        found, self._caught_up = self._caught_up, []
        return found

    def __bool__(self) -> bool:
        """Whether any table is behind."""
        return bool(self._behind)

    @property
    def is_running(self) -> bool:
        """Whether any table catches up now, or is about to for the first time."""
        return any(each.query is not None or not each.why for each in self._behind.values())

    @property
    def failed(self) -> list[tuple[Flow, str]]:
        """The tables whose queries have failed and were not started again yet, and why."""
        return [(each.flow, each.why) for each in self._behind.values() if each.why and each.query is None]

    def compare(
        self,
        ends: SourceOffset,
        flows: Mapping[str, Flow],
        waiting: Collection[str] = (),
        earlier: Collection[TopicPartition] = (),
    ) -> None:
        """Compare tables with where their shared query stands: those of topics that have moved, or are ``waiting``.

        A table that has nothing of a partition in ``earlier`` lacks what is in its log before the query's origin. A
        table whose topic that query no longer reads, since it was deleted or created again, has nothing to catch up.
        One whose log was cut is compared with where that query goes on.
        """
        for each in [self._behind[flow.name] for flow in flows.values() if flow.name in self._behind]:
            if not _is_on_the_way(each.until, ends):
                self._end(each)
                del self._behind[each.flow.name]
        by_topic: dict[str, dict[TopicPartition, Position]] = {}
        for tp, position in ends.positions.items():
            by_topic.setdefault(tp.topic, {})[tp] = position
        for topic, until in by_topic.items():
            flow = flows.get(topic)
            if flow is None or flow.name in self._behind:
                continue
            if self._seen.get((flow.query, flow.name)) == until and topic not in waiting:
                continue
            if self._is_behind(flow, ends.source, until, earlier):
                _log.warning("%s: the table is behind the query of the others, and catches up by its own", flow)
                own = until.keys() & {*earlier}
                self._behind[flow.name] = _Behind(flow, SourceOffset(ends.source, until), own)
            self._seen[flow.query, flow.name] = until

    def look(self, *, again: bool = True) -> None:
        """Note what has caught up, or failed, and start the queries that are due; what has failed only ``again``."""
        self._again = again
        for each in list(self._behind.values()):
            if each.query is not None and not each.query.isActive:
                self._note_end(each, each.query.exception())
        running = sum(each.query is not None for each in self._behind.values())
        idle = [each for each in self._behind.values() if each.query is None and (again or not each.why)]
        idle.sort(key=lambda each: 0.0 if each.restart is None else each.restart.due_s)  # none is passed over for ever
        due = [each for each in idle if is_due_again(each.restart, time.monotonic())]
        for each in due[: max(AT_ONCE - running, 0)]:
            each.checkpoint = f"{self._checkpoints}/{each.flow.name}-{uuid.uuid4().hex[:8]}"
            try:
                each.query = self._start(self._flow_of(each), trigger_arguments(AVAILABLE_NOW))
            except Exception as error:  # such as that of a schema which the table refuses
                self._remove_checkpoint(each)
                self._note_failure(each, error)

    def stop(self, shared: str | None = None) -> None:
        """Stop the queries, those of one shared query's tables if it is named, and forget these tables.

        What is behind is found again from the offsets.
        """
        for each in [each for each in self._behind.values() if shared in (None, each.flow.query)]:
            self._end(each)
            del self._behind[each.flow.name]
        self._seen = {key: seen for key, seen in self._seen.items() if shared not in (None, key[0])}

    def forget(self, shared: Flow) -> None:
        """Have all tables of a shared query compared, whether or not it has moved."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != shared.query}

    def _end(self, behind: _Behind) -> None:
        if behind.query is not None:
            behind.query.stop()
            self._remove_checkpoint(behind)

    def _is_behind(self, flow: Flow, source: str, until: Positions, earlier: Collection[TopicPartition]) -> bool:
        store = self.store_of(flow)
        try:
            stored = store.read(source, until)
            if ends_in_cut_log(store, source, stored, until):
                return True
        except OffsetStoreError as error:
            _log.info("%s: %s", flow, error)
            return True
        begins = {tp: 0 if tp in earlier else position.origin for tp, position in until.items()}
        return any(stored.get(tp, begins[tp]) < position.next for tp, position in until.items())

    def store_of(self, flow: Flow) -> OffsetStore:
        """Return where the offsets of a table with a path are stored."""
        key = f"delta:{flow.path}", flow.app_id
        return self._stores.get(key, lambda: open_store(*key, self._storage or None))

    def _flow_of(self, behind: _Behind) -> Flow:
        """Return the query of a table: from its offsets to where the shared query stands, and no further.

        Of a partition of which the table has nothing, it begins where the shared query began, or before that if its log
        does and all of it is to be read (`Planner.initial`).
        """
        flow, until = behind.flow, self._lacked(behind)
        numbers: dict[str, list[int]] = {}
        for tp in sorted(until):
            numbers.setdefault(tp.topic, []).append(tp.partition)
        chosen = {
            "assign": json.dumps(numbers),
            "untilOffsets": SourceOffset(behind.until.source, until).to_json(),
            **subjects(flow.source, flow.topics),
        }
        others = {name: text for name, text in flow.source.items() if name not in ("subscribe", "subscribePattern")}
        sink = {**flow.sink, "checkpointLocation": behind.checkpoint}
        return replace(flow, source={**others, **chosen}, sink=sink)

    def _lacked(self, behind: _Behind) -> Positions:
        """Return the partitions of which a table may lack anything.

        Not those of which the shared query has read nothing, and the table has nothing, beside others of which it has:
        they may begin behind records that have expired, of which a new query cannot know that nobody missed any.
        """
        until = behind.until.positions
        try:
            stored = self.store_of(behind.flow).read(behind.until.source, until)
        except OffsetStoreError:
            return until
        return {
            tp: at
            for tp, at in until.items()
            if not stored or tp in stored or tp in behind.earlier or at.next > at.origin
        }

    def _remove_checkpoint(self, behind: _Behind) -> None:
        """Delete the checkpoint of a query that has ended: the table has its offsets."""
        filesystem, root = Location.parse(behind.checkpoint).filesystem(self._storage)
        try:
            if filesystem.get_file_info(root).type is fs.FileType.Directory:
                filesystem.delete_dir(root)
        except OSError as error:
            _log.info("%s: the checkpoint %s is left: %s", behind.flow, behind.checkpoint, error)

    def _note_end(self, behind: _Behind, error: BaseException | None) -> None:
        behind.query = None
        self._remove_checkpoint(behind)
        if error is not None:
            self._note_failure(behind, error)
        else:
            _log.info("%s has caught up", behind.flow)
            del self._behind[behind.flow.name]
            self._seen.pop((behind.flow.query, behind.flow.name), None)  # compared once more
            self._caught_up.append(behind.flow)

    def _note_failure(self, behind: _Behind, error: BaseException) -> None:
        behind.why = explain(error)
        behind.restart = Restart.next(behind.restart, time.monotonic())
        when = f"tried again in {behind.restart.pause_s:g} s" if self._again else "not tried again in this run"
        _log.warning("%s: the table is behind, and is %s: %s", behind.flow, when, behind.why)


def _is_on_the_way(until: SourceOffset, ends: SourceOffset) -> bool:
    """Whether a query that stands at ``ends`` has passed ``until``, in logs that were not cut since."""
    now = ends.positions
    return all(
        tp in now and (now[tp].origin, now[tp].cut_from) == (at.origin, at.cut_from) and at.next <= now[tp].next
        for tp, at in until.positions.items()
    )
