"""The example jobs' configurations and command lines; no Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.enrich_flights import main as enrich_flights
from jobs.hourly_delays import main as hourly_delays
from jobs.job_settings import PROJECT, JobSettings, JobSettingsError

OWN = {"enrich_flights": ("partition_by",), "hourly_delays": ("window", "watermark")}


@pytest.mark.parametrize("name", OWN)
def test_the_configurations_in_conf_are_read(name: str) -> None:
    settings = JobSettings.read(PROJECT / "conf" / f"{name}.toml", OWN[name])
    assert settings.delivery_guarantee == "exactly-once"
    assert settings.kafka["subscribe"] == "flights"
    assert settings.spark["spark.master"] == "local[2]"
    assert set(settings.own) == set(OWN[name])


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = (PROJECT / "conf" / "enrich_flights.toml").read_text()
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
        ("app_id =", "app_id", "is not TOML"),
        ('app_id = "enrich-flights"', 'kafka = "x"\napp_id = "a"\n[other]', "unknown entry 'other'; known: app_id"),
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


def test_a_section_that_is_no_section(tmp_path: Path) -> None:
    text = (PROJECT / "conf" / "enrich_flights.toml").read_text()
    path = tmp_path / "job.toml"
    path.write_text('spark = "local"\n' + text[: text.index("[spark]")])
    with pytest.raises(JobSettingsError, match=r"'spark' is a section: \[spark\]"):
        JobSettings.read(path, OWN["enrich_flights"])


@pytest.mark.parametrize("main", [enrich_flights, hourly_delays])
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


@pytest.mark.parametrize("name", OWN)
def test_help_tells_what_the_job_does(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", f"jobs.{name}", "--help"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    for option in ("--config", "--bootstrap-servers", "--continuous", "--sample"):
        assert option in ended.stdout
    assert "flights" in ended.stdout.lower()
