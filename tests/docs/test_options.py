"""docs/options_*.md are what `python -m lab.pages .` makes of the declarations, and each says all it must."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import sparkonce
from lab.pages.__main__ import MADE
from lab.pages.__main__ import main as pages_main
from lab.pages.errors import NOT_SEEN, WAYS_OUT
from sparkonce.connectors.reference.tables import REFERENCES, Reference, is_used
from sparkonce.connectors.reference.typed_options import delta_sink_options, kafka_sink_options, source_options
from sparkonce.jobs.cli.main import main
from sparkonce.options import OptionError
from tests.cases import each_case

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
SPARK_SOURCE = {
    "assign",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
}
"""The options that `KafkaSourceProvider` of Spark 4.2 names, and its readers."""


@pytest.mark.parametrize("path", MADE)
def test_what_is_made_from_the_declarations_is_up_to_date(path: str) -> None:
    assert (PROJECT / path).read_text() == MADE[path](), "a declaration has changed: run python -m lab.pages ."


def test_every_error_of_the_connectors_has_a_way_out() -> None:
    """Those that a query can end with; a class that the page leaves out is in `NOT_SEEN`."""
    declared = set()
    folders = (PROJECT / folder for folder in ("connectors", "exactly_once", "offset_store", "sparkonce/kafka/client"))
    for module in [PROJECT / "sparkonce/options.py", *(path for folder in folders for path in folder.rglob("*.py"))]:
        declared |= set(re.findall(r"^class ([A-Za-z]+Error)\b", module.read_text(), re.MULTILINE))
    told = {name for ways in WAYS_OUT.values() for name in ways}
    assert declared - told == NOT_SEEN, "name it in lab/pages/errors.py: in WAYS_OUT, or in NOT_SEEN"
    assert not told & NOT_SEEN


def test_the_python_api_names_all_that_is_exported() -> None:
    page = (DOCS / "python_api.md").read_text()
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == set(sparkonce.__all__) - {"__version__"}


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=lambda reference: reference.name)
def test_every_option_says_what_it_is_and_what_may_be_given(reference: Reference) -> None:
    silent = [entry.name for entry in reference.entries() if not (entry.documentation and entry.group)]
    assert silent == []
    formless = [entry.name for entry in reference.entries() if is_used(entry) and not entry.form]
    assert formless == []


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=lambda reference: reference.name)
def test_every_word_and_every_default_can_be_read(reference: Reference) -> None:
    for option in filter(is_used, reference.entries()):
        for word in option.words:
            option.read(word)
        if option.default is not None and option.shown_default in (option.text(option.default), *option.words):
            assert option.read(option.shown_default) == option.default, option.name


def test_all_of_spark_s_options_are_taken_and_marked() -> None:
    entries = REFERENCES["source"].entries()
    assert {entry.name for entry in entries if entry.spark} == SPARK_SOURCE
    assert all(is_used(entry) for entry in entries if entry.spark)


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=lambda reference: reference.name)
def test_what_holds_a_secret_is_declared_as_one(reference: Reference) -> None:
    telling = re.compile(r"password|secret|jaas|keystore\.key$|storage\.|user\.info$|auth\.token$")
    for entry in reference.entries():
        assert not is_used(entry) or entry.sensitive == bool(telling.search(entry.name)), entry.name


def test_it_prints_one_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "source", "FAILONDATALOSS"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("failOnDataLoss\n")
    assert "value: true|false" in told
    assert "default: true" in told
    assert "the same in Spark's own connector" in told
    assert main(["options", "kafka-sink", "sasl.kerberos.kinit.cmd"]) == 0
    assert "kafka.sasl.kerberos.*\n    Refused: Kerberos" in capsys.readouterr().out


def test_it_tells_the_nearest_of_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "source", "startingOfsets"]) == 2
    assert "did you mean startingOffsets?" in capsys.readouterr().err
    assert main(["options", "source", "request.timeout"]) == 2
    assert "did you mean kafka.request.timeout.ms?" in capsys.readouterr().err
    assert main(["options", "source", "zzzzzz"]) == 2
    assert "`sparkonce options source` lists all" in capsys.readouterr().err


def test_it_lists_what_begins_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "source", "startingOffsetsBy"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert told == ["startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"]
    assert main(["options", "kafka-sink", "kafka.", "--json"]) == 0
    names = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    entries = REFERENCES["kafka-sink"].entries()
    assert names == {entry.name for entry in entries if entry.name.startswith("kafka.")}


def test_it_lists_all_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options"]) == 0
    told = capsys.readouterr().out
    assert main(["options", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said) == list(REFERENCES)
    for entries in said.values():
        assert [entry["name"] for entry in entries if entry["name"] not in told] == []


def test_all_is_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in {Path(path).parent for path in MADE}:
        (tmp_path / folder).mkdir(parents=True)
    assert pages_main([str(tmp_path)]) == 0
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == set(MADE)
    assert pages_main([]) == 2
    assert capsys.readouterr().err == "usage: python -m lab.pages CHECKOUT\n"


def test_typed_options_are_checked_at_once_and_become_text() -> None:
    given = source_options(
        {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "failOnDataLoss": False, "minPartitions": 8}
    )
    assert given == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "failOnDataLoss": "false",
        "minPartitions": "8",
    }
    with pytest.raises(OptionError, match="subscribe"):
        source_options({"kafka.bootstrap.servers": "h:1"})
    with pytest.raises(OptionError, match="appId is required"):
        kafka_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "checkpointLocation": "/c"})
    with pytest.raises(OptionError, match="path is required"):
        delta_sink_options({"appId": "a", "checkpointLocation": "/c"})


@pytest.fixture(scope="module")
def bash_script() -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["completion", "bash"]) == 0
    return said.getvalue()


@each_case(
    ("typed", "offered"),
    [
        (["op"], "options"),
        (["options", "so"], "source"),
        (["options", "source", "startingOffsetsBy"], "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy"),
        (["options", "kafka-sink", "kafka.ack"], "kafka.acks"),
        (["options", "kafka-sink", "starting"], ""),
        (["options", "source", "kafka.ack"], ""),
        (["options", "delta-sink", "merge"], "mergeSchema"),
        (["options", "--json", "source", "sour"], "source"),
        (["options", "source", "includeDead"], "includeDeadLetters"),
        (["options", "kafka-sink", "--js"], "--json"),
        (["completion", ""], "bash zsh"),
        (["transactions", "fin"], "finish"),
    ],
)
def test_bash_completes(bash_script: str, typed: list[str], offered: str) -> None:
    words = shlex.join(["sparkonce", *typed])
    ask = """
    function=$(complete -p sparkonce | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); COMPREPLY=(); $function; echo "${COMPREPLY[@]}"
    """
    asked = f"{bash_script}\nCOMP_WORDS=({words})\n{ask}"
    answered = subprocess.run(["bash"], input=asked, capture_output=True, text=True, check=True)
    assert (answered.stdout.strip(), answered.stderr) == (offered, "")


def test_zsh_gets_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out
    for word in ("verifiable-producer", "--json", "kafka-sink", "startingOffsetsByTimestamp", "kafka.acks"):
        assert word in script
    assert "_sparkonce_name() {" in script
    assert re.search(r":one option, with kafka\. or without[^:]*:_sparkonce_name", script)
