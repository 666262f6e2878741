"""Which direct queries are mirrors, and which would read what they write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.bench.load import create_topic
from sparkonce import EmbeddedBroker
from sparkonce.connectors.direct.source import DirectSource
from sparkonce.connectors.kafka_sink.options import KafkaSinkOptions
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.mirror.choice import check_no_loop, is_mirror
from sparkonce.options import OptionError
from tests.cases import each_case

SINK = {"appId": "a", "checkpointLocation": "/c"}


def sink(servers: str = "h:1", **options: str) -> KafkaSinkOptions:
    return KafkaSinkOptions.read({"kafka.bootstrap.servers": servers, **SINK, **options})


def source(servers: str = "h:1", **options: str) -> DirectSource:
    chosen = {} if {"subscribePattern", "assign"} & options.keys() else {"subscribe": "orders"}
    given = {"kafka.bootstrap.servers": servers, "handOver": "ranges", **chosen, **options}
    return DirectSource(SourceOptions.read(given), HandOver.of(given))


def test_a_direct_query_without_options_about_rows_is_a_mirror() -> None:
    assert is_mirror(sink(), source())
    assert is_mirror(sink(mirror="true", keepPartitions="false"), source(maxOffsetsPerTrigger="5"))
    assert not is_mirror(sink(mirror="false"), source())
    assert not is_mirror(sink(), None)


@each_case(
    ("of_sink", "of_source", "reason"),
    [
        ({}, {"columns": "key,value"}, "the source has the option columns"),
        ({}, {"includeHeaders": "true"}, "the source has the option includeHeaders"),
        ({}, {"valueFormat": "json", "valueSchema": "a INT"}, "the source has the option valueFormat"),
        ({"sql": "SELECT value FROM records"}, {}, "the option sql makes other rows"),
        (
            {"keyFormat": "protobuf", "schemaRegistry.url": "http://r:1"},
            {},
            "keyFormat=protobuf writes keys with a schema: leave it out",
        ),
        ({"includeHeaders": "false"}, {}, "includeHeaders=false leaves headers out"),
        ({"deadLetters": "topic:dead"}, {}, "deadLetters needs rows"),
    ],
)
def test_options_about_rows_rule_a_mirror_out(of_sink: dict[str, str], of_source: dict[str, str], reason: str) -> None:
    assert not is_mirror(sink(**of_sink), source(**of_source))
    with pytest.raises(OptionError, match=f"mirror=true copies whole records as they are, but {reason}"):
        is_mirror(sink(**of_sink, mirror="true"), source(**of_source))
    with pytest.raises(OptionError, match=f"keepPartitions is for a mirror, which this query is not: {reason}"):
        is_mirror(sink(**of_sink, keepPartitions="true"), source(**of_source))


def test_a_mirror_needs_ranges() -> None:
    with pytest.raises(OptionError, match="set handOver=ranges on the source"):
        is_mirror(sink(mirror="true"), None)


@each_case(
    ("of_sink", "of_source", "what"),
    [
        ({}, {}, "records go to the topic that they come from \\(orders\\)"),
        ({}, {"assign": '{"orders":[0]}'}, "records go to the topic that they come from \\(orders\\)"),
        ({}, {"subscribePattern": "ord.*"}, "records go to the topic that they come from"),
        ({"topic": "orders"}, {}, "the query writes to orders, which its source reads"),
        ({"topic": "orders-copy"}, {"subscribePattern": "ord.*"}, "the query writes to orders-copy"),
        ({"topic": "copy"}, {"subscribePattern": ".*s"}, "the query writes to sparkonce-decisions"),
        ({"topic": "copy", "deadLetters": "topic:orders"}, {}, "the query writes to orders, which"),
    ],
)
def test_a_query_that_reads_what_it_writes_is_refused(
    of_sink: dict[str, str], of_source: dict[str, str], what: str
) -> None:
    with pytest.raises(OptionError, match=what):
        check_no_loop(sink(**of_sink), source(**of_source))


def test_other_topics_need_no_comparison() -> None:
    check_no_loop(sink(sql="SELECT value, 'copy' AS topic FROM records"), source())
    check_no_loop(sink(topic="copy"), source())
    check_no_loop(sink(topic="copy", deliveryGuarantee="at-least-once"), source(subscribePattern=".*s"))


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[str, str]]:
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        for each in (first, second):
            create_topic(each.bootstrap_servers, "orders", 1)
        yield first.bootstrap_servers, second.bootstrap_servers


@pytest.mark.parametrize("chosen", [{}, {"subscribePattern": "ord.*"}])
def test_topics_of_the_same_name_on_two_clusters_are_told_apart(
    brokers: tuple[str, str], chosen: dict[str, str]
) -> None:
    first, second = brokers
    check_no_loop(sink(second), source(first, **chosen))
    alias = f"{first},{second}"  # another address of the same cluster
    with pytest.raises(OptionError, match="orders"):
        check_no_loop(sink(alias), source(first, **chosen))
