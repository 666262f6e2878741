"""What the benchmarks of values decode is what was encoded, in each format."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from lab.bench import protobuf_peer, values
from lab.bench.load import documents
from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro.decoder import AvroDecoder
from sparkonce.connectors.values.avro.types import spark_type as avro_type
from sparkonce.connectors.values.protobuf.decoder import ProtobufDecoder
from sparkonce.connectors.values.protobuf.schema import compile_text, message_by_path, read_set
from sparkonce.connectors.values.protobuf.types import spark_type as protobuf_type

SOME = 50


def expected() -> list[dict[str, Any]]:
    """Return the first documents, with moments and days as what columns make of them."""
    made = [json.loads(document) for document in documents()[:SOME]]
    for row in made:
        row["at"] = datetime.fromisoformat(row["at"]).astimezone(UTC)
        row["day"] = date.fromisoformat(row["day"])
    return made


def bounds(encoded: list[bytes]) -> tuple[Any, Any, Any]:
    ends = np.cumsum([len(each) for each in encoded])
    return np.frombuffer(b"".join(encoded), np.uint8), ends - [len(each) for each in encoded], ends


@pytest.mark.parametrize("writers", [1, values.WRITERS])
def test_avro_of_one_or_ten_writers_is_the_documents(writers: int) -> None:
    schemas = [values.writer_schema(turned) for turned in range(writers)]
    tree = avro.parse(schemas[0])
    decoder = AvroDecoder(tree, avro_type(tree))
    programs = [decoder.add(avro.parse(each)) for each in schemas]
    entries = np.array([programs[at % writers] for at in range(SOME)], np.int32)
    found, problems = decoder.decode(*bounds(values.encoded(schemas)[:SOME]), entries)
    assert not problems
    assert found.to_pylist() == expected()


def test_protobuf_is_the_documents() -> None:
    message = message_by_path(read_set(compile_text(protobuf_peer.PROTO)), (0,))
    decoder = ProtobufDecoder(message, protobuf_type(message))
    entries = np.full(SOME, decoder.add(message), np.int32)
    found, problems = decoder.decode(*bounds(values.protobuf_values()[:SOME]), entries)
    assert not problems
    of_epoch = [{**row, "day": (row["day"] - date(1970, 1, 1)).days} for row in expected()]
    assert found.to_pylist() == of_epoch
