"""The sink of one query, put together from its options: which targets it has, and which rows go where."""

from __future__ import annotations

from pyspark.sql.types import StructType

from connectors.kafka_once.options import FORMAT
from connectors.kafka_once.sink.options import KafkaSinkOptions
from connectors.kafka_once.sink.rows import RowLayout
from connectors.kafka_once.sink.spool import Spool
from connectors.kafka_once.sink.target import KafkaTarget
from connectors.stream_sink import StreamSink


def kafka_stream_sink(options: KafkaSinkOptions, schema: StructType) -> StreamSink:
    """Make the sink for rows of ``schema``.

    Raises:
        OptionError: if the columns are not those of records.
    """
    layout = RowLayout.of(schema, options.topic, options.include_headers)
    target = KafkaTarget(
        client=options.client,
        producer=options.producer,
        layouts=(layout,),
        guarantee=options.guarantee,
        app_id=options.app_id,
        offset_store=options.offset_store,
        decision_topic=options.decision_topic,
        spool=Spool(options.checkpoint) if options.atomic_visibility else None,
        storage_options=options.storage_options,
    )
    return StreamSink(FORMAT, options.checkpoint, options.app_id, [target])
