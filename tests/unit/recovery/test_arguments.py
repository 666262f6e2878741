"""Values on the command line of the housekeeping commands: read as meant, or refused by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from sparkonce.connectors.delta_sink.compaction import Compaction
from sparkonce.jobs.cli.housekeeping.orphans import TableFolder
from sparkonce.jobs.shared.arguments import (
    add_kafka,
    duration_s,
    key_value,
    positive,
    show_bytes,
    show_columns,
    show_time,
    table,
    timestamp_ms,
    whole_number,
)
from sparkonce.jobs.shared.kafka_options import settings_from
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from tests.cases import each_case


@each_case(
    ("read", "text", "value"),
    [
        (duration_s, "90s", 90),
        (duration_s, "30m", 1800),
        (duration_s, "12h", 43_200),
        (duration_s, "7d", 604_800),
        (timestamp_ms, "1970-01-02", 86_400_000),
        (timestamp_ms, "1970-01-01T00:00:01.5Z", 1500),
        (timestamp_ms, "1970-01-01T01:00:00+01:00", 0),
        (key_value, "a=b=c", ("a", "b=c")),
        (key_value, "a=", ("a", "")),
        (whole_number, "0", 0),
        (positive, "7", 7),
    ],
)
def test_values(read: Callable[[str], object], text: str, value: object) -> None:
    assert read(text) == value


@each_case(
    ("read", "text"),
    [
        (duration_s, "7"),
        (duration_s, "-1d"),
        (duration_s, "1.5h"),
        (timestamp_ms, "yesterday"),
        (key_value, "a"),
        (key_value, "=a"),
        (whole_number, "-1"),
        (positive, "0"),
        (table, " "),
        (table, "group:g"),
    ],
)
def test_what_cannot_be_read(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


@pytest.mark.parametrize("text", ["sasl.password:hunter2", "=hunter2"])
def test_what_may_be_a_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected KEY=VALUE") as error:
        key_value(text)
    assert "hunter2" not in str(error.value)


def test_the_command_line_goes_before_the_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=a:1\nkafka.client.id=file\nsecurity.protocol=PLAINTEXT\n")
    parser = argparse.ArgumentParser()
    add_kafka(parser, "for this test")
    assert settings_from(parser.parse_args([])) == {}
    words = ["--command-config", str(file), "--kafka", "client.id=word", "--bootstrap-servers", "b:2"]
    assert settings_from(parser.parse_args(words)) == {
        "kafka.bootstrap.servers": "b:2",
        "kafka.client.id": "word",
        "kafka.security.protocol": "PLAINTEXT",
    }


def test_storage_options_are_not_shown(tmp_path: Path) -> None:
    """They may hold keys, and a dataclass in a traceback or a log is shown whole."""
    DeltaTable.create(tmp_path / "t", Schema([Field("n", PrimitiveType("long"))]))
    location, options = Location.parse(str(tmp_path / "t")), {"AWS_SECRET_ACCESS_KEY": "hidden"}
    opened: list[object] = [OffsetsTable.open(location, options), TableFolder.open(location, options)]
    opened += [Compaction(location, options, 1, {}), DeltaOffsetStore(location, "app", options)]
    assert not [each for each in opened if "hidden" in repr(each)]


def test_what_is_shown() -> None:
    assert [show_bytes(count) for count in (0, 1023, 1024, 1536, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]
    assert show_time(0) == "time unknown"
    assert show_time(1500) == "1970-01-01 00:00:01 UTC"
    assert show_columns([("a", "bcd"), (100, 2)]) == "  a    bcd\n  100  2"
