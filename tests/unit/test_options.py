"""Options are checked by name and value."""

from __future__ import annotations

import pytest

from connectors.delta_once.options import SinkOptions
from connectors.options import Option, OptionError, OptionSet, boolean, nearest, one_of, positive

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
