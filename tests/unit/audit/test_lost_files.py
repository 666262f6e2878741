"""The data files that a log names: an audit proves nothing where one is lost, and a page says which."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkonce import audit
from sparkonce.exactly_once.audit_files import lost_files
from sparkonce.exactly_once.audit_findings import Problem
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.ui.delta.tables import TableWatches, key_of
from sparkonce.jobs.ui.pages.tables import TABLE_FILES
from sparkonce.jobs.ui.site import Given, Site
from sparkonce.offset_store.locations import Location
from tests.unit.sink.query_by_hand import SCHEMA, Query, delete_row, make_table, table_actions
from tests.unit.sink.test_features import VECTORS
from tests.unit.ui.shown import shown


@pytest.fixture
def query(tmp_path: Path) -> Query:
    made = Query(tmp_path)
    for batch in range(3):
        made.write(batch, [{"v": batch}])
    return made


def first_file(query: Query) -> Path:
    return min(query.table.rglob("*.parquet"))


def shorten(path: Path) -> None:
    os.truncate(path, 10)


@pytest.mark.parametrize(("lose", "words"), [(os.remove, "is missing"), (shorten, "has 10 bytes, and the log says")])
def test_a_lost_file_is_named_by_audit_and_pages(query: Query, lose: Callable[[Path], None], words: str) -> None:
    watch = TableWatches({}).at(str(query.table))
    assert audit(str(query.table)).proven
    assert watch.look().verdict is Verdict.PROVEN
    lost = first_file(query)
    lose(lost)
    found = audit(str(query.table))
    assert found.verdict is Verdict.BROKEN
    assert found.first_bad is not None
    assert found.first_bad.problem is Problem.FILE_LOST
    assert f"{lost.name} {words}" in found.first_bad.message
    watch.followed.reading().look_at_s = 1e-9  # it is due, without a commit
    assert watch.look().verdict is Verdict.BROKEN
    assert "data files of the table are lost" in watch.look().words
    with closing(Site(Given(tables=(str(query.table),)))) as site:
        site.delta.at(str(query.table)).followed.look(60)  # the page's own look has little time
        html = shown(TABLE_FILES, site, {"table": key_of(str(query.table))})
    assert '<div class="problem bad" role="alert">' in html
    assert f"{lost.name} {words}" in html


def test_what_a_merge_has_replaced_is_not_missed(query: Query) -> None:
    table, location = DeltaTable(query.table), Location.parse(str(query.table))
    newer = DeltaTable(query.table)
    newer.optimize.compact()
    newer.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert table.version() < newer.version()
    assert lost_files(location, {}, table) == []
    assert audit(str(query.table)).proven


def test_files_are_found_by_the_names_that_writers_give_them(tmp_path: Path) -> None:
    place = tmp_path / "odd names"
    odd = ["a b", "50%", "ä/ö", "x=y", "1:2", "%41"]
    write_deltalake(place, pa.table({"p": odd, "v": range(len(odd))}), partition_by=["p"])
    location = Location.parse(str(place))
    assert lost_files(location, {}, DeltaTable(place)) == []
    clones = [tmp_path / "clone", tmp_path / "sparks"]
    for clone, scheme in zip(clones, ("file://", "file:"), strict=True):
        shutil.copytree(place / "_delta_log", clone / "_delta_log")
        log = clone / "_delta_log" / f"{0:020d}.json"
        log.write_text(log.read_text().replace('"path":"', f'"path":"{scheme}{quote(str(place))}/'))
        assert lost_files(Location.parse(str(clone)), {}, DeltaTable(clone)) == []
    (gone,) = place.rglob("p=50*/*.parquet")
    gone.unlink()
    for each in (place, *clones):
        (lost,) = lost_files(Location.parse(str(each)), {}, DeltaTable(each))
        assert gone.name in str(lost)


def test_nothing_is_proven_where_files_cannot_be_listed(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "not allowed")

    monkeypatch.setattr("sparkonce.exactly_once.audit_files._sizes", refuse)
    found = audit(str(query.table))
    assert found.verdict is Verdict.UNPROVEN
    assert [each.problem for each in found.report.findings] == [Problem.FILES_NOT_EXAMINED]
    assert "cannot be looked for" in found.report.findings[0].message


def test_a_lost_file_of_deletion_vectors_is_named(tmp_path: Path) -> None:
    """Without it no reader knows which rows are deleted: delta-rs reads none of the table."""
    query = Query(tmp_path)
    make_table(query.table, *table_actions(SCHEMA, **VECTORS))
    query.write(0, [{"v": number} for number in range(3)])
    delete_row(query.table, 1, in_file=True)
    assert Problem.FILE_LOST not in audit(str(query.table)).report.counts
    (vectors,) = query.table.glob("deletion_vector_*.bin")
    vectors.unlink()
    found = audit(str(query.table))
    assert found.verdict is Verdict.BROKEN
    assert [each.problem for each in found.report.findings if vectors.name in each.message] == [Problem.FILE_LOST]
