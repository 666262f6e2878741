"""What writes a column with a schema, by format."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import DataType

from sparkonce.connectors.values.options import AVRO, JSON_SCHEMA


class UnwritableRowError(ValueError):
    """A row that the schema does not take: where, and why."""


class Encoder(Protocol):
    """Writes the values of a column."""

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Return the values; null where the column is.

        Raises:
            UnwritableRowError: for a row that the schema does not take.
        """


def make_encoder(form: str, schema: str, kind: DataType, frame: bytes = b"") -> Encoder:
    """Return what writes a column of a type with a schema; ``frame`` is what each value begins with.

    Raises:
        ValueError: the text is no schema of the format, or it cannot hold the column.
    """
    if form == AVRO:
        from sparkonce.connectors.values.avro.encoder import AvroEncoder
        from sparkonce.connectors.values.avro.schema import parse

        return AvroEncoder(parse(schema), kind, frame)
    assert form == JSON_SCHEMA
    from sparkonce.connectors.values.json_schema_writing import JsonSchemaEncoder

    return JsonSchemaEncoder(schema, kind, frame)


def schema_for(form: str, kind: DataType) -> str:
    """Return a schema for a column, as text.

    Raises:
        ValueError: if no schema of the format can hold it.
    """
    if form == AVRO:
        from sparkonce.connectors.values.avro import encoder

        return encoder.schema_for(kind)
    assert form == JSON_SCHEMA
    from sparkonce.connectors.values import json_schema_writing

    return json_schema_writing.schema_for(kind)
