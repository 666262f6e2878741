"""The source's own options: what is read, what is missing, what contradicts, and what only one kind of query takes."""

from __future__ import annotations

import pytest

from sparkonce.connectors.kafka_source.offset_rules import OffsetRule
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.source import KafkaOnceStreamReader
from sparkonce.kafka.client.client import EARLIEST, LATEST
from sparkonce.options import OptionError
from tests.cases import each_case

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
    assert (found.max_offsets_per_trigger, found.rows.columns[-1]) == (7, "headers")


def test_assign_and_offsets_in_json() -> None:
    given = {**BASE, "assign": '{"t":[2,0,2]}', "startingOffsets": '{"t":{"0":-1,"2":5}}'}
    del given["subscribe"]
    found = SourceOptions.read(given)
    assert (found.topics, found.assigned) == (("t",), {"t": (0, 2)})
    assert found.starting == OffsetRule(None, {("t", 0): -1, ("t", 2): 5})


def test_an_unknown_option_gets_the_nearest_name() -> None:
    assert "did you mean 'startingOffsets'" in refusal({**BASE, "startingOffset": "earliest"})


def test_exactly_one_of_the_three_says_what_is_read() -> None:
    assert "one of the following options must be specified: subscribe, subscribePattern, assign" in refusal(
        {"kafka.bootstrap.servers": "h:1"}
    )
    for other in ({"assign": '{"t":[0]}'}, {"subscribePattern": "t.*"}):
        message = refusal({**BASE, **other})
        assert "only one of the following options can be specified: subscribe, subscribePattern, assign" in message
        assert f"found subscribe and {next(iter(other))}" in message


@each_case(
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
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("endingTimestamp", "1.5"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        ("endingOffsetsByTimestamp", "17"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("maxRecordsPerPartition", "0"),
        ("minOffsetsPerTrigger", "0"),
        ("maxTriggerDelay", "15 minutes"),
        ("maxTriggerDelay", "-1s"),
    ],
)
def test_a_value_that_cannot_be_read_names_option_and_value(name: str, text: str) -> None:
    message = refusal({**BASE, name: text})
    assert f"{name}={text!r}: " in message


@each_case("text", ["x", "[]", "{}", '{"t":["0"]}', '{"t":[-1]}', '{"t":0}'])
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
    for name, text, what in (
        ("endingOffsets", "latest", "offset"),
        ("endingTimestamp", "5", "timestamp"),
        ("endingOffsetsByTimestamp", '{"a":{"0":5}}', "timestamp"),
    ):
        with pytest.raises(OptionError, match=f"{name}: ending {what} not valid in streaming queries"):
            read(**{name: text}).for_stream()


def test_rules_of_batches() -> None:
    assert read().for_batch() == (OffsetRule(EARLIEST), OffsetRule(LATEST))
    for options, message in (
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets for a-0 can't be latest for batch"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets for a-0 can't be earliest for batch"),
        ({"offsetStore": "delta:/t", "appId": "a"}, "offsetStore is not valid in batch"),
        (
            {"startingOffsets": '{"a":{"0":1}}', "endingOffsets": '{"a":{"1":1}}'},
            "should name the same topic-partitions.*start offset: a-0, topic-partitions for end offset: a-1",
        ),
        (
            {"startingOffsets": '{"a":{"0":2}}', "endingOffsets": '{"a":{"0":1}}'},
            "start offset 2 is greater than the end offset 1 for topic a partition 0",
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":2}}', "endingOffsetsByTimestamp": '{"a":{"0":1}}'},
            "start timestamp 2 is greater than the end timestamp 1 for topic a partition 0",
        ),
    ):
        with pytest.raises(OptionError, match=message):
            read(**options).for_batch()


def test_a_timestamp_for_all_wins_over_timestamps_for_each_and_these_over_offsets() -> None:
    each = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"a":{"0":7}}', "endingOffsets": "earliest"}
    by_each, by_all = read(**each).starting, read(**each, startingTimestamp=" 9 ").starting
    assert by_each == OffsetRule(each_timestamp_ms={("a", 0): 7})
    assert by_all == OffsetRule(timestamp_ms=9)
    starting, ending = read(**each, endingTimestamp="12").for_batch()
    assert (starting.option, ending) == ("startingOffsetsByTimestamp", OffsetRule(timestamp_ms=12))


def test_the_strategy_for_timestamps_without_a_match() -> None:
    assert not read().latest_if_no_match
    assert read(startingOffsetsByTimestampStrategy="LATEST").latest_if_no_match


@each_case(
    ("text", "expected_ms"),
    [
        ("15m", 900_000),
        ("15min", 900_000),
        ("2H", 7_200_000),
        ("1d", 86_400_000),
        ("1500us", 1),
        ("7", 7),
        ("9s", 9000),
    ],
)
def test_durations_as_spark_writes_them(text: str, expected_ms: int) -> None:
    assert read(maxTriggerDelay=text).max_trigger_delay_ms == expected_ms


def test_limits_that_contradict() -> None:
    assert read(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").min_offsets_per_trigger == 5
    message = refusal({**BASE, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"})
    assert "minOffsetsPerTrigger (6) is higher than the maxOffsetsPerTrigger (5)" in message


def test_what_has_no_effect_is_told(caplog: pytest.LogCaptureFixture) -> None:
    read(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="1", maxTriggerDelay="1s").for_batch()
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        assert f"option {name} ignored in batch queries" in caplog.text


def test_of_a_group_only_the_process_that_plans_says_that_it_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    """Spark makes a reader in two processes of the driver, and a check of `sparkonce ingest` reads the options too."""
    options = read(**{"KAFKA.GROUP.ID": "g", "groupIdPrefix": "p"})
    KafkaOnceStreamReader(options)
    options.for_stream()
    planning = KafkaOnceStreamReader(options)
    assert not caplog.messages
    planning._plan()
    planning._plan()
    planning.stop()
    (message,) = caplog.messages
    assert "kafka.group.id=g has no effect" in message


def test_columns_in_the_order_given() -> None:
    found = read(columns="Offset, value").rows
    assert (found.columns, found.decoded) == (("offset", "value"), ("offset", "value"))
    assert found.spark_schema().simpleString() == "struct<offset:bigint,value:binary>"
    assert read(columns="headers,key").rows.columns == ("headers", "key")
    assert read(columns="headers", includeHeaders="true").rows.columns == ("headers",)
    assert read().rows.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@each_case(
    ("given", "part"),
    [
        ({"columns": ""}, "expected names separated by commas"),
        ({"columns": "value,"}, "expected names separated by commas"),
        ({"columns": "value,vlaue"}, "found 'vlaue'"),
        ({"columns": "value,VALUE"}, "value is there twice"),
        ({"columns": "value", "includeHeaders": "true"}, "leaves headers out"),
        ({"columns": "headers,value", "includeHeaders": "false"}, "columns=headers,value names headers"),
        ({"columns": "Headers", "INCLUDEHEADERS": "False"}, "remove it from columns, or leave out includeHeaders"),
        ({"valueFormat": "xml"}, "expected one of binary, json, avro"),
        ({"valueFormat": "avro"}, "needs the option valueSchema (a schema, or"),
        ({"valueFormat": "avro", "valueSchema": '"int"', "columns": "key"}, "leaves value out"),
        ({"valueFormat": "avro", "valueSchema": '{"type": "enum"}'}, "has no name"),
        ({"valueFormat": "avro", "valueSchema": '"null"'}, "always null"),
        ({"valueFormat": "avro", "valueSchema": '"int"', "timeZone": "UTC"}, "no effect with valueFormat=avro"),
        ({"valueFormat": "avro", "valueSchema": '"int"', "columnNameOfCorruptRecord": "c"}, "must be records"),
        (
            {"valueFormat": "json", "valueSchema": "a INT", "schemaRegistry.url": "http://r"},
            '("valueFormat", "json-schema")',
        ),
        ({"schemaRegistry.url": "http://registry"}, 'is for decoded values: set option("valueFormat", "avro")'),
        ({"valueFormat": "avro", "valueSchema": "/lake/flights.avsc"}, "set valueSchema=file:PATH"),
        ({"valueFormat": "json-schema", "valueSchema": "id BIGINT"}, "set valueSchema=file:PATH"),
        ({"valueFormat": "avro", "schemaRegistry.url": "http://u:p@r"}, "basic.auth.user.info, which is never shown"),
        ({"keyFormat": "avro"}, "keyFormat=avro needs the option keySchema"),
        ({"keyFormat": "string", "columns": "value"}, "leaves key out"),
        ({"keyFormat": "string", "keySchema": "x"}, 'set option("keyFormat", "avro"'),
        ({"keySubject": "x"}, 'set option("keyFormat", "avro"'),
        ({"keyFormat": "avro", "keySchema": '"int"', "keySchemaId": "3"}, "needs schemaRegistry.url"),
        ({"valueFormat": "avro", "schemaRegistry.bearer.auth.token": "t"}, "needs schemaRegistry.url"),
        ({"valueFormat": "json"}, "needs the option valueSchema"),
        ({"valueSchema": "a INT"}, 'option("valueFormat", "json")'),
        ({"includeDeadLetters": "true"}, 'option("valueFormat", "json")'),
        ({"valueFormat": "json", "valueSchema": "a INT", "columns": "key"}, "leaves value out"),
        ({"valueFormat": "json", "valueSchema": "a INT, a INT"}, "two fields a"),
        ({"valueFormat": "json", "valueSchema": "a VARIANT"}, "VARIANT is not a type"),
        ({"valueFormat": "json", "valueSchema": "_corrupt_record INT"}, "must be STRING"),
        ({"valueFormat": "json", "valueSchema": "a INT", "mode": "LAX"}, "expected one of PERMISSIVE"),
        ({"valueFormat": "json", "valueSchema": "a INT", "timeZone": "Mars"}, "no time zone 'Mars'"),
        ({"valueFormat": "json", "valueSchema": "a INT", "dateFormat": "GG"}, "GG is not one of"),
        (
            {"valueFormat": "json", "valueSchema": "a INT", "mode": "FAILFAST", "includeDeadLetters": "true"},
            "needs mode PERMISSIVE",
        ),
    ],
)
def test_columns_and_values_that_contradict_each_other(given: dict[str, str], part: str) -> None:
    assert part in refusal({**BASE, **given})


def test_a_schema_for_values() -> None:
    rows = read(valueFormat="json", valueSchema="id BIGINT NOT NULL, s STRUCT<x: INT>", columns="value,offset").rows
    assert rows.spark_schema().simpleString() == "struct<value:struct<id:bigint,s:struct<x:int>>,offset:bigint>"
    again = read(valueFormat="json", valueSchema=rows.decoding.schema.json()).rows
    assert again.decoding.schema == rows.decoding.schema
    more = read(valueFormat="json", valueSchema="id BIGINT", columns="value", includeDeadLetters="true").rows
    assert (more.decoded, more.spark_schema().names) == (
        ("value", "key", "offset", "timestampMs"),
        ["value", "_dead_letter"],
    )
