from __future__ import annotations

import re
import shutil
from contextlib import closing
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from sparkonce.jobs.ui.delta.tables import key_of
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible
from tests.ui.test_guard import ask
from tests.unit.audit.logs import Table


def test_stored_offsets_are_moved_as_the_command_has_planned(tmp_path: Path, browser_page_without_checks: Tab) -> None:
    page, table = browser_page_without_checks, Table.create(tmp_path / "orders")
    table.batches(3)
    given = Given(tables=(str(table.path),), allow_changes=True)
    with closing(Site(given)) as site, UiServer(site) as ui:
        page.goto(f"{ui.url}tables/{key_of(str(table.path))}/offsets")
        row = page.locator("tbody tr").first
        expect(row.locator("td").last).to_have_text("30")
        page.locator("#at").fill("20")
        page.get_by_role("button", name="Show what would change").click()
        expect(page.locator("p.said")).to_contain_text("30 -> 20")
        expect(row.locator("td").last).to_have_text("30")
        check_accessible(page)
        page.get_by_role("button", name="Move it").click()
        expect(page.locator("p.said")).to_contain_text("changed, in version 4")
        expect(row.locator("td").last).to_have_text("20")
        page.locator("#to").select_option("version")
        page.locator("#at").fill("99")
        page.get_by_role("button", name="Show what would change").click()
        expect(page.locator("p.said")).to_contain_text("version 99 is not older than the table")


def test_a_page_that_may_not_change_offsets_says_so(tmp_path: Path, browser_page_without_checks: Tab) -> None:
    page, table = browser_page_without_checks, Table.create(tmp_path / "orders")
    table.batches(1)
    with closing(Site(Given(tables=(str(table.path),)))) as site, UiServer(site) as ui:
        page.goto(f"{ui.url}tables/{key_of(str(table.path))}/offsets")
        page.locator("#at").fill("5")
        page.get_by_role("button", name="Show what would change").click()
        expect(page.locator("p.said")).to_contain_text("start them with --allow-changes")
        expect(page.get_by_role("button", name="Move it")).to_have_count(0)


def test_no_module_of_the_current_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(tmp_path / "orders")
    table.batches(1)
    (tmp_path / "argparse.py").write_text("raise SystemExit('this is not the standard library')")
    monkeypatch.chdir(tmp_path)
    path = f"/tables/{key_of(str(table.path))}/offsets"
    with closing(Site(Given(folder=tmp_path))) as site, UiServer(site) as ui:
        key = unescape(re.findall('name="key"><option value="([^"]+)"', ask(ui, path)[1])[0])
        form = urlencode({"action": "plan", "key": key, "to": "offset", "at": "5"})
        response, text = ask(ui, path, "POST", {"Origin": ui.url.rstrip("/")}, form)
    assert response.status == 200
    assert "start them with --allow-changes" in text


def test_a_form_about_a_table_that_is_gone_says_so(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "orders")
    table.batches(1)
    path = f"/tables/{key_of(str(table.path))}/offsets"
    with closing(Site(Given(folder=tmp_path))) as site, UiServer(site) as ui:
        assert ask(ui, path)[0].status == 200
        shutil.rmtree(table.path)
        response, text = ask(ui, path, "POST", {"Origin": ui.url.rstrip("/")}, "action=plan&key=any&to=offset&at=5")
        assert response.status == 422
        assert "It may have been moved, or deleted." in text
