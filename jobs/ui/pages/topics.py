"""The page *Topics*: all topics of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkonce.jobs.ui.page import Asked, Page
from sparkonce.jobs.ui.site import Site


def _data(site: Site, asked: Asked) -> Mapping[str, Any]:
    state = None if site.cluster is None else site.cluster.state()
    wanted, internal = asked.query.get("name", ""), "internal" in asked.query
    topics = [] if state is None else [each for each in state.topics.values() if internal or not each.is_internal]
    return {"state": state, "topics": [each for each in topics if wanted.lower() in each.name.lower()]}


TOPICS = Page("/topics", "Topics", "topics.html", _data, menu="Topics")
