"""Checkpoints set back, without Spark: which rows are due, the verdict, and each turn that a cell can take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.verify.cells import Outcome, Shows
from lab.verify.setback import due as oracle
from lab.verify.setback.cells import (
    OF_THE_TABLE,
    Query,
    SetBack,
    SetBackCell,
    Sink,
    StateStore,
    all_setbacks,
    named,
    pairwise_setbacks,
    quick_setbacks,
)
from lab.verify.setback.course import FIRST_BATCHES, RECORDS_PER_BATCH, CourseError, Running, course
from lab.verify.setback.judge import compare, names_way_out
from lab.verify.setback.queries import Setup
from lab.verify.setback.tables import markdown, section, short
from sparkonce import EmbeddedBroker
from sparkonce.crash_points import MARK_SUFFIX

NAMES = {cell.name: cell for cell in all_setbacks()}
REFUSAL = (
    "sparkonce.exactly_once.errors.OffsetMismatchError: batch 2 is older than the table. Start with a new "
    'checkpointLocation and startingOffsets={"topic":{"0":8,"1":8}}: the source then begins at the stored offsets'
)
STATEFUL_REFUSAL = (
    "sparkonce.exactly_once.errors.OffsetMismatchError: batch 2 is not the one that was written under this number: "
    "start from the checkpoint that matches the stored offsets"
)


def cell(setback: SetBack, query: Query = Query.STATELESS, sink: Sink = Sink.APPEND) -> SetBackCell:
    state = StateStore.NONE if query in (Query.STATELESS, Query.UNION, Query.FILES) else StateStore.HDFS
    found = SetBackCell(setback, query, state, sink)
    assert found in all_setbacks()
    return found


# The cells.


def test_names_are_unique_and_other_sinks_come_last() -> None:
    assert len(NAMES) == len(all_setbacks())
    ours = [not each.compares_only for each in all_setbacks()]
    assert ours == sorted(ours, reverse=True)


def test_every_query_meets_every_way_to_set_back_and_both_state_stores() -> None:
    for query in Query:
        found = {each.setback for each in all_setbacks() if each.query is query}
        without_data = {SetBack.NO_DATA} if query in (Query.STATELESS, Query.UNION, Query.FILES, Query.STATE) else set()
        never_appended = OF_THE_TABLE if query is Query.WINDOW_UPDATE else set()
        assert found == set(SetBack) - without_data - never_appended
        stores = {each.state for each in all_setbacks() if each.query is query}
        assert stores in ({StateStore.NONE}, {StateStore.HDFS, StateStore.ROCKSDB})
    assert {each.sink for each in all_setbacks()} == set(Sink)
    assert quick_setbacks() < pairwise_setbacks() < set(all_setbacks())


# What is due.


def test_a_window_is_due_when_the_watermark_has_reached_its_end() -> None:
    # Records at 0, 3, 6, 9 | 12, 15, 18 | 21, …: window 10 ends at 20, and is due as soon as a record at 21 is there.
    assert oracle.due(Query.WINDOW, 7, 0) == {("window 1000000", "4")}
    assert oracle.due(Query.WINDOW, 8, 0) == {("window 1000000", "4"), ("window 1000010", "3")}
    assert oracle.due(Query.WINDOW_UPDATE, 8, 0) == {
        ("window 1000000", "4"),
        ("window 1000010", "3"),
        ("window 1000020", "1"),
    }


def test_a_left_row_is_alone_when_the_watermark_has_left_it_behind() -> None:
    assert oracle.due(Query.JOIN, 4, 0) == {("pair 1", "match"), ("pair 0", "alone")}
    assert oracle.due(Query.JOIN, 8, 0) == {
        ("pair 0", "alone"),
        ("pair 1", "match"),
        ("pair 2", "match"),
    }


def test_repeated_records_and_files_are_due_once() -> None:
    assert oracle.due(Query.DEDUPLICATED, 6, 0) == {(f"record {number}", "") for number in (0, 1, 2, 3, 4)}
    assert oracle.due(Query.FILES, 0, 1) == {("file 0-0", ""), ("file 0-1", "")}
    assert len(oracle.due(Query.UNION, 4, 2)) == 8
    assert oracle.due(Query.STATE, 4, 0) == {
        (f"key {key} number {ordinal}", "") for key, ordinal in ((0, 1), (1, 1), (2, 1), (0, 2))
    }


# The verdict.


def test_rows_are_lost_doubled_or_not_due() -> None:
    wanted = {("a", "1"), ("b", "1")}
    assert compare(wanted, [("a", "1"), ("b", "1")]).is_right
    assert str(compare(wanted, [("a", "1")])) == "1 lost, 0 doubled of 2 rows"
    assert compare(wanted, [("a", "1"), ("b", "1"), ("b", "1"), ("b", "1")]).duplicated == 2
    stale = compare(wanted, [("a", "1"), ("b", "0")])
    assert (stale.lost, stale.strange) == (1, ("1 not due: ('b', '0')",))


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (REFUSAL, True),
        (STATEFUL_REFUSAL, True),
        ("sparkonce.exactly_once.errors.FencedError: another driver runs: give each its own appId", False),
        ("org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE] … use a new checkpointLocation", False),
        ("the Spark session ended unexpectedly", False),
    ],
)
def test_a_refusal_is_ours_and_names_the_way_out(error: str, names: bool) -> None:
    assert names_way_out(error) is names


# The course of a cell.

Run = Callable[[Running, Setup], str | None]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


class Topics:
    made = 0


def running(which: SetBackCell, broker: EmbeddedBroker, folder: Path) -> Running:
    Topics.made += 1
    home = folder / f"{Topics.made}_{which.name}"
    home.mkdir()
    return Running(which, home, f"setback-{Topics.made}", broker.bootstrap_servers, folder)


def log_batch(one: Running, _setup: Setup) -> None:
    """Do what a run does to a checkpoint: one more batch."""
    number = str(one.newest("offsets") + 1)
    for log in ("offsets", "commits"):
        (one.checkpoint / log).mkdir(parents=True, exist_ok=True)
        (one.checkpoint / log / number).write_text(f"run {one.runs}")


def go_through(one: Running, *errors: str | None) -> tuple[list[Setup], list[int]]:
    """Have the runs end with these errors; returns how they were described, and the newest batch each began with."""
    setups, began = [], []
    steps, left = course(one), list(errors)
    try:
        setup = next(steps)
        while True:
            setups.append(setup)
            began.append(one.newest("offsets"))
            log_batch(one, setup)
            setup = steps.send(left.pop(0))
    except StopIteration:
        assert not left
        return setups, began


def test_a_copy_is_put_back_and_the_query_goes_on(broker: EmbeddedBroker, tmp_path: Path) -> None:
    one = running(cell(SetBack.COPY_2), broker, tmp_path)
    _, began = go_through(one, *[None] * 5)
    assert began == [-1, 0, 1, 0, 1]
    assert one.refused is None
    assert one.set_back
    assert one.records == (FIRST_BATCHES + 2 + 2) * RECORDS_PER_BATCH


def test_other_limits_come_with_new_data(broker: EmbeddedBroker, tmp_path: Path) -> None:
    one = running(cell(SetBack.OTHER_LIMITS, Query.FILES), broker, tmp_path)
    setups, _ = go_through(one, *[None] * 4)
    assert [setup.files_per_batch for setup in setups] == [1, 1, 1, 2]
    assert [path.name for path in sorted(one.setup().files.iterdir())][-1] == f"{one.files - 1:04d}.txt"


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_the_newest_file_of_a_log_is_deleted(log: str, broker: EmbeddedBroker, tmp_path: Path) -> None:
    one = running(cell(SetBack(f"{log}-deleted")), broker, tmp_path)
    steps = course(one)
    next(steps)
    for _ in range(3):
        log_batch(one, one.setup())
        steps.send(None)
    assert one.newest(log) == 1
    assert max(one.newest("offsets"), one.newest("commits")) == 2


def test_a_refused_query_with_state_goes_on_from_the_checkpoint_of_the_result(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    one = running(cell(SetBack.COPY_2, Query.WINDOW), broker, tmp_path)
    _, began = go_through(one, None, None, None, STATEFUL_REFUSAL, None)
    assert began == [-1, 0, 1, 0, 2]
    assert one.refused == STATEFUL_REFUSAL


def test_a_table_is_taken_back_by_the_command_that_the_error_names(broker: EmbeddedBroker, tmp_path: Path) -> None:
    which = replace(cell(SetBack.COPY_2, Query.WINDOW), state=StateStore.ROCKSDB)
    one = running(which, broker, tmp_path)
    error = f"{STATEFUL_REFUSAL}; or sparkonce offsets rewind <path of this table> --to-version 1 --restore; or"
    with pytest.raises(CourseError, match="the command fails: offsets rewind"):
        go_through(one, None, None, None, error)


def test_a_refused_query_without_state_begins_at_the_offsets_that_the_error_names(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    one = running(cell(SetBack.COPY_2, sink=Sink.FOREACH_BATCH), broker, tmp_path)
    setups, began = go_through(one, None, None, None, REFUSAL, None)
    assert began[-1] == -1
    assert json.loads(setups[-1].starting_offsets) == {"topic": {"0": 8, "1": 8}}
    assert {setup.starting_offsets for setup in setups[:-1]} == {"earliest"}


def test_a_refusal_must_name_the_way_out_and_it_must_lead_somewhere(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="names no way out"):
        go_through(running(cell(SetBack.COPY_1), broker, tmp_path), None, None, "java.lang.Exception: no")
    with pytest.raises(CourseError, match="leads nowhere"):
        go_through(running(cell(SetBack.COPY_1), broker, tmp_path), None, None, REFUSAL, REFUSAL)
    with pytest.raises(CourseError, match="failed before its checkpoint was set back"):
        go_through(running(cell(SetBack.COPY_1), broker, tmp_path), None, REFUSAL)


def test_spark_itself_refuses_to_run_a_batch_that_is_committed_again(broker: EmbeddedBroker, tmp_path: Path) -> None:
    error = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 2."
    _, began = go_through(
        running(cell(SetBack.OFFSETS_DELETED, Query.FILES), broker, tmp_path), None, None, None, error, None
    )
    assert began[-1] == 2
    with pytest.raises(CourseError, match="names no way out"):
        go_through(running(cell(SetBack.COMMITS_DELETED), broker, tmp_path), None, None, None, error)


def test_twins_take_turns_and_the_last_one_that_wrote_is_the_way_out(broker: EmbeddedBroker, tmp_path: Path) -> None:
    one = running(cell(SetBack.TWIN, Query.WINDOW), broker, tmp_path)
    _, began = go_through(one, None, None, None, None, STATEFUL_REFUSAL, None)
    assert began == [-1, 0, 1, 0, 2, 1], "the second copy wrote batch 1 last"


def test_a_crash_without_data_must_have_happened(broker: EmbeddedBroker, tmp_path: Path) -> None:
    one = running(cell(SetBack.NO_DATA, Query.WINDOW), broker, tmp_path)
    with pytest.raises(CourseError, match="did not fail in batch 3"):
        go_through(one, None, None, None)
    one = running(cell(SetBack.NO_DATA, Query.WINDOW), broker, tmp_path)
    mark = {"point": "sink.begun", "batch_id": 3, "pid": 1}
    (tmp_path / f"{one.folder.name}{MARK_SUFFIX}").write_text(json.dumps(mark) + "\n")
    go_through(one, None, None, "InjectedCrashError: as planned", None, None)
    assert [moment.what for moment in one.moments if moment.lane == "fault"] == [
        "exception at sink.begun of batch 3, which has no data"
    ]


# What is shown.


def outcome(which: SetBackCell, wrong: str | None, remark: str) -> Outcome[SetBackCell]:
    beside = which.compares_only
    return Outcome(which, Shows.NEITHER, 6, 0, 1, True, wrong, (), (), 1.0, remark, beside)


def test_tables_have_a_row_for_each_way_and_a_column_for_each_query() -> None:
    doubled = outcome(cell(SetBack.TWIN, Query.WINDOW), "must show each row once", "0 lost, 1 doubled of 6 rows")
    refused = outcome(cell(SetBack.TWIN), None, "right rows, after a refusal: …")
    page = section([refused, doubled])
    assert page.index("must show each row once") < page.index(refused.cell.name), "wrong ones come first"
    assert "<td>refuses</td>" in page
    text = markdown(
        [{"cell": {"name": doubled.cell.name}, "remark": doubled.remark, "wrong": None}, {"cell": {"name": "x"}}]
    )
    assert text.splitlines()[0] == "| append | window |"
    assert text.splitlines()[-1] == "| twin | 0 lost, 1 doubled |"


def test_what_stops_delta_spark_is_named_by_sparks_condition() -> None:
    assert short("refuses: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE] …", None) == (
        "stops: CANNOT_LOAD_STATE_STORE"
    )
    assert short("right rows", None) == "right rows"
    assert short("1 lost, 0 doubled of 2 rows", "must show …").startswith("WRONG: 1 lost")


def test_cells_are_found_by_their_names() -> None:
    assert named("setback_twin_stateless_append") == (cell(SetBack.TWIN),)
