from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from rich.console import Console

from sparkonce import EmbeddedBroker
from sparkonce.jobs.demo.settings import DEFAULT_CONFIG, Folder, Settings
from sparkonce.jobs.demo.show import Demo, TableWatch
from sparkonce.jobs.demo.watching import served
from tests.ui.looking import check_accessible

pytestmark = pytest.mark.lab


def test_the_demo_is_seen_as_it_happens(tmp_path: Path, page: Page) -> None:
    with EmbeddedBroker() as broker:
        demo = Demo(Settings.read(DEFAULT_CONFIG), Folder(tmp_path), Console(), broker)
        with served(demo) as address:
            page.goto(address)
            expect(page.locator("#doing")).to_have_text("starting")
            demo.flights, demo.doing = 1000, "Spark job, to the end"
            demo.timeline.begin("job", "span", "run 1")
            demo.table = replace(TableWatch(str(tmp_path / "table")), rows=400)
            demo.timeline.moment("job", "kill", "run 1: SIGKILL at sink.before_commit", "sink.before_commit")
            expect(page.locator("#doing")).to_have_text("Spark job, to the end")
            expect(page.locator("#rows")).to_contain_text("400 of 1\u202f000")
            expect(page.locator("#steps")).to_contain_text("run 1: SIGKILL at sink.before_commit")
            expect(page.locator("#steps")).to_contain_text("run 1, at work")
            expect(page.locator("svg .span")).to_have_count(1)
            demo.timeline.end("job", "run 1")
            expect(page.locator("#steps")).not_to_contain_text("at work")
            expect(page.locator("svg .span")).to_have_count(1)
            expect(page.locator("svg .kill")).to_have_count(1)
            check_accessible(page)
            page.get_by_role("link", name="Brokers").click()
            expect(page.locator("#b-0")).to_be_visible()
            page.goto("about:blank")  # nothing is followed any more when the server ends
