"""Random courses of a query over a source that is not ours: batches, crashes, checkpoints set back, tables taken back.

Its batch N reads on from batch N-1 of the same checkpoint, so a checkpoint says which rows are due: after each batch
that was not refused, those up to its end, each once. What is refused may be due or not; a course goes on from another
checkpoint.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.jobs.cli.main import main
from tests.unit.sink.query_by_hand import Query

STEPS = 30


class Course(Query):
    """A query, the copies of its checkpoint, and what may become of them."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root)
        self.draw = random.Random(seed)
        self.copies = 0
        self.accepted = 0

    def newest(self) -> int:
        return max((int(path.name) for path in (self.checkpoint / "offsets").iterdir()), default=-1)

    def end_of(self, batch_id: int) -> int:
        if batch_id < 0:
            return 0
        line = (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[-1]
        return int(json.loads(line)["other"])

    def next_batch(self) -> None:
        number = self.newest() + 1
        end = self.end_of(number - 1) + self.draw.randint(1, 3)
        (self.checkpoint / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"other": {end}}}')
        self.run_newest()

    def run_newest(self) -> None:
        """Run the newest batch of the checkpoint: for the first time, or again as after a crash."""
        number = self.newest()
        if number < 0:
            return
        start, end = self.end_of(number - 1), self.end_of(number)
        try:
            self.commit(number, self.tasks(rows=[{"v": value} for value in due(start, end)]))
        except DeliveryError:
            (self.checkpoint / "offsets" / str(number)).unlink()
            return
        self.accepted += 1
        values = self.values()
        assert len(values) == len(set(values)), "a row is there twice"
        assert set(due(0, end)) <= set(values), "a row is lost"

    def values(self) -> list[int]:
        if not (self.table / "_delta_log").is_dir():
            return []
        return [row["v"] for row in self.read("v")]

    def save(self) -> None:
        shutil.copytree(self.checkpoint, self.checkpoint.with_name(f"copy-{self.copies}"))
        self.copies += 1

    def load(self) -> None:
        if self.copies:
            shutil.rmtree(self.checkpoint)
            copy = self.checkpoint.with_name(f"copy-{self.draw.randrange(self.copies)}")
            shutil.copytree(copy, self.checkpoint)

    def take_back(self) -> None:
        if (self.table / "_delta_log").is_dir() and (version := DeltaTable(self.table).version()) > 0:
            to = str(self.draw.randint(1, version))
            main(["offsets", "rewind", str(self.table), "--to-version", to, "--restore", "--apply"])

    def step(self) -> None:
        steps = [self.next_batch, self.run_newest, self.save, self.load, self.take_back]
        self.draw.choices(steps, weights=[8, 2, 3, 2, 2])[0]()


def due(start: int, end: int) -> list[int]:
    """Return the rows of a part of the source; the query drops some, so that there are batches without rows."""
    return [value for value in range(start, end) if value % 4 > 1]


FEW = {*range(6), 18, 245}
"""The last two lost and doubled rows when numbers alone were compared, and batches without rows were not noted."""


@pytest.mark.parametrize(
    "seed", [seed if seed in FEW else pytest.param(seed, marks=pytest.mark.soak) for seed in range(400)]
)
def test_rows_are_right_or_the_batch_is_refused(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course = Course(tmp_path, seed)
    for _ in range(STEPS):
        course.step()
    assert course.accepted > 0
