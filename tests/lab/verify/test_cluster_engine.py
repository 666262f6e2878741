"""The engine of cells on a cluster, without Spark and without a cluster: what it says of faults that do not happen."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lab.verify.brokers import Kafka
from lab.verify.cells import Outcome
from lab.verify.cluster.cells import ClusterCell, all_faults
from lab.verify.cluster.engine import TASK_FAILURES, ClusterEngine
from lab.verify.cluster.faults import FAULTS, FaultError, Scene, elsewhere
from lab.verify.engine import Engine
from lab.verify.pipelines import Pipeline
from lab.verify.records import read_topic
from sparkonce import EmbeddedBroker
from sparkonce.crash_points import MARK_SUFFIX, PLAN_SUFFIX, RELEASE_SUFFIX

CELLS = {cell.name: cell for cell in all_faults()}
KILLED = CELLS["cluster_executor-killed_sink.writing_exactly-once_append"]
MOVED = CELLS["cluster_driver-moved_sink.before_commit_exactly-once_append"]
FAILED = CELLS["cluster_task-failed-too-often_sink.writing_exactly-once_append"]
LOST = CELLS["cluster_executor-killed_sink.writing_at-most-once_append"]
Run = Callable[[Pipeline], str | None]


class FakeSpark:
    """Runs a function in place of a query."""

    is_alive = True
    cpu_s = 0.0

    def __init__(self, runs: list[Run]) -> None:
        self.runs, self.killed, self.closed = runs, 0, 0
        self.ends: dict[str, str | None] = {}

    def start(self, name: str, pipeline: Pipeline) -> None:
        self.ends[name] = self.runs.pop(0)(pipeline)

    def ended(self, name: str) -> tuple[bool, str | None]:
        return True, self.ends[name]

    def kill(self) -> int:
        self.killed += 1
        return 1

    def close(self) -> None:
        self.closed += 1


class FakeEngine(Engine):
    fake: FakeSpark

    def session(self) -> Any:
        return self.fake

    def use(self, special: Any) -> None:
        del special

    def kill_session(self) -> None:
        self.fake.kill()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with EmbeddedBroker() as broker:
        yield Kafka("the embedded broker", broker, may_be_killed=False)


def reach(pipeline: Pipeline) -> None:
    """Fire what is armed, as a process at the point does."""
    for plan in (Path(pipeline.folder).parent / "plans").glob(f"*{PLAN_SUFFIX}"):
        plan.with_suffix(MARK_SUFFIX).write_text(json.dumps({"pid": os.getpid()}) + "\n")


def copy(pipeline: Pipeline) -> None:
    """Have the whole topic in the table."""
    found = read_topic(pipeline.bootstrap_servers, pipeline.topic)
    columns = {name: [getattr(each, name) for each in found] for name in ("partition", "offset", "key", "value")}
    write_deltalake(pipeline.table, pa.table(columns), mode="overwrite")


def good(pipeline: Pipeline) -> str | None:
    reach(pipeline)
    copy(pipeline)
    return None


def failing(pipeline: Pipeline) -> str | None:
    reach(pipeline)
    return "InjectedCrashError: injected failure"


def idle(pipeline: Pipeline) -> str | None:
    copy(pipeline)
    return None


def loser(pipeline: Pipeline) -> str | None:
    reach(pipeline)
    return None


def run(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: ClusterCell, *runs: Run,
    fault: Callable[[Scene], Iterator[None]] | None = None,
) -> tuple[Outcome[ClusterCell], FakeEngine]:  # fmt: skip
    def nothing(_scene: Scene) -> Iterator[None]:
        yield

    monkeypatch.setitem(FAULTS, cell.fault, fault or nothing)
    engine = FakeEngine(kafka, tmp_path, second_opinion=lambda *_: None)
    engine.fake = FakeSpark(list(runs))
    (found,) = ClusterEngine(engine, None).run([cell])
    return found, engine


def test_a_cell_that_goes_as_it_must(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, engine = run(kafka, tmp_path, monkeypatch, KILLED, good, good)
    assert (found.wrong, found.fired, found.lost, found.duplicated, found.records) == (None, True, 0, 0, 20)
    assert [each.what for each in found.moments if each.lane == "fault"] == ["a task is at sink.writing"]
    assert not list(engine.crash_folder.glob(f"*{PLAN_SUFFIX}")), "nothing is armed any more"
    assert list(engine.crash_folder.glob(f"*{RELEASE_SUFFIX}")), "what held was let go"


def test_a_point_that_is_not_reached_proves_nothing(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, engine = run(kafka, tmp_path, monkeypatch, KILLED, idle)
    assert found.wrong == "the pipeline did not come to its point; the run ended with: None"
    assert not found.fired
    assert engine.fake.killed == 1, "the next cell has a new session"


def test_a_fault_without_effect_proves_nothing(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def early(_scene: Scene) -> Iterator[None]:
        raise FaultError("not within 60 s: the Master gives up the Worker")
        yield

    def late(_scene: Scene) -> Iterator[None]:
        yield
        raise FaultError("not within 60 s: the Worker is known again")

    for number, fault in enumerate((early, late)):
        found, _ = run(kafka, tmp_path / str(number), monkeypatch, KILLED, good, good, fault=fault)
        assert (found.wrong or "").startswith("not within 60 s"), found
        assert not found.fired


def test_a_run_that_ends_where_it_must_go_on_is_wrong(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = run(kafka, tmp_path, monkeypatch, KILLED, failing)
    assert found.wrong == ("the pipeline should have carried on after the fault: InjectedCrashError: injected failure")


def test_a_run_that_goes_on_where_it_must_end_is_wrong(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = run(kafka, tmp_path, monkeypatch, FAILED, good)
    assert found.wrong == "the pipeline should have ended at the fault, and went on"
    found, _ = run(kafka, tmp_path / "again", monkeypatch, FAILED, failing, good)
    assert found.wrong is None
    assert len(list((tmp_path / "again" / "plans").glob(f"*{MARK_SUFFIX}"))) == TASK_FAILURES


def test_a_pipeline_that_does_not_recover_is_wrong(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = run(kafka, tmp_path, monkeypatch, KILLED, good, failing)
    assert found.wrong == "the pipeline did not recover: InjectedCrashError: injected failure"


def test_lost_rows_are_found_and_a_loss_that_is_not_seen(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = run(kafka, tmp_path, monkeypatch, KILLED, loser, loser)
    assert (found.wrong, found.lost) == (
        "must show neither loss nor duplicates; found 20 lost and 0 duplicated of 20 records",
        20,
    )
    found, _ = run(kafka, tmp_path / "again", monkeypatch, LOST, good, good)
    assert (found.wrong or "").startswith("must show a loss and no duplicates"), found


def test_a_driver_that_moves_is_started_elsewhere_and_later_here(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, engine = run(kafka, tmp_path, monkeypatch, MOVED, failing, good)
    assert found.wrong is None
    assert engine.login is not None
    assert engine.login.folder == tmp_path / "elsewhere"


def test_elsewhere_is_another_user_and_another_path_of_the_same_python(tmp_path: Path) -> None:
    login = elsewhere(tmp_path / "elsewhere")
    assert elsewhere(tmp_path / "elsewhere") == login
    assert not {"HOME", "USER", "TMPDIR", "SPARK_USER", "HADOOP_USER_NAME"} - login.environment.keys()
    assert Path(login.environment["HOME"]).is_dir()
    with psutil.Popen([login.python, "-c", "import sparkonce, sys; print(sys.prefix)"], stdout=-1) as child:
        prefix = child.communicate()[0].decode().strip()
    assert child.returncode == 0
    assert Path(prefix).resolve() == Path(sys.prefix).resolve()
