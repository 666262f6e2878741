"""The sink's own options: what is read, what is missing, and what the guarantee rules out."""

from __future__ import annotations

import pytest

from sparkonce.connectors.kafka_sink.options import BATCH_OPTIONS, OPTIONS, KafkaBatchOptions, KafkaSinkOptions
from sparkonce.connectors.kafka_source.options import OPTIONS as SOURCE_OPTIONS
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.sinks.dead_letters import DeadLetterPlace
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.locations import Location
from sparkonce.options import OptionError
from tests.cases import each_case

SERVERS = {"kafka.bootstrap.servers": "h:1"}
BASE = {**SERVERS, "appid": "flights app", "checkpointlocation": "/c"}
WEAKER = ("at-least-once", "at-most-once")


def read(**options: str) -> KafkaSinkOptions:
    return KafkaSinkOptions.read({**BASE, **options})


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        checked(KafkaSinkOptions.read, {**BASE, **options})
    assert str(caught.value).startswith("kafka_once: ")
    return str(caught.value)


def batch_refusal(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        checked(KafkaBatchOptions.read, {**SERVERS, **options})
    assert str(caught.value).startswith("kafka_once: ")
    return str(caught.value)


def test_the_defaults_deliver_exactly_once_with_offsets_in_the_application_s_group() -> None:
    found = read()
    assert found.guarantee is Guarantee.EXACTLY_ONCE
    assert (found.app_id, found.checkpoint, found.topic) == ("flights app", "/c", None)
    assert (found.offset_store, found.group) == ("group:flights app", "flights app")
    assert (found.include_headers, found.atomic_visibility, found.dead_letters) == (True, False, None)
    assert found.decision_topic == "sparkonce-decisions"


def test_keys_come_in_any_case_and_every_option_arrives() -> None:
    found = read(
        TOPIC="flights.clean",
        deliveryguarantee="exactly-once",
        offsetstore="group:g",
        includeHeaders="FALSE",
        atomicvisibility="true",
        decisiontopic="decisions",
        deadletters="topic: flights.bad",
        queryname="q",
        **{"kafka.batch.size": "100"},
    )
    assert (found.topic, found.group, found.include_headers) == ("flights.clean", "g", False)
    assert (found.atomic_visibility, found.decision_topic) == (True, "decisions")
    assert found.dead_letters == DeadLetterPlace(topic="flights.bad")
    assert found.producer.batch_bytes == 100


def test_dead_letters_may_go_to_a_table() -> None:
    found = read(deadLetters="table:s3a://b/bad", **{"storage.AWS_SECRET_ACCESS_KEY": "s3cret"})
    assert found.dead_letters == DeadLetterPlace(table=Location.parse("s3://b/bad"))
    assert found.storage_options == {"AWS_SECRET_ACCESS_KEY": "s3cret"}


@pytest.mark.parametrize("use", [{}, {"offsetStore": "group:g"}, {"deadLetters": "topic:bad"}])
def test_options_of_a_table_that_is_not_used_are_refused(use: dict[str, str]) -> None:
    text = refusal(**use, **{"storage.AWS_SECRET_ACCESS_KEY": SECRET})
    assert "option storage.AWS_SECRET_ACCESS_KEY is for a checkpointLocation in an object store, offset" in text
    assert SECRET not in text


def test_a_checkpoint_in_a_store_needs_its_options() -> None:
    """The sink reads it."""
    found = read(checkpointlocation="s3a://bucket/c", **{"storage.AWS_REGION": "us-east-1"})
    assert found.storage_options == {"AWS_REGION": "us-east-1"}


@each_case("name", ["appId", "checkpointLocation"])
@each_case("guarantee", [guarantee.value for guarantee in Guarantee])
def test_what_every_stream_needs(name: str, guarantee: str) -> None:
    given = {**BASE, "deliveryGuarantee": guarantee}
    del given[name.lower()]
    with pytest.raises(OptionError, match=f"kafka_once: option {name} is required: "):
        KafkaSinkOptions.read(given)


def test_the_brokers_are_needed() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers must be specified"):
        KafkaSinkOptions.read({"appId": "a", "checkpointLocation": "/c"})


def test_exactly_once_keeps_offsets_where_its_transaction_reaches() -> None:
    text = refusal(offsetStore="delta:/t")
    assert "offsetStore='delta:/t' cannot be combined with deliveryGuarantee=exactly-once" in text
    assert "offsetStore=group:<id>" in text


@pytest.mark.parametrize("guarantee", WEAKER)
def test_the_weaker_two_may_keep_offsets_in_a_table(guarantee: str) -> None:
    found = read(deliveryGuarantee=guarantee, offsetStore="delta:/t")
    assert (found.guarantee.value, found.offset_store, found.group) == (guarantee, "delta:/t", None)


@pytest.mark.parametrize("guarantee", WEAKER)
def test_only_a_transaction_can_be_seen_at_once(guarantee: str) -> None:
    text = refusal(deliveryGuarantee=guarantee, atomicVisibility="true")
    assert "atomicVisibility=true needs deliveryGuarantee=exactly-once" in text
    assert not read(deliveryGuarantee=guarantee, atomicVisibility="false").atomic_visibility


def test_the_guarantee_rules_the_producer_s_settings() -> None:
    assert "kafka.acks=1 can lose" in refusal(**{"kafka.acks": "1"})
    assert read(deliveryGuarantee="at-most-once", **{"kafka.acks": "1"}).producer.acks == 1


@each_case(
    ("name", "text", "expected"),
    [
        ("topic", "a,b", "1 to 249 letters"),
        ("topic", "", "1 to 249 letters"),
        ("topic", "..", "1 to 249 letters"),
        ("topic", "x" * 250, "1 to 249 letters"),
        ("deliveryGuarantee", "exactly_once", "expected one of at-most-once, at-least-once, exactly-once"),
        ("appId", " ", "it is empty"),
        ("checkpointLocation", "", "it is empty"),
        ("offsetStore", "redis:x", "write delta:<path of a table> or group:<id>"),
        ("offsetStore", "group:", "write delta:<path of a table> or group:<id>"),
        ("includeHeaders", "yes", "expected true or false"),
        ("atomicVisibility", "1", "expected true or false"),
        ("decisionTopic", "a/b", "1 to 249 letters"),
        ("deadLetters", "bad", "expected topic:<name> or table:<path"),
        ("deadLetters", "topic:", "expected topic:<name> or table:<path"),
        ("deadLetters", "topic:a b", "1 to 249 letters"),
        ("deadLetters", "table: ", "expected topic:<name> or table:<path"),
    ],
)
def test_a_value_that_cannot_be_read_is_shown_with_what_is_expected(name: str, text: str, expected: str) -> None:
    message = refusal(**{name: text})
    assert f"option {name}={text!r}: " in message
    assert expected in message


def test_no_place_has_two_uses() -> None:
    assert "topic and deadLetters both name the topic 't'" in refusal(topic="t", deadLetters="topic:t")
    assert "topic and decisionTopic both name the topic 't'" in refusal(topic="t", decisionTopic="t")
    assert "both name the table /t, which keeps the offsets of the dead letters" in refusal(
        deliveryGuarantee="at-least-once", offsetStore="delta:/t", deadLetters="table:/t/"
    )
    assert "deadLetters and decisionTopic both name" in refusal(deadLetters="topic:sparkonce-decisions")


@each_case("name", OPTIONS.settings)
def test_a_slip_of_the_pen_gets_the_nearest_name(name: str) -> None:
    assert f"unknown option {name + 's'!r}; did you mean {name!r}?" in refusal(**{name + "s": "x"})


@each_case("name", SOURCE_OPTIONS.settings)
def test_an_option_of_the_source_alone_is_told_from_a_slip(name: str) -> None:
    if name in OPTIONS.settings:
        return
    for text in (refusal(**{name.lower(): "x"}), batch_refusal(**{name: "x"})):
        assert f"option {name} is of the source" in text


def test_a_path_names_no_topic() -> None:
    assert "name the topic with the option topic" in refusal(path="/x")
    assert "name the topic with the option topic" in batch_refusal(path="/x")


def test_a_batch_takes_what_needs_no_offsets() -> None:
    found = KafkaBatchOptions.read({**SERVERS, "topic": "t", "includeHeaders": "false", "appId": "a"})
    assert (found.topic, found.include_headers, found.producer.acks) == ("t", False, -1)
    assert KafkaBatchOptions.read({**SERVERS, "deliveryGuarantee": "at-least-once"}).topic is None


def test_a_batch_delivers_at_least_once_and_nothing_else() -> None:
    for guarantee in ("exactly-once", "at-most-once"):
        text = batch_refusal(deliveryGuarantee=guarantee)
        assert f"deliveryGuarantee={guarantee} is for writeStream" in text
        assert "availableNow" in text


@each_case("name", [name for name in OPTIONS.settings if name not in BATCH_OPTIONS.settings])
def test_what_is_for_streams_is_refused_in_a_batch(name: str) -> None:
    assert f"option {name} is for writeStream" in batch_refusal(**{name: "x"})


SECRET = "s3cret"
SECRETS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "u",
    "kafka.sasl.password": SECRET,
    "kafka.ssl.key.password": SECRET,
    "storage.AWS_SECRET_ACCESS_KEY": SECRET,
}


def test_nothing_that_is_shown_holds_a_secret() -> None:
    found = read(**SECRETS, deadLetters="table:/bad")
    assert found.client.sasl is not None
    assert found.client.sasl.password == SECRET
    assert SECRET not in repr(found)
    batch = {name: text for name, text in {**SERVERS, **SECRETS}.items() if not name.startswith("storage.")}
    assert SECRET not in repr(KafkaBatchOptions.read(batch))
    for wrong in ({"topic": ""}, {"topics": "t"}, {"offsetStore": "delta:/t"}, {"kafka.acks": "1"}, {"kafka.x": "y"}):
        assert SECRET not in refusal(**SECRETS, deadLetters="table:/bad", **wrong)
