"""Importing this loads the machine code of mirrors, from the cache or by compiling it; see `kafka_sink.warm`."""

from __future__ import annotations

import numpy as np

from sparkonce.connectors.kafka_source import kernel
from sparkonce.connectors.kafka_source.decode import FetchedBatches, RecordDecoder
from sparkonce.connectors.kafka_source.ranges import ReadCount
from sparkonce.connectors.mirror.copying import BatchCopier
from sparkonce.connectors.mirror.kernel import is_keyless
from sparkonce.kafka.client.producer_settings import ProducerSettings

_RECORD = bytes([12, 0, 0, 0, 1, 0, 0])
"""Length, attributes, two deltas, no key, an empty value, no header."""


def _copy_a_record() -> None:
    data = np.frombuffer(_RECORD, np.uint8)
    table = np.zeros((1, kernel.COLUMNS), np.int64)
    table[0, [kernel.END, kernel.COUNT]] = len(_RECORD), 1
    fetched = FetchedBatches("t", 0, data, table, 0, 1, RecordDecoder("t", 0, columns=()), ReadCount())
    copier = BatchCopier(
        "t", keep_partitions=True, codec=None, partition_count=lambda _topic, _at_least: 1, settings=ProducerSettings()
    )
    assert not list(copier.encode(fetched))
    assert is_keyless(data, table[0])


_copy_a_record()
