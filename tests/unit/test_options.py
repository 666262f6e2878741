"""Options are checked by name and value."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sparkonce.connectors.delta_sink.options import OPTIONS as DELTA_SINK
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.kafka_sink.options import BATCH_OPTIONS as KAFKA_BATCH
from sparkonce.connectors.kafka_sink.options import OPTIONS as KAFKA_SINK
from sparkonce.connectors.kafka_source.options import OPTIONS as SOURCE
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.reference.hints import checked
from sparkonce.options import OptionError, SettingTable, nearest
from sparkonce.settings import (
    REQUIRED,
    Kind,
    Setting,
    SettingError,
    boolean,
    camel_case,
    long,
    password,
    settings_of,
    text,
)
from tests.cases import each_case

LONGEST_HINT = 160


@dataclass
class Declared:
    subscribe: str | None = text(None, "topics, by comma")
    min_partitions: int = long(7, "at least so many", least=1)
    headers: bool = boolean(False, "", name="includeHeaders")
    mode: str | None = text(None, "", choices=("a", "b"))
    made: int = 0


@dataclass
class Needed:
    app_id: str = text(REQUIRED, "names the job")


OPTIONS = SettingTable(
    "kafka_once",
    settings_of(Declared, camel_case),
    "source",
    passed_through=("kafka.*",),
    without_effect={"path": ""},
    refused={"codec.*": "leave it out"},
    elsewhere={"startAt": "is for clocks; leave it out", "spark.kafka.*": "is of Spark's configuration"},
)


def test_names_are_compared_without_case_and_defaults_filled_in() -> None:
    values = OPTIONS.read({"SUBSCRIBE": "t", "includeheaders": "True", "kafka.any": "x", "path": "p"})
    assert values == {"subscribe": "t", "min_partitions": 7, "headers": True, "mode": None}
    assert Declared(**values).min_partitions == 7


@each_case(
    ("given", "message"),
    [
        ({"subscrbe": "t"}, "unknown option 'subscrbe'; did you mean 'subscribe'"),
        ({"startat": "t"}, "option startAt is for clocks; leave it out"),
        ({"Spark.Kafka.clusters.a.b": "t"}, "option Spark.Kafka.clusters.a.b is of Spark's configuration"),
        ({"codec.level": "1"}, r"option codec\.level is not supported: leave it out"),
        ({"zzz": "t"}, "unknown option 'zzz'; `sparkonce options source` lists all"),
        ({"minpartitions": "0"}, "minPartitions='0': must be at least 1"),
        ({"minpartitions": "x"}, "minPartitions='x': expected a whole number >= 1"),
        ({"includeheaders": "yes"}, "includeHeaders='yes': expected true or false"),
        ({"mode": "c"}, "mode='c': expected one of a, b"),
    ],
)
def test_a_bad_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=f"^kafka_once: .*{message}"):
        OPTIONS.read(given)


@pytest.mark.parametrize("table", [SOURCE, KAFKA_SINK, DELTA_SINK], ids=lambda table: str(table.reference))
def test_a_bad_value_is_shown_once(table: SettingTable) -> None:
    told = [_told(setting) for setting in table.settings.values()]
    assert not [text for name, text in zip(table.settings, told, strict=True) if text.count(f"{name}=") > 1]


def _told(setting: Setting) -> str:
    try:
        setting.read("x:y")
    except SettingError as error:
        return str(error)
    return ""


def test_a_required_option_must_be_there() -> None:
    table = SettingTable("delta_once", settings_of(Needed, camel_case), "delta-sink")
    with pytest.raises(OptionError, match="appId is required: names the job"):
        table.read({})
    assert table.settings["appId"].shown_default == "required"


def test_a_declaration_says_what_may_be_given() -> None:
    assert Setting("a", Kind.BOOLEAN).form == "true|false"
    assert Setting("a", Kind.BOOLEAN).words == ("true", "false")
    assert Setting("a", Kind.LONG, least=1).form == "whole number >= 1"
    assert Setting("a", Kind.LONG, least=1).words == ()
    assert Setting("a", Kind.INT, least=1, most=9, allowed=(-1,)).form == "whole number from 1 to 9, or -1"
    assert Setting("a", Kind.DOUBLE, most=0.5).form == "number to 0.5"
    assert Setting("a", choices=("x", "y-z")).words == ("x", "y-z")
    assert Setting("a", value='earliest|latest|{"t":{"0":1}}').words == ("earliest", "latest")
    assert Setting("a", value="topic:<name>|table:<path>").words == ()
    assert Setting("a").form == ""


def test_a_declaration_says_its_default() -> None:
    assert Setting("a", Kind.BOOLEAN, False).shown_default == "false"
    assert Setting("a", Kind.LONG, 7).shown_default == "7"
    assert Setting("a", default_text="no limit").shown_default == "no limit"
    assert Setting("a").shown_default == ""


def test_the_text_of_a_secret_is_not_shown() -> None:
    def parse(text: str) -> str:
        raise ValueError(f"{text} is too short")

    @dataclass
    class Login:
        key: str | None = password(None, "", parse=parse, value="PEM text")

    with pytest.raises(SettingError, match=r"^key: expected PEM text$") as caught:
        settings_of(Login)["key"].read("s3cret")
    assert caught.value.__cause__ is None
    assert "s3cret" not in repr(Login("s3cret"))


def test_the_nearest_name() -> None:
    assert nearest("subscrib", ["subscribe", "assign"]) == "subscribe"
    assert nearest("zzz", ["subscribe"]) is None


@pytest.mark.parametrize(
    ("name", "instead"),
    [("maxRecordsPerFile", "targetFileBytes"), ("TXNAPPID", "appId"), ("subscribe", "readStream"), ("pathh", "path")],
)
def test_the_delta_sink_says_what_to_do_with_options_of_others(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=instead):
        checked(SinkOptions.read, {"path": "/t", "appId": "a", "checkpointLocation": "/c", name: "x"})


@each_case("options", [SOURCE, KAFKA_SINK, KAFKA_BATCH, DELTA_SINK], ids=lambda options: options.reference)
@each_case(
    ("name", "said"),
    [
        (
            "bootstrap.servers",
            "unknown option 'bootstrap.servers'; settings of Kafka's clients .* use 'kafka.bootstrap.se",
        ),
        ("Security.Protocol", "unknown option 'Security.Protocol'; settings .* use 'kafka.security.protocol'"),
        ("bootstrap.server", "did you mean 'kafka.bootstrap.servers'?"),
        ("zzzzzz", "unknown option 'zzzzzz'; `sparkonce options (source|kafka-sink|delta-sink)` lists all"),
    ],
)
def test_a_setting_without_its_prefix_is_told_from_others(options: SettingTable, name: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        checked(options.read, {name: "x"})
    assert len(str(caught.value)) < LONGEST_HINT


@each_case(
    ("options", "name", "said"),
    [
        (KAFKA_SINK, "mergeschema", "option mergeSchema is of the Delta sink"),
        (KAFKA_BATCH, "TargetFileBytes", "option targetFileBytes is of the Delta sink"),
        (KAFKA_SINK, "STARTINGOFFSETS", "option startingOffsets is of the source: set it on readStream"),
        (
            KAFKA_SINK,
            "mergeShema",
            "unknown option 'mergeShema'; did you mean 'mergeSchema'. That is of the Delta sink",
        ),
        (DELTA_SINK, "Topic", "option topic is of the Kafka sink"),
        (DELTA_SINK, "startingoffsets", "option startingOffsets is of the source: set it on readStream"),
        (SOURCE, "atomicvisibility", "option atomicVisibility is of the Kafka sink"),
        (SOURCE, "partitionBy", "option partitionBy is of the Delta sink"),
        (SOURCE, "deadLetters", "option deadLetters is of the Kafka sink"),
        (SOURCE, "topic", "option topic is of the sink; here subscribe names the topics"),
    ],
)
def test_an_option_of_another_format_is_told_whose_it_is(options: SettingTable, name: str, said: str) -> None:
    with pytest.raises(OptionError, match=rf"^(kafka|delta)_once: {said}"):
        checked(options.read, {name: "x"})


def test_an_unknown_setting_gets_a_short_hint() -> None:
    for name, said in {
        "kafka.foo": "; `sparkonce options source kafka.` lists all",
        "kafka.fetch.min.byte": "; did you mean 'kafka.fetch.min.bytes'?",
        "kafka.subscribe": "; without kafka. it is an option, subscribe, of the source: set it on readStream or read",
    }.items():
        with pytest.raises(OptionError, match=f"^kafka_once: unknown option {name!r}; ") as caught:
            checked(SourceOptions.read, {"kafka.bootstrap.servers": "h:1", "subscribe": "t", name: "1"})
        assert str(caught.value).endswith(said)


def test_a_setting_of_the_other_side_is_told_whose_it_is() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.acks": "all"}
    with pytest.raises(OptionError, match=r"option kafka\.acks is of the Kafka sink, .*; leave it out here"):
        checked(SourceOptions.read, given)
