"""The decoder of JSON beside Spark's from_json: damaged documents, all short runs of tokens, all characters."""

from __future__ import annotations

import itertools
import sys

import pytest
from pyspark.sql import SparkSession

from tests.cases import each_case
from tests.json_documents import documents, random_schema
from tests.spark.from_json import same

pytestmark = pytest.mark.spark

TOKENS = ("{", "}", "[", "]", ",", ":", '"a"', "1", "1.0e")
KINDS = (
    "INT", "STRING", "ARRAY<INT>", "ARRAY<STRING>", "STRUCT<a: INT>", "MAP<STRING, INT>", "ARRAY<STRUCT<a: INT>>",
    "ARRAY<MAP<STRING, STRING>>",
)  # fmt: skip
CHARACTERS = [chr(code) for code in range(0x80, 0x10000) if not 0xD800 <= code <= 0xDFFF]
BEYOND = [chr(code) for code in range(0x10000, sys.maxunicode, 97)]


@each_case("seed", range(100, 130))
def test_damaged_documents_of_random_schemas(spark: SparkSession, seed: int) -> None:
    schema = random_schema(seed)
    same(spark, schema, documents(seed, 4000, schema, damaged=0.7))


@each_case("kind", KINDS)
def test_every_run_of_five_tokens_is_read_as_far_as_from_json_reads_it(spark: SparkSession, kind: str) -> None:
    runs = itertools.chain.from_iterable(itertools.product(TOKENS, repeat=length) for length in range(1, 6))
    texts = [f'{{"v":{"".join(run)},"z":7}}'.encode() for run in runs]
    same(spark, f"v {kind}, z INT, _corrupt_record STRING", texts)


@each_case(
    ("schema", "form"),
    [
        ("b BOOLEAN", '{"b":true%s,"z":7}'),
        ("d DECIMAL(9,2)", '{"d":"1%s","z":7}'),
        ("d DATE", '{"d":"1%s","z":7}'),
        ("s STRING", '{"s":{"%s":["%s"]},"z":7}'),
    ],
)
def test_every_character(spark: SparkSession, schema: str, form: str) -> None:
    texts = [form.replace("%s", char).encode() for char in (*CHARACTERS, *BEYOND)]
    same(spark, f"{schema}, z INT, _corrupt_record STRING", texts)
