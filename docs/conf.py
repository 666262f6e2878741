"""How Sphinx makes the site of these pages: `make docs`.

The navigation is README.md: its headings, and the pages that they list. The pages of internals/ are listed by a README
of their own, and appear below its entry. A page that neither lists fails the build.
"""

from __future__ import annotations

import re
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent

project = "sparkonce"
copyright = "the authors of sparkonce"  # noqa: A001  # Sphinx's name for it
version = release = installed("sparkonce")

extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 6  # links to headings are those that GitHub makes, so that they work there, too

exclude_patterns = ["README.md"]  # it is the navigation

html_theme = "furo"
html_title = f"sparkonce {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
        "beside.html",
    ]
}
suppress_warnings = ["misc.highlighting_failure"]  # what is left out of an example is written as …


def navigation(listing: str) -> str:
    """Make a table of contents for each heading of a README from the links below it."""
    parts = []
    for section in re.split(r"^##+ ", listing, flags=re.MULTILINE)[1:]:
        caption, _, text = section.partition("\n")
        pages = re.findall(r"\[([^\]]+)\]\(([^)]+)\.md\)", text)
        if pages:
            entries = "\n".join(f"{name.replace('`', '')} <{page}>" for name, page in pages)
            parts.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n")
    return "\n".join(parts)


def _complete(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to the start page and to that of internals/, and CHANGELOG.md to the page of changes."""
    if page == root_doc:
        source[0] += "\n" + navigation((DOCS / "README.md").read_text())
    elif page == "internals/README":
        source[0] += "\n" + navigation(source[0])
    elif page == "changelog":
        source[0] = (DOCS.parent / "CHANGELOG.md").read_text().replace("](docs/", "](")


def setup(app: Sphinx) -> None:
    """Complete pages while they are read: what is added would only be in the way of those who read the files."""
    app.connect("source-read", _complete)
    # The template of the sidebar has a link to the versions beside this one only where there are some.
    app.config.html_context["published"] = app.tags.has("published")
