"""Filters that a reader saves under a name: kept by the browser alone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from sparkonce.jobs.ui.server import UiServer
from tests.ui.looking import check_accessible, create_topic

pytestmark = pytest.mark.kafka


def save(page: Page, name: str) -> None:
    page.get_by_text("Save this filter").focus()
    page.keyboard.press("Enter")
    page.get_by_label("as", exact=True).fill(name)
    page.keyboard.press("Enter")
    expect(page.locator("#saved").get_by_role("link", name=name)).to_be_visible()


def test_a_saved_filter_is_there_again_until_it_is_forgotten(kafka: Any, ui: UiServer, page: Page) -> None:
    for topic in ("kept-one", "kept-two"):
        create_topic(kafka.bootstrap_servers, topic)
    page.goto(f"{ui.url}topics?name=kept-one")
    saved = page.get_by_role("region", name="Saved filters")
    save(page, "<b>first</b> & only")
    current = saved.get_by_role("link", name="<b>first</b> & only")
    expect(current).to_have_attribute("aria-current", "true")
    page.get_by_label("Name").fill("kept-two")
    expect(page.locator("#t-kept-one")).to_have_count(0)
    expect(current).not_to_have_attribute("aria-current", "true")
    save(page, "second")
    page.get_by_text("Save this filter").click()
    check_accessible(page)
    page.goto(f"{ui.url}groups")
    expect(page.locator("#saved li")).to_have_count(0)
    page.goto(f"{ui.url}topics?name=kept-two")
    expect(page.locator("#saved li")).to_have_count(2)
    current.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#t-kept-one")).to_be_visible()
    expect(page.locator("#t-kept-two")).to_have_count(0)
    current.focus()
    page.keyboard.press("Tab")
    expect(saved.get_by_role("button", name="Forget <b>first</b> & only")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Save this filter")).to_be_focused()
    page.reload()
    expect(page.locator("#saved li")).to_have_count(1)


def test_a_search_through_messages_is_saved_as_it_stands_in_its_fields(kafka: Any, ui: UiServer, page: Page) -> None:
    create_topic(kafka.bootstrap_servers, "searched")
    page.goto(f"{ui.url}topics/searched/messages")
    page.get_by_label("With the text").fill("a b&c")
    save(page, "odd")
    page.reload()
    page.locator("#saved").get_by_role("link", name="odd").click()
    expect(page.get_by_label("With the text")).to_have_value("a b&c")
    expect(page.get_by_text("Found 0.")).to_be_visible()
    expect(page.locator("#saved a")).to_have_attribute("aria-current", "true")


def test_what_the_browser_keeps_may_be_damaged(ui: UiServer, page: Page) -> None:
    page.goto(f"{ui.url}topics")
    for damaged in ("[1]", "{", '{"/topics": [1, null, {"name": "a"}]}'):
        page.evaluate("text => localStorage.setItem('sparkonce.filters', text)", damaged)
        page.reload()
        expect(page.locator("#saved")).to_be_visible()
        expect(page.locator("#saved li")).to_have_count(0)
    save(page, "new")
