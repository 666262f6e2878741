"""Bugs planted into the product: the matrix, or cells of two drivers, find each; without them the cells are clean.

Each bug is a `sitecustomize.py` in a folder of `planted/`, which comes into every Python process of the run by
``PYTHONPATH``. The judge uses none of the code that is changed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkonce.jobs.shared.jars import PeerMissingError, delta_jars

PROJECT = Path(__file__).resolve().parents[3]
PLANTED = Path(__file__).resolve().parent / "planted"
LIMIT_S = 590


@dataclass(frozen=True)
class Bug:
    """A planted bug, the cell that must find it, and what it says: lost, duplicated, or the words of what is wrong."""

    name: str
    cell: str
    shows: str


BUGS = (
    Bug("commit_without_comparison", "exactly-once_append_sink.after_commit_exception", "duplicated"),
    Bug("abort_deletes_landed_file", "exactly-once_append_sink.after_commit_exception", "cannot be judged"),
    Bug("replay_written_again", "exactly-once_append_sink.after_commit_worker-killed", "duplicated"),
    Bug("rows_and_offsets_apart", "exactly-once_append_sink.rows_landed_worker-killed", "duplicated"),
    Bug("offsets_before_rows", "exactly-once_append_source.reading_exception", "lost"),
    Bug("latest_after_lost_checkpoint", "exactly-once_append_sink.before_commit_exception_no-checkpoint", "lost"),
    Bug(
        "lost_acknowledgement_believed",
        "exactly-once_append_sink.rows_landed_lost-acknowledgement",
        "should have carried on",
    ),
    Bug(
        "at_least_once_offsets_first",
        "at-least-once_append_sink.between_writes_exception",
        "must show duplicates and no loss",
    ),
    Bug("at_most_once_in_one_commit", "at-most-once_append_sink.between_writes_exception", "the fault did not fire"),
)
SETBACK_BUGS = (
    Bug("replay_by_number", "setback_copy-with-other-limits_files_append", "lost"),
    Bug("replay_by_number", "setback_crash-without-data_window_hdfs_append", "lost"),
    Bug("replay_by_number", "setback_copy-with-other-limits_window_rocksdb_topic", "duplicated"),
    Bug("replay_by_number", "setback_copy-with-other-limits_join_hdfs_append", "duplicated"),
)
_HANGING = "transaction left behind"
_TIMED_OUT = "exactly-once_topic_transaction.decided_transaction-timed-out"
_BETWEEN = "exactly-once_dead-letters_sink.between_targets_driver-killed_no-checkpoint"
KAFKA_BUGS = (
    Bug("rows_not_awaited", "exactly-once_topic_sink.writing_broker-killed", "lost"),
    Bug("end_forgotten", "exactly-once_topic_sink.after_commit_exception", "lost"),
    Bug(
        "offsets_outside_the_transaction",
        "exactly-once_topic_transaction.deciding_driver-killed_no-checkpoint",
        "lost",
    ),
    Bug("orphans_left", "exactly-once_topic_sink.before_commit_worker-killed", _HANGING),
    Bug("orphans_left", "exactly-once_topic_sink.file_written_task-retried", _HANGING),
    Bug("decision_not_finished", "exactly-once_topic_transaction.decided_driver-killed", _HANGING),
    Bug("timed_out_believed", _TIMED_OUT, "should have ended at the fault"),
    Bug("ids_reused_at_once", "exactly-once_topic_source.finished_exception", "the fault did not fire"),
    Bug("rows_before_dead_letters", _BETWEEN, "lost"),
)
CLUSTER_BUGS = (
    Bug("orphans_left", "cluster_machine-killed_sink.file_written_exactly-once_topic", _HANGING),
    Bug("decision_not_finished", "cluster_driver-moved_sink.rows_landed_exactly-once_topic", _HANGING),
    Bug("replay_written_again", "cluster_driver-moved_sink.rows_landed_exactly-once_append", "duplicated"),
)
_DIRECT = "exactly-once_append_source.reading_exception_direct"
_EVOLVING = "exactly-once_dead-letters_sink.after_commit_exception_direct"
DIRECT_BUGS = (
    Bug("coverage_not_compared", _DIRECT, "lost"),
    Bug("range_left_out", _DIRECT, "no operator between source and sink may drop or repeat rows"),
    Bug("range_read_twice", _DIRECT, "duplicated"),
    Bug("range_read_twice", "exactly-once_topic_source.reading_exception_direct", "duplicated"),
    Bug("read_past_the_end", _DIRECT, "duplicated"),
    Bug("range_lost_counts_as_read", _DIRECT, "lost"),
    Bug("failed_attempt_counts", "exactly-once_append_sink.file_written_task-retried_direct", "duplicated"),
    Bug("begun_before_it_is_logged", _DIRECT, "Spark runs batch 1, and 0 is the newest"),
    Bug("replay_written_again", "exactly-once_append_sink.after_commit_worker-killed_direct", "duplicated"),
    Bug("orphans_left", "exactly-once_topic_sink.file_written_task-retried_direct", _HANGING),
    Bug("rows_before_dead_letters", f"{_BETWEEN}_direct", "lost"),
    Bug("begun_again_with_the_latest", "exactly-once_dead-letters_sink.between_targets_exception_direct", "duplicated"),
    Bug("newer_version_not_asked_for", _EVOLVING, "rows that are not records of the topic"),
)
_BETWEEN_TABLES = "exactly-once_append_sink.between_targets_worker-killed_direct_third-of-5"
_TWO_TABLES = "exactly-once_append_sink.{}_driver-killed_direct_last-of-2_{}"
SHARED_BUGS = (
    Bug("replay_written_again", _BETWEEN_TABLES, "duplicated"),
    Bug("tables_share_a_decision", _BETWEEN_TABLES, "lost"),
    Bug("nobody_catches_up", _TWO_TABLES.format("file_written", "beside-away"), "lost"),
    Bug("commit_without_comparison", _TWO_TABLES.format("before_commit", "fenced"), "duplicated"),
)
MERGE_BUGS = (
    Bug("merge_left_unconfirmed", "exactly-once_merge_intent.unconfirmed_driver-killed", "duplicated"),
    Bug(
        "merge_numbers_are_batch_ids",
        "exactly-once_merge_sink.before_commit_exception_no-checkpoint",
        "did not recover",
    ),
)
_TRACKED = "exactly-once_append_sink.rows_landed_worker-killed_no-checkpoint_tracked"
FEATURE_BUGS = (
    Bug("high_water_mark_not_raised", _TRACKED, "row-ids: version"),
    Bug("checkpoint_without_domains", _TRACKED, "row-ids: version"),
)


def laboratory(bug: str | None, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a bug in all its processes."""
    path = [str(PROJECT), *([str(PLANTED / bug), str(PLANTED)] if bug else []), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    line = [sys.executable, "-m", "lab.verify", *words]
    return subprocess.run(
        line, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def verify(bug: str | None, folder: Path, *cells: str) -> tuple[int, list[dict], str]:
    """Run cells; returns the exit code, the outcomes, and all that was printed."""
    report = folder / "outcomes.json"
    words = [word for cell in cells for word in ("--cell", cell)]
    words += ["--cluster"] if any(cell.startswith("cluster_") for cell in cells) else []
    ended = laboratory(bug, "--json", str(report), *words)
    told = ended.stdout + ended.stderr[-3000:]
    assert report.exists(), told
    return ended.returncode, json.loads(report.read_text()), told


def by_name(*bugs: Bug) -> dict[str, list[Bug]]:
    """Return the cells that each bug must show in."""
    found: dict[str, list[Bug]] = {}
    for bug in bugs:
        found.setdefault(bug.name, []).append(bug)
    return found


def assert_found(name: str, bugs: Sequence[Bug], folder: Path) -> None:
    code, outcomes, told = verify(name, folder, *(bug.cell for bug in bugs))
    assert code == 1, told
    found = {outcome["cell"]["name"]: outcome for outcome in outcomes}
    for bug in bugs:
        outcome = found[bug.cell]
        assert outcome["wrong"], told
        if bug.shows in ("lost", "duplicated"):
            assert outcome[bug.shows] > 0, told
        else:
            assert bug.shows in outcome["wrong"], told


EVERYWHERE = by_name(*BUGS, *KAFKA_BUGS, *DIRECT_BUGS, *SHARED_BUGS, *SETBACK_BUGS)
ON_A_CLUSTER = by_name(*CLUSTER_BUGS)
BESIDE_DELTA_SPARK = by_name(*MERGE_BUGS, *FEATURE_BUGS)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_matrix_finds(name: str, tmp_path: Path) -> None:
    assert_found(name, EVERYWHERE[name], tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ON_A_CLUSTER)
def test_the_matrix_finds_on_a_cluster(name: str, tmp_path: Path) -> None:
    assert_found(name, ON_A_CLUSTER[name], tmp_path)


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BESIDE_DELTA_SPARK)
def test_the_matrix_finds_beside_delta_spark(name: str, tmp_path: Path) -> None:
    try:
        delta_jars()
    except PeerMissingError as error:
        pytest.skip(str(error))
    assert_found(name, BESIDE_DELTA_SPARK[name], tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_without_bugs_the_same_cells_are_clean(tmp_path: Path) -> None:
    bugs = (*BUGS, *KAFKA_BUGS, *DIRECT_BUGS, *SHARED_BUGS, *SETBACK_BUGS)
    code, outcomes, told = verify(None, tmp_path, *sorted({bug.cell for bug in bugs}))
    assert code == 0, told
    assert not any(outcome["wrong"] for outcome in outcomes)


def two_drivers(bug: str, pauses: int) -> tuple[int, int, str]:
    """Let two drivers compete; returns the exit code, how many rows came twice, and all that was printed."""
    words = ["--cell", "two-drivers_append_paused-in-turn", "--pauses", str(pauses), "--seed", "7"]
    ended = laboratory(bug, "--show", "two-drivers", *words)
    told = ended.stdout + ended.stderr[-3000:]
    result = re.search(r"^RESULT cells=1 lost=0 duplicated=(\d+) ", told, re.MULTILINE)
    assert result is not None, told
    return ended.returncode, int(result[1]), told


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", ["comparison_only_before_tasks", "another_handle"])
def test_two_drivers_find_what_takes_two(bug: str) -> None:
    code, duplicated, told = two_drivers(bug, 1)
    assert code == 1, told
    assert duplicated > 0, told


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_two_commits_that_were_compared_at_once_do_not_both_land() -> None:
    """Delta itself refuses the second: both carry the same transaction ids."""
    code, duplicated, told = two_drivers("point_after_comparison", 2)  # one for each driver, so that both commit
    assert code == 0, told
    assert duplicated == 0, told


def test_every_planted_bug_is_looked_for() -> None:
    planted = {path.parent.name for path in PLANTED.glob("*/sitecustomize.py")}
    others = (*MERGE_BUGS, *CLUSTER_BUGS, *FEATURE_BUGS)
    looked_for = {*EVERYWHERE, *(bug.name for bug in others)}
    assert planted == looked_for | {"comparison_only_before_tasks", "another_handle", "point_after_comparison"}
