"""All pages, in the order of the navigation."""

from __future__ import annotations

from sparkonce.jobs.ui.page import Page
from sparkonce.jobs.ui.pages.brokers import BROKER, BROKERS
from sparkonce.jobs.ui.pages.groups import GROUP, GROUPS
from sparkonce.jobs.ui.pages.messages import MESSAGES
from sparkonce.jobs.ui.pages.pipelines import PIPELINE, PIPELINES
from sparkonce.jobs.ui.pages.registry import REGISTRY, SUBJECT
from sparkonce.jobs.ui.pages.rows import TABLE_ROWS
from sparkonce.jobs.ui.pages.stored import STORED
from sparkonce.jobs.ui.pages.tables import TABLE, TABLE_FILES, TABLES
from sparkonce.jobs.ui.pages.topic import TOPIC
from sparkonce.jobs.ui.pages.topics import TOPICS
from sparkonce.jobs.ui.pages.trace import TRACE
from sparkonce.jobs.ui.pages.transactions import TRANSACTIONS

PAGES: tuple[Page, ...] = (
    *(PIPELINES, PIPELINE),
    *(TOPICS, TOPIC, MESSAGES),
    *(GROUPS, GROUP),
    *(TABLES, TABLE, TABLE_ROWS, TABLE_FILES, STORED),
    TRACE,
    TRANSACTIONS,
    *(REGISTRY, SUBJECT),
    *(BROKERS, BROKER),
)
