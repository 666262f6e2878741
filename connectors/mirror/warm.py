"""Importing this loads the machine code of mirrors, from the cache or by compiling it; see `kafka_sink.warm`."""

from __future__ import annotations

import numpy as np

from sparkonce.broker_lite.protocol.records import Record, encode_batch
from sparkonce.connectors.kafka_sink.settings import ProducerSettings
from sparkonce.connectors.kafka_source.decode import FetchedBatches, RecordDecoder
from sparkonce.connectors.kafka_source.ranges import ReadCount
from sparkonce.connectors.mirror.copying import BatchCopier


def _copy_a_record() -> None:
    decoder = RecordDecoder("t", 0, columns=())
    data = np.frombuffer(encode_batch([Record(None, b"")]), np.uint8)
    fetched = FetchedBatches("t", 0, data, decoder.scan(data, 0).table, 0, 1, decoder, ReadCount())
    copier = BatchCopier(
        "t", keep_partitions=True, codec=None, partition_count=lambda _topic, _at_least: 1, settings=ProducerSettings()
    )
    assert not list(copier.encode(fetched))


_copy_a_record()
