from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sparkonce.jobs.shared.events import NotedEvent, note
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible
from tests.unit.sink.query_by_hand import Query


@pytest.fixture
def pipelines(tmp_path: Path) -> Iterator[UiServer]:
    with UiServer(Site(Given(folder=tmp_path))) as made:
        yield made


def test_a_running_and_killed_pipeline_is_followed(tmp_path: Path, pipelines: UiServer, page: Page) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    page.goto(f"{pipelines.url}pipelines")
    row = page.locator("#q-q")
    expect(row).to_contain_text("exactly-once")
    for told in ("Offsets in the last hour10", "Written to1 table"):
        expect(page.locator("#totals")).to_contain_text(told)
    check_accessible(page)
    page.get_by_role("link", name="app", exact=True).click()
    facts = page.locator("#facts")
    expect(facts).to_contain_text("committed: 0")
    query.log(1, 20)
    expect(facts).to_contain_text("and not finished: it runs, or its driver is gone")
    query.tasks(rows=[{"v": 2}])
    note(tmp_path, NotedEvent(round(1000 * time.time()), "kill", "job: SIGKILL before its commit"))
    query.commit(1, query.tasks(rows=[{"v": 2}]))
    expect(facts).to_contain_text("committed: 1")
    batches = page.locator("#batches")
    expect(batches).to_contain_text("job: SIGKILL before its commit")
    expect(batches).to_contain_text("rows that no commit names")
    expect(batches.locator("line.event-kill")).to_have_count(1)
    expect(batches.locator("line.mark-commit")).to_have_count(2)
    expect(page.locator("#partitions")).to_contain_text("topic-0")
    check_accessible(page)


def test_a_query_that_nobody_knows(pipelines: UiServer, page: Page) -> None:
    assert page.request.get(f"{pipelines.url}pipelines/none").status == 404


def test_where_there_are_tables_pipelines_come_first(pipelines: UiServer, page: Page) -> None:
    page.goto(pipelines.url)
    expect(page.get_by_role("heading", level=1)).to_have_text("Pipelines")
