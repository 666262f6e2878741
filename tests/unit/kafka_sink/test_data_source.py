"""The format as Spark asks for it: options are read as those of what is asked for, and no earlier."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

import pyspark_kafka_once
from sparkonce.connectors.formats.kafka_once import KafkaOnceDataSource
from sparkonce.connectors.values.options import COLUMNS, spark_schema
from sparkonce.options import OptionError
from tests.cases import each_case

SERVERS = {"kafka.bootstrap.servers": "h:1"}
READS = {**SERVERS, "subscribe": "t"}
STREAM = {**SERVERS, "appid": "a", "checkpointlocation": "/nowhere"}


TYPES = {"string": StringType(), "binary": BinaryType(), "int": IntegerType(), "bigint": LongType()}


def schema(text: str) -> StructType:
    columns = [column.split() for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in columns])


def refusal(options: dict[str, str], columns: str = "value string", *, overwrite: bool = False) -> str:
    with pytest.raises(OptionError) as caught:
        KafkaOnceDataSource({**SERVERS, **options}).writer(schema(columns), overwrite)
    assert str(caught.value).startswith("kafka_once: ")
    return str(caught.value)


def test_pyspark_finds_the_format() -> None:
    assert pyspark_kafka_once.DefaultSource is KafkaOnceDataSource
    assert KafkaOnceDataSource.name() == "kafka_once"


def test_nothing_is_refused_before_it_is_known_what_for() -> None:
    source = KafkaOnceDataSource({"nonsense": "x"})
    with pytest.raises(OptionError, match="unknown option 'nonsense'"):
        source.schema()
    with pytest.raises(OptionError, match="unknown option 'nonsense'"):
        source.writer(schema("value string"), overwrite=False)
    with pytest.raises(OptionError, match="unknown option 'nonsense'"):
        source.streamWriter(schema("value string"), overwrite=False)


def test_a_reader_has_its_columns_and_no_others() -> None:
    source = KafkaOnceDataSource(READS)
    assert source.schema() == spark_schema(COLUMNS)
    source.reader(source.schema())
    source.streamReader(source.schema())
    for make in (source.reader, source.streamReader):
        with pytest.raises(OptionError, match=r"leave out \.schema"):
            make(schema("value string"))


def test_a_batch_writer_travels_to_tasks_without_showing_secrets() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    options = {f"kafka.{name}": text for name, text in login.items()}
    writer = KafkaOnceDataSource({**SERVERS, **options, "topic": "t", "kafka.sasl.password": "s3cret"}).writer(
        schema("key binary, value string"), overwrite=False
    )
    again = cloudpickle.loads(cloudpickle.dumps(writer))
    assert "s3cret" not in repr(vars(again))
    assert "h" in repr(vars(again))


@each_case(
    ("columns", "options", "message"),
    [
        ("value string", {"topic": "t", "deliveryguarantee": "exactly-once"}, "is for writeStream"),
        ("value string", {"topic": "t", "checkpointlocation": "/c"}, "option checkpointLocation is for writeStream"),
        ("value string", {"topic": "t", "kafka.acks": "1"}, "kafka.acks=1 can lose"),
        ("value string", {"topics": "t"}, "did you mean 'topic'?"),
        ("value string", {"path": "t"}, "option path has no use"),
        ("value string", {}, "set the option topic"),
        ("key string", {"topic": "t"}, "no column 'value'"),
        ("value int", {"topic": "t"}, "column 'value' is of type int, expected string or binary"),
        ("value string, partition bigint", {"topic": "t"}, "column 'partition' is of type bigint, expected int"),
        ("value string, headers string", {"topic": "t"}, "column 'headers' is of type string"),
        ("value string, _dead_letter string", {"topic": "t"}, "a batch (df.write) writes no dead letters"),
    ],
)
def test_what_a_batch_cannot_be_is_refused(columns: str, options: dict[str, str], message: str) -> None:
    assert message in refusal(options, columns)


def test_headers_of_another_type_may_be_left_out() -> None:
    KafkaOnceDataSource({**SERVERS, "topic": "t", "includeheaders": "false"}).writer(
        schema("value string, headers string"), overwrite=False
    )


def test_a_topic_cannot_be_overwritten() -> None:
    assert "mode overwrite would have to empty the topic" in refusal({"topic": "t"}, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_every_output_mode_of_a_stream_appends(overwrite: bool) -> None:
    with pytest.raises(Exception, match="/nowhere") as caught:
        KafkaOnceDataSource({**STREAM, "topic": "t"}).streamWriter(schema("value string"), overwrite)
    assert not isinstance(caught.value, OptionError)  # it gets as far as the checkpoint, which is not there


def loaded_with(module: str, part: str) -> list[str]:
    program = f"import sys, {module}; print(*(name for name in sys.modules if {part!r} in name))"
    folder = Path(__file__).resolve().parents[3]
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder, check=True)
    return found.stdout.split()


def test_who_only_reads_does_not_load_the_sink() -> None:
    assert loaded_with("sparkonce.connectors.kafka_source.reading", ".kafka_sink") == []


def test_the_driver_does_not_load_the_compiler() -> None:
    assert loaded_with("sparkonce.connectors.formats.kafka_writer", "numba") == []


def test_a_query_that_asks_no_delta_table_does_not_load_delta_rs() -> None:
    assert loaded_with("sparkonce.connectors.kafka_source.source", "deltalake") == []
