from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible
from tests.unit.ui.test_tracing import query_with_columns


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    folder: Path = tmp_path_factory.mktemp("traced")
    query_with_columns(folder)
    with UiServer(Site(Given(folder=folder))) as made:
        yield made


def test_from_a_row_to_its_record_and_back(traced: UiServer, page: Page) -> None:
    page.goto(f"{traced.url}trace")
    page.get_by_role("button", name="Choose").click()
    page.get_by_label("Column 1").select_option("city")
    page.get_by_label("Value 1").fill("c7")
    page.get_by_role("button", name="Find records").click()
    rows = page.locator("#rows")
    expect(rows.get_by_role("heading", level=3)).to_have_count(3)
    expect(rows).to_contain_text("topic-0 at offset 17")
    expect(rows.get_by_text("✓ proven: Written once")).to_have_count(3)
    chain = rows.get_by_role("list", name="From the record to the commit").first.get_by_role("listitem")
    expect(chain).to_have_text(
        [re.compile(each) for each in ("Record.*topic-0", "Batch", "File.*row", "Commit", "written once")]
    )
    check_accessible(page)
    page.get_by_label("Topic").fill("topic")
    page.get_by_label("Partition", exact=True).fill("0")
    page.get_by_label("Offset").fill("17")
    page.get_by_role("button", name="Find its rows").click()
    records = page.locator("#records")
    expect(records).to_contain_text("version 2 holds the rows and stores the offsets")
    expect(records).to_contain_text("city c7")
    check_accessible(page)


def test_what_is_not_known_is_said(traced: UiServer, page: Page) -> None:
    page.goto(f"{traced.url}trace?topic=topic&partition=0&offset=99")
    expect(page.locator("#records")).to_contain_text("not known: Not read yet: the next offset is 30")
    page.goto(f"{traced.url}trace?topic=another&partition=0&offset=99")
    expect(page.locator("#records")).to_contain_text("None of the tables has stored offsets of its partition.")
    page.goto(f"{traced.url}trace?topic=topic&partition=0&offset=x")
    expect(page.get_by_role("alert")).to_contain_text("a record has a topic, a partition and an offset")


def test_the_newest_rows_of_a_table_lead_to_their_records(traced: UiServer, page: Page) -> None:
    page.goto(f"{traced.url}tables")
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("✓ proven")
    expect(row.locator("td").nth(5)).to_contain_text("KiB")
    row.get_by_role("link").click()
    page.get_by_role("link", name="Rows", exact=True).click()
    columns = page.get_by_role("region", name="Columns")
    expect(columns.get_by_role("row", name="offset bigint")).to_be_visible()
    check_accessible(page)
    rows = page.get_by_role("region", name="Rows").locator("tbody tr")
    expect(rows).to_have_count(20)
    offset = rows.first.get_by_role("link").inner_text().rpartition(" ")[2]
    rows.first.get_by_role("link").click()
    expect(page.locator("#records")).to_contain_text(f"at offset {offset}")
