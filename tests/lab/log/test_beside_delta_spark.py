"""Ours and delta-spark write one table at the same time; and the judge of it notices what must not be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.log.beside.__main__ import Difference, difference
from tests.lab.log.beside.judge import LogJudge
from tests.lab.log.beside.statements import KINDS, Statement
from tests.lab.log.beside.writers import SCHEMA
from tests.unit.sink.query_by_hand import Query

NOTHING_WRONG = r"lost=0 duplicated=0 resurrected=0 wrong=0 violations=0"

Lines = list[dict[str, Any]]


def run(*options: str) -> None:
    command = [sys.executable, "-m", "tests.lab.log.beside", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    print(ended.stdout)
    told = [line for line in ended.stderr.splitlines() if not line.startswith("\tat ")]
    assert ended.returncode == 0, ended.stdout[-5000:] + "\n".join(told[-40:])
    last = ended.stdout.splitlines()[-1]
    found = re.fullmatch(rf"RESULT tables={len(KINDS)} batches=(\d+) statements=(\d+) .* {NOTHING_WRONG}", last)
    assert found is not None, last
    assert int(found[1]) >= len(KINDS)
    assert int(found[2]) >= len(KINDS)


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_ten_minutes() -> None:
    run()


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_nothing_is_lost() -> None:
    run("--statements", "5", "--minutes", "4")


class Judged:
    """A table with three batches of ours, and what the judge says of a fourth commit."""

    def __init__(self, folder: Path) -> None:
        self.query = Query(folder, schema=SCHEMA)
        self.judge = LogJudge(self.query.table)
        for number in range(3):
            rows = [{"k": key, "v": number} for key in range(10 * number, 10 * number + 10)]
            self.judge.batches[number] = {row["k"]: row["v"] for row in rows}
            self.query.write(number, rows)
            self.judge.catch_up()
        assert not self.judge.rules.violations

    def commit(self, version: int) -> Path:
        return self.query.table / "_delta_log" / f"{version:020d}.json"

    def lines(self, version: int) -> Lines:
        return [json.loads(line) for line in self.commit(version).read_text().splitlines()]

    def write(self, version: int, lines: Lines) -> None:
        self.commit(version).write_text("\n".join(map(json.dumps, lines)) + "\n")

    def rules(self) -> set[str]:
        self.judge.end()
        return {each.partition(":")[0] for each in self.judge.rules.violations}


def test_a_replaced_commit_is_noticed(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    judged.write(1, [*judged.lines(1), {"txn": {"appId": "another", "version": 1}}])
    assert judged.rules() == {"replaced"}


def test_a_batch_that_lands_twice_is_noticed(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    newest = judged.judge.version
    judged.write(newest + 1, judged.lines(newest))
    assert {"doubled", "offsets", "duplicates", "rows"} <= judged.rules()


def test_a_missing_file_and_an_unknown_writer_are_noticed(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    (add,) = [line for line in judged.lines(judged.judge.version) if "add" in line]
    info = {"commitInfo": {"operation": "WRITE", "engineInfo": "somebody"}}
    judged.write(judged.judge.version + 1, [info, {"add": {**add["add"], "path": "gone.parquet"}}])
    assert judged.rules() == {"files", "unknown"}


def test_rows_are_those_of_the_version_that_a_statement_read(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    newest = judged.judge.version
    judged.judge.statements[1] = Statement("delete", "", lambda rows: dict.fromkeys(rows))
    info = {"operation": "DELETE", "userMetadata": "1", "readVersion": newest - 1}
    judged.write(newest + 1, [{"commitInfo": info}])
    judged.judge.catch_up()
    assert judged.judge.rows[newest + 1] == dict.fromkeys(range(20, 30), 2)
    assert judged.judge.lost([("statement", 1), ("batch", 3)]) == [("batch", 3)]


def test_rows_are_compared_one_by_one() -> None:
    found = [(1, 1), (2, 2), (2, 2), (4, 4), (5, 0)]
    assert difference(found, {1: 1, 2: 2, 3: 3, 5: 5}) == Difference(lost=1, doubled=1, unexpected=1, wrong=1)
