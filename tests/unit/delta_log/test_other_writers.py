"""Whether a commit of ours may follow commits that delta-rs made: they say less of themselves than delta-spark's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sparkonce.offset_store.log.actions import Action, Actions
from sparkonce.offset_store.log.verdict import Conflict, Touched, judge
from tests.commit_pairs import conflict_of, grouped, pairs

ROWS = pa.table({"a": [1, 2], "p": [0, 1]})
APPEND, REPLACE = Touched(frozenset({"ours"})), Touched(frozenset({"ours"}), replaces=True)


def _ids(app_id: str) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(app_id, 1)])


MADE: dict[str, tuple[Callable[[DeltaTable], object], str | None, str | None]] = {
    "append": (lambda table: write_deltalake(table, ROWS, mode="append"), None, "FilesChanged"),
    "append with our id": (
        lambda table: write_deltalake(table, ROWS, mode="append", commit_properties=_ids("ours")),
        "TransactionMoved",
        "TransactionMoved",
    ),
    "append with another id": (
        lambda table: write_deltalake(table, ROWS, mode="append", commit_properties=_ids("theirs")),
        None,
        "FilesChanged",
    ),
    "append with a column": (
        lambda table: write_deltalake(
            table, ROWS.append_column("b", pa.array([1, 2])), mode="append", schema_mode="merge"
        ),
        "TableChanged",
        "TableChanged",
    ),
    "delete": (lambda table: table.delete("a = 1"), None, "FilesChanged"),
    "update": (lambda table: table.update({"a": "5"}, predicate="a = 2"), None, "FilesChanged"),
    "merge": (
        lambda table: table.merge(ROWS, "s.a = t.a + 7", "s", "t").when_not_matched_insert_all().execute(),
        None,
        "FilesChanged",
    ),
    "optimize": (lambda table: table.optimize.compact(), None, "FilesChanged"),
    "overwrite": (lambda table: write_deltalake(table, ROWS, mode="overwrite"), None, "FilesChanged"),
    "property": (
        lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"}),
        "TableChanged",
        "TableChanged",
    ),
    "constraint": (lambda table: table.alter.add_constraint({"c": "a > 0"}), "TableChanged", "TableChanged"),
    "restore": (lambda table: table.restore(0), "TableChanged", "TableChanged"),
    "delete and vacuum": (
        lambda table: (table.delete(), table.vacuum(0, dry_run=False, enforce_retention_duration=False)),
        None,
        "FilesChanged",
    ),
}
"""What delta-rs commits, and which conflicts an append and a replace of ours have with it."""


def commits_after(version: int, table: Path) -> Iterator[Actions]:
    for name in sorted((table / "_delta_log").glob("*.json")):
        if int(name.stem) > version:
            yield grouped([json.loads(line) for line in name.read_text().splitlines()])


def test_commits_of_delta_rs(tmp_path: Path) -> None:
    wrong = {}
    for name, (make, of_append, of_replace) in MADE.items():
        folder = tmp_path / name.replace(" ", "-")
        for _ in range(2):
            write_deltalake(folder, ROWS, mode="append")
        make(DeltaTable(folder))
        landed = list(commits_after(1, folder))
        assert landed, name
        for touched, expected in ((APPEND, of_append), (REPLACE, of_replace)):
            found = [type(each).__name__ for each in (judge(touched, 2, one) for one in landed) if each is not None]
            if not (found[:1] == [expected] or (expected is None and not found)):
                wrong[name, touched.replaces] = found
    assert not wrong


def test_the_mark_of_a_blind_append_is_not_looked_at() -> None:
    """delta-rs and DuckDB do not write it, and what they write is judged by its actions."""

    def unmarked(touched: Touched, version: int, landed: Actions) -> Conflict | None:
        infos: list[Action] = [{"operation": info["operation"]} for info in landed["commitInfo"]]
        return judge(touched, version, {**landed, "commitInfo": infos})

    for pair in pairs(1, 300):
        assert conflict_of(pair, unmarked) == conflict_of(pair)
