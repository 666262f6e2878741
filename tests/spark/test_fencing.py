"""Two drivers with one `appId`, drivers that were paused, tasks that run twice: who writes, and who stops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.crash_plans import release
from lab.standalone import StandaloneCluster
from sparkonce import EmbeddedBroker
from sparkonce.crash_points import FOLDER_VARIABLE
from tests.spark.fencing_support import Driver, expected, orphans, query_id, rows
from tests.spark.sink_support import PROJECT
from tests.spark.source_support import Topics, values

pytestmark = pytest.mark.spark

EVERYTHING = {"end": 10}
PAUSES = 24


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver whose tasks are tried four times, as on a cluster."""
    with Driver(tmp_path_factory.mktemp("driver"), **{"spark.master": "local[2,4]"}) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_plan_is_left(driver: Driver) -> Iterator[None]:
    yield
    driver.disarm_all()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.mark.parametrize(
    ("guarantee", "point", "stops", "found"),
    [
        # Both writes in one commit: whoever comes second finds it made.
        ("exactly-once", "sink.begun", True, 1),
        ("exactly-once", "sink.before_commit", True, 1),
        # Offsets come last. Before its rows the paused driver looks, and stops; after them they are there, twice.
        ("at-least-once", "sink.before_commit", True, 1),
        ("at-least-once", "sink.between_writes", True, 2),
        # Offsets come first. Who recorded them owns the rows: the other passes over the batch.
        ("at-most-once", "sink.begun", True, 1),
        ("at-most-once", "sink.before_commit", False, 1),
    ],
)
def test_a_driver_that_was_paused_comes_back(
    driver: Driver, table: Path, tmp_path: Path, guarantee: str, point: str, stops: bool, found: int
) -> None:
    """It stands at the point while another driver, with a checkpoint of its own, writes all there is."""
    plan = driver.arm(f"{point}@0=hold")
    driver.start("paused", table, tmp_path / "paused", EVERYTHING, guarantee)
    driver.await_firing(plan)
    driver.start("winner", table, tmp_path / "winner", EVERYTHING, guarantee)
    assert driver.wait("winner") is None
    release(plan)
    error = driver.wait("paused")
    assert rows(table) == Counter(dict.fromkeys(expected(10), found))
    if not stops:
        assert error is None
        return
    assert error is not None
    loser, winner = query_id(tmp_path / "paused"), query_id(tmp_path / "winner")
    said = (
        rf"FencedError: batch 0 of query {loser} \(appId app\) was free to be written at version \d; since then "
        rf"version \d of the table holds batch 0 of query {winner}\. "
        r"Another driver runs with the same appId: stop one of the two, or give each its own appId"
    )
    assert re.search(said, error), error


def test_a_second_driver_with_other_batches_is_told_who_wrote(driver: Driver, table: Path, tmp_path: Path) -> None:
    assert driver.run(table, tmp_path / "first", EVERYTHING) is None
    error = driver.run(table, tmp_path / "second", {"end": 30}) or ""
    assert (
        f"batch 0 of query {query_id(tmp_path / 'second')} (appId app) has an overlap with the table's offsets: "
        "source 'default', numbers-0 (topic id AAAAAAAAAAAAAAAAAAAAAQ): stored 10, batch start 0, batch end 30; "
        "records [0, 10) of it are in the table already; version 1 of the table holds batch 0 of query "
        f"{query_id(tmp_path / 'first')}. Set offsetStore=delta:<path of this table> and this appId on the source"
    ) in error
    assert rows(table) == expected(10)


def test_the_loser_goes_on_where_the_winner_stopped(driver: Driver, table: Path, tmp_path: Path) -> None:
    """Started again, the loser finds its own batch written by the other, and the next one is its own."""
    plan = driver.arm("sink.before_commit@0=hold")
    driver.start("paused", table, tmp_path / "paused", EVERYTHING)
    driver.await_firing(plan)
    assert driver.run(table, tmp_path / "winner", EVERYTHING) is None
    release(plan)
    assert "FencedError" in (driver.wait("paused") or "")
    assert driver.run(table, tmp_path / "paused", {"end": 20}) is None
    assert rows(table) == expected(20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_drivers_take_turns_at_being_paused(driver: Driver, table: Path, tmp_path: Path) -> None:
    """Each pause is one life of two drivers that begin at the stored offsets: one stands still, the other overtakes."""
    points = ("sink.begun", "sink.writing", "sink.file_written", "sink.before_commit")
    for number in range(PAUSES):
        source = {"end": (number + 1) * 5, "offsetStore": f"delta:{table}", "appId": "app"}
        plan = driver.arm(f"{points[number % len(points)]}=hold")
        driver.start("paused", table, tmp_path / f"paused-{number}", dict(source))
        driver.await_firing(plan)
        assert driver.run(table, tmp_path / f"winner-{number}", dict(source)) is None
        release(plan)
        error = driver.wait("paused") or ""
        winner = query_id(tmp_path / f"winner-{number}")
        assert re.search(rf"FencedError: .* version \d+ of the table holds batch 0 of query {winner}\.", error), error
    assert rows(table) == expected(PAUSES * 5)


@pytest.mark.parametrize("action", ["kill", "raise"])
@pytest.mark.parametrize("point", ["sink.writing", "sink.file_written"])
def test_a_task_that_is_tried_again_writes_once(
    driver: Driver, table: Path, tmp_path: Path, point: str, action: str
) -> None:
    """The first attempt fails and takes its file back, or dies and leaves one that the table does not name."""
    plan = driver.arm(f"{point}={action}")
    assert driver.run(table, tmp_path / "checkpoint", EVERYTHING) is None
    driver.await_firing(plan)
    assert rows(table) == expected(10)
    assert orphans(table) == (0 if action == "raise" else 1)


def test_at_most_once_a_task_that_is_tried_again_writes_nothing(driver: Driver, table: Path, tmp_path: Path) -> None:
    plan = driver.arm("sink.file_written=kill")
    assert driver.run(table, tmp_path / "checkpoint", EVERYTHING, "at-most-once") is None
    driver.await_firing(plan)
    lost = expected(10) - rows(table)
    assert rows(table) == expected(10) - lost
    assert len(lost) == 10, "one of the two tasks wrote"


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_a_stage_that_is_tried_again_writes_once(driver: Driver, table: Path, tmp_path: Path, guarantee: str) -> None:
    """Two of four tasks stand at their ends while the shuffle's output is lost: the other two fail to fetch it."""
    plans = [driver.arm("sink.writing=hold") for _ in range(2)]
    driver.start("one", table, tmp_path / "checkpoint", {"end": 50, "shuffle": 4}, guarantee)
    for plan in plans:
        driver.await_firing(plan)
    assert driver.lose_shuffle_output() > 0
    for plan in plans:
        release(plan)
    assert driver.wait("one") is None
    assert driver.stage_attempts > 1
    assert rows(table) == expected(50)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hand_over", ["rows", "ranges"])
def test_a_speculative_attempt_overtakes_one_that_stands_still(
    kafka: Any, table: Path, tmp_path: Path, hand_over: str
) -> None:
    """The first attempt has written its file when the second, on another machine, ends the batch."""
    plans = tmp_path / "driver" / "plans"
    conf = {
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(PROJECT),
        f"spark.executorEnv.{FOLDER_VARIABLE}": str(plans),
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1ms",
    }
    (tmp_path / "cluster").mkdir()
    with (
        StandaloneCluster(tmp_path / "cluster") as cluster,
        Driver(tmp_path / "driver", **{"spark.master": cluster.url, **conf}) as speculating,
    ):
        plan = speculating.arm("sink.file_written=hold")
        speculating.start("one", table, tmp_path / "checkpoint", two_partitions(kafka, handOver=hand_over))
        speculating.await_firing(plan)
        assert speculating.wait("one") is None
        assert rows(table) == ALL_OF_TWO
        assert orphans(table) == 1
        release(plan)


def two_partitions(kafka: Any, **options: str) -> dict[str, Any]:
    """Return the source of a topic with 500 records in each of two partitions."""
    topics = Topics(kafka.bootstrap_servers)
    topic = topics.create(2)
    for partition in range(2):
        topics.produce(topic, values(str(partition), 500), partition=partition)
    where = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return {**where, **options}


ALL_OF_TWO = Counter(value.decode() for p in "01" for value in values(p, 500))


@pytest.mark.parametrize(
    ("hand_over", "point"), [("rows", "source.reading"), ("ranges", "source.reading"), ("ranges", "sink.file_written")]
)
def test_a_reading_task_that_dies_reads_again(
    driver: Driver, kafka: Any, table: Path, tmp_path: Path, hand_over: str, point: str
) -> None:
    """With ranges, the task of the sink is the one that reads."""
    plan = driver.arm(f"{point}=kill")
    assert driver.run(table, tmp_path / "checkpoint", two_partitions(kafka, handOver=hand_over)) is None
    driver.await_firing(plan)
    assert rows(table) == ALL_OF_TWO


def test_a_stage_of_ranges_that_is_tried_again_reads_each_once(
    driver: Driver, kafka: Any, table: Path, tmp_path: Path
) -> None:
    """Two tasks stand at their ends while the ranges of others are lost on the way to them."""
    source = two_partitions(kafka, handOver="ranges", minPartitions="12")
    plans = [driver.arm("sink.writing=hold") for _ in range(2)]
    driver.start("one", table, tmp_path / "checkpoint", {**source, "shuffle": 5})
    for plan in plans:
        driver.await_firing(plan)
    assert driver.lose_shuffle_output() > 0
    for plan in plans:
        release(plan)
    assert driver.wait("one") is None
    assert driver.stage_attempts > 1
    assert rows(table) == ALL_OF_TWO


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_a_batch_without_new_records_is_written_once(
    driver: Driver, table: Path, tmp_path: Path, guarantee: str
) -> None:
    """Batch 1 has the offsets of batch 0: the watermark lets go of two windows. Its acknowledgement is lost."""
    source = {"end": 12, "partitions": 1, "window": True}
    plan = driver.arm("sink.after_commit@1=raise")
    assert "injected failure at sink.after_commit, batch 1" in (
        driver.run(table, tmp_path / "checkpoint", dict(source), guarantee) or ""
    )
    driver.await_firing(plan)
    assert rows(table) == Counter(["0-5", "5-5"])
    assert driver.run(table, tmp_path / "checkpoint", dict(source), guarantee) is None
    assert driver.run(table, tmp_path / "checkpoint", {**source, "end": 16}, guarantee) is None
    assert rows(table) == Counter(["0-5", "5-5", "10-5"])


def test_two_clusters_may_have_a_topic_of_one_name(driver: Driver, table: Path, tmp_path: Path) -> None:
    """Each source has a name of its own; the table keeps them apart, by name and by topic id, without a checkpoint."""
    with EmbeddedBroker() as one, EmbeddedBroker() as two:
        clusters = {"a": Topics(one.bootstrap_servers), "b": Topics(two.bootstrap_servers)}
        for name, topics in clusters.items():
            topics.create(1, "orders")
            topics.produce("orders", values(name, 5 if name == "a" else 8))
        assert driver.run(table, tmp_path / "first", {"union": orders(clusters, table)}) is None
        for name, topics in clusters.items():
            topics.produce("orders", values(f"{name}-later", 3))
        assert driver.run(table, tmp_path / "second", {"union": orders(clusters, table)}) is None
        unnamed = [{**source, "source": "kafka"} for source in orders(clusters, table)]
        error = driver.run(table, tmp_path / "third", {"union": unnamed})
    wanted = values("a", 5) + values("b", 8) + values("a-later", 3) + values("b-later", 3)
    assert rows(table) == Counter(value.decode() for value in wanted)
    assert "two sources of this query are both named 'kafka' and read a topic orders, of different ids" in (error or "")


def orders(clusters: dict[str, Topics], table: Path) -> list[dict[str, str]]:
    shared = {"subscribe": "orders", "startingOffsets": "earliest", "offsetStore": f"delta:{table}", "appId": "app"}
    return [
        {**shared, "kafka.bootstrap.servers": topics.bootstrap_servers, "source": name}
        for name, topics in clusters.items()
    ]
