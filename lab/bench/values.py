"""Values with schemas of a schema registry, beside Spark's from_avro, Java's Protobuf and fastavro.

The records are those of `load.documents`, ten nullable fields of seven types, in Confluent's wire format. Spark's side
strips the first five bytes and names the schema, since its from_avro has no registry; ours asks an embedded one.
Decoding alone is measured in this process, on bytes in memory.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench import protobuf_peer
from lab.bench.load import documents
from lab.bench.pipelines import Case, Pipeline, Topic, throughput
from lab.bench.results import Bound, Comparison, Missing, Results, say
from lab.bench.sessions import JVM, OURS, SparkSide, session_settings
from lab.bench.settings import (
    LIMITS,
    TARGETS,
    VALUES_AVRO,
    VALUES_BENCHMARKS,
    VALUES_DECODE,
    VALUES_DECODE_TEN,
    VALUES_PROTOBUF,
    Settings,
)
from lab.peers import spark_avro_jars
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.schema_registry.client import AVRO, PROTOBUF, RegisteredSchema, Registry
from sparkonce.connectors.schema_registry.settings import RegistrySettings
from sparkonce.connectors.schema_registry.wire import FIRST, FRAME_BYTES, frame
from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro.decoder import AvroDecoder
from sparkonce.connectors.values.avro.types import spark_type
from sparkonce.jobs.shared.jars import PeerMissingError
from sparkonce.registry_lite.embedded import EmbeddedRegistry

FASTAVRO = "fastavro"
WRITERS = 10
_PEER_RECORDS = 20_000
"""Records that fastavro decodes in a round."""
_EPOCH = date(1970, 1, 1)
_TYPES: dict[str, Any] = {
    "id": "long",
    "device": "string",
    "site": "string",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "temperature": "double",
    "humidity": "double",
    "count": "int",
    "valid": "boolean",
    "note": "string",
}


def writer_schema(turned: int = 0) -> str:
    """Return a schema of the documents; ``turned`` is the index of its first field."""
    names = list(_TYPES)[turned:] + list(_TYPES)[:turned]
    fields = [{"name": name, "type": ["null", _TYPES[name]], "default": None} for name in names]
    return json.dumps({"type": "record", "name": "Document", "fields": fields})


def rows() -> list[dict[str, Any]]:
    """Return the documents, with timestamps and dates as numbers."""
    made = [json.loads(document) for document in documents()]
    for row in made:
        row["at"] = round(datetime.fromisoformat(row["at"]).timestamp() * 1_000_000)
        row["day"] = (date.fromisoformat(row["day"]) - _EPOCH).days
    return made


def encoded(schemas: Sequence[str]) -> list[bytes]:
    """Return the documents as Avro, encoded by fastavro with each of the schemas in turn."""
    import fastavro

    plain = [_without_logical(schema) for schema in schemas]
    parsed = [fastavro.parse_schema(json.loads(each)) for each in plain]
    values = []
    for at, row in enumerate(rows()):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed[at % len(parsed)], row)
        values.append(out.getvalue())
    return values


def _without_logical(schema: str) -> str:
    """Return a schema whose timestamps and dates are numbers, as in `rows`."""
    document = json.loads(schema)
    for field in document["fields"]:
        kind = field["type"][1]
        field["type"][1] = kind["type"] if isinstance(kind, dict) else kind
    return json.dumps(document)


def protobuf_values() -> list[bytes]:
    """Return the documents as messages of `protobuf_peer.PROTO`, encoded by Google's package."""
    from google.protobuf.message_factory import GetMessageClass

    from sparkonce.connectors.values.protobuf.schema import compile_text, read_set

    document = GetMessageClass(read_set(compile_text(protobuf_peer.PROTO)).message_types_by_name["Document"])
    values = []
    for row in rows():
        moment = row.pop("at")
        message = document(**row)
        message.at.FromMicroseconds(moment)
        values.append(message.SerializeToString())
    return values


def run(settings: Settings, results: Results) -> None:
    """Run the selected benchmarks of values."""
    names = set(VALUES_BENCHMARKS) & set(settings.names)
    if names & _PIPELINES.keys():
        _pipelines([name for name in _PIPELINES if name in names], settings, results)
    if VALUES_DECODE in names or VALUES_DECODE_TEN in names:
        _decoding(names, settings, results)


def _pipelines(names: Sequence[str], settings: Settings, results: Results) -> None:
    """Compare whole queries into a table."""
    conf, with_jvm = session_settings(results)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        if with_jvm:
            try:
                jars = [jar for name in names for jar in _PIPELINES[name].jars(directory)]
                conf = {**conf, "spark.jars": ",".join([conf["spark.jars"], *jars])}
            except PeerMissingError as error:
                with_jvm = False
                results.missing.append(Missing("spark-jvm-values", str(error), "install Maven and a JDK"))
        broker = stack.enter_context(EmbeddedBroker(process=True)).bootstrap_servers
        registry = stack.enter_context(EmbeddedRegistry(broker))
        client = Registry(RegistrySettings((registry.url,)))
        say("starting the Spark sessions of the benchmarks of values")
        sides = [
            stack.enter_context(SparkSide(name, conf, directory)) for name in ((OURS, JVM) if with_jvm else (OURS,))
        ]
        cases = {}
        for name in names:
            kind = _PIPELINES[name]
            number = client.register(f"{name}-value", RegisteredSchema(kind.registry_kind, kind.schema()))
            cases[name] = _case(name, kind, number, registry.url)
        throughput(cases, broker, sides, settings, settings.direct_rounds, results)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A format whose whole queries are compared."""

    registry_kind: str
    value_format: str
    schema: Callable[[], str]
    values: Callable[[], Sequence[bytes]]
    path: wire.Path | None
    """The message's bytes after the schema's id."""
    peer: Callable[[], str]
    """The expression of Spark's side that decodes ``value`` into columns."""
    jars: Callable[[Path], Sequence[str]]
    java_functions: Mapping[str, tuple[str, str]]


_PIPELINES = {
    VALUES_AVRO: _Kind(
        AVRO,
        "avro",
        writer_schema,
        lambda: encoded([writer_schema()]),
        None,
        lambda: f"from_avro(substring(value, {FRAME_BYTES + 1}), '{writer_schema()}') as value",
        lambda _: spark_avro_jars(),
        {},
    ),
    VALUES_PROTOBUF: _Kind(
        PROTOBUF,
        "protobuf",
        lambda: protobuf_peer.PROTO,
        protobuf_values,
        FIRST,
        lambda: f"{protobuf_peer.FUNCTION}(substring(value, {len(frame(0, FIRST)) + 1})) as value",
        protobuf_peer.jars,
        {protobuf_peer.FUNCTION: (protobuf_peer.CLASS, protobuf_peer.RETURNS)},
    ),
}


def _case(name: str, kind: _Kind, number: int, url: str) -> Case:
    source = {"handOver": "ranges", "columns": "value", "valueFormat": kind.value_format, "schemaRegistry.url": url}
    framed = frame(number, kind.path)
    return Case(
        Topic(name, lambda settings: settings.values_rows, lambda: [framed + each for each in kind.values()]),
        Pipeline("kafka_once", "delta_once", source, sink_options={"sql": "SELECT value.* FROM records"}),
        Pipeline("kafka", "delta", selections=((kind.peer(),), ("value.*",)), java_functions=kind.java_functions),
        every_column_filled=True,
    )


def _decoding(names: set[str], settings: Settings, results: Results) -> None:
    """Compare decoding alone: with one writer's schema, and with ten in turn."""
    one, ten = [writer_schema()], [writer_schema(turned) for turned in range(WRITERS)]
    speeds = {}
    for schemas in (one, ten):
        say(f"decoding {settings.values_rows:,} records of {len(schemas)} writers")
        speeds[len(schemas)] = _speeds(_decode(schemas, settings.values_rows), settings.direct_rounds)
    if VALUES_DECODE in names:
        peer = _speeds(_decode_by_fastavro(), settings.direct_rounds)
        results.comparisons.append(
            Comparison(VALUES_DECODE, "records/CPU s", speeds[1], peer, FASTAVRO, TARGETS[VALUES_DECODE])
        )
        seconds = tuple(1e6 / speed for speed in speeds[1])
        limit = LIMITS[f"{VALUES_DECODE}-cpu-s"]
        results.bounds.append(Bound(f"{VALUES_DECODE}-cpu-s", "CPU s/M records", (min(seconds),), (), FASTAVRO, limit))
    if VALUES_DECODE_TEN in names:
        results.comparisons.append(
            Comparison(
                VALUES_DECODE_TEN, "records/CPU s", speeds[WRITERS], speeds[1], "one writer", TARGETS[VALUES_DECODE_TEN]
            )
        )


def _speeds(decode: Callable[[], int], rounds: int) -> tuple[float, ...]:
    """Return how many records per CPU second each round decodes, after an uncounted one."""
    decode()
    found = []
    for _ in range(rounds):
        before = time.process_time()
        count = decode()
        found.append(count / (time.process_time() - before))
    return tuple(found)


def _decode(schemas: Sequence[str], count: int) -> Callable[[], int]:
    """Return a function that decodes records into columns once."""
    distinct = encoded(schemas)
    values = [distinct[at % len(distinct)] for at in range(count)]
    tree = avro.parse(schemas[0])
    decoder = AvroDecoder(tree, spark_type(tree))
    programs = [decoder.add(avro.parse(each)) for each in schemas]
    data = np.frombuffer(b"".join(values), np.uint8)
    lengths = np.array([len(each) for each in values], np.int64)
    ends = np.cumsum(lengths)
    writers = np.array([programs[at % len(distinct) % len(programs)] for at in range(count)], np.int32)

    def decode() -> int:
        column, problems = decoder.decode(data, ends - lengths, ends, writers)
        assert not problems
        return len(column)

    return decode


def _decode_by_fastavro() -> Callable[[], int]:
    import fastavro

    schema = fastavro.parse_schema(json.loads(writer_schema()))
    values = encoded([writer_schema()])

    def decode() -> int:
        for at in range(_PEER_RECORDS):
            fastavro.schemaless_reader(io.BytesIO(values[at % len(values)]), schema, None)
        return _PEER_RECORDS

    return decode
