"""All pages, in the order of the navigation."""

from __future__ import annotations

from sparkonce.jobs.ui.page import Page
from sparkonce.jobs.ui.pages.tables import TABLE, TABLE_FILES, TABLES
from sparkonce.jobs.ui.pages.topics import TOPICS
from sparkonce.jobs.ui.pages.trace import TRACE

PAGES: tuple[Page, ...] = (TOPICS, TABLES, TABLE, TABLE_FILES, TRACE)
