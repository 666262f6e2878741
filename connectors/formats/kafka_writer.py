"""The sink of one query, put together from its options: which targets it has, and which rows go where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from sparkonce.connectors.direct.source import DirectSource
from sparkonce.connectors.formats.dead_letter_target import (
    RECORD,
    as_records,
    check_column,
    letters_table,
    rows_schema,
    split,
)
from sparkonce.connectors.kafka_sink.options import KafkaSinkOptions
from sparkonce.connectors.kafka_sink.rows import ColumnEncoding, RowLayout
from sparkonce.connectors.kafka_sink.spool import Spool
from sparkonce.connectors.kafka_sink.target import KafkaTarget
from sparkonce.connectors.kafka_sink.tasks import Layout
from sparkonce.connectors.mirror.choice import check_no_loop, is_mirror
from sparkonce.connectors.mirror.source import MirrorLayout, MirrorSource
from sparkonce.connectors.sinks.range_reader import RangeReader
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.connectors.sinks.target import Routing, Target
from sparkonce.connectors.values.options import ADD_COLUMNS, RESTART
from sparkonce.options import KAFKA_FORMAT as FORMAT
from sparkonce.options import OptionError


def kafka_stream_sink(options: KafkaSinkOptions, schema: StructType, source: DirectSource | None = None) -> StreamSink:
    """Return the sink for rows of ``schema``; with ``source``, these are ranges, and it reads the rows.

    Dead letters that go to a topic are in the same transactions as the rows, so one chain of offsets covers both.

    Raises:
        OptionError: if the columns are not those of records, dead letters lack a place or a column, options rule a
            mirror out that is asked for, or a direct query would read what it writes.
    """
    if source is not None:
        if source.followed is not None:
            raise OptionError(
                f"{FORMAT}: schemaEvolution={ADD_COLUMNS} adds columns to a table of delta_once, and a topic has none: "
                f"set schemaEvolution={RESTART} on the source"
            )
        check_no_loop(options, source)
    if is_mirror(options, source):
        assert source is not None, "only a direct query mirrors"
        codec = options.producer.compression if options.recodes else None
        layout = MirrorLayout(options.topic, options.keep_partitions is not False, codec)
        return _stream_sink(options, [_target(options, (layout,))], MirrorSource(source))
    place = options.dead_letters
    schema = schema if source is None else source.schema
    check_column(FORMAT, schema, place)
    columns = rows_schema(schema)
    rows = RowLayout.of(columns, options.topic, options.include_headers, _encodings(options, columns))
    if place is not None and place.topic is not None:
        target = _target(options, (RowLayout.of(RECORD, place.topic), rows), _records_of_both)
        return _stream_sink(options, [target], source)
    target = _target(options, (rows,))
    if place is None or place.table is None:
        return _stream_sink(options, [target], source)
    letters = letters_table(place.table, options.app_id, options.checkpoint, options.guarantee, options.storage_options)
    return _stream_sink(options, [letters, target], source, split)


def _encodings(options: KafkaSinkOptions, columns: StructType) -> Mapping[str, ColumnEncoding]:
    if not options.encoded:
        return {}
    from sparkonce.connectors.kafka_sink.typed_values import encodings  # loads the compiler

    return encodings(options, columns)


def _stream_sink(
    options: KafkaSinkOptions, targets: Sequence[Target], source: RangeReader | None, routing: Routing | None = None
) -> StreamSink:
    return StreamSink(FORMAT, options.checkpoint, options.app_id, targets, routing, options.storage_options, source)


def _target(options: KafkaSinkOptions, layouts: tuple[Layout, ...], routing: Routing | None = None) -> KafkaTarget:
    return KafkaTarget(
        client=options.client,
        producer=options.producer,
        layouts=layouts,
        guarantee=options.guarantee,
        app_id=options.app_id,
        offset_store=options.offset_store,
        decision_topic=options.decision_topic,
        routing=routing,
        spool=Spool(options.checkpoint, options.storage_options) if options.atomic_visibility else None,
        storage_options=options.storage_options,
    )


def _records_of_both(batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
    letters, rows = split(batch)
    return as_records(letters), rows
