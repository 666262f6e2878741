"""Messages as somebody reads them: lists that stand still, nulls, times in one's own zone, values in the clipboard."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from sparkonce.jobs.ui.server import UiServer
from tests.ui.looking import check_accessible, create_topic, produce
from tests.ui.test_pages import open_page

pytestmark = pytest.mark.kafka


def test_a_paused_list_counts_what_is_new(kafka: Any, ui: UiServer, page: Page) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, "paused")
    produce(servers, "paused", ["one"])
    open_page(page, ui, "topics/paused/messages?count=3")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#connection")).to_have_text("paused")
    produce(servers, "paused", ["two", "three"])
    expect(page.get_by_role("button", name="Go on: 2 new")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    produce(servers, "paused", ["four", "five", "six"])
    go_on = page.get_by_role("button", name="Go on: 3 or more new")
    expect(go_on).to_be_visible()
    check_accessible(page)
    page.locator("summary", has_text="one").click()  # and a message that is opened meanwhile
    go_on.click()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.locator("summary", has_text="six").click()
    produce(servers, "paused", ["seven"])
    expect(page.get_by_role("button", name="Go on: 1 new")).to_be_visible()
    expect(page.locator("details[open] pre.message")).to_have_text("six")
    page.locator("summary", has_text="six").click()
    expect(page.locator("tbody tr").first).to_contain_text("seven")


def test_null_is_told_from_the_text_null(kafka: Any, ui: UiServer, page: Page) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, "nothing")
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("nothing", None, "key")
    producer.produce("nothing", "null", None)
    assert producer.flush(30) == 0
    open_page(page, ui, "topics/nothing/messages?begin=oldest")
    shown = [each.strip() for each in page.locator("tbody td.code").all_inner_texts()]
    assert shown == ["key", "null", "null", '"null"']
    expect(page.locator("tbody em")).to_have_count(2)


def test_a_value_is_copied_as_it_is(kafka: Any, ui: UiServer, page: Page) -> None:
    servers, value = kafka.bootstrap_servers, '{\n  "a\\"b": "<b>1</b>",\n  "n": -1.5e3,\n  "none": null\n}'
    create_topic(servers, "copied")
    produce(servers, "copied", [value])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, ui, "topics/copied/messages")
    page.locator("tbody summary").first.click()
    shown = page.locator("pre.message")
    expect(shown.locator(".field")).to_have_count(3)
    assert shown.inner_text() == value.replace("-1.5e3", "-1500.0")
    assert shown.locator(".field").all_inner_texts() == ['"a\\"b"', '"n"', '"none"']
    assert shown.locator(".string").all_inner_texts() == ['"<b>1</b>"']
    assert shown.locator(".literal").all_inner_texts() == ["-1500.0", "null"]
    page.locator("tbody").get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == shown.inner_text()
    check_accessible(page)


def test_times_are_shown_in_the_zone_that_one_chose(kafka: Any, ui: UiServer, browser: Browser) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, "zones", config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("zones", "a", timestamp=1_700_000_000_123)
    assert producer.flush(30) == 0
    with closing(browser.new_context(timezone_id="Asia/Kolkata")) as context:
        page = context.new_page()
        open_page(page, ui, "topics/zones/messages")
        cell, head = page.locator("td.time"), page.locator("thead th").nth(2)
        expect(cell).to_have_text("2023-11-14 22:13:20.123")
        expect(head).to_have_text("Time (UTC)")
        page.get_by_label("Times").select_option("local")
        expect(cell).to_have_text("2023-11-15 03:43:20.123")
        expect(head).to_have_text("Time (local)")
        produce(servers, "zones", ["b"])
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(cell.last).to_have_text("2023-11-15 03:43:20.123")
        page.reload()
        expect(cell.last).to_have_text("2023-11-15 03:43:20.123")
        page.get_by_label("Times").select_option("ago")
        expect(cell.last).to_have_text(re.compile(r"^\d+\.\d d ago$"))
        expect(head).to_have_text("Time")
        check_accessible(page)
        page.goto(f"{ui.url}groups")  # where no time is in a column, and no heading says a zone
        expect(page.get_by_label("Times")).to_be_hidden()
