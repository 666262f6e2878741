"""A tab of a real browser, and pages to look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect, sync_playwright

from sparkonce.jobs.shared.browser import browser_path, launch
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site

BUSY_MS = 120_000
"""A busy machine is slow, and compiles what reads messages."""
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser; the test is skipped where there is none.

    Not for longer than a module: as long as it is driven, this thread counts as running an event loop, and other
    modules' tests run loops of their own.
    """
    path = browser_path()
    if path is None:
        pytest.skip("there is no browser: apt-get install chromium, or name one in CHROMIUM")
    with sync_playwright() as playwright:
        started = launch(playwright, path)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab with nothing kept from other tests; errors on its console fail the test."""
    wrong: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def on_error(error: Error) -> None:
        wrong.append(str(error))

    context = browser.new_context()
    context.set_default_timeout(BUSY_MS)
    made = context.new_page()
    made.on("console", on_console)
    made.on("pageerror", on_error)
    yield made
    context.close()
    assert not wrong


@pytest.fixture
def browser_page_without_checks(browser: Browser) -> Iterator[Page]:
    """A tab in which something is refused, which browsers call an error."""
    context = browser.new_context()
    context.set_default_timeout(BUSY_MS)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def ui(kafka: Any) -> Iterator[UiServer]:
    """The pages about the broker that KAFKA names."""
    with (
        closing(Site(Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}))) as site,
        UiServer(site) as made,
    ):
        yield made
