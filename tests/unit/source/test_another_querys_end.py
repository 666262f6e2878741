"""Queries that end where another one stands (``untilOffsets``), as those of tables that catch up."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.ranges import RecreatedTopicError
from tests.parity.support import Cluster
from tests.unit.source.test_topics_in_motion import AT_ONCE, EARLIEST, LENIENT, positions


@pytest.fixture(scope="module", params=["rows", "ranges"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with EmbeddedBroker() as running:
        yield Cluster(running.bootstrap_servers, request.param)


def test_where_another_query_stands_is_no_end_in_a_topic_made_anew(cluster: Cluster) -> None:
    name = cluster.create()
    cluster.send(name, [1, 2, 3])
    for given in (EARLIEST, LENIENT):
        with cluster.stream(subscribe=name, **EARLIEST) as other:
            assert other.process_all() == [1, 2, 3]
            until = {"untilOffsets": other.offset_log[-1], "assign": json.dumps({name: [0]})}
        cluster.send(name, [4])
        with cluster.stream(**until, **given, **AT_ONCE) as stream:
            assert stream.available_now() == [[1, 2, 3]]
        cluster.recreate(name)
        cluster.send(name, [1, 2, 3])
        with cluster.stream(**until, **given, **AT_ONCE) as stream, pytest.raises(RecreatedTopicError):
            stream.available_now()


def test_a_table_that_is_behind_lacks_what_has_expired(cluster: Cluster) -> None:
    """If that is allowed, it has passed these records, also if nothing else is left to read."""
    name = cluster.create()
    cluster.send(name, [1, 2, 3])
    with cluster.stream(subscribe=name, **EARLIEST) as other:
        assert other.process_all() == [1, 2, 3]
        until = {"untilOffsets": other.offset_log[-1], "assign": json.dumps({name: [0]})}
    never = {"startingTimestamp": str(2**50), "startingOffsetsByTimestampStrategy": "latest"}
    with cluster.stream(**until, **never, **AT_ONCE) as stream:
        assert stream.available_now() == [[1, 2, 3]], "from where the other query began, whatever it began with"
    with cluster.stream(subscribe=name, startingOffsets=json.dumps({name: {0: 2}})) as late:
        assert late.process_all() == [3]
        for given, read in ((EARLIEST, [1, 2, 3]), (never, [3])):
            own = {"untilOffsets": late.offset_log[-1], "assign": until["assign"], **given, **AT_ONCE}
            with cluster.stream(**own) as stream:
                assert stream.available_now() == [read], "all of the log, if that is to be read"
    until |= {**EARLIEST, **AT_ONCE}
    for gone, left in ((1, [2, 3]), (3, [])):
        cluster.forget_records(name, {0: gone})
        lost = rf"no records of {name}-0, which are to be read from offset 0 on, but its log begins at {gone} now"
        with cluster.stream(**until) as stream, pytest.raises(DataLossError, match=lost):
            stream.available_now()
        with cluster.stream(**until, failOnDataLoss="false") as stream:
            assert stream.available_now() == [left]
            assert positions(stream) == positions(other)
