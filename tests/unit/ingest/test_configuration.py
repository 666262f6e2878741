"""The file of `sparkonce ingest`: read as meant, or refused with what, where and what to do."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from sparkonce import IngestTable, OptionError, ingest
from sparkonce.connectors.ingest.configuration import Configuration, read_configuration
from sparkonce.connectors.ingest.settings import IngestSettings, TableEntries
from sparkonce.jobs.shared.arguments import CONF

WHOLE = """
app_id = "shop"
checkpoint = "/checkpoints"
"""
KAFKA = """
[kafka]
bootstrap.servers = "localhost:9092"
"""
TABLE = """
topics = "orders"
path = "/tables/orders"
"""


def read(tmp_path: Path, text: str, **environment: str) -> Configuration:
    file = tmp_path / "shop.toml"
    file.write_text(text)
    return read_configuration(file, environment)


def refused(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(OptionError) as refusal:
        read(tmp_path, text, **environment)
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path / 'shop.toml'}")
    return message.removeprefix(f"{tmp_path / 'shop.toml'}").removeprefix(": ")


def test_one_table_is_at_the_top_of_the_file(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE + TABLE + KAFKA).settings
    (table,) = settings.tables
    assert (table.topics, table.path, table.delivery_guarantee) == ("orders", "/tables/orders", None)
    assert settings.client == {"kafka.bootstrap.servers": "localhost:9092"}


def test_tables_have_what_they_do_not_set_from_the_top(tmp_path: Path) -> None:
    text = f"""{WHOLE}
        delivery_guarantee = "at-least-once"
        compact_every = 7
        {KAFKA}
        [sink]
        compression = "zstd"
        rowGroupRows = 10
        [[tables]]
        topics = ["a", "b"]
        table = "lake.ab"
        [[tables]]
        topic_pattern = "^c"
        path = "/tables/{{topic}}"
        delivery_guarantee = "exactly-once"
        compact_every = 0
        [tables.sink]
        compression = "snappy"
    """
    first, second = read(tmp_path, text).settings.tables
    assert (first.delivery_guarantee, first.compact_every) == ("at-least-once", 7)
    assert first.sink == {"compression": "zstd", "rowGroupRows": "10"}
    assert (second.delivery_guarantee, second.compact_every, second.table) == ("exactly-once", 0, None)
    assert second.sink == {"compression": "snappy", "rowGroupRows": "10"}


def test_names_with_dots_need_no_quotes(tmp_path: Path) -> None:
    text = f"""{WHOLE}{TABLE}
        [kafka]
        bootstrap.servers = "a:1"
        "security.protocol" = "SSL"
        kafka.client.id = "me"
        [spark]
        spark.sql.shuffle.partitions = 2
        spark.ui.enabled = true
    """
    found = read(tmp_path, text)
    assert found.settings.client == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.client.id": "me",
    }
    assert found.spark == {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "true"}


def test_values_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    text = f"""{WHOLE}{TABLE}
        metrics_port = {{ env = "PORT" }}
        {KAFKA}
        sasl.jaas.config = {{ env = "JAAS" }}
        [storage]
        KEY = {{ env = "STORE_KEY" }}
    """
    found = read(tmp_path, text, PORT="9405", JAAS="user and password", STORE_KEY="do not show")
    assert found.settings.metrics_port == 9405
    assert found.settings.client["kafka.sasl.jaas.config"] == "user and password"
    assert found.settings.storage_options == {"storage.KEY": "do not show"}
    assert "password" not in repr(found)
    assert "do not show" not in repr(found)
    assert found.without_secrets("refused: user and password, do not show") == "refused: ***, ***"


def test_errors_do_not_show_values_of_the_environment(tmp_path: Path) -> None:
    text = WHOLE.replace('"shop"', '{ env = "ID" }') + TABLE + KAFKA
    assert "hidden away" not in refused(tmp_path, text, ID="hidden away")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app_id = ", " is not TOML"),
        (TABLE + KAFKA + '[source]\nx = "y"', "entry 'app_id' is missing"),
        (WHOLE + TABLE, "entry 'kafka' is missing"),
        (WHOLE + TABLE + "[kafka]\nacks = 1", "kafka has no bootstrap.servers: name the brokers"),
        (WHOLE + "topcis = 'a'" + KAFKA, "unknown entry 'topcis'; did you mean 'topics'?"),
        (WHOLE + "valueFormat = 'json'" + KAFKA, "unknown entry 'valueFormat'; did you mean 'value_format'?"),
        (WHOLE + "maxOffsetsPerTrigger = 1" + KAFKA, "options of source and sink go into [source] and [sink]"),
        (WHOLE + KAFKA + "[[tables]]\ntrigger = 'once'", "number 1: unknown entry 'trigger'; it is for all tables"),
        (WHOLE + TABLE + "merge_schema = 'yes'" + KAFKA, "entry 'merge_schema' must be true or false"),
        (WHOLE + TABLE + "compact_every = 1.5" + KAFKA, "entry 'compact_every' must be a whole number"),
        (WHOLE + TABLE + "stop_timeout = 5" + KAFKA, "entry 'stop_timeout' must be a time such as '30 seconds'"),
        (WHOLE + "topics = [1]" + KAFKA, "entry 'topics' must be a text, or a list of texts"),
        (WHOLE + "tables = 'a'" + KAFKA, "write [[tables]]"),
        (WHOLE + TABLE + "kafka = 'a'", "entry 'kafka' must be a section: write [kafka]"),
        (WHOLE + TABLE + KAFKA + "a = { env = 'NONE' }", "'kafka.a': the environment variable NONE is not set"),
        (WHOLE + TABLE + "trigger = '10'" + KAFKA, "trigger='10': expected an interval such as '10 seconds'"),
        (WHOLE + TABLE + "trigger = 'available-now'" + KAFKA, "did you mean 'availableNow'?"),
        (WHOLE + "topics = 'a'" + KAFKA, "table or path is missing: name the table in Spark's catalog, or its path"),
        (WHOLE + "path = '/a'" + KAFKA, "topics or topic_pattern is missing: name the topics"),
        (WHOLE + TABLE + "table = 'a'" + KAFKA, "table and path exclude each other: leave one of them out"),
        (WHOLE + TABLE + KAFKA + "[[tables]]\ntable = 'a'", "topics is of one table, and there are several"),
        (
            WHOLE + KAFKA + "[[tables]]\ntopics='a'\npath='/a'\n[[tables]]\ntopics='b'",
            "tables, number 2: table or path",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot read the configuration .*none.toml: No such file or directory"):
        read_configuration(tmp_path / "none.toml", {})


def test_the_example_can_be_read() -> None:
    found = read_configuration(CONF / "ingest.toml", {})
    assert [table.topic_pattern for table in found.settings.tables] == [r"^shop\.(.+)$", None]
    assert {table.compact_every for table in found.settings.tables} == {100}


def test_python_and_toml_have_the_same_entries() -> None:
    arguments = {*inspect.signature(ingest).parameters} - {"spark", "entries"}
    assert arguments == {each.name for each in fields(IngestSettings)}
    assert get_type_hints(TableEntries) == get_type_hints(IngestTable)
