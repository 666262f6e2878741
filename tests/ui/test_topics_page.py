from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from sparkonce.jobs.ui.server import UiServer
from tests.ui.looking import check_accessible, create_topic, produce

pytestmark = pytest.mark.kafka


def test_topics_appear_and_grow_without_a_reload(kafka: Any, ui: UiServer, page: Page) -> None:
    page.goto(ui.url)
    expect(page).to_have_title("Topics · sparkonce")
    expect(page.locator("#connection")).to_have_text("live")
    create_topic(kafka.bootstrap_servers, "appearing", 3)
    row = page.locator("#t-appearing")
    expect(row).to_contain_text("appearing 3 0")
    produce(kafka.bootstrap_servers, "appearing", ["a", "b"])
    expect(row).to_contain_text("appearing 3 2")
    check_accessible(page)


def test_a_filter_is_kept_in_the_address(kafka: Any, ui: UiServer, page: Page) -> None:
    create_topic(kafka.bootstrap_servers, "to-find")
    create_topic(kafka.bootstrap_servers, "to-hide")
    page.goto(f"{ui.url}topics")
    page.get_by_label("Name").fill("to-")  # other tests' topics on the same broker may fill the first part
    expect(page.locator("#t-to-hide")).to_be_visible()
    page.get_by_label("Name").fill("to-find")
    expect(page.locator("#t-to-hide")).to_have_count(0)
    expect(page.locator("#t-to-find")).to_be_visible()
    expect(page.get_by_label("Name")).to_be_focused()
    page.reload()
    expect(page.locator("#t-to-find")).to_be_visible()
    expect(page.locator("#t-to-hide")).to_have_count(0)
