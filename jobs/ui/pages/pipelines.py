"""The pages *Pipelines*: all queries; one with partitions, last hour, batches, and others with the same appId."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkonce.jobs.shared.events import noted
from sparkonce.jobs.ui.delta.pipelines import EndOffsets, Known, Pipeline, look, pipelines, timeline_of
from sparkonce.jobs.ui.delta.timeline import Event
from sparkonce.jobs.ui.kafka.loop import Result
from sparkonce.jobs.ui.kafka.state import ClusterState
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, part
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.clock import now_ms

PARTITIONS = 100
"""Partitions in one part of the table."""


def _all(site: Site) -> tuple[Known, list[Pipeline]]:
    watches, _ = site.watches()
    known = look(site.checkpoints(), watches, site.given.storage)
    return known, pipelines(known, _ends(site), now_ms())


def _ends(site: Site) -> EndOffsets:
    """Return the end offsets of partitions for read_committed readers."""
    look = Result(ClusterState()) if site.cluster is None else site.cluster.state()
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
    known, found = _all(site)
    return {"known": known, "pipelines": found}


def _one(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    known, found = _all(site)
    pipeline = next((each for each in found if each.query_id == asked.path["query"]), None)
    if pipeline is None:
        raise NoSuchThingError(f"No known checkpoint or table has the query {asked.path['query']}.")
    events = [] if site.given.folder is None else noted(site.given.folder)
    return {
        "known": known,
        "pipeline": pipeline,
        "timeline": timeline_of(pipeline, [Event(each.at_ms, each.kind, each.text) for each in events]),
        "partitions": part(asked, pipeline.partitions, PARTITIONS),
    }


PIPELINES = Page("/pipelines", "Pipelines", "pipelines.html", _list, menu="Pipelines")
PIPELINE = Page("/pipelines/{query}", "Pipeline", "pipeline.html", _one)
