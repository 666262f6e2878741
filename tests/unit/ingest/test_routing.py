"""Which queries an ingestion has: their topics, tables, names and options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sparkonce import IngestTable, OptionError
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.ingest import routing
from sparkonce.connectors.ingest.query import placed
from sparkonce.connectors.ingest.routing import Flow, flows, flows_of_new, routes
from sparkonce.connectors.ingest.settings import IngestSettings
from tests.cases import each_case

KAFKA = {"bootstrap.servers": "localhost:9092", "fetch.max.wait.ms": "100"}
JSON: dict[str, Any] = {"value_format": "json", "value_schema": "id BIGINT"}


def made(*tables: IngestTable, existing: tuple[str, ...] = (), **defaults: Any) -> list[Flow]:
    settings = IngestSettings.of(
        IngestTable(**defaults), tables, app_id="shop", checkpoint="/checkpoints/", kafka=KAFKA
    )
    return flows(routes(settings), existing)


def test_several_topics_into_one_table() -> None:
    (flow,) = made(topics=["b", "a"], path="/tables/orders/", partition_by="topic", merge_schema=True)
    assert (flow.name, flow.app_id, flow.checkpoint) == ("orders", "shop.orders", "/checkpoints/orders")
    assert flow.source["subscribe"] == "b,a"
    assert flow.source["startingOffsets"] == "earliest"
    assert (flow.sink["partitionBy"], flow.sink["mergeSchema"]) == ("topic", "true")
    assert not any(name.startswith("kafka.") for name in flow.sink)


def test_a_pattern_without_a_topic_in_the_path_is_the_sources() -> None:
    (flow,) = made(topic_pattern="^shop", path="/tables/all", existing=("shop-a", "shop-b"))
    assert flow.source["subscribePattern"] == "^shop"
    assert "subscribe" not in flow.source


def test_each_topic_has_its_table() -> None:
    found = made(topic_pattern=r"^shop\.(?<what>.+)$", path="/tables/{what}/{1}", existing=("x", "shop.b", "shop.a-1"))
    assert [(flow.source["subscribe"], flow.path, flow.name) for flow in found] == [
        ("shop.a-1", "/tables/a-1/a-1", "shop.a-1"),
        ("shop.b", "/tables/b/b", "shop.b"),
    ]
    assert not made(topic_pattern="^none$", path="/tables/{topic}", existing=("x",))


def test_names_in_a_catalog_have_no_dots_and_dashes_of_topics() -> None:
    (flow,) = made(topics="shop.a-1", table="lake.{topic}", name="raw-{topic}")
    assert (flow.table, flow.path, flow.name) == ("lake.shop_a_1", None, "raw-shop.a-1")


def test_an_app_id_stays_as_it_was_although_the_path_changes() -> None:
    pinned = IngestTable(topics="a,b", path="/new/{topic}", table_app_id="shop.old-{topic}")
    found = made(pinned, IngestTable(topics="c", path="/c"))
    assert [flow.app_id for flow in found] == ["shop.old-a", "shop.old-b", "shop.c"]
    assert found[0].source["appId"] == found[0].sink["appId"] == "shop.old-a"
    assert found[0].checkpoint == found[1].checkpoint == f"/checkpoints/{found[0].shared_by}"
    assert found[2].checkpoint == "/checkpoints/c"
    with pytest.raises(OptionError, match=r"have the appId 'shop\.c': set another table_app_id for one"):
        made(IngestTable(topics="a", path="/a", table_app_id="shop.c"), IngestTable(topics="c", path="/c"))


def test_schemas_that_are_named_after_topics_are_looked_up_when_there_are_some() -> None:
    settings = IngestSettings.of(
        IngestTable(
            topic_pattern="^shop",
            path="/tables/{topic}",
            value_format="avro",
            source={"keyFormat": "avro", "valueSubject": "one-for-all"},
        ),
        (),
        app_id="shop",
        checkpoint="/checkpoints/",
        kafka=KAFKA,
        schema_registry={"url": "http://localhost:1"},
    )
    (flow,) = flows(routes(settings), ["shop"])
    assert flow.source["valueSubject"] == "one-for-all"


def test_dead_letters_in_a_topic_are_sent_with_the_producers_settings() -> None:
    (flow,) = made(topics="a", path="/tables/{topic}", dead_letters="topic:{topic}-dead", **JSON)
    assert flow.source["includeDeadLetters"] == "true"
    assert flow.sink["deadLetters"] == "topic:a-dead"
    assert flow.sink["kafka.bootstrap.servers"] == "localhost:9092"
    assert "kafka.fetch.max.wait.ms" not in flow.sink


def test_records_are_handed_over_unless_something_forbids_it() -> None:
    (flow,) = made(topics="a", path="/a")
    assert (flow.direct, flow.why, flow.source["handOver"]) == (True, "nothing forbids it", "ranges")
    (flow,) = made(topics="a", path="/a", transform=lambda rows: rows)
    assert (flow.direct, flow.why) == (False, "transform needs the records in Spark's rows")
    assert "handOver" not in flow.source
    (flow,) = made(topics="a", path="/a", direct=False, sql="SELECT value FROM records")
    assert (flow.direct, flow.why, flow.sql) == (False, "direct is set to false", "SELECT value FROM records")
    assert "sql" not in flow.sink
    (flow,) = made(topics="a", path="/a", sql="SELECT value FROM records")
    assert (flow.direct, flow.sql, flow.sink["sql"]) == (True, None, "SELECT value FROM records")


def test_columns_that_are_added_need_no_further_entry() -> None:
    chosen = {"value_format": "avro", "schema_evolution": "add-columns", "path": "/{topic}"}
    (flow,) = made(topic_pattern="^a$", existing=("a",), **chosen, source={"schemaRegistry.url": "http://localhost:1"})
    assert (flow.source["schemaEvolution"], flow.source["handOver"]) == ("add-columns", "ranges")
    assert flow.sink["mergeSchema"] == "true"


@each_case(
    ("table", "message"),
    [
        ({"topics": "a", "table": "a b"}, "is not the name of a table"),
        ({"topics": "a", "table": "delta.`/a/b`"}, "is the path of a table, not a name"),
        ({"topic_pattern": "[", "path": "/a"}, "topic_pattern='[': the class that begins"),
        ({"topics": "a", "path": "/{tpoic}"}, "path='/{tpoic}' has {tpoic}; known: {topic}"),
        ({"topic_pattern": "^(.)", "path": "/{2}"}, "has {2}; known: {topic}, {1}"),
        ({"topics": "a", "path": "/{topic}", "name": "n"}, "name='n' would be the same for all topics: add {topic}"),
        ({"topics": "a", "path": "/{topic}", "table_app_id": "n"}, "table_app_id='n' would be the same for all topics"),
        ({"topics": "a", "path": "/a", "table_app_id": "{topic}"}, "have a topic only where table or path has"),
        ({"topics": "a", "path": "/a", "name": "{topic}"}, "have a topic only where table or path has"),
        ({"topics": "a", "path": "/"}, "name='' cannot be the name of a folder"),
        (
            {"topic_pattern": "a", "path": "/{topic}", "starting_offsets": "latest"},
            "starting_offsets cannot be combined with topic_pattern and a table for each topic",
        ),
        (
            {"topic_pattern": "a", "path": "/{topic}", "source": {"startingTimestamp": "1"}},
            "startingTimestamp cannot be combined with topic_pattern",
        ),
        ({"topics": "a", "path": "/a", "starting_offsets": "now"}, "startingOffsets"),
        ({"topics": "a", "path": "/a", "source": {"endingOffsets": "latest"}}, "not valid in streaming queries"),
        ({"topics": "a", "path": "/a", "value_format": "json"}, "valueFormat=json needs the option valueSchema"),
        ({"topics": "a", "path": "/a", "dead_letters": "/b"}, "option deadLetters='/b': expected topic:<name>"),
        ({"topics": "a", "path": "/a", "delivery_guarantee": "twice"}, "deliveryGuarantee"),
        ({"topics": "a", "path": "/a", "sink": {"targetFilBytes": "1"}}, "did you mean 'targetFileBytes'?"),
        ({"topics": "a", "path": "/a", "source": {"Subscribe": "b"}}, "subscribe does not belong into source: set top"),
        ({"topics": "a", "path": "/a", "sink": {"appId": "b"}}, "appId does not belong into sink: set app_id and name"),
        ({"topics": "a", "path": "/a", "source": {"kafka.x": "1"}}, "kafka.x does not belong into source: set it in k"),
        ({"topics": "a", "path": "/a", "direct": True, "transform": lambda rows: rows}, "direct=True and transform ex"),
        ({"topics": "a", "path": "/a", "sql": "SELECT 1", "transform": lambda rows: rows}, "sql and transform exclude"),
        ({"topics": "a", "path": "/a", "sql": "SELECT no FROM records"}, "set direct to false: Spark runs the SELECT"),
        ({"topics": " , ", "path": "/a"}, "topics is empty"),
        (
            {"topics": "a", "path": "/a", "schema_evolution": "add-columns", "direct": False},
            "for which the sink must read the records, but direct is set to false",
        ),
        ({"topics": "a", "path": "/a", "compact_every": -1}, "compact_every=-1: expected a number of batches"),
    ],
)
def test_what_cannot_work_is_refused_before_a_broker_is_asked(table: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        made(IngestTable(topics="fine", path="/fine"), IngestTable(**table))
    assert str(refusal.value).startswith("tables, number 2: ")
    assert message in str(refusal.value)


def test_two_queries_never_have_one_name_or_one_table() -> None:
    with pytest.raises(OptionError, match=r"raw \(a -> /lake/raw\) have the name 'raw'.*set another name for one"):
        made(IngestTable(topics="a", path="/lake/raw"), IngestTable(topics="b", path="/other/raw"))
    with pytest.raises(OptionError, match="write one table: name the topics in one entry"):
        made(IngestTable(topics="a", path="/lake/x"), IngestTable(topics="b", path="/lake/../lake/x/", name="y"))
    with pytest.raises(OptionError, match="write one table"):
        made(topic_pattern="^a", table="{topic}", existing=("a.b", "A-B", "a_b"))


def test_a_table_is_the_same_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(OptionError, match="write one table"):
        made(
            IngestTable(topics="a", path=f"{tmp_path}/lake/x"),
            IngestTable(topics="b", path=f"{tmp_path}/link/x", name="y"),
        )


def test_the_table_of_another_entry_takes_no_dead_letters() -> None:
    raw = IngestTable(topics="b", path="/lake/raw")
    with pytest.raises(OptionError, match=r"dead letters go to the table of raw \(b -> /lake/raw\)"):
        made(IngestTable(topics="a", path="/lake/x", dead_letters="table:file:///lake/raw/", **JSON), raw)
    with pytest.raises(OptionError, match=r"dead letters go to the table of raw \(b -> /lake/raw\)"):
        made(raw, IngestTable(topics="a", path="/lake/x", dead_letters="table:file:///lake/raw/", **JSON))
    made(IngestTable(topics="a", path="/lake/x", dead_letters="table:/lake/dead", **JSON), raw)


@pytest.mark.parametrize(
    "other",
    [
        IngestTable(topic_pattern=r"^b\.(.+)$", path="/lake/{1}"),
        IngestTable(topics="rows", path="/lake/x"),
        IngestTable(topic_pattern=r"^b\.(.+)$", path="/others/{1}", name="a.{1}"),
        IngestTable(topics="rows", path="/rows", dead_letters="table:/lake/x", **JSON),
    ],
)
def test_a_new_topic_that_has_the_table_of_another_entry_is_left_out(
    other: IngestTable, caplog: pytest.LogCaptureFixture
) -> None:
    both = IngestTable(topic_pattern=r"^a\.(.+)$", path="/lake/{1}"), other
    settings = IngestSettings.of(IngestTable(), both, app_id="shop", checkpoint="/checkpoints/", kafka=KAFKA)
    existing = ["a.y", "b.x", "a.x"]
    routing._warn_once.cache_clear()
    _, kept = flows_of_new(routes(settings), existing, {"a.y"})
    assert len(kept) == 2
    assert " is left out: " in caplog.text
    with pytest.raises(OptionError):
        flows(routes(settings), existing)


def test_a_new_topic_with_the_table_and_the_app_id_of_another_entrys_ends_the_ingestion() -> None:
    paths = {"a": "/lake/{1}", "b": "/lake/./{1}"}
    both = (IngestTable(topic_pattern=rf"^{each}\.(.+)$", path=path, name="{1}") for each, path in paths.items())
    settings = IngestSettings.of(IngestTable(), (*both,), app_id="shop", checkpoint="/checkpoints/", kafka=KAFKA)
    with pytest.raises(OptionError, match="have the name 'x'"):
        flows_of_new(routes(settings), ["a.x", "b.x"], {"a.x"})


def test_the_sink_of_many_tables_is_told_whose_tables_are_no_others() -> None:
    both = (
        IngestTable(topic_pattern="^a", path="/lake/{topic}"),
        IngestTable(topics="c", path="/c", table_app_id="c+"),
        IngestTable(topics="d", path="/d/{topic}", table_app_id="{topic}"),
    )
    settings = IngestSettings.of(IngestTable(), both, app_id="shop", checkpoint="/checkpoints/", kafka=KAFKA)
    many, one, _ = (route.flows(["a"])[0] for route in routes(settings))
    told = re.compile(many.sink["notBeside"])
    found = [each for each in ("shop.x.y", "c+", "shop", "shops.x", "cc") if told.fullmatch(each)]
    assert found == ["shop.x.y", "c+"]
    assert one.sink["notBeside"] == many.sink["notBeside"]
    assert SinkOptions.read({**many.sink, "path": "/lake/a"}).not_beside == told


def test_of_a_new_topic_all_tables_are_made_or_none(caplog: pytest.LogCaptureFixture) -> None:
    """The second entry would give ``ab`` the name that the first has given it; ``ac`` is looked at after it."""
    both = (
        IngestTable(topic_pattern="^a", path="/lake/{topic}", direct=False),
        IngestTable(topic_pattern="^.b", path="/copies/{topic}", direct=False),
    )
    settings = IngestSettings.of(IngestTable(), both, app_id="shop", checkpoint="/checkpoints/", kafka=KAFKA)
    found, kept = flows_of_new(routes(settings), ["ab", "ac", "a"], {"a"})
    assert ([flow.path for flow in found], kept) == (["/lake/a", "/lake/ac"], ["a", "ac"])
    assert "topic ab is left out" in caplog.text
    with pytest.raises(OptionError, match="have the name 'ab'"):
        flows(routes(settings), ["ab", "ac", "a"])


@pytest.mark.parametrize("path", ["/checkpoints/{topic}", "/checkpoints", "file:/checkpoints/{topic}/"])
def test_a_checkpoint_is_not_among_the_files_of_its_table(path: str) -> None:
    with pytest.raises(OptionError, match="VACUUM would delete it"):
        made(topic_pattern="^a", path=path, name="{topic}" if "{" in path else "x", direct=False, existing=("a",))
    made(topic_pattern="^a", path="/checkpoints/a", name="_checkpoint")
    made(topic_pattern="^a", path="/check", existing=("a",))


def test_dead_letters_are_not_read_as_topics_again() -> None:
    with pytest.raises(
        OptionError, match=r"dead letters go to the topic shop-dead, which is read itself: topics with \^shop"
    ):
        made(
            topic_pattern="^shop", path="/tables/{topic}", dead_letters="topic:{topic}-dead", existing=("shop",), **JSON
        )
    with pytest.raises(OptionError, match="which is read itself: topics with shop"):
        made(topic_pattern="shop", path="/a", dead_letters="topic:dead-shop", **JSON)
    with pytest.raises(OptionError, match="which is read itself: b"):
        made(IngestTable(topics="a", path="/a", dead_letters="topic:b", **JSON), IngestTable(topics="b", path="/b"))


@pytest.mark.parametrize("topic", ["shop...", "shop.", "shop.."])
def test_no_topic_leads_out_of_the_folder_of_tables(topic: str) -> None:
    with pytest.raises(OptionError, match="which is no name of a table"):
        made(topic_pattern=r"^shop\.(.*)$", path="/tables/{1}", existing=(topic,))


def test_options_are_not_shown() -> None:
    assert "localhost" not in repr(made(topics="a", path="/a"))


@each_case(
    "select, letters, given",
    [
        (None, None, {"topic", "offset"}),
        ("SELECT value.id, topic FROM records", None, {"id", "topic"}),
        ("SELECT value.id AS day, offset AS id FROM records", "table:/letters", {"id", "day", "DAY"}),
        ("SELECT value.*, offset FROM records WHERE value.id > 1", None, {"id", "day", "DAY", "offset"}),
    ],
)
def test_a_table_is_partitioned_by_columns_that_its_rows_have(
    select: str | None, letters: str | None, given: set[str]
) -> None:
    """The first batch would be refused, after Spark has started."""
    more: dict[str, Any] = {**JSON, "value_schema": "id BIGINT, day STRING", "columns": "value,topic,offset"}
    accepted, refused = set(), []
    for name in ("id", "day", "DAY", "topic", "offset", "value", "nowhere", "_dead_letter"):
        try:
            made(topics="t", path="/t", sql=select, partition_by=name, dead_letters=letters, **more)
            accepted.add(name)
        except OptionError as error:
            refused.append(str(error))
    assert accepted == given
    assert all(re.match(r"partition_by names|partitionBy: column value is struct", text) for text in refused), refused


def test_the_columns_of_a_select_that_spark_runs_are_not_known_before() -> None:
    (flow,) = made(topics="t", path="/t", sql="SELECT a FROM records", direct=False, partition_by="a", **JSON)
    assert flow.sink["partitionBy"] == "a"


def queries_of(*tables: IngestTable, existing: Iterable[str] = (), **entries: Any) -> list[Flow]:
    settings = IngestSettings.of(IngestTable(**entries), tables, app_id="shop", checkpoint="/checkpoints/", kafka=KAFKA)
    return [flow for route in routes(settings) for flow in route.queries(existing)]


def test_one_query_writes_the_tables_of_an_entry() -> None:
    (query,) = queries_of(
        topic_pattern="^shop[.](.*)$", path="/tables/{1}", name="raw-{1}", dead_letters="table:/dead/{1}", **JSON
    )
    assert (query.path, query.app_id, query.is_shared) == ("/tables/{1}", "shop.raw-{1}", True)
    assert query.source["subscribePattern"] == "^shop[.](.*)$"
    assert query.source["isolateTables"] == "true"
    assert (query.sink["appId"], query.source["appId"]) == ("shop.raw-{1}",) * 2
    assert query.sink["deadLetters"] == "table:/dead/{1}"
    assert query.checkpoint == query.sink["checkpointLocation"] == f"/checkpoints/{query.name}"
    assert query.query_name == f"shop.{query.name}"
    (odd,) = queries_of(topics="a", path="/tables/{topic}", name="of x/{topic}")
    (flow,) = made(topics="a", path="/tables/{topic}", name="of x/{topic}")
    assert (odd.app_id, flow.app_id) == ("shop.of_x_{topic}", "shop.of_x_a")
    (typed,) = queries_of(topic_pattern=".", path="/tables/{topic}", value_format="avro")
    assert (typed.is_shared, typed.source["valueFormat"]) == (True, "avro")
    (named,) = queries_of(topics="a,b", path="/tables/{topic}")
    assert (named.app_id, named.source["subscribe"]) == ("shop", "a,b")
    (fewer,) = queries_of(topics="a", path="/tables/{topic}")
    assert fewer.checkpoint != named.checkpoint, "Spark would miss topic b in it"


@pytest.mark.parametrize(
    "entries",
    [
        {"path": "/tables/{topic}", "direct": False},
        {"table": "lake.{topic}", "value_format": "avro"},
    ],
    ids=["through Spark", "named, with schemas of topics"],
)
def test_other_tables_have_a_query_each(entries: dict[str, Any]) -> None:
    found = queries_of(topic_pattern=".", existing=("a", "b"), **entries)
    assert [(flow.name, flow.query, flow.is_shared) for flow in found] == [("a", "a", False), ("b", "b", False)]


def test_tables_with_at_most_once_have_queries_of_their_own() -> None:
    """Left out of a shared batch, such a table would never get it: its offsets come first."""
    for guarantee, shared in (("at-most-once", False), ("at-least-once", True), (None, True)):
        table = IngestTable(topics="a,b", path="/t/{topic}", delivery_guarantee=guarantee)
        (route,) = routes(IngestSettings.of(table, (), app_id="shop", checkpoint="/c", kafka=KAFKA))
        assert (len(route.queries([])) == 1) is shared


def test_each_query_has_the_start_of_its_topic() -> None:
    start = '{"a": {"0": 1}, "b": {"0": 2}}'
    found = made(IngestTable(topics="a,b", path="/t/{topic}", direct=False, starting_offsets=start))
    assert [flow.source["startingOffsets"] for flow in found] == ['{"a": {"0": 1}}', '{"b": {"0": 2}}']


def test_tables_with_names_share_a_query_that_knows_them() -> None:
    settings = IngestSettings.of(
        IngestTable(topic_pattern="^shop[.]", table="lake.{topic}"), (), app_id="shop", checkpoint="/c", kafka=KAFKA
    )
    (route,) = routes(settings)
    assert route.queries([]) == []
    (query,) = route.queries(["shop.a", "shop.b", "other"])
    assert query.tables == {"shop.a": "lake.shop_a", "shop.b": "lake.shop_b"}
    assert query.is_shared
    assert {flow.shared_by for flow in route.flows(["shop.a"])} == {query.name}
    found = placed(query, {"shop.a": "/lake/a"})
    assert (found.path, found.table, found.source["subscribe"]) == ('{"shop.a": "/lake/a"}', None, "shop.a")
    assert "subscribePattern" not in found.source
