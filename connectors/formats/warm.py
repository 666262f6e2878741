"""Compile beforehand what a query compiles at its first batch: one record through each decoder and encoder.

`sparkonce warm` calls it. What it compiles depends on the types of columns, so there is one of each type here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module

import numpy as np
import pyarrow as pa

from sparkonce.connectors.kafka_sink.encoding import RowEncoder
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.connectors.kafka_source.decode import RecordDecoder
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.values.encoding import make_encoder, schema_for
from sparkonce.connectors.values.options import ALL_COLUMNS, AVRO, PROTOBUF, RowOptions
from sparkonce.connectors.values.rows import RowMaker
from sparkonce.kafka.client.producer_settings import ProducerSettings

_OF_PROTOBUF = (
    "flag BOOLEAN, small INT, large BIGINT, single FLOAT, precise DOUBLE, name STRING, raw BINARY, list ARRAY<STRING>, "
    "numbers ARRAY<BIGINT>, map MAP<STRING, BIGINT>, inner STRUCT<x: INT, many: ARRAY<STRUCT<y: STRING>>>"
)
"""The types that Protobuf has; with the others, those of JSON and Avro."""
_WITH_ENUM = 'syntax = "proto3"; enum Side { LEFT = 0; RIGHT = 1; } message Turn { Side side = 1; }'
_TYPES = f"{_OF_PROTOBUF}, amount DECIMAL(12, 2), wide DECIMAL(30, 2), day DATE, at TIMESTAMP, here TIMESTAMP_NTZ"
_DOCUMENT = {
    "flag": True,
    "small": 1,
    "large": 1,
    "single": 1.5,
    "precise": 1.2345678901234567e300,
    "name": 'quoted "é"',
    "raw": "AAA=",
    "list": ["a"],
    "numbers": [1],
    "map": {"k": 1},
    "inner": {"x": 1, "many": [{"y": "z"}]},
    "amount": 1.25,
    "wide": 1.25,
    "day": "2026-01-31",
    "at": "2026-01-31T12:00:00.5Z",
    "here": "2026-01-31T12:00:00",
    "unknown": {"more": [None, -1e5, False]},
}


def steps() -> Mapping[str, Callable[[], object]]:
    """Return what is compiled, by its name. A step raises ModuleNotFoundError without the packages that it needs."""
    return {
        "records": lambda: _read(b"v"),
        "writing records, and mirrors": _write,
        "JSON": _read_json,
        "Avro": lambda: _write_and_read(AVRO, _TYPES),
        "Protobuf": _protobuf,
    }


def _write() -> None:
    import sparkonce.connectors.kafka_sink.warm
    import sparkonce.connectors.mirror.warm  # noqa: F401


def _read_json(fields: str = _TYPES) -> pa.RecordBatch:
    return _read(json.dumps(_DOCUMENT, ensure_ascii=False).encode(), valueFormat="json", valueSchema=fields)


def _protobuf() -> None:
    import_module("grpc_tools")  # compiles schemas
    _write_and_read(PROTOBUF, _OF_PROTOBUF)
    _read(b"\x08\x01", valueFormat=PROTOBUF, valueSchema=_WITH_ENUM)


def _write_and_read(form: str, fields: str) -> None:
    row = _read_json(fields)
    kind = _options(valueFormat="json", valueSchema=fields).spark_schema()["value"].dataType
    schema = schema_for(form, kind)
    (value,) = make_encoder(form, schema, kind).encode(row.column("value")).to_pylist()
    _read(value, valueFormat=form, valueSchema=schema)


def _read(value: bytes, **options: str) -> pa.RecordBatch:
    """Return the row of a record with this value, as a task does that reads it with these options."""
    given = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [value], "headers": [[{"key": "h", "value": b"v"}]]})
    encoder = RowEncoder(RowLayout("t", key=0, value=1, headers=2), lambda _topic, _at_least: 1, ProducerSettings())
    (batch,) = *encoder.encode(given), *encoder.finish()
    batch.stamp(-1, -1, -1, transactional=False)
    data, rows = np.frombuffer(batch.data, np.uint8), _options(**options)
    decoder = RecordDecoder("t", 0, columns=rows.decoded)
    (record,) = decoder.rows(data, decoder.scan(data, 0), 0, 1)
    return RowMaker(rows, "t", 0).rows(record)


def _options(**options: str) -> RowOptions:
    needed = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "columns": ",".join(ALL_COLUMNS)}
    return SourceOptions.read({**needed, **options}).rows
