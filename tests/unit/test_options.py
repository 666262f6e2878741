"""Options are checked by name and value."""

from __future__ import annotations

import pytest

from connectors.options import Option, OptionError, OptionSet, boolean, one_of, positive

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
    elsewhere={"startAt": "is for clocks; leave it out"},
)


def test_names_are_compared_without_case_and_defaults_filled_in() -> None:
    values = OPTIONS.read({"SUBSCRIBE": "t", "includeheaders": "True", "kafka.any": "x", "path": "p"})
    assert values == {"subscribe": "t", "minPartitions": 7, "includeHeaders": True, "mode": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscrbe": "t"}, "unknown option 'subscrbe'; did you mean 'subscribe'"),
        ({"startat": "t"}, "option startAt is for clocks; leave it out"),
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
