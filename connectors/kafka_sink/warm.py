"""Importing this loads the encoder's machine code, from the cache or by compiling it.

That takes a third of a second from the cache. The daemon of Python workers imports it before it forks, so that no
worker's first task spends this time.
"""

from __future__ import annotations

import pyarrow as pa

from sparkonce.connectors.kafka_sink.encoding import RowEncoder
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.kafka.client.producer_settings import ProducerSettings


def _encode_a_row() -> None:
    encoder = RowEncoder(RowLayout("t", value=0), lambda _topic, _at_least: 1, ProducerSettings())
    batch = pa.RecordBatch.from_pydict({"value": [b""]})
    assert not list(encoder.encode(batch))


_encode_a_row()
