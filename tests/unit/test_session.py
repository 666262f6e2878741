"""The session helper refuses what Spark would pass over in silence, and says what Spark does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkonce.connectors import session
from sparkonce.connectors.runtime import java_check
from sparkonce.connectors.session import spark_session


def test_a_setting_without_a_dot_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'master' is not a Spark setting; .*'spark\.master'"):
        spark_session("etl", master="local[1]")


class Builder:
    """A builder of sessions that only notes what it was told."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}

    def appName(self, _name: str) -> Builder:  # noqa: N802
        return self

    def config(self, name: str, value: str) -> Builder:
        self.conf[name] = value
        return self

    def getOrCreate(self) -> dict[str, str]:  # noqa: N802
        return self.conf


def test_the_daemon_of_the_workers_is_ours_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(session, "active_in_thread", lambda made: made)
    name = "spark.python.daemon.module"
    assert spark_session("etl")[name] == "sparkonce.connectors.runtime.worker_daemon"  # type: ignore[index]
    assert spark_session("etl", **{name: "pyspark.daemon"})[name] == "pyspark.daemon"  # type: ignore[index]


@pytest.mark.parametrize(
    ("conf", "submitted", "local"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"spark.master": "local[2]"}, True, True),
        ({"spark.master": "yarn"}, False, False),
    ],
)
def test_defaults_for_one_machine_stay_off_a_cluster(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], submitted: bool, local: bool
) -> None:
    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(session, "active_in_thread", lambda made: made)
    monkeypatch.setattr(session, "register", lambda made: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    found = spark_session("etl", **conf)
    for name in ("spark.driver.host", "spark.python.daemon.module"):
        assert (name in found) == local  # type: ignore[operator]


INGEST = """
app_id = "etl"
checkpoint = "checkpoints"
[kafka]
bootstrap.servers = "localhost:1"
[[tables]]
topics = ["orders"]
path = "orders"
"""


def test_without_java_a_command_says_what_the_doctor_says(tmp_path: Path) -> None:
    settings = tmp_path / "ingest.toml"
    settings.write_text(INGEST)
    command = [sys.executable, "-m", "sparkonce", "ingest", str(settings)]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"sparkonce ingest: JavaError: {tmp_path}/bin/java does not run (")
    assert f"). {java_check.FIX}" in last
    assert "Traceback" not in ended.stderr
