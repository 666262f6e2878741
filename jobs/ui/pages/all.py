"""All pages, in the order of the navigation."""

from __future__ import annotations

from sparkonce.jobs.ui.page import Page
from sparkonce.jobs.ui.pages.topics import TOPICS

PAGES: tuple[Page, ...] = (TOPICS,)
