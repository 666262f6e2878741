"""What the pages show of queries into topics: where they write, by which guarantee, and how far they are."""

from __future__ import annotations

from contextlib import closing

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink.decisions import DEFAULT_TOPIC
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.ui.delta.pipelines import WEAKER, EndOffsets, Known, pipelines
from sparkonce.jobs.ui.kafka.groups import GroupsLook
from sparkonce.jobs.ui.kafka.past import EndOffsetHistory
from sparkonce.jobs.ui.kafka.topic_queries import topic_queries
from sparkonce.jobs.ui.kafka.transactions import TransactionsLook
from sparkonce.jobs.ui.page import PageRequest, part
from sparkonce.jobs.ui.rendering import render
from sparkonce.jobs.ui.site import Given, Site
from tests.unit.kafka_sink.conftest import Applications
from tests.unit.kafka_sink.pipeline import INPUT, INPUT_PARTITIONS, settings_of


def test_queries_into_topics_have_a_target_and_a_guarantee(
    new_application: Applications, shared_broker: EmbeddedBroker
) -> None:
    applications = {}
    for guarantee in Guarantee:
        made = new_application(guarantee=guarantee, options={"decision_topic": DEFAULT_TOPIC})
        applications[guarantee] = made
        for number, query in enumerate([f"before-{made.name}", f"query-{made.name}"]):
            driver = made.start(query)
            made.run(driver, made.batch(driver, number, 5 * number, 5 * number + 5))
    settings = settings_of(shared_broker)
    with (
        closing(TransactionsLook(settings)) as transactions,
        closing(GroupsLook(settings, {}, EndOffsetHistory())) as groups,
        closing(Site(Given())) as site,
    ):
        known = Known((), (), {}, (), topic_queries(transactions(), groups().values()))
        found = {each.query_id: each for each in pipelines(known, EndOffsets(lambda *_: 12), now_ms=1)}
        every = part(PageRequest(), [*found.values()], 100)
        shown = {"site": site, "asked": PageRequest(), "known": known, "part": every, "looks": ()}
        html = render("pipelines.html", {**shown, "needs": [], "counts": {}, "left_out": "", "max_others": 50}).whole
    for guarantee, made in applications.items():
        pipeline = found[f"query-{made.name}"]
        is_exact = guarantee is Guarantee.EXACTLY_ONCE
        assert pipeline.guarantee == (guarantee.value if is_exact else WEAKER)
        assert (pipeline.name, pipeline.committed, pipeline.lag) == (made.name, 1, 2 * INPUT_PARTITIONS)
        assert [(each.topic, each.stored, each.last_records) for each in pipeline.partitions] == [(INPUT, 10, 5)] * 2
        (sink,) = pipeline.topic_sinks
        assert sink.topics == ((made.topic,) if is_exact else ())
        assert (f'topic <a href="/topics/{made.topic}">{made.topic}</a>' in html) == is_exact
    (other,) = found[f"query-{applications[Guarantee.EXACTLY_ONCE].name}"].others
    assert "query before-" in other.what
    assert "none of the known" not in html
