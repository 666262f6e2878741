"""Pages as HTML, without a server and a browser."""

from __future__ import annotations

from collections.abc import Mapping

from sparkonce.jobs.ui.page import Page, PageRequest
from sparkonce.jobs.ui.rendering import render
from sparkonce.jobs.ui.site import Site


def shown(page: Page, site: Site, path: Mapping[str, str] | None = None, **query: str) -> str:
    """Return the main part of a page; what is wrong with its data is raised."""
    asked = PageRequest(path or {}, query)
    return render(page.template, {"site": site, "asked": asked, "page": page, **page.data(site, asked)}).whole
