"""Pages as they were and as they are, at three widths, in light and dark: one sheet for each page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]
BEFORE = "724daa1e"
"""The commit before the pages were designed anew."""
SIZES = {390: 844, 1280: 800, 1920: 1080}
"""Heights of windows by their widths, in pixels."""
SCHEMES = ("light", "dark")
PAGES = {
    "pipelines": ("pipelines", "returns"),
    "messages": ("topics/orders/messages", "amount"),
    "trace": ("trace?topic=payments&partition=0&offset=17", "written once"),
    "topics": ("topics", "billing"),
}
"""Addresses of pages, and what they show when they are complete."""
SCALE = 0.6
GAP, BETWEEN = 12, (128, 128, 128)
COLOURS = 200


def make_sheets(browser: Browser, url: str, servers: str, data: Path, folder: Path) -> None:
    """Write a sheet of each page, `screens_<page>.png`: above as it was, below as it is.

    Args:
        browser: it opens the pages.
        url: the pages as they are.
        servers: the brokers that both show.
        data: the folder of tables and checkpoints that both show.
        folder: where sheets are written.
    """
    if subprocess.run(["git", "cat-file", "-e", BEFORE], cwd=ROOT, stderr=subprocess.DEVNULL).returncode:
        print(f"No sheets of screens: this checkout has no commit {BEFORE}")
        return
    with _pages_before(servers, data) as before:
        for name, (path, text) in PAGES.items():
            rows = [
                [_picture(browser, each + path, text, scheme, width) for width in SIZES]
                for scheme in SCHEMES
                for each in (before, url)
            ]
            _sheet(rows).quantize(COLOURS, Image.Quantize.FASTOCTREE).save(
                folder / f"screens_{name}.png", optimize=True
            )


@contextmanager
def _pages_before(servers: str, data: Path) -> Iterator[str]:
    """Serve the pages of the commit `BEFORE`; yield their address."""
    with tempfile.TemporaryDirectory() as checkout:
        archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", checkout], input=archive, check=True)
        command = [sys.executable, "-m", "sparkonce", "ui", "--port", "0", "--bootstrap-servers", servers, str(data)]
        with subprocess.Popen(
            command, cwd=checkout, env={**os.environ, "PYTHONPATH": checkout}, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip()
            finally:
                process.terminate()


def _picture(browser: Browser, url: str, text: str, scheme: str, width: int) -> Image.Image:
    context = browser.new_context(viewport={"width": width, "height": SIZES[width]}, color_scheme=scheme)  # type: ignore[arg-type]
    try:
        page = context.new_page()
        page.goto(url)
        expect(page.locator("main")).to_contain_text(text, ignore_case=True)
        image = Image.open(BytesIO(page.screenshot())).convert("RGB")
    finally:
        context.close()
    return image.resize((round(image.width * SCALE), round(image.height * SCALE)), Image.Resampling.LANCZOS)


def _sheet(rows: list[list[Image.Image]]) -> Image.Image:
    """Put pictures side by side, and rows of them below one another."""
    width = sum(each.width + GAP for each in rows[0]) + GAP
    sheet = Image.new("RGB", (width, sum(max(each.height for each in row) + GAP for row in rows) + GAP), BETWEEN)
    top = GAP
    for row in rows:
        left = GAP
        for each in row:
            sheet.paste(each, (left, top))
            left += each.width + GAP
        top += max(each.height for each in row) + GAP
    return sheet
