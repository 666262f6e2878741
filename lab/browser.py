"""A real browser: Debian's `chromium`, driven by Playwright, for the tests and the benchmarks of pages."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

PLACES = ("chromium", "chromium-browser", "google-chrome")


def browser_path() -> str | None:
    """Return Chromium's path, or the environment variable CHROMIUM; None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PLACES)), None)


def launch(playwright: Playwright, path: str) -> Browser:
    """Start it headless."""
    # Chromium has no sandbox for a root without user namespaces, as in a container; the pages are our own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=path, args=arguments)
