"""Every step of docs/recovery.md, run: each part is set up here, follows the page, and is judged by its rows."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lab.crash_plans import arm, disarm, fired, release
from sparkonce.jobs.cli.main import main
from tests.spark.recovery_page import DEFINITIONS, PAGE, Part, World, matches, parts
from tests.spark.source_support import Topics
from tests.unit.recovery.recovery_support import Pipeline

pytestmark = pytest.mark.spark

PARTS = {title: part for title, part in parts(PAGE.read_text()).items() if title != DEFINITIONS}
DEADLINE_S = 60
STORE: dict[str, Any] = {"offsetStore": "delta:/data/tables/orders", "appId": "orders"}


@pytest.fixture
def world(spark: SparkSession, topics: Topics, tmp_path: Path) -> World:
    return World(spark, topics, tmp_path)


def each_record_once(world: World) -> None:
    assert world.rows() == sorted(world.values)


Story = tuple[Callable[..., str | None], Callable[[World], None]]
STORIES: dict[str, Story] = {}


def story(title: str, check: Callable[[World], None] = each_record_once) -> Callable[[Any], Any]:
    """Declare what happens before the page's steps; it gives the error that the page should quote, if there is one."""

    def declare(setup: Any) -> Any:
        STORIES[title] = (setup, check)
        return setup

    return declare


def first_twenty(world: World, **words: Any) -> None:
    world.produce(20)
    world.run(**words)


def lose_checkpoint(world: World) -> None:
    shutil.rmtree(world.checkpoint())


def only_the_first_twenty(world: World) -> None:
    assert world.rows() == sorted(world.values[:20])


@story("", only_the_first_twenty)
def the_first_look(world: World) -> None:
    first_twenty(world)
    world.produce(5)


@story("Lost checkpoint")
def lost_checkpoint(world: World) -> None:
    first_twenty(world, **STORE)
    world.produce(5)


@story("Overlap")
def overlap(world: World) -> str:
    first_twenty(world)
    lose_checkpoint(world)
    world.produce(5)
    return world.fails()


@story("Gap / Read what is missing")
def gap(world: World) -> str:
    first_twenty(world)
    lose_checkpoint(world)
    world.produce(5)
    return world.fails(startingOffsets='{"shop.orders":{"0":23}}')


def without_three(world: World) -> None:
    assert world.rows() == sorted(world.values[:20] + world.values[23:])


story("Gap / Leave it out on purpose", without_three)(gap)


@story("Checkpoint older than the table")
def old_checkpoint(world: World) -> str:
    first_twenty(world)
    shutil.copytree(world.checkpoint(), world.checkpoint("copy"))
    world.produce(5)
    world.run()
    lose_checkpoint(world)
    world.checkpoint("copy").rename(world.checkpoint())
    world.produce(5)
    return world.fails()


def distinct_values_once(world: World) -> None:
    assert world.rows() == sorted(set(world.values))


@story("Stateful query with a lost checkpoint / An older copy of the checkpoint", distinct_values_once)
def stateful(world: World) -> str:
    world.produce(20, distinct=12)
    world.run(distinct=True)
    shutil.copytree(world.checkpoint(), world.folder / "backup" / "checkpoints" / "orders")
    world.produce(5)
    world.run(distinct=True)
    lose_checkpoint(world)
    world.produce(5, distinct=12)
    return world.fails(distinct=True, **STORE)


def both_tables(world: World) -> None:
    assert world.rows(world.table.with_name("orders-2")) == sorted(set(world.values))
    assert world.rows() == sorted(set(world.values[:25]))


story("Stateful query with a lost checkpoint / No copy at all: everything anew", both_tables)(stateful)


@story("Recreated topic")
def recreated_topic(world: World) -> str:
    first_twenty(world)
    world.topics.delete(world.topic)
    world.topics.create(1, world.topic)
    world.produce(5)
    return world.fails()


@story("Lost table")
def lost_table(world: World) -> str:
    first_twenty(world, **STORE)
    shutil.rmtree(world.table)
    world.produce(5)
    return world.fails(**STORE)


def once_and_old_checkpoints_are_refused(world: World) -> None:
    """As the page says of a restored table: here the offsets are set back again, and nobody has read on since."""
    each_record_once(world)
    assert main(["offsets", "rewind", str(world.table), "--restore", "--batches", "1", "--apply"]) == 0
    world.produce(5)
    assert "has a gap with the table's offsets" in world.fails()


@story("Write the last batches again", once_and_old_checkpoints_are_refused)
def wrong_rows(world: World) -> None:
    first_twenty(world)
    world.produce(5)
    world.run()


@story("Restored table")
def restored(world: World) -> None:
    wrong_rows(world)
    DeltaTable(str(world.table)).restore(1)
    assert world.rows() == sorted(world.values[:20])


@pytest.fixture
def plans(crash_folder: Path) -> Any:
    """Arms crash plans, and takes them out again."""
    names: list[str] = []

    def arm_one(plan: str) -> Any:
        names.append(f"recovery-{time.monotonic_ns()}")
        return arm(crash_folder, names[-1], plan)

    yield arm_one
    for name in names:
        disarm(crash_folder, name)


def wait_until_fired(plan: Any, query: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while fired(plan) is None:
        assert time.monotonic() < deadline, f"{plan} was not reached"
        assert query.isActive, query.exception()
        query.awaitTermination(0.05)


@story("Two drivers")
def two_drivers(world: World, plans: Any) -> str:
    first_twenty(world)
    world.produce(5)
    held = plans("orders:sink.begun@1=hold")
    loser = world.orders()
    wait_until_fired(held, loser)
    world.run(checkpoint="/data/checkpoints/orders-2", **STORE)
    release(held)
    error = world.failure(loser)
    world.produce(5)
    return error


@story("Outcome unknown")
def outcome_unknown(world: World, plans: Any) -> str:
    """The commit lands; before its answer arrives the store goes away, and the answer is lost, too."""
    first_twenty(world)
    world.produce(5)
    held = plans("orders:sink.rows_landed@1=hold")
    plans("orders:sink.rows_landed@1=raise")
    query = world.orders()
    wait_until_fired(held, query)
    log, aside = world.table / "_delta_log", world.table / "_aside"
    log.rename(aside)
    release(held)
    error = world.failure(query)
    aside.rename(log)
    assert DeltaTable(str(world.table)).version() == 2, "the commit had landed"
    return error


@story("Full disk")
def full_disk(world: World, plans: Any) -> str:
    first_twenty(world)
    world.produce(5)
    plans("orders:sink.writing@1=disk-full")
    return world.fails()


@story("Housekeeping / Small files")
def small_files(world: World) -> None:
    world.produce(15)
    world.run(maxOffsetsPerTrigger=5)


def once_without_the_orphan(world: World) -> None:
    each_record_once(world)
    assert not list(world.table.glob("part-orphan*"))


@story("Housekeeping / Files that no commit names", once_without_the_orphan)
def orphans(world: World) -> None:
    first_twenty(world)
    orphan = world.table / "part-orphan.parquet"
    orphan.write_bytes(b"x" * 100)
    os.utime(orphan, (0, 0))


story("Moving many offsets", each_record_once)(first_twenty)


SET_BACK, SINK, FIELD = "test_checkpoint_set_back.py", "test_sink.py", "test_field_bugs.py"
COMMAND = "../unit/recovery/test_offsets_command.py"
PROVED_ELSEWHERE = {
    "Lost checkpoint": "test_sink_end_to_end.py::test_records_arrive_once_over_restarts_and_a_lost_checkpoint",
    "Overlap": f"{SINK}::test_an_overlap_and_a_gap_stop_and_name_the_way_out",
    "Gap / Read what is missing": f"{SINK}::test_an_overlap_and_a_gap_stop_and_name_the_way_out",
    "Checkpoint older than the table": f"{FIELD}::test_iceberg_17340_a_watermark_that_went_back",
    "Stateful query with a lost checkpoint / An older copy of the checkpoint": (
        f"{SET_BACK}::test_windows_are_not_passed_over_with_a_number"
    ),
    "Stateful query with a lost checkpoint / No copy at all: everything anew": (
        f"{SINK}::test_a_stateful_query_that_lost_its_checkpoint_is_refused"
    ),
    "Recreated topic": f"{FIELD}::test_iceberg_15293_commits_go_on_with_a_new_cluster",
    "Write the last batches again": f"{SET_BACK}::test_a_batch_that_is_there_takes_the_state_along",
    "Restored table": f"{COMMAND}::test_restore_takes_rows_offsets_and_batch_numbers_back",
    "Two drivers": f"{FIELD}::test_iceberg_17637_two_coordinators_after_a_rebalance",
    "Full disk": f"{FIELD}::test_iceberg_16016_a_failed_write_leaves_no_zombie",
    "Housekeeping / Small files": "test_recovery.py::test_compaction_beside_a_running_query",
    "Housekeeping / Files that no commit names": "../unit/recovery/test_clean.py::test_only_what_no_commit_names",
    "Moving many offsets": f"{COMMAND}::test_what_show_writes_set_reads",
}
"""Parts of the page that only the text needs: what they show of the product is tested there by cheaper means."""


def test_every_part_of_the_page_has_a_story() -> None:
    assert set(STORIES) == set(PARTS)
    assert set(PROVED_ELSEWHERE) < set(PARTS)
    for place in PROVED_ELSEWHERE.values():
        file, name = place.split("::")
        assert f"\ndef {name}(" in (Path(__file__).parent / file).read_text(), place


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(title, id=title or "The first look", marks=pytest.mark.lab if title in PROVED_ELSEWHERE else ())
        for title in STORIES
    ],
)
def test_the_page(world: World, plans: Any, title: str) -> None:
    part: Part = PARTS[title]
    setup, check = STORIES[title]
    takes_plans = setup.__code__.co_argcount > 1
    error = setup(world, plans) if takes_plans else setup(world)
    assert (error is None) == (part.error is None)
    if part.error is not None and error is not None:
        wanted = world.here(part.error)
        assert matches(wanted, error, whole=False), f"the page says:\n{wanted}\nthe error was:\n{error[:3000]}"
    world.follow(part)
    check(world)


@pytest.mark.parametrize("batches", [12, pytest.param(50, marks=pytest.mark.lab)])
def test_compaction_beside_a_running_query(world: World, batches: int) -> None:
    """Many small batches in one process while another merges files again and again: nothing lost, nothing twice."""
    world.produce(6 * batches)
    query = world.orders(maxOffsetsPerTrigger=6, **STORE)
    runs = 0
    while query.isActive:
        if DeltaTable.is_deltatable(str(world.table)):
            assert main(["compact", str(world.table)]) == 0
            assert main(["clean", str(world.table), "--older-than", "1h", "--apply"]) == 0
            runs += 1
        query.awaitTermination(0.1)
    assert query.exception() is None
    assert runs > 0
    each_record_once(world)
    history = DeltaTable(str(world.table)).history()
    commits = ["batch" if "sparkonce" in entry else entry["operation"] for entry in history]
    assert commits.count("batch") == batches
    assert "OPTIMIZE" in commits[commits.index("batch") :], "batches were written after a compaction"
    assert main(["compact", str(world.table)]) == 0
    assert len(DeltaTable(str(world.table)).file_uris()) == 1
    world.produce(10)
    world.run(checkpoint="/data/checkpoints/orders-2", **STORE)
    each_record_once(world)


def test_sparks_own_restore_leaves_the_offsets(delta_spark: SparkSession, tmp_path: Path) -> None:
    """As the page says of RESTORE: rows go back, offsets stay."""
    pipeline = Pipeline.create(tmp_path / "table")
    for batch_id in range(2):
        pipeline.commit(batch_id, {0: (batch_id * 10, batch_id * 10 + 10)})
    delta_spark.sql(f"RESTORE TABLE delta.`{pipeline.path}` TO VERSION AS OF 1")
    assert (pipeline.rows(), pipeline.offsets()) == (list(range(10)), {0: 20})
    assert pipeline.opened().entries()[0].restored_to == 1
