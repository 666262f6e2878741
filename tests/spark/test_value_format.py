"""Values decoded by the source: against Spark's from_json on the same rows, and through whole queries."""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lab.crash_plans import arm, fired
from sparkonce.connectors.values.ddl import parse_schema
from tests.cases import each_case
from tests.json_documents import SCHEMA, documents, random_schema
from tests.spark.from_json import ZONE, by_us, same
from tests.spark.source_support import Topics, batch

pytestmark = pytest.mark.spark

PATTERNS = {
    "dateFormat": "dd.MM.yyyy",
    "timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSS][XXX]",
    "timestampNTZFormat": "M/d/yy H",
}
BY_PATTERN = "d DATE, t TIMESTAMP, w TIMESTAMP_NTZ, _corrupt_record STRING"
HALVES = (
    '{"a":"\\ud800"}', '{"a":"\\udc00x\\ud800","b":1}', '{"a\\udfff":"x"}', '["\\ud800",1]', '"\\ud800"',
    '{"b":{"c":["\\ud800\\u0041\\ud83d\\ude00"]}}', "{'a':'\\ud800'}",
)  # fmt: skip
"""Documents in which half of a surrogate pair stands alone."""
BROKEN = (
    "1.0e", "1.0e ", "1e", "1.5E+", "-1.0e", "-12e-", "0e", "-0.", "0.5e", "1.", "1.x", "1.0e,2", "1.0e}", "00", "-",
    "+",
)  # fmt: skip
NUMBERS = (
    "০১২", "-১২.৫", "1e২", "1E+২", "߁.5", "+२", "১,২", "\U0001d7cf", "²", "1e2147483648", "0e99999999999",
    "1e-2147483648",
    "0.0e-2147483647", "0e2147483647", "1e00000000000000000002", "1e", ".", ".5", "-5.", "+-1", ".e1", "1_0", " 1",
)  # fmt: skip
SUCCESSORS = ("\x7f", "\u200b", "\ufeff", "\u0301", "²", "½", "é", "€", "‿", "\U0001d41a", "২", "\u2028", "+", "$", "_")
"""What stands behind a word, or before one: a part of Java's identifiers or not."""


@pytest.fixture(autouse=True)
def _zone(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_random_documents_become_what_from_json_makes_of_them(spark: SparkSession) -> None:
    same(spark, SCHEMA, documents(1, 1500))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2000, 2040))
def test_many_random_documents_become_what_from_json_makes_of_them(spark: SparkSession, seed: int) -> None:
    same(spark, SCHEMA, documents(seed, 5000))


@each_case("seed", range(4))
def test_damaged_documents_of_random_schemas_become_what_from_json_makes_of_them(
    spark: SparkSession, seed: int
) -> None:
    schema = random_schema(seed)
    same(spark, schema, documents(seed, 1000, schema, damaged=0.7))


@each_case(
    ("schema", "texts"),
    [
        ("s STRING", [f'{{"s":{each}}}' for each in HALVES]),
        ("m MAP<STRING, STRING>", [f'{{"m":{each}}}' for each in HALVES if each[0] == "{"]),
        ("v ARRAY<DOUBLE>", [f'{{"v":[{each}],"z":7}}' for each in BROKEN]),
        ("v ARRAY<DOUBLE>", [f'{{"p":"{"😀x" * 1331}{"x" * at}","v":[1.0e],"z":7}}' for at in range(20)]),
        ("v ARRAY<STRING>", ['{"v":[{"a":1],"z":7}', '{"v":[{"a":1.0e],"z":7}', '{"v":[{],"z":7}', '{"v":[[}],"z":7}']),
        ("v ARRAY<STRUCT<a: INT>>", ['{"v":[{"a":1],"z":7}', '{"v":[{"a":1.0e}],"z":7}', '{"v":[{],"z":7}']),
        ("d DECIMAL(9,2)", [f'{{"d":"{each}","z":7}}' for each in NUMBERS]),
        ("d DECIMAL(9,2)", [f'{{"d":{each},"z":7}}' for each in NUMBERS if each.isascii()]),
        (
            "d DATE",
            [
                f'{{"d":"{each}","z":7}}'
                for each in ("২০২৪", "-߁߂", "+\uff11", "২০২৪-০১-০১", "\U0001d7cf", "1²", "১ ", "+")
            ],
        ),
        ("b BOOLEAN", [f'{{"b":true{each},"z":7}}' for each in SUCCESSORS]),
        ("v ARRAY<INT>", [f'{{"v":[{each}x],"z":7}}' for each in SUCCESSORS]),
        ("v INT", [f'{{"{"ü" * (49_999 + more)}x":1,"z":7}}' for more in range(3)]),
        ("v STRING", [f'{{"v":{{"{"x" * (49_999 + more)}":1}},"z":7}}' for more in range(3)]),
    ],
)
def test_odd_documents_become_what_from_json_makes_of_them(spark: SparkSession, schema: str, texts: list[str]) -> None:
    same(spark, f"{schema}, z INT, _corrupt_record STRING", [text.encode() for text in texts])


def test_what_is_no_utf_8_becomes_what_from_json_makes_of_it(spark: SparkSession) -> None:
    chance = random.Random(1)
    leads = b"A\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc2\xdf\xe0\xe1\xed\xed\xef\xf0\xf1\xf4\xf5\xf8\xff"
    some = [bytes(chance.choices(leads, k=chance.randint(1, 7))) for _ in range(1000)]
    same(spark, "s STRING, z INT, _corrupt_record STRING", [b'{"s":"' + each + b'","z":7}' for each in some])


def test_patterns_read_what_from_json_reads_by_them(spark: SparkSession) -> None:
    dates = ("29.02.2024", "30.02.2024", "29.02.২০২৪", "1.2.2024", "29.02.-2024", "", "100")
    times = (
        *(f"2024-02-29 10:00:00{rest}" for rest in ("", ".5", ".1234", ".123Z", "+02:00", "z", " ", ".", "+0200")),
        *("2024-02-29T10:00:00", "12024-02-29 10:00:00", "+12024-02-29 10:00:00"),
        *("2024-03-10 02:30:00", "2024-02-29 24:00:00", "0001-01-01 00:00:00"),
    )
    walls = ("1/2/24 3", "01/02/24 03", "1/2/99 3", "1/2/2024 3", "001/2/24 3", "13/2/24 3")
    values = [
        json.dumps({name: text}).encode()
        for name, texts in zip("dtw", (dates, times, walls), strict=True)
        for text in texts
    ]
    values.append(b'{"t":5,"d":5}')
    ours = by_us(
        BY_PATTERN,
        values,
        date_format=PATTERNS["dateFormat"],
        timestamp_format=PATTERNS["timestampFormat"],
        timestamp_ntz_format=PATTERNS["timestampNTZFormat"],
    )
    same(spark, BY_PATTERN, values, ours, **PATTERNS)


@pytest.mark.parametrize(
    "text",
    [
        SCHEMA,
        "a INT",
        "a: int, `b c``d` string NOT NULL COMMENT 'it\\'s', dec dec, num NUMERIC(5), real REAL",
        "struct<a: struct<b: array<map<string, decimal(38, 38)>>>, c timestamp_ltz>",
        "date DATE, timestamp TIMESTAMP, array ARRAY<INT>",
    ],
)
def test_schemas_are_read_as_spark_reads_them(spark: SparkSession, text: str) -> None:
    theirs = StructType.fromDDL(text)
    assert parse_schema(text).simpleString() == theirs.simpleString()
    assert parse_schema(theirs.json()) == parse_schema(text)


GOOD = [json.dumps({"id": number, "at": "2024-05-01T12:00:00"}).encode() for number in range(5)]
BAD = [b'{"id":"x"}', b"junk"]


def options(**more: str) -> dict[str, str]:
    return {"valueFormat": "json", "valueSchema": "id INT, at TIMESTAMP, _corrupt_record STRING", **more}


def test_values_are_columns(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    topics.produce(topic, [*GOOD, *BAD, None, b""])
    frame = batch(spark, topics, topic, **options(columns="offset,value", timeZone=ZONE))
    assert (
        frame.schema.simpleString() == "struct<offset:bigint,value:struct<id:int,at:timestamp,_corrupt_record:string>>"
    )
    found = frame.selectExpr("offset", "value IS NULL", "value.id", "CAST(value.at AS STRING)", "value._corrupt_record")
    assert [tuple(row) for row in found.sort("offset").collect()] == [
        *((number, False, number, "2024-05-01 12:00:00", None) for number in range(5)),
        (5, False, None, None, '{"id":"x"}'),
        (6, False, None, None, "junk"),
        (7, True, None, None, None),
        (8, True, None, None, None),
    ]
    assert "_corrupt_record" in frame.select("value.*").columns


def test_malformed_values_are_dropped_or_end_the_query(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    topics.produce(topic, [*GOOD[:2], BAD[1], GOOD[2]])
    dropped = batch(spark, topics, topic, **options(mode="DROPMALFORMED")).select("offset", "value.id").collect()
    assert [tuple(row) for row in dropped] == [(0, 0), (1, 1), (3, 2)]
    with pytest.raises(
        PySparkException, match=rf"topic {topic}, partition 0, at offset 2 does not parse: it is not JSON"
    ):
        batch(spark, topics, topic, **options(mode="FAILFAST", columns="value")).collect()
    with pytest.raises(PySparkException, match="valueFormat=json needs the option valueSchema"):
        batch(spark, topics, topic, valueFormat="json")


def test_dead_letters_of_the_source_reach_their_table_once_through_a_crash(
    spark: SparkSession, topics: Topics, tmp_path: Path, crash_folder: Path
) -> None:
    topic, app_id = topics.create(2), f"json-{uuid.uuid4().hex[:8]}"
    for partition in range(2):
        topics.produce(topic, [GOOD[0], BAD[0], GOOD[1], None, BAD[1]] * 4, partition=partition)
    given = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20",
        "includeDeadLetters": "true",
        "columns": "value",
    }

    def run() -> None:
        reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", topics.bootstrap_servers)
        stream = reader.options(subscribe=topic, appId=app_id, **options(**given)).load()
        writer = stream.select("value.id", "value.at", "_dead_letter").writeStream.format("delta_once")
        writer = writer.options(appId=app_id, deadLetters=f"table:{tmp_path / 'letters'}")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start(str(tmp_path / "table")).awaitTermination()

    plan = arm(crash_folder, app_id, f"{app_id}:sink.between_targets@1=raise")
    with pytest.raises(StreamingQueryException, match=r"sink\.between_targets, batch 1"):
        run()
    assert fired(plan)
    run()
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert Counter(rows["id"].to_pylist()) == {0: 8, 1: 8}
    letters = DeltaTable(tmp_path / "letters").to_pyarrow_table().to_pylist()
    assert Counter((row["reason"], row["value"]) for row in letters) == {
        ("field id: 'x' is not of type int", BAD[0]): 8,
        ("value is null", None): 8,
        ("it is not JSON: expected a value, found 'junk' at character 1", BAD[1]): 8,
    }
    assert len({(row["partition"], row["offset"]) for row in letters}) == 24
    assert {row["topic"] for row in letters} == {topic}
    assert all(row["timestamp"] for row in letters)
