"""What needs a person, by states as other modules report them; each fault has a cause, a remedy and a page."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparkonce.connectors.kafka_sink.transactions import State, TransactionDescription
from sparkonce.connectors.lag.runs import Runs, RunState
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.cli.housekeeping.open_transactions import Application, OpenTransaction, Picture, Why
from sparkonce.jobs.cli.housekeeping.transactions_report import commands_that_end
from sparkonce.jobs.ui.delta.pipelines import SETTLED_MS, EndOffsets, Pipeline, look, pipelines
from sparkonce.jobs.ui.delta.tables import TableWatches
from sparkonce.jobs.ui.kafka.groups import _Moves
from sparkonce.jobs.ui.kafka.state import (
    UNSEEN_PAUSE_S,
    ClusterState,
    GroupPartition,
    GroupState,
    OtherTransaction,
    PartitionState,
    TopicState,
    TransactionsState,
)
from sparkonce.jobs.ui.needs import HUNG_MS, PAST_MS, Need, Seen, Severity, needs
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.offsets import Position, SourceOffset
from tests.unit.sink.query_by_hand import TP, Query

GROWING = tuple((float(second), 100 * second) for second in range(31))
STEADY = tuple((float(second), 3000) for second in range(31))


def seen_of(
    query: Query, *, run: RunState | None = None, error: str = "", end: int | None = 10, later_ms: int = 0
) -> Seen:
    """What is known of one query, whose listener has heard ``run``, and whose log ends at ``end``."""
    now = now_ms() + later_ms
    runs = Runs(query.table.parent / "runs")
    (query.table.parent / "runs").mkdir(exist_ok=True)
    if run is not None:
        runs.note("q", run, error)
    places = [str(query.checkpoint)] if query.checkpoint.exists() else []
    known = replace(look(places, [TableWatches({}).at(str(query.table))], {}), runs=runs)
    found = pipelines(known, EndOffsets(lambda *_: end, now + SETTLED_MS), now)
    return Seen(known, found, servers="localhost:9092", now_ms=now)


def only(found: Sequence[Need]) -> Need:
    (need,) = found
    assert need.remedy
    assert need.why
    return need


@pytest.fixture
def query(tmp_path: Path) -> Query:
    made = Query(tmp_path)
    made.write(0, [{"v": 1}])
    commits = made.checkpoint / "commits"
    commits.mkdir(exist_ok=True)
    (commits / "0").write_text("v1\n{}")
    return made


@pytest.mark.parametrize("run", [RunState.RUNNING, RunState.IDLE, RunState.ENDED])
def test_what_is_well_needs_nobody(query: Query, run: RunState) -> None:
    assert needs(seen_of(query, run=run)) == []


def test_a_failed_query_with_its_error(query: Query) -> None:
    need = only(needs(seen_of(query, run=RunState.FAILED, error="OSError: no space. Free some")))
    assert (need.subject, need.what, need.why) == ("Query app", "has failed", "OSError: no space. Free some")
    assert str(query.checkpoint) in need.remedy
    assert need.link == "/pipelines/q"


def cluster_of(*topics: str) -> ClusterState:
    return ClusterState(topics={name: TopicState(name, f"id of {name}", False, ()) for name in topics})


@pytest.mark.parametrize("where", ["topic topic, partition 0, at", "topic topic, partition 0, in the batch at"])
def test_the_record_that_an_error_names_is_a_click_away(query: Query, where: str) -> None:
    error = f"MalformedValueError: kafka_once: the record of {where} offset 7 has no JSON"

    def record(error: str, *topics: str) -> str:
        seen = replace(seen_of(query, run=RunState.FAILED, error=error), cluster=cluster_of(*topics))
        return next(each for each in needs(seen) if each.what == "has failed").record

    assert record(error, "topic") == "/topics/topic/messages?partition=0&begin=offset&at=7"
    assert record(error, "another") == ""
    quoted = f"{error}: 'topic another, partition 0, at offset 1'"
    assert record(quoted, "topic", "another") == record(error, "topic")
    assert record(error.replace("topic topic", "topic another"), "topic", "another") == ""


def test_a_topic_that_a_query_reads_and_that_is_not_there(query: Query) -> None:
    seen = replace(seen_of(query, run=RunState.IDLE), cluster=cluster_of("another"))
    need = only(needs(seen))
    assert (need.subject, need.what) == ("Topic topic", "is not there")
    assert "read by query app" in need.why
    assert needs(replace(seen, cluster=cluster_of("topic"))) == []
    assert needs(replace(seen, cluster=ClusterState())) == []  # not looked at yet
    late = replace(seen_of(query, run=RunState.IDLE, later_ms=PAST_MS), cluster=cluster_of("another"))
    assert needs(late) == []  # a checkpoint that is kept for nothing


def test_a_stopped_query_does_not_go_on_in_a_broken_table(query: Query) -> None:
    next(query.table.rglob("*.parquet")).unlink()
    stopped = next(each for each in needs(seen_of(query, end=25, later_ms=10**8)) if "stopped" in each.what)
    assert stopped.remedy.startswith(
        "Mend table table first. Then see whether its driver is gone. If so, start it again"
    )


def test_a_fenced_query(query: Query) -> None:
    need = only(needs(seen_of(query, run=RunState.FENCED, error="FencedError: batch 1")))
    assert (need.what, need.why, need.severity) == ("was fenced", "FencedError: batch 1", Severity.STOPPED)
    assert need.commands == (f"sparkonce offsets show {query.table} --bootstrap-servers localhost:9092",)


def test_a_query_that_stopped_while_records_wait(query: Query) -> None:
    need = only(needs(seen_of(query, end=25, later_ms=10**8)))
    assert need.what == "seems to have stopped"
    assert "15 offsets wait" in need.why
    assert "unless its next run is due" in need.remedy


def test_a_query_whose_topic_is_not_known_and_that_was_killed_in_a_batch(query: Query) -> None:
    assert needs(seen_of(query, end=None, later_ms=70_000)) == [], "it may be idle"
    query.log(1, 20)
    seen = seen_of(query, end=None, later_ms=70_000)
    need = only(needs(seen))
    assert need.what == "seems to have stopped"
    assert "its last batch is not finished" in need.why.lower()
    assert "how much waits is not known" in need.why
    assert needs(replace(seen, now_ms=seen.now_ms + PAST_MS)) == []


def test_a_query_that_was_killed_before_its_batch_was_noted(query: Query) -> None:
    query.write(1, [{"v": 2}])
    need = only(needs(seen_of(query, end=99, later_ms=70_000)))
    assert need.why.startswith("Its batch 1 is written, and not noted as finished: ")
    assert need.why.endswith("; 79 offsets wait.")


def test_a_job_that_ended_in_order_waits_for_its_next_run(query: Query) -> None:
    assert needs(seen_of(query, run=RunState.ENDED, end=25)) == []


def test_a_query_whose_driver_was_killed(query: Query) -> None:
    seen = seen_of(query, run=RunState.RUNNING, end=25)
    (pipeline,) = seen.pipelines
    assert pipeline.run is not None
    killed = replace(pipeline, run=replace(pipeline.run, began="another process"))
    need = only(needs(replace(seen, pipelines=[killed])))
    assert need.what == "has stopped"
    assert "has ended without reporting it; 15 offsets wait" in need.why


def test_a_query_that_another_one_went_on_for_is_left_alone(query: Query, tmp_path: Path) -> None:
    shutil.rmtree(query.checkpoint)
    again = Query(tmp_path, "second")
    line = SourceOffset("kafka", {TP: Position(10, 20)}).to_json()  # it begins at the stored offset
    (again.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{line}")
    again.commit(0, again.tasks(rows=[{"v": 2}]))
    seen = seen_of(again, run=RunState.FENCED, end=99)
    assert [(each.subject, each.what) for each in needs(seen) if each.link == "/pipelines/q"] == [
        ("Query app", "was fenced")
    ]
    failed = seen_of(again, run=RunState.FAILED, end=99)
    assert [each for each in needs(failed) if each.link == "/pipelines/q"] == []
    later = replace(seen, now_ms=seen.now_ms + PAST_MS + 1)
    assert [each for each in needs(later) if each.link == "/pipelines/q"] == []


def test_a_query_whose_topic_was_made_anew(query: Query) -> None:
    seen = seen_of(query, run=RunState.IDLE)
    anew = EndOffsets(lambda *_: None, seen.now_ms + SETTLED_MS, is_anew=lambda *_: True)
    found = pipelines(seen.known, anew, seen.now_ms)
    need = only(needs(replace(seen, pipelines=found)))
    assert (need.severity, need.what) == (Severity.WRONG, "has read what is gone")
    assert "deleted and created again, or these are not the brokers" in need.why
    left = replace(seen_of(query, later_ms=PAST_MS), pipelines=pipelines(seen.known, anew, seen.now_ms + PAST_MS))
    assert needs(replace(left, known=seen.known)) != [], "its listener has said that it goes on"
    nobody = replace(seen.known, runs=Runs(query.table.parent / "no-runs"))
    assert needs(replace(left, pipelines=pipelines(nobody, anew, left.now_ms))) == [], "it was left"


def test_a_query_that_went_on_with_another_topic_of_the_name_has_read_that(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    line = SourceOffset("kafka", {TP._replace(topic_id="another"): Position(0, 5)}).to_json()
    (query.checkpoint / "offsets" / "1").write_text(f"v1\n{{}}\n{line}")
    query.commit(1, query.tasks(rows=[{"v": 2}]))
    known = look([], [TableWatches({}).at(str(query.table))], {})
    ends = EndOffsets(lambda *_: 5, is_anew=lambda _, topic_id: topic_id != "another")
    (pipeline,) = pipelines(known, ends, now_ms())
    assert (pipeline.made_anew, pipeline.lag) == ((), 0)


def test_a_query_that_reads_behind_an_open_transaction_has_lost_nothing(query: Query) -> None:
    seen = seen_of(query, run=RunState.RUNNING)
    ends = EndOffsets(lambda *_: 12, seen.now_ms + SETTLED_MS, stable=lambda *_: 4)
    (pipeline,) = found = pipelines(seen.known, ends, seen.now_ms)
    assert (pipeline.lag, pipeline.beyond) == (2, frozenset())
    assert needs(replace(seen, pipelines=found)) == []
    behind_it = EndOffsets(lambda *_: 20, seen.now_ms, stable=lambda *_: 13)
    assert pipelines(seen.known, behind_it, seen.now_ms)[0].lag == 3


def test_a_lag_that_is_not_known_of_all_partitions_is_never_none(query: Query) -> None:
    query.log(1, 10, partitions=2)
    (query.checkpoint / "commits" / "1").write_text("v1\n{}")
    seen = seen_of(query, later_ms=10**8)

    def found(ends: dict[int, int]) -> Pipeline:
        (made,) = pipelines(seen.known, EndOffsets(lambda _, __, partition: ends.get(partition)), seen.now_ms)
        return made

    assert (found({0: 10, 1: 10}).lag, found({0: 10}).lag, found({0: 13}).lag) == (0, None, 3)
    assert [found(ends).is_whole for ends in ({0: 10, 1: 10}, {0: 10})] == [True, False]
    assert "nothing waits" in found({0: 10, 1: 10}).state.why
    assert "nothing waits" not in found({0: 10}).state.why


def test_a_query_that_has_read_what_is_gone(query: Query) -> None:
    need = only(needs(seen_of(query, run=RunState.RUNNING, end=4)))
    assert (need.severity, need.what) == (Severity.WRONG, "has read what is gone")


def behind(pipeline: Pipeline, age_s: float | None, past: tuple[tuple[float, int], ...]) -> Pipeline:
    rows = tuple(replace(each, age_s=age_s) for each in pipeline.partitions)
    return replace(pipeline, partitions=rows, past=past)


def test_a_query_that_falls_behind(query: Query) -> None:
    seen = seen_of(query, run=RunState.RUNNING, end=3010)
    (pipeline,) = seen.pipelines
    assert pipeline.state.word == "behind"
    assert needs(seen) == [], "it may catch up"
    for age_s, past, expected in ((60.0, GROWING, 1), (None, GROWING, 1), (1.0, GROWING, 0), (60.0, STEADY, 0)):
        assert len(needs(replace(seen, pipelines=[behind(pipeline, age_s, past)]))) == expected
    seldom = pipeline.checkpoint
    assert seldom is not None
    for pause_s, age_s in ((40, 60.0), (600, None)):
        seldom = replace(seldom, planned={number: 1000 * pause_s * number for number in range(5)})
        assert needs(replace(seen, pipelines=[behind(replace(pipeline, checkpoint=seldom), age_s, GROWING)])) == []
    need = only(needs(replace(seen, pipelines=[behind(pipeline, 60.0, GROWING)])))
    assert need.why == "3\u202f000 offsets wait, 100 more each second."


def test_a_broken_table(query: Query) -> None:
    (file,) = query.table.rglob("*.parquet")
    file.unlink()
    need = only(needs(seen_of(query)))
    assert (need.severity, need.subject, need.what) == (Severity.WRONG, "Table table", "is broken")
    assert need.why == f"The data file {file.name} is missing, so its rows cannot be read. Version 1 has added it."
    assert need.remedy.startswith("Bring the file back from a backup, or have its rows written again from Kafka")
    assert "Stop what writes to it: query app." in need.remedy
    assert need.link.endswith("?from=1")
    assert need.commands == (f"sparkonce audit {query.table}",)


def test_a_lost_file_beside_another_fault_is_not_taken_for_it(query: Query) -> None:
    seen = seen_of(query)
    (watch,) = seen.known.tables
    reading = watch.followed.reading()
    assert reading.audit is not None
    wrong = (("wrong", "version 2: [gap] offsets are missing"), ("wrong", "[file-lost] the data file f is missing"))
    lost = ("the data file f is missing",)
    reading.audit = replace(reading.audit, verdict=Verdict.BROKEN, findings=wrong, lost_files=lost, lost_from=1)
    need = only(needs(seen))
    assert need.why == "Version 2: offsets are missing … and 1 more."
    assert "?from" not in need.link


def test_a_broken_log(query: Query) -> None:
    query.write(1, [{"v": 2}])
    query.write(2, [{"v": 3}])
    log = query.table / "_delta_log"
    for version in (1, 2):  # the ranges have a gap, and no file is missed
        shutil.copy(log / f"{version + 1:020}.json", log / f"{version:020}.json")
    need = next(each for each in needs(seen_of(query)) if each.what == "is broken")
    assert need.commands == (f"sparkonce audit {query.table}",)
    assert "[" not in need.why.partition("(")[0]


def test_what_cannot_be_read(query: Query) -> None:
    seen = seen_of(query)
    broken = replace(seen.known, problems={"/data/t": "the log has a hole"})
    need = only(needs(replace(seen, known=broken)))
    assert (need.subject, need.what, need.why) == ("/data/t", "cannot be read", "the log has a hole")


def topic(waiting: int = 0, leader: int = 0) -> ClusterState:
    partition = PartitionState(0, leader, 1, (0,), (0,), 0, 100 - waiting, 100)
    return ClusterState(topics={"orders": TopicState("orders", "id", False, (partition,))})


EMPTY = Seen(look([], [], {}), [], servers="localhost:9092", now_ms=10**6)


def test_a_partition_without_a_leader() -> None:
    need = only(needs(replace(EMPTY, cluster=topic(leader=-1))))
    assert (need.subject, need.what) == ("Topic orders", "has 1 partition without a leader")


def test_a_transaction_that_hangs() -> None:
    began = EMPTY.now_ms - HUNG_MS
    left = OtherTransaction("pay; rm -r x", "Ongoing", 7, 0, began, 60_000, (("orders", 0),))
    seen = replace(EMPTY, transactions=TransactionsState(others=(left,)))
    assert needs(replace(seen, cluster=topic())) == [], "nobody waits"
    need = only(needs(replace(seen, cluster=topic(waiting=5))))
    assert need.why == "Readers of committed records have waited for it in orders-0 for 30 s."
    assert "Kafka aborts it in 30 s" in need.remedy
    assert need.commands == (), "its producer may be at work, and an abort by hand is of one partition"
    long_past = replace(seen, cluster=topic(waiting=5), now_ms=EMPTY.now_ms + 60_000)
    need = only(needs(long_past))
    assert "Kafka should have aborted it 30 s ago" in need.remedy
    assert "for producer 7" in need.remedy
    (command,) = need.commands
    assert command.endswith("localhost:9092 describe-producers --topic orders --partition 0")
    young = replace(left, started_ms=began + 1)
    assert needs(replace(seen, cluster=topic(waiting=5), transactions=TransactionsState(others=(young,)))) == []


def group(
    past: tuple[tuple[float, int], ...], seconds: float | None, state: str = "Stable", pause_s: float = 5.0
) -> Seen:
    partition = GroupPartition("orders", 0, 10, 3010, seconds)
    made = GroupState("billing", "consumer", state, (partition,), past, pause_s=pause_s)
    return replace(EMPTY, groups={"billing": made})


def test_a_group_that_commits_once_a_minute_does_not_fall_behind_between_two_commits() -> None:
    """Kafka Connect does; what lags longer than two such pauses is named, and what nobody reads at once."""
    assert needs(group(GROWING, 119.0, pause_s=UNSEEN_PAUSE_S)) == []
    assert len(needs(group(GROWING, 121.0, pause_s=UNSEEN_PAUSE_S))) == 1
    assert len(needs(group(GROWING, 11.0, "Empty", UNSEEN_PAUSE_S))) == 1
    moves = _Moves(0)
    for committed, at_s, pause_s in ((0, 1.0, 60.0), (5, 2.0, 60.0), (5, 3.0, 60.0), (9, 12.0, 10.0)):
        moves.note(committed, at_s)
        assert moves.pause_s == pause_s


def test_a_group_that_falls_behind() -> None:
    assert needs(group(STEADY, 60.0)) == []
    assert needs(group(GROWING, 1.0)) == []
    need = only(needs(group(GROWING, 60.0)))
    assert (need.subject, need.why) == ("Group billing", "3\u202f000 offsets wait in orders-0, 100 more each second.")
    assert need.link == "/groups/one?id=billing"
    assert only(needs(group(GROWING, None, "Empty"))).remedy == "Start its consumers."


def test_the_worst_comes_first(query: Query) -> None:
    seen = seen_of(query, run=RunState.FAILED, error="x", end=4)
    found = needs(replace(seen, groups=group(GROWING, 60.0).groups, cluster=topic(leader=-1)))
    assert [each.severity for each in found] == sorted(each.severity for each in found)
    assert (found[0].subject, found[0].severity) == ("Query app", Severity.WRONG)


@pytest.mark.parametrize("is_at_work", [False, True])
def test_transactions_of_a_driver_that_is_at_work_are_its_own(query: Query, is_at_work: bool) -> None:
    now = now_ms()
    described = TransactionDescription("app-t", State.ONGOING, 7, 0, 60_000, now - HUNG_MS, ())
    ours = Application("app", (OpenTransaction(described, Why.UNDECIDED),))
    seen = seen_of(query, run=RunState.RUNNING if is_at_work else RunState.ENDED)
    found = needs(replace(seen, transactions=TransactionsState(Picture((ours,), 0, True))))
    assert len(found) == (not is_at_work)
    for need in found:
        assert (need.subject, need.what) == ("Transactions of appId app", "are left open")
        assert need.commands == ("sparkonce transactions abort --bootstrap-servers localhost:9092 --app-id app",)


@pytest.mark.parametrize(
    ("open_for", "command"),
    [
        ((Why.DECIDING, Why.UNDECIDED), "abort"),
        ((Why.ENDING, Why.UNDECIDED), "abort"),
        ((Why.DECIDING,), "abort"),
        ((Why.ENDING,), None),
    ],
)
def test_the_command_ends_what_a_killed_driver_leaves(open_for: Sequence[Why], command: str | None) -> None:
    described = TransactionDescription("x", State.ONGOING, 7, 0, 60_000, 0, ())
    left = Application("a; rm -r x", tuple(OpenTransaction(described, why) for why in open_for))
    expected = f"sparkonce transactions {command} --bootstrap-servers localhost:9092 --app-id 'a; rm -r x'"
    assert commands_that_end(left, "localhost:9092") == ((expected,) if command else ())


def test_a_query_of_the_same_name_in_another_table_is_another_one(query: Query, tmp_path: Path) -> None:
    other = Query(tmp_path / "other", "elsewhere")
    other.write(0, [{"v": 1}])
    runs = Runs(tmp_path)
    runs.note("q", RunState.FAILED, "why")
    tables = [TableWatches({}).at(str(each.table)) for each in (query, other)]
    known = replace(look([str(query.checkpoint), str(other.checkpoint)], tables, {}), runs=runs)
    found = pipelines(known, EndOffsets(lambda *_: 10), now_ms())
    assert all(each.others for each in found)
    assert only(needs(Seen(known, found, now_ms=now_ms()))).what == "has failed"
