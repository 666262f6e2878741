"""The pages *Pipelines*: all queries; one with partitions, last hour, batches, and others with the same appId."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkonce.jobs.shared.events import noted
from sparkonce.jobs.ui.delta.pipelines import EndOffsets, Known, Pipeline, look, pipelines, timeline_of
from sparkonce.jobs.ui.delta.timeline import Event
from sparkonce.jobs.ui.kafka.loop import Result
from sparkonce.jobs.ui.kafka.state import ClusterState
from sparkonce.jobs.ui.kafka.topic_queries import topic_queries
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, part
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.clock import now_ms

PARTITIONS = 100
"""Partitions in one part of the table."""


@dataclass(frozen=True, slots=True)
class _All:
    """All queries, and the looks at the brokers that they are shown by."""

    known: Known
    pipelines: list[Pipeline]
    looks: tuple[Result[Any], ...] = ()


def _all(site: Site) -> _All:
    watches, _ = site.watches()
    known = look(site.checkpoints(), watches, site.given.storage)
    if site.cluster is None:
        return _All(known, pipelines(known, EndOffsets(lambda *_: None), now_ms()))
    state, groups, transactions = site.cluster.state(), site.cluster.groups(), site.cluster.transactions()
    known = replace(known, topic_queries=topic_queries(transactions.found, groups.found.values()))
    return _All(known, pipelines(known, _ends(state), now_ms()), (state, groups, transactions))


def _ends(look: Result[ClusterState]) -> EndOffsets:
    """Return where the logs of partitions end for readers of committed records."""
    topics = look.found.topics
    logs: dict[str, dict[int, int | None]] = {}

    def end_of(topic: str, topic_id: str, partition: int) -> int | None:
        found = topics.get(topic)
        if found is None or (topic_id and found.topic_id and topic_id != found.topic_id):  # another topic of that name
            return None
        if topic not in logs:
            logs[topic] = {each.partition: each.stable for each in found.partitions}
        return logs[topic].get(partition)

    return EndOffsets(end_of, look.at_ms or 0)


def _list(site: Site, _: PageRequest) -> Mapping[str, Any]:
    found = _all(site)
    return {"known": found.known, "pipelines": found.pipelines, "looks": found.looks}


def _one(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    found = _all(site)
    pipeline = next((each for each in found.pipelines if each.query_id == asked.path["query"]), None)
    if pipeline is None:
        raise NoSuchThingError(f"No known checkpoint, table or topic of decisions has the query {asked.path['query']}.")
    events = [] if site.given.folder is None else noted(site.given.folder)
    return {
        "looks": found.looks,
        "pipeline": pipeline,
        "timeline": timeline_of(pipeline, [Event(each.at_ms, each.kind, each.text) for each in events]),
        "partitions": part(asked, pipeline.partitions, PARTITIONS),
    }


PIPELINES = Page("/pipelines", "Pipelines", "pipelines.html", _list, menu="Pipelines")
PIPELINE = Page("/pipelines/{query}", "Pipeline", "pipeline.html", _one)
