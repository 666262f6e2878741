"""Rows dealt out, the column checked, and dead letters as Kafka records."""

from __future__ import annotations

import datetime as dt
import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.formats.dead_letter_target import RECORD, as_records, check_column, rows_schema, split
from sparkonce.connectors.sinks.dead_letters import DeadLetterPlace
from sparkonce.connectors.values.letters import COLUMN, LETTER
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.locations import Location
from sparkonce.options import OptionError
from tests.cases import each_case

TYPES = pa.struct(
    [
        ("reason", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
AT = dt.datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=dt.UTC)
LETTERS = [
    {"reason": "bad", "key": b"k", "value": b"\xff", "topic": "é", "partition": 3, "offset": 1 << 40, "timestamp": AT},
    {"reason": "worse", "key": None, "value": None, "topic": "t", "partition": 0, "offset": 0, "timestamp": None},
]
ROWS = t.StructType([t.StructField("n", t.LongType())])
MARKED = t.StructType([*ROWS.fields, t.StructField(COLUMN, LETTER)])
PLACE = DeadLetterPlace(topic="dead")
OPTIONS = {"path": "/x/table", "appId": "app", "checkpointLocation": "/x/checkpoint"}
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def rows(*letters: dict[str, object] | None) -> pa.RecordBatch:
    numbers = pa.array(range(len(letters)), pa.int64())
    return pa.RecordBatch.from_pydict({"n": numbers, COLUMN: pa.array(list(letters), TYPES), "m": numbers})


def test_rows_are_dealt_out() -> None:
    letters, fine = split(rows(None, LETTERS[0], None, LETTERS[1]))
    assert letters.to_pylist() == LETTERS
    assert fine.to_pylist() == [{"n": 0, "m": 0}, {"n": 2, "m": 2}]


def test_only_fine_rows_and_only_dead_letters() -> None:
    letters, fine = split(rows(None, None))
    assert (letters.num_rows, letters.schema.names, fine.num_rows) == (0, LETTER.names, 2)
    letters, fine = split(rows(*LETTERS))
    assert (letters.to_pylist(), fine.num_rows, fine.schema.names) == (LETTERS, 0, ["n", "m"])
    letters, fine = split(rows().slice(0, 0))
    assert (letters.num_rows, fine.num_rows) == (0, 0)


def test_a_part_of_a_batch_is_dealt_out() -> None:
    letters, fine = split(rows(None, LETTERS[0], None, LETTERS[1]).slice(1, 2))
    assert (letters.to_pylist(), fine.to_pylist()) == (LETTERS[:1], [{"n": 2, "m": 2}])


def test_a_dead_letter_as_a_record() -> None:
    letters, _ = split(rows(*LETTERS))
    first, second = as_records(letters).to_pylist()
    assert (first["key"], first["value"]) == (b"k", b"\xff")
    assert [(each["key"], each["value"]) for each in first["headers"]] == [
        ("reason", b"bad"),
        ("topic", "é".encode()),
        ("partition", b"3"),
        ("offset", str(1 << 40).encode()),
        ("timestamp", b"1709208000123"),
        ("__connect.errors.topic", "é".encode()),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", str(1 << 40).encode()),
        ("__connect.errors.exception.message", b"bad"),
    ]
    assert (second["key"], second["value"]) == (None, None)
    assert [each["value"] for each in second["headers"]] == [
        b"worse",
        b"t",
        b"0",
        b"0",
        None,
        b"t",
        b"0",
        b"0",
        b"worse",
    ]
    assert as_records(letters).schema.names == RECORD.names
    assert as_records(letters.slice(0, 0)).num_rows == 0


def test_the_column_and_the_option_go_together() -> None:
    check_column("delta_once", MARKED, PLACE)
    check_column("delta_once", ROWS, None)
    assert rows_schema(MARKED) == ROWS
    with pytest.raises(OptionError, match="but no place for dead letters is configured: set the option deadLetters"):
        check_column("delta_once", MARKED, None)
    with pytest.raises(OptionError, match=r"deadLetters=topic:dead, but the rows have no column _dead_letter.*mark"):
        check_column("delta_once", ROWS, PLACE)
    other = t.StructType([t.StructField(COLUMN, t.StringType())])
    with pytest.raises(OptionError, match="_dead_letter is string, and must be struct<reason:string,key:binary,"):
        check_column("delta_once", other, PLACE)


def test_the_places() -> None:
    assert DeadLetterPlace.parse("topic:a.b-c_1") == DeadLetterPlace(topic="a.b-c_1")
    assert DeadLetterPlace.parse("table: /x/y") == DeadLetterPlace(table=Location.parse("/x/y"))
    assert [str(DeadLetterPlace.parse(text)) for text in ("topic:a", "table:/x")] == ["topic:a", "table:/x"]
    for text in ("topic:", "table:", "dead", "topic:a b", "topic:..", "delta:/x"):
        with pytest.raises(ValueError, match=r"expected topic:<name>|a topic's name has"):
            DeadLetterPlace.parse(text)


@each_case(
    ("given", "reason"),
    [
        ({"deadLetters": "nowhere"}, "option deadLetters='nowhere': expected topic:<name> or table:"),
        ({"deadLetters": "table:/x/table"}, "is the table of the rows"),
        ({"deadLetters": "table:/x/o", "offsetStore": "delta:file:/x/o"}, "is where the offsets of the dead letters"),
        (
            {"deadLetters": "topic:d", "offsetStore": "group:app-dead-letters", **SERVERS},
            "is where the offsets of the dead letters",
        ),
        ({"deadLetters": "topic:d"}, r"deadLetters=topic:d: option kafka\.bootstrap\.servers must be specified"),
        ({"deadLetters": "table:/x/d", **SERVERS}, r"kafka\.bootstrap\.servers is for .* deadLetters table:/x/d"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=f"delta_once: .*{reason}"):
        SinkOptions.read({**OPTIONS, **given})


def test_the_options_of_dead_letters() -> None:
    table = SinkOptions.read({**OPTIONS, "deadLetters": "table:/x/dead"})
    assert (table.dead_letters, table.kafka, table.producer) == (DeadLetterPlace.parse("table:/x/dead"), None, None)
    given = {**OPTIONS, **SERVERS, "deadLetters": "topic:d", "offsetStore": "group:g", "kafka.batch.size": "1000"}
    topic = SinkOptions.read({**given, "deliveryGuarantee": "at-least-once"})
    assert (topic.guarantee, topic.offset_store) == (Guarantee.AT_LEAST_ONCE, "group:g")
    assert topic.kafka is not None
    assert topic.kafka.bootstrap_servers == (("localhost", 9092),)
    assert topic.producer is not None
    assert topic.producer.batch_bytes == 1000
    assert pickle.loads(pickle.dumps(topic)) == topic
