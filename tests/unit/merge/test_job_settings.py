"""The example jobs' configurations and command lines; no Spark."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.jobs.etl import job_settings
from sparkonce.jobs.etl.enrich_flights import main as enrich_flights
from sparkonce.jobs.etl.hourly_delays import main as hourly_delays
from sparkonce.jobs.etl.job_settings import JobError, JobSettings, JobSettingsError, reason
from sparkonce.jobs.etl.route_flights import OWN as ROUTE_FLIGHTS_OWN
from sparkonce.jobs.etl.route_flights import RESULT
from sparkonce.jobs.etl.route_flights import main as route_flights
from sparkonce.jobs.shared.arguments import CONF

OWN = {
    "enrich_flights": ("partition_by",),
    "hourly_delays": ("window", "watermark"),
    "route_flights": ROUTE_FLIGHTS_OWN,
}
RESULTS = {"route_flights": RESULT}
JOBS = (enrich_flights, hourly_delays, route_flights)


@pytest.mark.parametrize("name", OWN)
def test_the_configurations_in_conf_are_read(name: str) -> None:
    settings = JobSettings.read(CONF / f"{name}.toml", OWN[name], RESULTS.get(name, "table"))
    assert settings.delivery_guarantee == "exactly-once"
    assert settings.kafka["subscribe"] == "flights"
    assert settings.spark["spark.master"] == "local[2]"
    assert set(settings.own) == set(OWN[name])


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = (CONF / "enrich_flights.toml").read_text()
    assert old in text
    path = tmp_path / "job.toml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("checkpoint =", "chekpoint =", "unknown entry 'chekpoint'; did you mean 'checkpoint'"),
        ('app_id = "enrich-flights"', "", "entry 'app_id' is missing"),
        ('app_id = "enrich-flights"', 'app_id = ""', "entry 'app_id' is empty"),
        ("[kafka]", "[kafka.more]", "entry 'kafka.more' is no text and no number"),
        ("[kafka]", '[kafka]\n"storage.AWS_REGION" = "r"', "'storage.AWS_REGION' is in [kafka]: put it into [storage]"),
        ("app_id =", "app_id", "is not TOML"),
        ('app_id = "enrich-flights"', 'kafka = "x"\napp_id = "a"\n[other]', "unknown entry 'other'; known: app_id"),
        ("[kafka]", 'storage = "s3"\n[kafka]', "'storage' is a section: [storage]"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = changed(tmp_path, old, new)
    if 'kafka = "x"' in new:
        path.write_text(path.read_text().replace("[kafka]", ""))
    with pytest.raises(JobSettingsError) as error:
        JobSettings.read(path, OWN["enrich_flights"])
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_store_is_a_section_that_may_be_there(tmp_path: Path) -> None:
    path = changed(tmp_path, "[kafka]", '[storage]\nAWS_SECRET_ACCESS_KEY = "s3cret"\n[kafka]')
    settings = JobSettings.read(path, OWN["enrich_flights"])
    assert settings.storage_options == {"storage.AWS_SECRET_ACCESS_KEY": "s3cret"}
    assert "s3cret" not in repr(settings)


def test_a_section_that_is_no_section(tmp_path: Path) -> None:
    text = (CONF / "enrich_flights.toml").read_text()
    path = tmp_path / "job.toml"
    path.write_text('spark = "local"\n' + text[: text.index("[spark]")])
    with pytest.raises(JobSettingsError, match=r"'spark' is a section: \[spark\]"):
        JobSettings.read(path, OWN["enrich_flights"])


@pytest.mark.parametrize("main", JOBS)
def test_a_missing_configuration_is_no_traceback(main: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    assert main(["--config", "nowhere.toml"]) == 2
    assert "cannot read the configuration nowhere.toml: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["a,b", "flights"])
def test_a_sample_needs_one_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str) -> None:
    path = changed(
        tmp_path,
        "subscribe =" if topic == "flights" else '"flights"',
        "assign =" if topic == "flights" else f'"{topic}"',
    )
    assert enrich_flights(["--config", str(path), "--sample", "1"]) == 2
    assert "--sample needs one topic" in capsys.readouterr().err


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be known before must not cost a start of Spark."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(job_settings, "spark_session", refuse)
    monkeypatch.setattr(job_settings, "delta_jars", lambda: ["delta.jar"])


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("main", JOBS)
def test_a_broker_that_does_not_answer_is_one_line(
    main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    name = main.__module__.rpartition(".")[2]
    config = tmp_path / "job.toml"
    text = (CONF / f"{name}.toml").read_text()
    config.write_text(text.replace("[kafka]", '[kafka]\n"kafka.socket.connection.setup.timeout.ms" = 100'))
    words = ["--config", str(config), "--bootstrap-servers", address]
    assert main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"python -m sparkonce.jobs.etl.{name}: no answer from Kafka at {address} within 100 ms ")
    assert "could not ask for the topics flights" in line
    assert "--bootstrap-servers HOST:PORT, or try the job without a Kafka: --sample 20000 (--debug" in line
    assert main([*words, "--debug"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert shown.splitlines()[-1] == line.removesuffix(" (--debug shows the traces)")


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("main", JOBS)
def test_a_missing_topic_is_one_line(
    main: Callable[[list[str]], int], kafka_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--bootstrap-servers", kafka_broker.bootstrap_servers]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "topic 'flights' does not exist: check its name, or create it first (option subscribe;" in line
    assert f"(asked of Kafka at {kafka_broker.bootstrap_servers})" in line


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("subscribe_to =", "unknown option 'subscribe_to'"),
        ("endingOffsets = 'latest'\nsubscribe =", "ending offset not valid in streaming queries"),
    ],
)
def test_options_that_cannot_be_used_end_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: str, message: str
) -> None:
    assert enrich_flights(["--config", str(changed(tmp_path, "subscribe =", new))]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        enrich_flights(["--nonsense"])
    assert ended.value.code == 2


WRAPPED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Error from Python worker:
Traceback (most recent call last):
  File "a.py", line 1, in f
    raise KeyError("inner")
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
    decide(batch)
    ^^^^^^^^^^^^^
sparkonce.exactly_once.errors.OffsetMismatchError: batch 0 of query q has a gap; use another appId
	at org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)

JVM stacktrace:
org.apache.spark.SparkException: and so on"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(WRAPPED), "OffsetMismatchError: batch 0 of query q has a gap; use another appId"),
        (
            ValueError("[PATH_NOT_FOUND] no such path\n\nJVM stacktrace:\nx"),
            "ValueError: [PATH_NOT_FOUND] no such path",
        ),
        (JobError("no answer. Look there"), "no answer. Look there"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_the_innermost_reason_is_told(error: Exception, said: str) -> None:
    assert reason(error) == said


@pytest.mark.parametrize("name", OWN)
def test_help_tells_what_the_job_does(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", f"sparkonce.jobs.etl.{name}", "--help"],
        cwd=CONF.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    for option in ("--config", "--bootstrap-servers", "--continuous", "--sample", "--debug"):
        assert option in ended.stdout
    assert "flights" in ended.stdout.lower()
