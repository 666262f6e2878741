"""Queries by their checkpoints and by the tables that they write to."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkonce.connectors.lag.runs import Runs, RunState
from sparkonce.jobs.shared.events import NotedEvent, note, noted
from sparkonce.jobs.ui.delta import pipelines as module
from sparkonce.jobs.ui.delta.checkpoints import read_checkpoint
from sparkonce.jobs.ui.delta.figures import charts
from sparkonce.jobs.ui.delta.pipelines import (
    SETTLED_MS,
    EndOffsets,
    Pipeline,
    _seen,
    batches_of,
    look,
    pipelines,
    timeline_of,
)
from sparkonce.jobs.ui.delta.queries_seen import MINUTE_MS
from sparkonce.jobs.ui.delta.tables import TableWatches
from sparkonce.jobs.ui.delta.timeline import Event
from sparkonce.jobs.ui.pages.pipelines import PIPELINE, PIPELINES
from sparkonce.jobs.ui.site import Given, Site
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.offsets import Position, SourceOffset
from tests.unit.sink.query_by_hand import TP, Query
from tests.unit.sink.test_shared_batch import Pipeline as Shared
from tests.unit.ui.shown import shown


def found(
    queries: Iterable[Query], ends: dict[tuple[str, int], int] | None = None, ends_at_ms: int = 0
) -> list[Pipeline]:
    queries = list(queries)
    tables = [TableWatches({}).at(place) for place in dict.fromkeys(str(query.table) for query in queries)]
    known = look([str(query.checkpoint) for query in queries if query.checkpoint.exists()], tables, {})
    assert known.problems == {}
    assert known.still_reading == ()
    known_ends = EndOffsets(lambda topic, _, partition: (ends or {}).get((topic, partition)), ends_at_ms)
    return pipelines(known, known_ends, now_ms())


def finish(query: Query, batch: int) -> None:
    """Note that a batch is done, as Spark does."""
    folder = query.checkpoint / "commits"
    folder.mkdir(exist_ok=True)
    (folder / str(batch)).write_text("v1\n{}")


def test_a_query_with_its_checkpoint_and_its_table(tmp_path: Path) -> None:
    query = Query(tmp_path)
    for batch in range(2):
        query.write(batch, [{"v": 1}])
        finish(query, batch)
    query.log(2, 37)
    (pipeline,) = found([query], {("topic", 0): 50})
    assert (pipeline.name, pipeline.query_id, pipeline.guarantee) == ("app", "q", "exactly-once")
    assert (pipeline.committed, pipeline.topics, pipeline.lag, pipeline.others) == (1, ("topic",), 30, ())
    assert pipeline.checkpoint is not None
    assert (pipeline.checkpoint.newest, pipeline.checkpoint.is_at_work) == (2, True)
    (partition,) = pipeline.partitions
    assert (partition.planned, partition.stored, partition.last_records, partition.log_end) == (37, 20, 10, 50)
    assert sum(minute.records for _, minute in pipeline.minutes) == 20
    assert sum(minute.rows or 0 for _, minute in pipeline.minutes) == 2
    assert len(pipeline.minutes) == 60
    assert not pipeline.is_past


def test_a_query_of_many_tables_is_one_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES", 2)
    Shared(tmp_path).run(0, {"a": 3, "b": 2, "c": 1})
    tables = [TableWatches({}).at(str(tmp_path / topic)) for topic in "abc"]
    runs = Runs(tmp_path)
    runs.note("q", RunState.RUNNING)
    known = replace(look([str(tmp_path / "checkpoint")], tables, {}), runs=runs)
    (pipeline,) = pipelines(known, EndOffsets(lambda *_: None), now_ms())
    assert (pipeline.name, str(pipeline.state)) == ("app.a, app.b and 1 more", "running")
    assert (pipeline.app_ids, pipeline.topics) == (("app.a", "app.b", "app.c"), ("a", "b", "c"))


def test_a_log_that_ends_before_what_was_read_of_it_is_no_lag_of_none(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    last_ms = found([query])[0].last_ms or 0
    (running,) = found([query], {("topic", 0): 4}, last_ms)
    assert (running.lag, running.beyond) == (0, frozenset()), "it may have read what came after that look"
    (pipeline,) = found([query], {("topic", 0): 4}, last_ms + SETTLED_MS)
    (partition,) = pipeline.partitions
    assert (partition.lag, pipeline.lag, pipeline.beyond) == (-6, 0, {partition})


def test_what_was_seen_stays_when_another_page_reads_on(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    watch = TableWatches({}).at(str(query.table))
    watch.look()
    ((_, seen),) = _seen([watch])
    before = seen.last_batch, dict(seen.ends), [*seen.recent], dict(seen.minutes)
    query.write(1, [{"v": 1}])
    watch.look()
    assert (seen.last_batch, seen.ends, [*seen.recent], seen.minutes) == before


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_the_weaker_guarantees_are_told_by_the_order_of_writes(tmp_path: Path, guarantee: str) -> None:
    query = Query(tmp_path, guarantee=guarantee)
    query.write(0, [{"v": 1}])
    (pipeline,) = found([query])
    assert pipeline.guarantee == guarantee
    assert pipeline.lag is None


def test_batches_on_a_timeline_with_what_a_kill_leaves_behind(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    finish(query, 0)
    query.log(1, 20)
    query.tasks(rows=[{"v": 2}])  # an attempt that is killed before its commit
    query.commit(1, query.tasks(rows=[{"v": 2}]))
    (pipeline,) = found([query])
    line, after = timeline_of(pipeline).lines
    assert (line.batch_id, after.batch_id) == (0, 1)
    assert line.done_ms is not None
    assert after.done_ms is None
    (mark,) = after.marks
    assert (mark.version, mark.has_rows, mark.has_offsets) == (2, True, True)
    assert mark.rows_from_ms is not None
    assert after.planned_ms is not None
    assert after.planned_ms <= mark.rows_from_ms <= mark.at_ms
    assert "rows and offsets in version 2" in after.words
    (event,) = timeline_of(pipeline).events
    assert event.kind == "trace"
    assert "rows that no commit names" in event.text
    moment = Event(mark.at_ms, "kill", "SIGKILL")
    assert moment in timeline_of(pipeline, [moment, Event(mark.at_ms + 10 * MINUTE_MS, "kill", "later")]).events
    assert len(timeline_of(pipeline, [moment]).events) == 2


def test_what_each_batch_has_read_and_written(tmp_path: Path) -> None:
    query = Query(tmp_path)
    for batch, rows in enumerate(([{"v": 1}], [{"v": 2}, {"v": 3}])):
        query.write(batch, rows)
    finish(query, 0)
    (pipeline,) = found([query])
    first, second = batches_of(pipeline)
    assert [(each.batch_id, each.offsets, each.rows) for each in (first, second)] == [(0, 10, 1), (1, 10, 2)]
    assert second.written_bytes
    assert first.took_s is not None
    assert second.took_s is None
    names = ["Offsets in a batch", "Offsets processed a second", "Batch duration", "Rows written", "Bytes written"]
    shown = charts([replace(first, took_s=0.5), second])
    assert [each.name for each in shown] == names
    assert [(each.newest, each.most) for each in shown[:4]] == [
        ("10", "10"),
        ("20", "20"),
        ("500 ms", "500 ms"),
        ("2", "2"),
    ]
    assert charts([]) == []


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_batch_of_two_commits_is_counted_once(tmp_path: Path, guarantee: str) -> None:
    query = Query(tmp_path, guarantee=guarantee)
    query.write(0, [{"v": 1}])
    (pipeline,) = found([query])
    (batch,) = batches_of(pipeline)
    assert (batch.offsets, batch.rows) == (10, 1)


def test_a_batch_in_two_tables_is_counted_once(tmp_path: Path) -> None:
    """Its dead letters are in a table that has the same offsets."""
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    shutil.copytree(query.table, tmp_path / "letters")
    tables = [TableWatches({}).at(str(place)) for place in (query.table, tmp_path / "letters")]
    (pipeline,) = pipelines(look([], tables, {}), EndOffsets(lambda *_: None), now_ms())
    (batch,) = batches_of(pipeline)
    assert (batch.offsets, batch.rows) == (10, 2)
    assert sum(minute.records for _, minute in pipeline.minutes) == 10
    assert sum(minute.rows or 0 for _, minute in pipeline.minutes) == 2


def test_queries_that_run_stay_where_they_are(tmp_path: Path) -> None:
    queries = [Query(tmp_path / name, name, appId=name) for name in "bac"]
    for newest in queries:
        newest.write(0, [{"v": 1}])
        finish(newest, 0)
    assert [each.query_id for each in found(queries)] == ["a", "b", "c"]


def test_a_new_checkpoint_that_goes_on_shares_the_app_id(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    shutil.rmtree(query.checkpoint)
    again = Query(tmp_path, "second")
    line = SourceOffset("kafka", {TP: Position(10, 20)}).to_json()  # it begins at the stored offset
    (again.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{line}")
    again.commit(0, again.tasks(rows=[{"v": 2}]))
    new, old = found([again])
    assert (new.query_id, old.query_id) == ("second", "q")
    assert old.checkpoint is None
    assert [each.is_newer for each in old.others] == [True]
    assert "query second in table, batch 0 in version 2" in old.others[0].what
    assert [each.is_newer for each in new.others] == [False]
    assert [event.kind for event in timeline_of(new).events] == ["restart"]
    assert [(line.query_id, line.batch_id) for line in timeline_of(new).lines] == [("q", 0), ("second", 0)]


def test_a_copy_of_a_checkpoint_is_told(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    copy = tmp_path / "copy"
    shutil.copytree(query.checkpoint, copy)
    known = look([str(query.checkpoint), str(copy)], [TableWatches({}).at(str(query.table))], {})
    (pipeline,) = pipelines(known, EndOffsets(lambda *_: None), now_ms())
    assert len(pipeline.others) == 1
    assert "another checkpoint of this query" in pipeline.others[0].what


def test_a_checkpoint_without_a_known_table(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.log(0, 10, partitions=2)
    known = look([str(query.checkpoint)], [], {})
    (pipeline,) = pipelines(known, EndOffsets(lambda *_: 15), now_ms())
    assert (pipeline.name, pipeline.guarantee, pipeline.sinks) == ("checkpoint-q", "not known", ())
    assert [(each.planned, each.stored, each.lag) for each in pipeline.partitions] == [(10, None, 5)] * 2
    (line,) = timeline_of(pipeline).lines
    assert line.words == "batch 0, planned, not known to be finished"


def test_what_cannot_be_read_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    (tmp_path / "empty").mkdir()
    known = look([str(query.checkpoint), str(tmp_path / "empty")], [TableWatches({}).at(str(tmp_path / "none"))], {})
    assert set(known.problems) == {str(tmp_path / "empty"), str(tmp_path / "none")}
    assert len(pipelines(known, EndOffsets(lambda *_: None), now_ms())) == 1


def test_a_source_of_another_kind_has_no_partitions(tmp_path: Path) -> None:
    query = Query(tmp_path)
    (query.checkpoint / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1700000000000}\n{"logOffset":3}')
    state = read_checkpoint(str(query.checkpoint), {})
    assert state.planned == {0: 1700000000000}
    assert [(each.next, each.description) for each in state.sources] == [({}, "source 0: another kind")]


def test_sources_of_all_kinds_are_listed(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.log(0, 10)
    with (query.checkpoint / "offsets" / "0").open("a") as file:
        file.write('\n{"logOffset":3}')
    with closing(Site(Given(checkpoints=(str(query.checkpoint),)))) as site:
        assert "<td>topic, source 1: another kind</td>" in shown(PIPELINES, site)
        assert "<dd>topic, source 1: another kind</dd>" in shown(PIPELINE, site, {"query": "q"})


def test_events_that_a_supervisor_noted(tmp_path: Path) -> None:
    assert noted(tmp_path) == []
    events = [NotedEvent(1, "kill", "job: SIGKILL"), NotedEvent(2, "start", "again")]
    for each in events:
        note(tmp_path, each)
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"at_ms": 3, "ki')
    assert noted(tmp_path) == events
