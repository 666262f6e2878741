"""Encoders of columns with a schema, by format."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import DataType

from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.values.options import AVRO, JSON_SCHEMA, PROTOBUF


class Encoder(Protocol):
    """Writes the values of a column."""

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Return the values; null where the column is. Raises UnwritableRowError if a row does not fit the schema."""


def make_encoder(
    form: str, schema: str, kind: DataType, number: int | None = None, message: str | None = None
) -> Encoder:
    """Return an encoder for a column's type with a schema, of Protobuf with the message of a name, or the first.

    Each value begins with the schema's id ``number``, and of Protobuf the path to the message; without an id it is
    bare.

    Raises:
        ValueError: the text is no schema of the format, or it cannot hold the column.
    """
    if form == PROTOBUF:
        from sparkonce.connectors.values.protobuf.encoder import ProtobufEncoder
        from sparkonce.connectors.values.protobuf.reading import written_message

        descriptor, path = written_message(schema, message)
        return ProtobufEncoder(descriptor, kind, b"" if number is None else wire.frame(number, path))
    frame = b"" if number is None else wire.frame(number)
    if form == AVRO:
        from sparkonce.connectors.values.avro.encoder import AvroEncoder
        from sparkonce.connectors.values.avro.schema import parse

        return AvroEncoder(parse(schema), kind, frame)
    assert form == JSON_SCHEMA
    from sparkonce.connectors.values.json_schema_writing import JsonSchemaEncoder

    return JsonSchemaEncoder(schema, kind, frame)


def schema_for(form: str, kind: DataType, name: str | None = None) -> str:
    """Return a column's schema as text; of Protobuf with a message of this name. Raises ValueError if there is none."""
    if form == AVRO:
        from sparkonce.connectors.values.avro import encoder

        return encoder.schema_for(kind)
    if form == PROTOBUF:
        from sparkonce.connectors.values.protobuf import column_schema

        return column_schema.schema_for(kind, name or column_schema.ROOT)
    assert form == JSON_SCHEMA
    from sparkonce.connectors.values import json_schema_writing

    return json_schema_writing.schema_for(kind)
