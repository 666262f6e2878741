"""The tables and checkpoints of a folder on pages, whatever their names and however many there are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkonce.jobs.cli.doctor import table_growth
from sparkonce.jobs.ui import site as sites
from sparkonce.jobs.ui.delta import paced, pipelines
from sparkonce.jobs.ui.delta.tables import key_of
from sparkonce.jobs.ui.pages import tables
from sparkonce.jobs.ui.pages.pipelines import PIPELINES
from sparkonce.jobs.ui.pages.tables import TABLE, TABLES
from sparkonce.jobs.ui.pages.trace import TRACE
from sparkonce.jobs.ui.site import Given, Site
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.record import Writes
from tests.unit.audit.logs import TOPIC, Table, key, record
from tests.unit.ui.shown import shown


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with closing(Site(Given(folder=tmp_path))) as made:
        yield made


def test_a_table_may_have_any_name(tmp_path: Path, site: Site) -> None:
    table = Table.create(tmp_path / "größe <b>")
    table.batches(1)
    key = key_of(str(table.path))
    assert f'href="/tables/{key}">größe &lt;b&gt;</a>' in shown(TABLES, site)
    assert "verdict=proven" in shown(TABLE, site, {"table": key})


def test_offsets_without_their_rows_are_shown_beside_the_verdict(tmp_path: Path, site: Site) -> None:
    """With at-most-once, a crash may have lost them."""
    table = Table.create(tmp_path / "orders")
    table.batch(attempt_id="1", writes=Writes.OFFSETS)
    table.commit(record(0, {key(0): (0, 10), key(1): (0, 10)}, attempt_id="1"), Writes.ROWS)
    assert "with warnings" not in shown(TABLES, site)
    table.batch(attempt_id="2", writes=Writes.OFFSETS)
    assert "✓ proven</span>, <strong>with warnings: 1</strong>" in shown(TABLES, site)


def test_many_tables_stay_audited(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(tmp_path / "t0")
    table.batches(1)
    for number in range(1, 80):
        shutil.copytree(table.path, tmp_path / f"t{number}")
    for budget_s in (600.0, 0.0):  # all are opened; then none that is not
        monkeypatch.setattr(tables, "GLANCE_S", budget_s)
        assert shown(TABLES, site).count("✓ proven") == 80


def test_tables_beyond_the_limit_are_counted(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "MAX_TABLES", 1)
    for name in ("a", "b", "c"):
        Table.create(tmp_path / name).batches(1)
    assert "2 more tables are left out." in shown(TABLES, site)
    assert "Nothing is known to need you." in (pipelines_page := shown(PIPELINES, site))
    assert "Nothing needs you" not in pipelines_page
    assert "2 more tables are left out." in shown(TRACE, site, topic=TOPIC, partition="0", offset="3")


def test_tables_are_found_by_their_names(tmp_path: Path, site: Site) -> None:
    for name in ("orders", "clicks"):
        Table.create(tmp_path / name)
    html = shown(TABLES, site, name="ORD")
    assert (">orders</a>" in html, ">clicks</a>" in html) == (True, False)
    assert "No table has that in its name or place." in shown(TABLES, site, name="none")


def test_the_upper_folders_are_searched_first_and_the_rest_is_told(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    Table.create(tmp_path / "orders").batches(1)
    (tmp_path / "days" / "one").mkdir(parents=True)
    (tmp_path / "days" / "two").mkdir()
    assert "Nothing needs you." in shown(PIPELINES, site)
    monkeypatch.setattr(sites, "MAX_FOLDERS", 3)
    html = shown(PIPELINES, site)
    assert ">orders</a>" in html
    assert f"Only the first 3 folders in {tmp_path} were searched for tables." in html
    assert "Nothing needs you." not in html


def test_a_name_that_is_not_utf8_ends_no_page(tmp_path: Path, site: Site) -> None:
    Table.create(tmp_path / "orders").batches(1)
    os.rename(tmp_path / "orders", os.fsencode(tmp_path) + b"/\xff")
    for page in (TABLES, PIPELINES, TRACE):
        assert shown(page, site).encode()


def test_tables_that_are_not_opened_yet_are_named(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "LOOKS_S", 0.0)
    Table.create(tmp_path / "orders")
    assert "The log of orders is being read: " in shown(PIPELINES, site)


def test_a_table_without_files_is_traced(tmp_path: Path, site: Site) -> None:
    table = Table.create(tmp_path / "orders")
    table.batches(1)
    assert "no row with its partition and offset" in shown(TRACE, site, topic=TOPIC, partition="0", offset="3")


def test_a_table_that_grows_is_shown_with_what_doctor_says(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its log has been read, until a checkpoint is there."""
    monkeypatch.setattr(table_growth, "MOST_SINCE_CHECKPOINT", 4)
    monkeypatch.setattr(paced, "PAUSE", 0)
    table = Table.create(tmp_path / "orders")
    table.batches(4)
    address = {"table": key_of(str(table.path))}
    assert "Growth" not in shown(TABLE, site, address)
    table.batches(1)
    log = TableLog(Location.parse(str(table.path)))
    (said,) = table_growth.growth(log.reader, log.state())
    assert f"<li>{said.words}</li>" in unescape(shown(TABLE, site, address))
    DeltaTable(table.path).create_checkpoint()
    assert "Growth" not in shown(TABLE, site, address)


def test_a_checkpoint_that_is_damaged_later_hides_no_page(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced, "PAUSE", 0)
    table = Table.create(tmp_path / "orders")
    table.batches(2)
    address = {"table": key_of(str(table.path))}
    assert "Growth" not in shown(TABLE, site, address)
    (table.path / "_delta_log" / f"{1:020d}.checkpoint.parquet").write_bytes(b"not Parquet")
    page = shown(TABLE, site, address)
    assert "How the table grows is not known: cannot read" in page


DEEP = "[" * 100_000
"""More than a parser of JSON follows."""


@pytest.mark.parametrize("line", [DEEP, f'{{"commitInfo":{DEEP}{"]" * len(DEEP)}}}'])
def test_a_commit_that_is_nested_too_deeply_hides_no_other_table(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(tables, "GLANCE_S", 600.0)
    for name in ("bad", "good"):
        Table.create(tmp_path / name).batches(1)
    (tmp_path / "bad" / "_delta_log" / f"{2:020d}.json").write_text(line)
    assert shown(TABLES, site).count("✓ proven") == 1
    assert ">good</a>" in shown(PIPELINES, site)


@pytest.mark.parametrize("name", ["metadata", "offsets/0"])
def test_a_checkpoint_that_is_nested_too_deeply_hides_no_other_query(tmp_path: Path, site: Site, name: str) -> None:
    Table.create(tmp_path / "orders").batches(1)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"q"}')
    (checkpoint / name).write_text(f"v1\n{DEEP}\n{DEEP}" if "/" in name else DEEP)
    assert ">orders</a>" in shown(PIPELINES, site)
