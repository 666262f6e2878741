"""How Sphinx makes the site of these pages: `make docs`.

The navigation is README.md: its headings, and the pages that they list. A page that it does not list fails the build.
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


def navigation() -> str:
    """Make a table of contents for each heading of README.md from the links below it."""
    parts = []
    for section in re.split(r"^##+ ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        caption, _, text = section.partition("\n")
        pages = re.findall(r"\[([^\]]+)\]\(([^)]+)\.md\)", text)
        if pages:
            entries = "\n".join(f"{name.replace('`', '')} <{page}>" for name, page in pages)
            parts.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n")
    return "\n".join(parts)


def _complete(_: Sphinx, page: str, source: list[str]) -> None:
    """Add to the start page the navigation, and to the page of changes what stands at the root of the checkout."""
    if page == root_doc:
        source[0] += "\n" + navigation()
    elif page == "changelog":
        source[0] = (DOCS.parent / "CHANGELOG.md").read_text().replace("](docs/", "](")


def setup(app: Sphinx) -> None:
    """Complete pages while they are read: what is added would only be in the way of those who read the files."""
    app.connect("source-read", _complete)
    # The template of the sidebar has a link to the versions beside this one only where there are some.
    app.config.html_context["published"] = app.tags.has("published")
