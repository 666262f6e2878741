from __future__ import annotations

from playwright.sync_api import Page, expect

from sparkonce import EmbeddedBroker
from sparkonce.jobs.ui.server import UiServer
from tests.ui.looking import check_accessible, create_topic, produce


def test_topics_appear_and_grow_without_a_reload(broker: EmbeddedBroker, ui: UiServer, page: Page) -> None:
    page.goto(ui.url)
    expect(page).to_have_title("Topics · sparkonce")
    expect(page.locator("#connection")).to_have_text("live")
    create_topic(broker.bootstrap_servers, "orders", 3)
    row = page.locator("#t-orders")
    expect(row).to_contain_text("orders 3 0")
    produce(broker.bootstrap_servers, "orders", ["a", "b"])
    expect(row).to_contain_text("orders 3 2")
    check_accessible(page)


def test_a_filter_is_kept_in_the_address(broker: EmbeddedBroker, ui: UiServer, page: Page) -> None:
    create_topic(broker.bootstrap_servers, "to-find")
    create_topic(broker.bootstrap_servers, "to-hide")
    page.goto(f"{ui.url}topics")
    expect(page.locator("#t-to-hide")).to_be_visible()
    page.get_by_label("Name").fill("find")
    expect(page.locator("#t-to-hide")).to_have_count(0)
    expect(page.locator("#t-to-find")).to_be_visible()
    expect(page.get_by_label("Name")).to_be_focused()
    page.reload()
    expect(page.locator("#t-to-find")).to_be_visible()
    expect(page.locator("#t-to-hide")).to_have_count(0)
