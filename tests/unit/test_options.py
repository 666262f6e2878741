"""Options are checked by name and value."""

from __future__ import annotations

import pytest

from sparkonce.connectors.delta_sink.options import OPTIONS as DELTA_SINK
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.kafka_sink.options import BATCH_OPTIONS as KAFKA_BATCH
from sparkonce.connectors.kafka_sink.options import OPTIONS as KAFKA_SINK
from sparkonce.connectors.kafka_source.options import OPTIONS as SOURCE
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.settings.options import Option, OptionError, OptionSet, boolean, nearest, one_of, positive

LONGEST_HINT = 160
OPTIONS = OptionSet(
    "kafka_once",
    [
        Option("subscribe", "topics, by comma"),
        Option("minPartitions", "at least so many", positive, 7),
        Option("includeHeaders", "", boolean, False),
        Option("mode", "", one_of("a", "b")),
    ],
    passed_through=("kafka.",),
    ignored=("path",),
    elsewhere={"startAt": "is for clocks; leave it out", "spark.kafka.*": "is of Spark's configuration"},
)


def test_names_are_compared_without_case_and_defaults_filled_in() -> None:
    values = OPTIONS.read({"SUBSCRIBE": "t", "includeheaders": "True", "kafka.any": "x", "path": "p"})
    assert values == {"subscribe": "t", "minPartitions": 7, "includeHeaders": True, "mode": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscrbe": "t"}, "unknown option 'subscrbe'; did you mean 'subscribe'"),
        ({"startat": "t"}, "option startAt is for clocks; leave it out"),
        ({"Spark.Kafka.clusters.a.b": "t"}, "option Spark.Kafka.clusters.a.b is of Spark's configuration"),
        ({"zzz": "t"}, "known: includeHeaders, minPartitions, mode, subscribe"),
        ({"minpartitions": "0"}, "minPartitions='0' cannot be read: expected a whole number above zero"),
        ({"minpartitions": "x"}, "minPartitions='x' cannot be read: expected a whole number above zero"),
        ({"includeheaders": "yes"}, "expected true or false"),
        ({"mode": "c"}, "expected one of a, b"),
    ],
)
def test_a_bad_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        OPTIONS.read(given)


def test_a_required_option_must_be_there() -> None:
    with pytest.raises(OptionError, match="appId is required: names the job"):
        OptionSet("delta_once", [Option("appId", "names the job", required=True)]).read({})


def test_a_declaration_says_what_may_be_given() -> None:
    assert Option("a", "", boolean).form == "true|false"
    assert Option("a", "", boolean).words == ("true", "false")
    assert Option("a", "", positive).form == "whole number >= 1"
    assert Option("a", "", positive).words == ()
    assert Option("a", "", one_of("x", "y-z")).words == ("x", "y-z")
    assert Option("a", "", value='earliest|latest|{"t":{"0":1}}').words == ("earliest", "latest")
    assert Option("a", "", value="topic:<name>|table:<path>").words == ()
    assert Option("a", "").form == ""


def test_a_declaration_says_its_default() -> None:
    assert Option("a", "", boolean, False).shown_default == "false"
    assert Option("a", "", positive, 7).shown_default == "7"
    assert Option("a", "", default_text="no limit").shown_default == "no limit"
    assert Option("a", "", required=True).shown_default == "required"
    assert Option("a", "").shown_default == ""


def test_the_text_of_a_secret_is_not_shown() -> None:
    option = Option("a", "", positive, secret=True)
    with pytest.raises(OptionError, match=r"f: option kafka\.a cannot be read: expected whole number >= 1") as caught:
        option.read("s3cret", "f", "kafka.")
    assert caught.value.__cause__ is None
    assert "s3cret" not in str(caught.value)


def test_the_nearest_name() -> None:
    assert nearest("subscrib", ["subscribe", "assign"]) == "subscribe"
    assert nearest("zzz", ["subscribe"]) is None


@pytest.mark.parametrize(
    ("name", "instead"),
    [("maxRecordsPerFile", "targetFileBytes"), ("TXNAPPID", "appId"), ("subscribe", "readStream"), ("pathh", "path")],
)
def test_the_delta_sink_says_what_to_do_with_options_of_others(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=instead):
        SinkOptions.read({"path": "/t", "appId": "a", "checkpointLocation": "/c", name: "x"})


@pytest.mark.parametrize(
    "options", [SOURCE, KAFKA_SINK, KAFKA_BATCH, DELTA_SINK], ids=lambda options: options.reference
)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "bootstrap.servers",
            "unknown option 'bootstrap.servers'; settings of Kafka's clients .* say 'kafka.bootstrap.se",
        ),
        ("Security.Protocol", "unknown option 'Security.Protocol'; settings .* say 'kafka.security.protocol'"),
        ("bootstrap.server", "did you mean 'kafka.bootstrap.servers'?"),
        ("zzzzzz", "unknown option 'zzzzzz'; `sparkonce options (source|kafka-sink|delta-sink)` lists those"),
    ],
)
def test_a_setting_without_its_prefix_is_told_from_others(options: OptionSet, name: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        options.read({name: "x"})
    assert len(str(caught.value)) < LONGEST_HINT


@pytest.mark.parametrize(
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
def test_an_option_of_another_format_is_told_whose_it_is(options: OptionSet, name: str, said: str) -> None:
    with pytest.raises(OptionError, match=rf"^(kafka|delta)_once: {said}"):
        options.read({name: "x"})


def test_an_unknown_setting_gets_a_short_hint() -> None:
    for name, said in {
        "kafka.foo": "; `sparkonce options source kafka.` lists those that there are",
        "kafka.fetch.min.byte": "; did you mean 'kafka.fetch.min.bytes'?",
        "kafka.subscribe": "; without kafka. it is an option, subscribe, of the source: set it on readStream or read",
    }.items():
        with pytest.raises(OptionError, match="is not one that this client can honour") as caught:
            SourceOptions.read({"kafka.bootstrap.servers": "h:1", "subscribe": "t", name: "1"})
        assert str(caught.value).endswith(said)
