"""The source's own options: what is read, what is missing, what contradicts, and what only one kind of query takes."""

from __future__ import annotations

import pytest

from connectors.kafka_once.client import EARLIEST, LATEST
from connectors.kafka_once.options import OffsetRule, SourceOptions
from connectors.options import OptionError

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "b, a"}


def read(**options: str) -> SourceOptions:
    return SourceOptions.read({**BASE, **options})


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        SourceOptions.read(given)
    return str(caught.value)


def test_keys_come_in_any_case() -> None:
    found = read(STARTINGOFFSETS="Earliest", maxoffsetspertrigger="7", IncludeHeaders="TRUE")
    assert found.topics == ("a", "b")
    assert found.starting == OffsetRule(EARLIEST)
    assert (found.max_offsets_per_trigger, found.include_headers) == (7, True)


def test_assign_and_offsets_in_json() -> None:
    given = {**BASE, "assign": '{"t":[2,0,2]}', "startingOffsets": '{"t":{"0":-1,"2":5}}'}
    del given["subscribe"]
    found = SourceOptions.read(given)
    assert (found.topics, found.assigned) == (("t",), {"t": (0, 2)})
    assert found.starting == OffsetRule(None, {("t", 0): -1, ("t", 2): 5})


def test_an_unknown_option_gets_the_nearest_name() -> None:
    assert "did you mean 'startingOffsets'" in refusal({**BASE, "startingOffset": "earliest"})


def test_exactly_one_of_subscribe_and_assign() -> None:
    assert "only one of the options subscribe and assign" in refusal({**BASE, "assign": '{"t":[0]}'})
    assert "one of the options subscribe and assign" in refusal({"kafka.bootstrap.servers": "h:1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", "first"),
        ("startingOffsets", '{"t":{"0":-3}}'),
        ("startingOffsets", '{"t":{"0":1.5}}'),
        ("startingOffsets", '{"t":[0]}'),
        ("startingOffsets", "{}"),
        ("endingOffsets", "[1]"),
        ("subscribe", " , "),
        ("maxOffsetsPerTrigger", "0"),
        ("minPartitions", "-1"),
        ("failOnDataLoss", "yes"),
        ("fetchOffset.numRetries", "-1"),
    ],
)
def test_a_value_that_cannot_be_read_names_option_and_value(name: str, text: str) -> None:
    message = refusal({**BASE, name: text})
    assert f"{name}={text!r} cannot be read: expected" in message


@pytest.mark.parametrize("text", ["x", "[]", "{}", '{"t":["0"]}', '{"t":[-1]}', '{"t":0}'])
def test_an_assignment_that_cannot_be_read(text: str) -> None:
    assert 'expected JSON such as {"topicA":[0,1]' in refusal({"kafka.bootstrap.servers": "h:1", "assign": text})


def test_the_store_needs_an_application_and_a_known_kind() -> None:
    assert "offsetStore needs appId" in refusal({**BASE, "offsetStore": "delta:/t"})
    assert "delta:<path" in refusal({**BASE, "offsetStore": "redis:x", "appId": "a"})
    assert read(offsetStore="delta:/t", appId="a").offset_store == "delta:/t"


def test_keys_to_a_store_are_not_shown() -> None:
    found = read(**{"offsetStore": "delta:s3://b/t", "appId": "a", "storage.AWS_SECRET_ACCESS_KEY": "s3cret"})
    assert found.storage_options == {"AWS_SECRET_ACCESS_KEY": "s3cret"}
    assert "s3cret" not in repr(found)


def test_rules_of_streams() -> None:
    assert read().for_stream() == OffsetRule(LATEST)
    with pytest.raises(OptionError, match="endingOffsets is not valid in streaming"):
        read(endingOffsets="latest").for_stream()


def test_rules_of_batches() -> None:
    assert read().for_batch() == (OffsetRule(EARLIEST), OffsetRule(LATEST))
    for options, message in (
        ({"startingOffsets": "latest"}, "startingOffsets can't be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets can't be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets can't be earliest"),
        ({"offsetStore": "delta:/t", "appId": "a"}, "offsetStore is not valid in batch"),
    ):
        with pytest.raises(OptionError, match=message):
            read(**options).for_batch()
