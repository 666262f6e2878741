"""Which version of a subject a batch is read as, where a query follows the registry; and what its tasks check."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from sparkonce import EmbeddedRegistry, OptionError
from sparkonce.connectors.direct.source import DirectSource, find_source
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.schema_registry.client import Registry, RegistryError, shared_registry
from sparkonce.connectors.schema_registry.settings import RegistrySettings
from sparkonce.connectors.schema_registry.wire import frame
from sparkonce.connectors.values import registered_values
from sparkonce.connectors.values.avro.schema import inlined
from sparkonce.connectors.values.evolution import NewerThanBegunError, SchemaChangedError, UnknownWriterError
from sparkonce.connectors.values.following import ReadAs, fingerprint, rules_of, split_rules, version_of_batch
from sparkonce.connectors.values.options import SchemaOptions, arrow_schema
from sparkonce.connectors.values.registered import resolved
from sparkonce.connectors.values.registered_values import RegisteredValues
from sparkonce.connectors.values.rows import MalformedValueError, RowMaker
from sparkonce.connectors.values.rules import Rules, with_unknown
from tests.cases import each_case

FIELDS = [{"name": "a", "type": "int"}, *({"name": name, "type": "string", "default": "?"} for name in "bcd")]
DOWN = ("http://127.0.0.1:1",)


def text(topic: str, count: int) -> str:
    return json.dumps({"type": "record", "name": f"R_{topic.replace('-', '_')}", "fields": FIELDS[:count]})


def noted_of(schema: str) -> str:
    """Return the fingerprint that commits note of a schema of Avro."""
    return fingerprint(inlined(schema, []))


Register = Callable[[str, int], int]


@pytest.fixture
def register(client: SchemaRegistryClient) -> Register:
    """Register the version of a subject that has so many fields; return its id."""
    return lambda topic, count: client.register_schema(f"{topic}-value", Schema(text(topic, count)))


def options(registry: EmbeddedRegistry, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": topic,
        "valueFormat": "avro",
        "schemaRegistry.url": registry.url,
        "schemaRegistry.max.retries": "0",
        "schemaEvolution": "add-columns",
        "handOver": "ranges",
        **more,
    }


def hand_over(registry: EmbeddedRegistry, topic: str, **more: str) -> HandOver:
    """Return what a query that is started now passes to its sink."""
    whole = resolved(OPTIONS, options(registry, topic, **more))
    SourceOptions.read(whole)
    return HandOver.of(whole)


def source(made: HandOver, read_as: ReadAs | None = None, **sink: str) -> DirectSource:
    found = find_source("delta_once", made.schema(), sink, read_as)
    assert found is not None
    return found


def followed(made: DirectSource) -> SchemaOptions:
    assert made.followed is not None
    return made.followed


def decode(made: DirectSource, *values: bytes) -> list[Any]:
    column, problems = RegisteredValues(followed(made)).decode(pa.array(values, pa.binary()))
    assert problems == {}
    found: list[Any] = column.to_pylist()
    return found


def out_of_reach(decoding: SchemaOptions) -> SchemaOptions:
    return replace(decoding, registry=RegistrySettings(DOWN, retries=0))


@given(st.integers(1), st.none() | st.tuples(st.text(), st.integers(1)))
def test_rules_say_what_a_batch_was_read_as(number: int, version_of: tuple[str, int] | None) -> None:
    decoding = SchemaOptions(StructType(), "", reader_id=number, version_of=version_of)
    noted = fingerprint("")
    expected = ReadAs(number, None, None, noted)
    if version_of is not None:
        expected = ReadAs(number, version_of[1], version_of[0], noted)
    assert split_rules(rules_of("0123", decoding)) == ("0123", expected)
    assert rules_of("0123", None) == "0123"


NAMES = st.frozensets(st.from_regex(r"[vk][0-9a-f-]{1,36}", fullmatch=True), max_size=3)


@given(st.integers(1), st.none() | st.tuples(st.text(), st.integers(1)), NAMES, NAMES)
def test_rules_note_what_the_registry_lacked(
    number: int, version_of: tuple[str, int] | None, some: frozenset[str], more: frozenset[str]
) -> None:
    rules = rules_of("0123", SchemaOptions(StructType(), "", reader_id=number, version_of=version_of))
    noted = with_unknown(with_unknown(rules, some), more)
    assert noted is not None
    assert Rules.parse(noted) == Rules("0123", Rules.parse(rules).read_as, some | more)
    assert split_rules(noted) == split_rules(rules)
    assert (noted == rules) is (not some | more)


@each_case("rules", ["", "0123", "0123@", "0123@x", "0123@1~", "0123@1~x", "0123@1@2", "0123@1@x@s", "0123@²"])
def test_rules_that_say_nothing(rules: str) -> None:
    assert split_rules(rules)[1] is None


def test_each_batch_is_read_as_the_latest_version(registry: EmbeddedRegistry, register: Register) -> None:
    first = register("latest", 1)
    made = hand_over(registry, "latest")
    pinned = source(made)
    assert version_of_batch(followed(pinned), None) == ReadAs(first, 1, "latest-value")
    second = register("latest", 2)
    read_as = version_of_batch(followed(pinned), None)
    assert read_as == ReadAs(second, 2, "latest-value")
    newer = source(made, read_as)
    assert newer.schema["value"].dataType.names == ["a", "b"]  # type: ignore[attr-defined]
    noted = noted_of(text("latest", 2))
    assert newer.rules == f"{pinned.rules.partition('@')[0]}@{second}~{noted}@2@latest-value"
    assert decode(newer, frame(first) + b"\2", frame(second) + b"\2\2x") == [{"a": 1, "b": "?"}, {"a": 1, "b": "x"}]


def test_versions_never_go_back(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = register("back", 1), register("back", 2)
    pinned = source(hand_over(registry, "back"))
    committed = f"0123@{second}@2@back-value"
    client.delete_version("back-value", 2)
    assert version_of_batch(followed(pinned), committed) == ReadAs(second, 2, "back-value")
    assert "was deleted: values are read as it" in caplog.text
    assert version_of_batch(followed(pinned), None) == ReadAs(first, 1, "back-value")
    for other in (f"0123@{second}@2@other-value", f"0123@{second}", "0123"):
        assert version_of_batch(followed(pinned), other) == ReadAs(first, 1, "back-value")
    for gone in (f"0123@{first}@2@back-value", f"0123@{second}@3@back-value"):
        with pytest.raises(RegistryError, match="no longer has, and version 1"):
            version_of_batch(followed(pinned), gone)
    client.delete_version("back-value", 2, permanent=True)
    with pytest.raises(RegistryError, match="last written with version 2"):
        version_of_batch(followed(pinned), committed)


def test_a_registry_that_was_set_up_anew_is_not_taken_for_the_one_before(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, register: Register
) -> None:
    """Its ids and versions stand for other schemas: what is noted of a table or of a batch says which they were."""
    ids = [register("anew", count) for count in (1, 2)]
    pinned = source(hand_over(registry, "anew"))
    for number, version in ((ids[1] + 1, 2), (ids[1], 1), (ids[1] + 1, 1)):
        committed = f"{pinned.rules.partition('@')[0]}@{number}@{version}@anew-value"
        if number != ids[1]:
            with pytest.raises(
                RegistryError, match=rf"version {version} \(id {number}\) .* no longer has, and version 2"
            ):
                version_of_batch(followed(pinned), committed)
        with pytest.raises(RegistryError):
            pinned.with_rules(committed)
    third = register("anew", 3)
    for version in (1, 2):
        client.delete_version("anew-value", version)
        client.delete_version("anew-value", version, permanent=True)
        committed = f"0123@{ids[version - 1]}@{version}@anew-value"
        assert version_of_batch(followed(pinned), committed) == ReadAs(third, 3, "anew-value"), "there is a newer one"


def test_the_same_id_and_version_of_another_registry_stand_for_another_schema(
    registry: EmbeddedRegistry, register: Register
) -> None:
    number = register("same", 2)
    pinned = source(hand_over(registry, "same"))
    digest = pinned.rules.partition("@")[0]
    before = f"{digest}@{number}~{noted_of(text('same', 1))}@1@same-value"
    with pytest.raises(RegistryError, match=r"no longer has, and version 1 .*, and stands for another schema"):
        version_of_batch(followed(pinned), before)
    with pytest.raises(RegistryError, match="set up anew"):
        pinned.with_rules(before)
    register("same", 3)
    with pytest.raises(RegistryError, match="no longer has"):
        version_of_batch(followed(pinned), before)
    blanks = json.dumps(json.loads(text("same", 2)), indent=4)
    assert version_of_batch(followed(pinned), f"{digest}@{number}~{noted_of(blanks)}@1@same-value").version == 2
    assert pinned.with_rules(f"{digest}@{number}@1@same-value"), "what older code has noted counts"


def test_while_the_registry_is_down_the_version_of_the_last_commit_stays(
    registry: EmbeddedRegistry, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    first = register("down", 1)
    decoding = out_of_reach(followed(source(hand_over(registry, "down"))))
    assert version_of_batch(decoding, f"0123@{first + 5}@2@down-value") == ReadAs(first + 5, 2, "down-value")
    assert f"The batch is read as version 2 (id {first + 5}) of down-value" in caplog.text
    assert version_of_batch(decoding, None) == ReadAs(first)
    assert f"The batch is read as id {first};" in caplog.text


def test_a_value_that_is_newer_than_its_batch_stops_the_query(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, register: Register
) -> None:
    ids = [register("newer", count) for count in (1, 2)]
    made = hand_over(registry, "newer")
    batch = source(made, version_of_batch(followed(source(made)), None))
    third = register("newer", 3)
    assert decode(batch, frame(ids[0]) + b"\2")[0]["a"] == 1, "that there is a newer one is no reason"
    elsewhere = json.dumps({**json.loads(text("newer", 1)), "doc": "of another subject"})
    other = client.register_schema("newer-else-value", Schema(elsewhere))
    assert decode(batch, frame(other) + b"\2")[0]["a"] == 1, "it is not of this subject"
    fourth = register("newer", 4)
    for number in (third, fourth):
        with pytest.raises(SchemaChangedError, match=rf"version 4 .* came with the schema {number}"):
            decode(batch, frame(number) + b"\2\2x\2y\2z")


@pytest.mark.parametrize("evolution", ["add-columns", "restart"])
def test_of_all_versions_only_newer_ones_stop_the_query(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, register: Register, evolution: str
) -> None:
    """Each version read by a query that was started with each version."""
    topic, versions = f"all-{evolution}", (1, 2, 3)
    ids, queries = [], []
    for count in versions:
        ids.append(register(topic, count))
        made = source(hand_over(registry, topic, schemaEvolution=evolution))
        decoding = made.options.rows.decoding
        assert isinstance(decoding, SchemaOptions)
        if evolution == "add-columns":
            decoding = followed(source(made.hand_over, version_of_batch(decoding, None)))
        queries.append(decoding)
    elsewhere = json.dumps({**json.loads(text(topic, 1)), "doc": "of another subject"})
    other = client.register_schema(f"{topic}-else-value", Schema(elsewhere))

    def read(decoding: SchemaOptions, number: int, count: int) -> Any:
        value = frame(number) + b"\2" + b"\2x" * (count - 1)
        return RegisteredValues(decoding).decode(pa.array([value], pa.binary()))[0].to_pylist()

    newest = f"version {versions[-1]} \\(id {ids[-1]}\\) by now"
    for begun, decoding in zip(versions, queries, strict=True):
        for written, number in [*zip(versions, ids, strict=True), (1, other)]:
            if number != other and written > begun:
                with pytest.raises(SchemaChangedError, match=rf"{newest}, .* with the schema {number}\."):
                    read(decoding, number, written)
            else:
                expected = {"a": 1, **dict.fromkeys("bcd"[: written - 1], "x")}
                expected |= dict.fromkeys("bcd"[written - 1 : begun - 1], "?")
                assert read(decoding, number, written) == [expected]
    for permanently in (False, True):
        client.delete_version(f"{topic}-value", 2, permanent=permanently)
        assert read(queries[2], ids[0], 1) == [{"a": 1, "b": "?", "c": "?"}]


@pytest.mark.parametrize("evolution", ["add-columns", "restart"])
def test_a_newer_value_stops_the_query_though_the_registry_that_is_asked_for_the_latest_lags(
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    evolution: str,
) -> None:
    """As behind a load balancer, where each request may reach another replica."""
    topic = f"lags-{evolution}"
    first = register(topic, 1)
    made = hand_over(registry, topic, schemaEvolution=evolution)
    decoding = source(made).options.rows.decoding
    assert isinstance(decoding, SchemaOptions)
    if evolution == "add-columns":
        decoding = followed(source(made, version_of_batch(decoding, None)))
    of_replica = shared_registry(decoding.registry or RegistrySettings(DOWN)).latest(f"{topic}-value")
    second = register(topic, 2)
    elsewhere = json.dumps({**json.loads(text(topic, 1)), "doc": "of another subject"})
    other = client.register_schema(f"{topic}-else-value", Schema(elsewhere))
    monkeypatch.setattr(Registry, "latest", lambda *_: of_replica)

    def read(number: int, value: bytes) -> Any:
        return RegisteredValues(decoding).decode(pa.array([frame(number) + value], pa.binary()))[0].to_pylist()

    assert read(first, b"\2") == read(other, b"\2") == [{"a": 1}]
    with pytest.raises(SchemaChangedError, match=rf"has version 2 \(id {second}\) by now.* with the schema {second}\."):
        read(second, b"\2\2x")
    client.delete_version(f"{topic}-value", 2)
    assert read(second, b"\2\2x") == [{"a": 1}], "it is not that the answer is old: there is no newer version"


def test_a_batch_that_is_begun_again_keeps_its_version_and_stops_for_newer_values(
    registry: EmbeddedRegistry, register: Register
) -> None:
    first = register("again", 1)
    made = hand_over(registry, "again")
    before = source(made, version_of_batch(followed(source(made)), None))
    second = register("again", 2)
    now = source(made, version_of_batch(followed(source(made)), before.rules))
    older = now.with_rules(before.rules)
    assert older is not None
    assert older.rules == before.rules
    assert older.options.rows.digest() == now.options.rows.digest()
    assert decode(older, frame(first) + b"\2") == [{"a": 1, "b": None}]
    with pytest.raises(NewerThanBegunError, match=f"a value came with the schema {second}, which is newer"):
        decode(older, frame(second) + b"\2\2x")


def test_where_the_version_of_the_start_is_gone_any_other_value_stops_the_query(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, register: Register
) -> None:
    """Whether a value is newer than what is gone, nobody can say."""
    first, second = (register("gone", count) for count in (1, 2))
    decoding = source(hand_over(registry, "gone", schemaEvolution="restart")).options.rows.decoding
    assert isinstance(decoding, SchemaOptions)
    register("gone", 3)
    for permanently in (False, True):
        client.delete_version("gone-value", 2, permanent=permanently)
    assert decoding.reader_id == second
    with pytest.raises(SchemaChangedError, match=rf"version 3 .* with the schema {first}\."):
        RegisteredValues(decoding).decode(pa.array([frame(first) + b"\2"], pa.binary()))


def test_a_select_is_checked_with_the_columns_of_each_version(registry: EmbeddedRegistry, register: Register) -> None:
    register("select", 1)
    made, sql = hand_over(registry, "select"), "SELECT value.* FROM records"
    pinned = source(made, sql=sql)
    assert pinned.schema.names == ["a"]
    register("select", 3)
    read_as = version_of_batch(followed(pinned), None)
    assert source(made, read_as, sql=sql).schema.names == ["a", "b", "c"]
    with pytest.raises(OptionError, match=r"d\b"):
        source(made, read_as, sql="SELECT value.d FROM records")


PEOPLE = 'syntax = "proto3"; message Person { int64 a = 1; %s }'
DOCUMENT = '{"type": "object", "additionalProperties": false, "properties": {"a": {"type": "integer"}%s}}'


@pytest.mark.parametrize(
    ("form", "kind", "texts", "value"),
    [
        ("protobuf", "PROTOBUF", (PEOPLE % "", PEOPLE % "optional string b = 2;"), b"\0\x08\1\x12\1x"),
        ("json-schema", "JSON", (DOCUMENT % "", DOCUMENT % ', "b": {"type": "string"}'), b'{"a": 1, "b": "x"}'),
    ],
)
def test_the_other_formats_are_followed_too(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, form: str, kind: str, texts: tuple[str, str], value: bytes
) -> None:
    client.register_schema(f"{form}-value", Schema(texts[0], kind))
    made = hand_over(registry, form, valueFormat=form, columnNameOfCorruptRecord="bad")
    assert source(made).schema["value"].dataType.names == ["a", "bad"]  # type: ignore[attr-defined]
    second = client.register_schema(f"{form}-value", Schema(texts[1], kind))
    newer = source(made, version_of_batch(followed(source(made)), None))
    assert newer.schema["value"].dataType.names == ["a", "b", "bad"]  # type: ignore[attr-defined]
    assert newer.rules.partition("@")[0] == source(made).rules.partition("@")[0]
    assert decode(newer, frame(second) + value) == [{"a": 1, "b": "x", "bad": None}]


def test_through_spark_it_is_refused(registry: EmbeddedRegistry, register: Register) -> None:
    register("spark", 1)
    with pytest.raises(OptionError, match=r"needs handOver=ranges, where the sink decodes.* schemaEvolution=restart"):
        hand_over(registry, "spark", handOver="rows")


def test_without_a_subject_there_is_nothing_to_follow(registry: EmbeddedRegistry) -> None:
    with pytest.raises(OptionError, match=r"follows a subject of schemaRegistry\.url: leave valueSchema out$"):
        hand_over(registry, "spark", valueSchema=text("x", 1))
    with pytest.raises(OptionError, match="valueSchemaId has no effect"):
        hand_over(registry, "spark", valueSchemaId="1")


def rows_of(registry: EmbeddedRegistry, topic: str, value: bytes, **more: str) -> pa.RecordBatch:
    rows = SourceOptions.read(resolved(OPTIONS, options(registry, topic, schemaEvolution="none", **more))).rows
    columns: dict[str, Any] = {
        "key": [None], "value": [value], "topic": [topic], "partition": [0], "offset": [7], "timestamp": [0],
        "timestampMs": [0], "timestampType": [0], "headers": [[]],
    }  # fmt: skip
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in rows.decoded}, arrow_schema(rows.decoded))
    return RowMaker(rows, topic, 0).rows(batch)


def test_an_id_that_the_registry_does_not_have_becomes_no_row_of_nulls(
    registry: EmbeddedRegistry, register: Register
) -> None:
    """The registry may have lost it: one restored from a backup, or a replica that lags."""
    register("lost", 1)
    value = frame(999_999) + b"\2"
    with pytest.raises(MalformedValueError, match=r"topic lost, partition 0, at offset 7 names a schema that the") as e:
        rows_of(registry, "lost", value)
    assert "999999" in str(e.value)
    assert "use includeDeadLetters=true, columnNameOfCorruptRecord or mode DROPMALFORMED" in str(e.value)
    (row,) = rows_of(registry, "lost", value, includeDeadLetters="true").to_pylist()
    assert "999999" in row["_dead_letter"]["reason"]
    (row,) = rows_of(registry, "lost", value, columnNameOfCorruptRecord="bad").to_pylist()
    assert row["value"] == {"a": None, "bad": value}
    assert rows_of(registry, "lost", value, mode="DROPMALFORMED").num_rows == 0


@pytest.mark.parametrize(
    ("form", "kind", "texts", "values", "reason"),
    [
        (
            "avro",
            "AVRO",
            ('{"type": "record", "name": "shop.%s", "fields": [{"name": "a", "type": "int"}]}',) * 2,
            (b"\2", b"\4"),
            "it is of the record shop.Payment, and values are read as shop.Order",
        ),
        (
            "protobuf",
            "PROTOBUF",
            ('syntax = "proto3"; message %s { int64 a = 1; }',) * 2,
            (b"\0\x08\1", b"\0\x08\2"),
            "it is of the message Payment, and values are read as Order",
        ),
    ],
)
def test_records_of_another_type_in_a_topic_are_not_read_as_if_they_were_of_the_first(
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    form: str,
    kind: str,
    texts: tuple[str, str],
    values: tuple[bytes, bytes],
    reason: str,
) -> None:
    topic = f"types-{form}"
    order, payment = (
        client.register_schema(f"{topic}-{name}", Schema(text % name, kind))
        for name, text in zip(("Order", "Payment"), texts, strict=True)
    )
    more = {"valueFormat": form, "valueSubject": f"{topic}-Order", "includeDeadLetters": "true"}
    (row,) = rows_of(registry, topic, frame(order) + values[0], **more).to_pylist()
    assert row["value"] == {"a": 1}
    (row,) = rows_of(registry, topic, frame(payment) + values[1], **more).to_pylist()
    assert reason in row["_dead_letter"]["reason"]


def test_values_of_the_version_they_are_read_as_need_no_registry(
    registry: EmbeddedRegistry, register: Register
) -> None:
    number = register("alone", 2)
    decoding = out_of_reach(followed(source(hand_over(registry, "alone"))))
    column, problems = RegisteredValues(decoding).decode(pa.array([frame(number) + b"\2\2x"], pa.binary()))
    assert (column.to_pylist(), problems) == ([{"a": 1, "b": "x"}], {})


def test_a_schema_and_an_id_contradict_each_other(registry: EmbeddedRegistry) -> None:
    for name in ("value", "key"):
        given = {"valueFormat": "binary", f"{name}Format": "avro"}
        given |= {f"{name}Schema": text("x", 1), f"{name}SchemaId": "1"}
        with pytest.raises(OptionError, match=f"options {name}Schema and {name}SchemaId both say what"):
            resolved(OPTIONS, options(registry, "both", schemaEvolution="none", **given))


def test_a_batch_that_was_begun_is_completed_with_what_the_registry_lacked_then(
    registry: EmbeddedRegistry, register: Register
) -> None:
    """A registry may get a schema late, as a replica that lags, or lose one, as where it was restored."""
    first, late = register("lacking", 1), register("lacking", 2)
    more = {"schemaEvolution": "none", "includeDeadLetters": "true"}
    made = source(hand_over(registry, "lacking", valueSchemaId=str(first), **more))
    without, lacked = made.with_rules(made.rules), made.with_rules(with_unknown(made.rules, {f"v{late}"}) or "")
    assert without is not None
    assert lacked is not None
    assert lacked.rules == with_unknown(made.rules, {f"v{late}"})
    decoders = [RegisteredValues(decoding(each)) for each in (made, without, lacked)]
    value = pa.array([frame(late) + b"\2\2x"], pa.binary())
    found = [each.decode(value) for each in decoders]
    assert [column.to_pylist() for column, _ in found[:2]] == [[{"a": 1}]] * 2
    assert "did not have it when the batch was begun" in found[2][1][0]
    assert [each.unknown for each in decoders] == [set(), set(), {f"v{late}"}]
    nowhere = pa.array([frame(888_888) + b"\2"], pa.binary())
    assert list(decoders[0].decode(nowhere)[1]) == [0]
    for decoder in decoders[1:]:
        with pytest.raises(UnknownWriterError, match="when the dead letters of this batch were found: register it"):
            decoder.decode(nowhere)


def test_keys_that_a_registry_lacks_do_not_stop_what_is_completed(
    registry: EmbeddedRegistry, register: Register
) -> None:
    register("keys", 1)
    given = {"valueFormat": "json", "valueSchema": "a INT", "keyFormat": "avro", "keySubject": "keys-value"}
    whole = options(registry, "keys", includeDeadLetters="true", **given)
    del whole["schemaEvolution"]
    made = source(HandOver.of(resolved(OPTIONS, whole)))
    again = made.with_rules(with_unknown(made.rules, {"k777"}) or "")
    assert again is not None
    assert isinstance(again.options.rows.key_decoding, SchemaOptions)
    assert again.options.rows.key_decoding.unknown == {"k777"}


def test_too_many_schemas_that_a_registry_lacks_stop_the_query(
    registry: EmbeddedRegistry, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_values, "MOST_UNKNOWN", 3)
    register("many", 1)
    more = {"schemaEvolution": "none", "includeDeadLetters": "true"}
    decoder = RegisteredValues(decoding(source(hand_over(registry, "many", **more))))
    few, many = (pa.array([frame(900_000 + at) + b"\2" for at in range(count)], pa.binary()) for count in (3, 4))
    assert len(decoder.decode(few)[1]) == 3
    with pytest.raises(UnknownWriterError, match="hardly values of this registry"):
        decoder.decode(many)


def decoding(made: DirectSource) -> SchemaOptions:
    found = made.options.rows.decoding
    assert isinstance(found, SchemaOptions)
    return found


def test_messages_of_one_name_within_different_ones_are_different_types(
    registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    item = "message Item { int64 a = 1; }"
    text = f'syntax = "proto3"; package shop; message %s {{ {item} }} message %s {{ {item} }}'
    number = client.register_schema("items-value", Schema(text % ("Order", "Refund"), "PROTOBUF"))
    moved = client.register_schema(
        "items-else-value", Schema((text % ("Refund", "Order")).replace("shop", "store"), "PROTOBUF")
    )
    more = {"valueFormat": "protobuf", "valueMessage": "Order.Item", "includeDeadLetters": "true"}
    for head in (frame(number, (0, 0)), frame(moved, (1, 0))):
        (row,) = rows_of(registry, "items", head + b"\x08\1", **more).to_pylist()
        assert (row["value"], row["_dead_letter"]) == ({"a": 1}, None)
    for head in (frame(number, (1, 0)), frame(moved, (0, 0))):
        (row,) = rows_of(registry, "items", head + b"\x08\1", **more).to_pylist()
        assert "Refund.Item, and values are read as shop.Order.Item" in row["_dead_letter"]["reason"]
