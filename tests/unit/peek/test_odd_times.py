"""Topics with records of any time are shown, by the command and on the page: a time that has no year as its number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.jobs.cli.main import main
from sparkonce.jobs.cli.peek.decoding import Decoder
from sparkonce.jobs.cli.peek.reading import TopicReader, Wanted
from sparkonce.jobs.ui.kafka.messages import Messages, Search
from sparkonce.jobs.ui.pages.messages import _row
from sparkonce.kafka.protocol.records import Record
from tests.record_times import ANY_TIME, TIMES_MS, send

SHOWN = {
    -1: None,
    -2: "1969-12-31T23:59:59.998Z",
    0: "1970-01-01T00:00:00.000Z",
    1: "1970-01-01T00:00:00.001Z",
    1_700_000_000_000: "2023-11-14T22:13:20.000Z",
}
"""The others are of years that ISO 8601 does not write with four digits."""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker() as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        admin.create_topics([NewTopic("times", 2, 1, config=ANY_TIME)])["times"].result(30)
        for time in TIMES_MS:
            send(made.bootstrap_servers, "times", [Record(b"k", b"v%d" % time, time)])
        yield made.bootstrap_servers


def expected(time: int) -> str | None:
    return SHOWN.get(time, f"{time} ms")


def test_peek_shows_them_all(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("json", "table", "pretty"):
        assert main(["peek", "times", "-n", "all", "--bootstrap-servers", broker, "-o", form]) == 0
        out = capsys.readouterr().out
        for time in TIMES_MS:
            assert f"v{time}" in out
            assert expected(time) is None or str(expected(time)) in out
        if form == "json":
            documents = [json.loads(line) for line in out.splitlines()]
            assert {each["value"]: each["timestamp"] for each in documents} == {f"v{t}": expected(t) for t in TIMES_MS}


def test_the_page_shows_them_all_in_order_of_time(broker: str) -> None:
    with closing(TopicReader({"kafka.bootstrap.servers": broker}, "times")) as reader:
        messages = Messages(reader, Decoder(None))
        bounds = messages.bounds(Wanted())
        for screen in (messages.forward(bounds, 50, Search()), messages.backward(bounds, 50, Search())):
            rows = [_row(each) for each in screen.records]
            assert [each.offset for each in rows] == list(range(len(TIMES_MS)))
            times = [expected(time) or "no timestamp" for time in TIMES_MS]
            assert [each.at for each in rows] == [each.replace("T", " ").removesuffix("Z") for each in times]
        (found,) = messages.forward(bounds, 50, Search(text=f"v{TIMES_MS[-1]}")).records
        assert found.record.timestamp_ms == TIMES_MS[-1]
