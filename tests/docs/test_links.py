"""Links between the pages of docs/ lead somewhere: to a file, and to a heading where they name one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import each_case

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def anchors(page: Path) -> set[str]:
    """Return the headings as links name them: in lower case, blanks as hyphens, without other signs."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles}


@each_case("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", prose):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{page.name}: {target}"
        outside = found.suffix == ".md" and DOCS not in found.parents and page.name != "changelog.md"
        assert not outside, f"{page.name}: {target} is no page of the site; link to one of docs/"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name}: {target}#{anchor}"


@each_case("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_test_and_source_file_that_a_page_names_exists(page: Path) -> None:
    """Under the guarantees, what tries them: a test that was renamed would leave a claim without its proof."""
    folders = "broker_lite|conf|connectors|deploy|exactly_once|jobs|offset_store|registry_lite|sparkonce|tests"
    named = re.findall(rf"`((?:{folders})/[\w/.-]+)`", page.read_text())
    assert [name for name in named if not (DOCS.parent / name).exists()] == []
