"""The engine of set-back cells without Spark: runs that end, hang, or meet a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lab.spark_process import SESSION_ENDED
from lab.verify.brokers import Kafka
from lab.verify.cells import Moment, Outcome
from lab.verify.engine import Engine
from lab.verify.setback import engine as module
from lab.verify.setback.cells import SetBackCell, named
from lab.verify.setback.engine import SetBackEngine
from lab.verify.setback.queries import Setup
from sparkonce import EmbeddedBroker

CONTROL, DELETED, PEER = named(
    "setback_nothing_files_append", "setback_commits-deleted_files_append", "setback_commits-deleted_files_delta-spark"
)
NEVER = "never ends"
Run = Callable[[Setup], str | None]


class FakeSpark:
    """Runs a function in place of a query."""

    is_alive = True
    cpu_s = 0.0

    def __init__(self, run: Run) -> None:
        self.run, self.killed = run, 0
        self.ends: dict[str, str | None] = {}

    def start(self, name: str, setup: Setup) -> None:
        error = self.run(setup)
        if error != NEVER:
            self.ends[name] = error

    def ended(self, name: str) -> tuple[bool, str | None]:
        return (True, SESSION_ENDED) if self.killed else (name in self.ends, self.ends.get(name))

    def kill(self) -> int:
        self.killed += 1
        return 1

    def close(self) -> None: ...


class FakeEngine(Engine):
    def session(self) -> Any:
        return self._session


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with EmbeddedBroker() as broker:
        yield Kafka("the embedded broker", broker, may_be_killed=False)


def outcomes(kafka: Kafka, folder: Path, run: Run, *cells: SetBackCell) -> tuple[list[Outcome[SetBackCell]], FakeSpark]:
    engine = FakeEngine(kafka, folder)
    spark = FakeSpark(run)
    engine._session = spark  # type: ignore[assignment]
    return list(SetBackEngine(engine).run(cells)), spark


def write_new_files(setup: Setup) -> None:
    """Do what a query does whose sink knows what it has written."""
    for log in ("offsets", "commits"):
        folder = Path(setup.checkpoint) / log
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(len(list(folder.iterdir())))).write_text("")
    seen = Path(setup.table).with_name("seen")
    seen.mkdir(exist_ok=True)
    lines = []
    for path in sorted(setup.files.iterdir()):
        if not (seen / path.name).exists():
            lines += [f"file {line}" for line in path.read_text().split()]
            (seen / path.name).touch()
    if lines:
        write_deltalake(setup.table, pa.table({"key": lines, "value": [""] * len(lines)}), mode="append")


def test_a_query_that_goes_on_with_right_rows_is_right(kafka: Kafka, tmp_path: Path) -> None:
    found, _ = outcomes(kafka, tmp_path, write_new_files, CONTROL, DELETED)
    assert [(each.wrong, each.lost, each.duplicated, each.remark) for each in found] == [
        (None, 0, 0, "right rows"),
        (None, 0, 0, "right rows"),
    ]
    assert all(each.fired for each in found)


def test_commits_are_read_before_the_table_is_removed(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commits(setup: Setup, _began_wall_s: float) -> list[Moment]:
        return [Moment(0.0, "commit", "rows")] if Path(setup.table).exists() else []

    monkeypatch.setattr(module, "commits", commits)
    (found,), _ = outcomes(kafka, tmp_path, write_new_files, CONTROL)
    assert Moment(0.0, "commit", "rows") in found.moments
    assert not list(tmp_path.rglob("_delta_log"))


def test_silence_over_wrong_rows_is_wrong_but_for_other_sinks(kafka: Kafka, tmp_path: Path) -> None:
    def forgets(setup: Setup) -> None:
        seen = Path(setup.table).with_name("seen")
        for path in seen.glob("0000.txt"):
            path.unlink()
        write_new_files(setup)

    ours, peer = outcomes(kafka, tmp_path, forgets, DELETED, PEER)[0]
    assert (ours.wrong is not None, ours.lost, ours.duplicated > 0) == (True, 0, True)
    assert (peer.wrong, peer.duplicated, peer.to_compare) == (None, ours.duplicated, True)
    assert "doubled" in (peer.remark or "")


def test_a_run_that_hangs_is_ended_with_its_session(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RUN_LIMIT_S", 0.0)
    (found,), spark = outcomes(kafka, tmp_path, lambda _: NEVER, CONTROL)
    assert found.wrong == "run 1 did not end within 0 s"
    assert spark.killed == 1


def test_a_cell_that_meets_a_busy_machine_is_run_again(kafka: Kafka, tmp_path: Path) -> None:
    tries = []

    def late(setup: Setup) -> str | None:
        tries.append(setup.app_id)
        if len(set(tries)) == 1:
            return "Python worker failed to connect back."
        write_new_files(setup)
        return None

    (found,), _ = outcomes(kafka, tmp_path, late, CONTROL)
    assert (found.wrong, found.remark) == (None, "right rows")
    assert len(set(tries)) == 2
