"""`sparkonce ingest` before Spark starts: what `--check` prints, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.connectors.ingest.ingestion import IngestError
from sparkonce.jobs.cli.ingest import _stop
from sparkonce.jobs.cli.main import main
from sparkonce.jobs.shared.arguments import CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def config(kafka_broker: EmbeddedBroker, tmp_path: Path) -> Path:
    """The example, with this broker."""
    file = tmp_path / "ingest.toml"
    file.write_text((CONF / "ingest.toml").read_text().replace("localhost:9092", kafka_broker.bootstrap_servers))
    return file


def create(broker: EmbeddedBroker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        future.result()


def test_a_check_says_what_would_be_started(
    kafka_broker: EmbeddedBroker, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(kafka_broker, "shop.orders", "clicks-eu", "clicks-us")
    assert main(["ingest", str(config), "--check"]) == 0
    assert capsys.readouterr().out == (
        f"{config}: 2 tables, trigger 10 seconds\n"
        "\n"
        "shop.orders\n"
        "  topics      shop.orders (2 partitions)\n"
        "  table       data/tables/orders\n"
        "  appId       shop.shop.orders\n"
        "  checkpoint  data/ingest-checkpoints/tables-87be2741 (of the query of all these tables)\n"
        "  guarantee   exactly-once\n"
        "  records     direct: nothing forbids it\n"
        "  compaction  every 100 batches\n"
        "\n"
        "clicks\n"
        "  topics      clicks-eu, clicks-us (4 partitions)\n"
        "  table       data/tables/clicks\n"
        "  appId       shop.clicks\n"
        "  checkpoint  data/ingest-checkpoints/clicks\n"
        "  guarantee   exactly-once\n"
        "  records     direct: nothing forbids it\n"
        "  compaction  every 100 batches\n"
        "\n"
        "Topics with ^shop\\.(.+)$ that are created later get tables of their own.\n"
        "\n"
        "Nothing was started: this was a check\n"
    )


def test_a_topic_that_is_missing_is_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(config), "--check", "--available-now"]) == 1
    assert "MissingTopicError: topic 'clicks-eu' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_what_cannot_work_is_refused_before_spark_starts(
    config: Path, capsys: pytest.CaptureFixture[str], check: list[str]
) -> None:
    config.write_text(config.read_text().replace("value_schema", "#"))
    assert main(["ingest", str(config), *check]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"sparkonce ingest: {config}: tables, number 2: kafka_once: valueFormat=json needs")


def test_values_of_the_environment_are_not_shown(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETTERS", "nowhere to be shown")
    text = config.read_text().replace('"table:data/tables/clicks-dead-letters"', '{ env = "LETTERS" }')
    config.write_text(text)
    assert main(["ingest", str(config), "--check"]) == 2
    said = capsys.readouterr().err
    assert "option deadLetters='***': expected topic:<name>" in said


def test_a_pattern_that_no_topic_has_is_said(
    kafka_broker: EmbeddedBroker, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(kafka_broker, "clicks-eu", "clicks-us")
    assert main(["ingest", str(config), "--check"]) == 0
    assert "No topic has ^shop\\.(.+)$ yet. Topics with ^shop" in capsys.readouterr().out


def test_java_that_ended_first_is_named() -> None:
    class Gone:
        def stop(self) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(IngestError, match=r"Java process ended first: .* Signal only the Python process"):
        _stop(cast("SparkSession", Gone()))
