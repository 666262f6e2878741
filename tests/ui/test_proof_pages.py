from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sparkonce.jobs.lab.verify.matrix import full
from sparkonce.jobs.lab.verify.progress import ProgressFile
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible
from tests.unit.ui.test_proof import outcome_of

pytestmark = pytest.mark.lab


@pytest.fixture
def proof(tmp_path: Path) -> Iterator[UiServer]:
    with UiServer(Site(Given(folder=tmp_path))) as made:
        yield made


def test_cells_appear_as_they_are_judged(tmp_path: Path, proof: UiServer, page: Page) -> None:
    cells = full()[:4]
    page.goto(f"{proof.url}proof")
    expect(page.locator("main")).to_contain_text("No run of sparkonce verify is here")
    file = ProgressFile(tmp_path, cells)
    file.outcome(outcome_of(cells[0]))
    expect(page.locator("#run")).to_contain_text("1 of 4 cells judged")
    file.outcome(outcome_of(cells[1], "it lost a record"))
    file.outcome(replace(outcome_of(cells[2]), fired=False))
    file.result("RESULT cells=2 lost=1 duplicated=0 wrong=1")
    expect(page.locator("#run")).to_contain_text("✗ RESULT cells=2")
    expect(page.locator("#run")).to_contain_text(f"{cells[1].name}: it lost a record")
    expect(page.locator("#run")).to_contain_text(f"{cells[2].name}: its fault did not happen")
    expect(page.locator("#matrix a.tile")).to_have_count(3)
    check_accessible(page)
    page.locator(f"#matrix a[href$='{cells[1].name}']").click()
    expect(page.locator("main")).to_contain_text("Wrong: it lost a record")
    check_accessible(page)


def test_a_seed_is_stepped_through(proof: UiServer, page: Page) -> None:
    page.goto(f"{proof.url}proof")
    page.get_by_label("Seed").fill("3")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Seed 3")
    expect(page.locator("main")).to_contain_text("no invariant was violated")
    page.get_by_role("link", name="Next fault").click()
    expect(page.locator("li[aria-current=step]")).to_contain_text("step: ")
    page.get_by_role("link", name="Next", exact=True).click()
    expect(page.locator("table.cluster")).to_contain_text("leads")
    check_accessible(page)


def test_a_story_is_told_step_by_step(proof: UiServer, page: Page) -> None:
    page.goto(f"{proof.url}proof/stories/kip-101-loss")
    expect(page.locator("main")).to_contain_text("step 1 of 6")
    for step in range(2, 7):
        page.get_by_role("link", name="Next").click()
        expect(page.locator("main")).to_contain_text(f"step {step} of 6")
    expect(page.get_by_role("img")).to_have_count(1)
    check_accessible(page)
    page.goto(f"{proof.url}proof/stories/quorum")
    expect(page.get_by_role("table")).to_be_visible()
