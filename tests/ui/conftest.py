"""A tab of a real browser, and pages to look at."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect, sync_playwright

from lab.browser import browser_path, launch
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site

BUSY_MS = 120_000
"""A busy machine is slow, and compiles what reads messages."""
expect.set_options(timeout=60_000)


HERE = Path(__file__).parent
_started = ExitStack()
_browsers: list[Browser] = []
"""At most one: what `_started` will close."""


@pytest.fixture
def browser() -> Browser:
    """The browser, which all tests of this folder share; the test is skipped where there is none."""
    path = browser_path()
    if path is None:
        pytest.skip("there is no browser: apt-get install chromium, or name one in CHROMIUM")
    if not _browsers:
        made = launch(_started.enter_context(sync_playwright()), path)
        _started.callback(made.close)
        _browsers.append(made)
    return _browsers[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """End the browser with the last test of this folder.

    As long as it is driven, this thread counts as running an event loop, and tests elsewhere run loops of their own.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or HERE not in nextitem.path.parents:
            _browsers.clear()
            _started.close()


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
