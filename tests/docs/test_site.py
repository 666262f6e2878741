"""The site that `make docs` builds: no dead link, nothing from elsewhere; mistakes fail the build and are named.

It takes half a minute, which `make lab` and `make docs` wait for.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import sync_playwright

from lab.browser import browser_path, launch

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTHS = (375, 1024, 1280, 1440, 1536, 1920)
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in LOADED and value:
                self.loaded.add(value)
            elif tag == "a" and name == "href" and value:
                self.links.add(value)
        relation = dict(attrs).get("rel")
        if tag == "link" and relation in ("stylesheet", "preload", "icon"):
            self.loaded.add(str(dict(attrs)["href"]))


def build(docs: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(docs / "build.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    site = tmp_path_factory.mktemp("built") / "site"
    built = build(DOCS, site)
    assert built.returncode == 0, built.stderr
    return {page: Page(page) for page in site.rglob("*.html")}


@pytest.mark.lab
def test_every_page_is_there_and_all_of_them_on_one(pages: dict[Path, Page]) -> None:
    (site,) = (page.parent for page in pages if page.name == "search.html")
    sources = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")} - {Path("README.html")}
    assert sources <= {page.relative_to(site) for page in pages}
    whole = (site / "all_pages" / "index.html").read_text()
    others = {str(source.with_suffix("")) for source in sources} - {"index"}
    assert {page for page in others if f'id="document-{page}"' not in whole} == set()


@pytest.mark.lab
def test_no_page_is_wider_than_its_window(pages: dict[Path, Page]) -> None:
    path = browser_path()
    if path is None:
        pytest.skip("there is no browser: apt-get install chromium, or name one in CHROMIUM")
    with sync_playwright() as started, launch(started, path) as browser, browser.new_page() as page:
        for each in pages:
            page.goto(each.as_uri())
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                found = page.evaluate("document.documentElement.scrollWidth")
                assert found <= width, f"{each.name} takes {found} pixels of {width}"


@pytest.mark.lab
def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    loaded = {(path, address) for path, page in pages.items() for address in page.loaded}
    assert loaded
    for path, address in loaded:
        parts = urlsplit(address)
        assert not parts.netloc, f"{path.name} loads {address}"
        assert parts.scheme == "data" or (path.parent / unquote(parts.path)).exists(), f"{path.name} loads {address}"


@pytest.mark.lab
def test_every_link_of_the_site_leads_somewhere(pages: dict[Path, Page]) -> None:
    """Also the links of the navigation, and those between the sections of the page that has all."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors | {"", "top"}, f"{path.name}: {link}"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a folder of documentation with one page beside the start page."""
    docs = tmp_path / "docs"
    for name in ("_static", "_templates"):
        shutil.copytree(DOCS / name, docs / name)
    for name in ("conf.py", "build.py"):
        shutil.copy(DOCS / name, docs)
    (docs / "README.md").write_text("# All\n\n## Tutorials\n\n- [One](one.md)\n")
    (docs / "index.md").write_text("# Start\n\n[one](one.md#a-heading)\n")
    (docs / "one.md").write_text("# One\n\n## A heading\n\nText.\n")
    return docs


@pytest.mark.lab
@pytest.mark.parametrize(
    ("page", "text", "told"),
    [
        ("two.md", "# Two\n", "two.md: WARNING: document isn't included in any toctree"),
        (
            "one.md",
            "# One\n\n[gone](gone.md)\n",
            "one.md:3: WARNING: 'myst' cross-reference target not found: 'gone.md'",
        ),
        ("one.md", "# One\n", "index.md:3: WARNING: local id not found in doc 'one': 'a-heading'"),
    ],
    ids=["page outside of the navigation", "link to no page", "link to no heading"],
)
def test_a_mistake_fails_the_build_and_is_named(small: Path, page: str, text: str, told: str) -> None:
    (small / page).write_text(text)
    built = build(small, small.parent / "site")
    assert built.returncode != 0
    assert told in built.stderr


@pytest.mark.lab
def test_versions_are_published_beside_each_other(small: Path) -> None:
    published = small.parent / "published"
    older = published / "0.0.9"
    older.mkdir(parents=True)
    (older / "index.html").write_text("an older site")
    built = build(small, small.parent / "site", "--publish", published)
    assert built.returncode == 0, built.stderr
    listed = Page(published / "versions.html").links
    (newest,) = Page(published / "index.html").links
    assert listed == {newest, "0.0.9/index.html"}
    assert newest != "0.0.9/index.html"
    assert "../versions.html" in Page(published / newest).links
    assert (older / "index.html").read_text() == "an older site"


def loaded(name: str) -> ModuleType:
    """Return a module of the folder, which is no package."""
    specification = spec_from_file_location(name, DOCS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    sys.modules[name] = module  # where dataclasses look for their annotations
    specification.loader.exec_module(module)
    return module


def test_the_moving_picture_is_that_of_the_kept_run() -> None:
    moving = loaded("moving")
    assert moving.PICTURE.read_text() == moving.drawn(), "python docs/moving.py"
    assert moving.PICTURE.stat().st_size < 20_000
    assert "lost=0 duplicated=0" in moving.drawn()


def test_the_drawings_are_those_that_the_module_describes() -> None:
    drawings = loaded("drawings")
    made = {f"{name}.svg": drawings.svg(drawing) for name, drawing in drawings.DRAWINGS.items()}
    assert {path.name: path.read_text() for path in (DOCS / "drawings").glob("*.svg")} == made, (
        "python docs/drawings.py"
    )
