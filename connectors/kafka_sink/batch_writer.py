"""What ``df.write.format("kafka_once")`` does: each task sends its rows, and they are visible as they arrive.

That is at-least-once, as with Spark's own Kafka sink: an idempotent producer writes each record once however often it
has to send it, but a task that Spark runs again sends all of its rows again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparkonce.connectors.kafka_sink.options import KafkaBatchOptions
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.connectors.kafka_sink.tasks import PlainWriter, Sending
from sparkonce.connectors.kafka_sink.typed_values import encodings
from sparkonce.connectors.sinks.target import Task
from sparkonce.connectors.values.letters import COLUMN
from sparkonce.options import KAFKA_FORMAT as FORMAT
from sparkonce.options import OptionError
from sparkonce.shipping import Shipped


@dataclass(frozen=True, slots=True)
class RowsWritten(WriterCommitMessage):
    """How many rows of a task Kafka has acknowledged."""

    rows: int


class KafkaBatchWriter(DataSourceArrowWriter, metaclass=Shipped):
    """Writes the rows of a batch query. Travels to the tasks."""

    def __init__(self, options: KafkaBatchOptions, schema: StructType) -> None:
        """Check the columns.

        Raises:
            OptionError: if one is missing or of another type, or no topic is defined for the rows; or if there are
                dead letters among the rows, which would be written as rows.
        """
        if COLUMN in schema.names:
            raise OptionError(
                f"{FORMAT}: the rows have a column {COLUMN}, and a batch (df.write) writes no dead letters: write the "
                "rows where it is null, without the column, and the others separately; or use writeStream with "
                "deadLetters"
            )
        layout = RowLayout.of(schema, options.topic, options.include_headers, encodings(options, schema))
        self._sending = Sending(options.client, options.producer, (layout,), None, options.app_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Send the rows of one task, and wait until the brokers have them.

        Raises:
            RowError: if a row cannot become a record.
            DeliveryTimeoutError, DeliveryRefusedError, RecordTooLargeError: if a record is not accepted.
            MissingTopicError: if a topic does not exist, and is not created by being written to.
            KafkaUnreachableError: if no broker answers in time.
        """
        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        task = Task(0, context.partitionId(), context.attemptNumber(), context.taskAttemptId())
        writer = PlainWriter(self._sending, task)
        try:
            for rows in iterator:
                writer.write(rows)
            return RowsWritten(writer.close() or 0)
        except BaseException:
            writer.discard()
            raise
