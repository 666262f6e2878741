from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sparkonce.jobs.ui.delta.tables import key_of
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible
from tests.unit.audit.logs import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "orders")


@pytest.fixture
def tables(table: Table) -> Iterator[UiServer]:
    with UiServer(Site(Given(folder=table.path.parent))) as made:
        yield made


def test_a_gap_is_seen_without_a_reload(table: Table, tables: UiServer, page: Page) -> None:
    table.batches(3)
    page.goto(f"{tables.url}tables")
    row = page.locator(f"#t-{key_of(str(table.path))}")
    expect(row).to_contain_text("✓ proven")
    check_accessible(page)
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.locator("#audit")).to_contain_text("verdict=proven")
    expect(page.get_by_role("img").first).to_have_accessible_name(
        "orders-0: 3 ranges from 0 to 30; they join without a gap or an overlap"
    )
    table.batch(partitions=(0,), skip=5)
    expect(page.locator("#audit")).to_contain_text("✗ broken")
    expect(page.locator("#audit")).to_contain_text("gap [30, 35)")
    expect(page.get_by_role("img").first).to_have_accessible_name(
        "orders-0: 4 ranges from 0 to 45; gap [30, 35) at version 4"
    )
    check_accessible(page)


def test_older_versions_are_paged_through(table: Table, tables: UiServer, page: Page) -> None:
    table.batches(60)
    page.goto(f"{tables.url}tables/{key_of(str(table.path))}")
    rows = page.locator("#versions tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(11)
    expect(rows.last).to_contain_text("CREATE TABLE")
    page.get_by_label("Times").select_option("ago")
    expect(rows.first.locator(".time")).to_contain_text(" ago")
    expect(page.locator("#versions th").nth(1)).to_have_text("Time")
    table.batches(1)
    expect(page.locator("#audit")).to_contain_text("commits=62")
    expect(rows).to_have_count(11)


def test_files_with_the_commands_that_mend_them(table: Table, tables: UiServer, page: Page) -> None:
    table.rows([(0, 1)])
    table.rows([(0, 2)])
    (table.path / "part-left-behind.parquet").write_bytes(b"rows of a killed driver")
    page.goto(f"{tables.url}tables/{key_of(str(table.path))}/files")
    expect(page.locator("#files")).to_contain_text(f"sparkonce compact {table.path} --dry-run")
    expect(page.locator("#unnamed")).to_contain_text("part-left-behind.parquet")
    expect(page.locator("#unnamed")).to_contain_text(f"sparkonce clean {table.path}")
    page.get_by_role("button", name="Look through the folder now").click()
    expect(page.get_by_role("alert")).to_contain_text("as of version 2")
    check_accessible(page)


def test_a_table_that_is_gone(tables: UiServer, page: Page) -> None:
    answer = page.request.get(f"{tables.url}tables/none-00000000")
    assert answer.status == 404
    assert "No table has the name none-00000000" in answer.text()
