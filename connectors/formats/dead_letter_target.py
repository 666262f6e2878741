"""Dead letters on the sink's side: split from the rows, and written to a target of their own, each once.

`split` divides the rows of a batch. The target of the dead letters is finished before that of the rows, so after a
crash it may be ahead of it. Then `DeadLetterTarget` clips the batch to what its target does not have yet (see
`exactly_once.clipping`), and drops the letters of earlier records. A letter names its record. For this to be correct a
letter must be of a record of the batch: anything else is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from sparkonce.connectors.sinks.dead_letters import DOC, DeadLetterPlace, dead_letters_group
from sparkonce.connectors.sinks.target import Target, TargetPlan, Task, TaskWriter, WrappedPlan
from sparkonce.connectors.values.letters import COLUMN, LETTER, REASON
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.clipping import Behind, Starts, clip, clipped, still_there
from sparkonce.exactly_once.decision import Stored
from sparkonce.exactly_once.errors import DeliveryError, OffsetMismatchError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.refusals import StoreName
from sparkonce.offset_store import GROUP
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import BatchCounts, BatchRecord
from sparkonce.options import OptionError

if TYPE_CHECKING:
    from sparkonce.kafka.client.producer_settings import ProducerSettings
    from sparkonce.kafka.client.settings import ClientSettings

Extents = Mapping[tuple[str, int], tuple[int, int, int]]
"""By topic and partition: where the batch begins, where it begins for the target, and where it ends."""

_CONNECT = "__connect.errors."
HEADERS = {
    **{name: name for name in (REASON, "topic", "partition", "offset", "timestamp")},
    **{f"{_CONNECT}{name}": name for name in ("topic", "partition", "offset")},
    f"{_CONNECT}exception.message": REASON,
}
"""The headers of a dead letter in a topic, and what is in them; all are text, the timestamp in ms since 1970. Tools
that know the dead letters of Kafka Connect (KIP-298) find its names."""
RECORD = t.StructType(
    [
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField(
            "headers",
            t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])),
        ),
    ]
)
"""The columns that `as_records` returns."""


def check_column(format_name: str, schema: t.StructType, place: DeadLetterPlace | None) -> None:
    """Check that rows have the column of dead letters if, and only if, there is a place for them.

    Raises:
        OptionError: if one is missing, or the column is of another type.
    """
    found = next((field for field in schema.fields if field.name == COLUMN), None)
    if place is None and found is not None:
        raise OptionError(
            f"{format_name}: the rows have a column {COLUMN}, but no place for dead letters is configured: set the "
            f"option deadLetters, {DOC}; or drop the column to lose them"
        )
    if place is not None and found is None:
        raise OptionError(
            f"{format_name}: deadLetters={place}, but the rows have no column {COLUMN}, so none would go there: "
            "let the source add it (includeDeadLetters=true) or build it with sparkonce.mark, and keep it in what you "
            "select; or leave the option out"
        )
    if found is not None and found.dataType.simpleString() != LETTER.simpleString():
        raise OptionError(
            f"{format_name}: the column {COLUMN} is {found.dataType.simpleString()}, and must be "
            f"{LETTER.simpleString()}: build it with sparkonce.mark"
        )


def rows_schema(schema: t.StructType) -> t.StructType:
    """Return the schema of the rows that are not dead letters: all columns but that one."""
    return t.StructType([field for field in schema.fields if field.name != COLUMN])


def letters_table(
    table: Location,
    app_id: str,
    checkpoint: str,
    guarantee: Guarantee,
    storage_options: Mapping[str, str] | None = None,
) -> DeadLetterTarget:
    """Return the target of dead letters that go to a Delta table; their offsets are in that table's own commits."""
    from sparkonce.connectors.delta_sink.options import SinkOptions
    from sparkonce.connectors.delta_sink.target import DeltaTarget

    options = SinkOptions(
        table=table,
        app_id=app_id,
        checkpoint=checkpoint,
        guarantee=guarantee,
        storage_options=storage_options or {},
    )
    place = DeadLetterPlace(table=table)
    return DeadLetterTarget(
        DeltaTarget(options, LETTER, StoreName("the table of dead letters", f"delta:{table}")), place
    )


def letters_topic(
    topic: str, app_id: str, guarantee: Guarantee, client: ClientSettings, producer: ProducerSettings
) -> DeadLetterTarget:
    """Return the target of dead letters that go to a topic; `dead_letters_group` names the group of their offsets."""
    from sparkonce.connectors.kafka_sink.options import DEFAULT_DECISION_TOPIC
    from sparkonce.connectors.kafka_sink.rows import RowLayout
    from sparkonce.connectors.kafka_sink.target import KafkaTarget

    target = KafkaTarget(
        client=client,
        producer=producer,
        layouts=(RowLayout.of(RECORD, topic),),
        guarantee=guarantee,
        app_id=app_id,
        offset_store=GROUP + dead_letters_group(app_id),
        decision_topic=DEFAULT_DECISION_TOPIC,
    )
    return DeadLetterTarget(target, DeadLetterPlace(topic=topic), as_records)


def split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split a batch into its dead letters, with the columns of `LETTER`, and its other rows, without that column."""
    column = batch.column(COLUMN)
    rows = batch.drop_columns([COLUMN])
    if column.null_count == batch.num_rows:
        return pa.RecordBatch.from_struct_array(column.slice(0, 0)), rows
    is_fine = column.is_null()
    return pa.RecordBatch.from_struct_array(column.filter(pc.invert(is_fine))), rows.filter(is_fine)


def as_records(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Convert dead letters to Kafka records: the original key and value, and the rest as headers."""
    count, texts = letters.num_rows, []
    for name in HEADERS.values():
        column = letters.column(name)
        if name == "timestamp":
            column = pc.cast(column, pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
        texts.append(column.cast(pa.string()).cast(pa.binary()))
    # Row by row, out of columns: the header h of the row r is at h * count + r.
    order = np.arange(len(HEADERS) * count).reshape(len(HEADERS), count).T.ravel()
    values = pa.concat_arrays(texts).take(pa.array(order))
    names = pa.array([*HEADERS]).take(pa.array(order // max(count, 1)))
    headers = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1) * len(HEADERS), pa.int32()),
        pa.StructArray.from_arrays([names, values], ["key", "value"]),
    )
    return pa.RecordBatch.from_pydict(
        {
            "key": letters.column("key").cast(pa.binary()),
            "value": letters.column("value").cast(pa.binary()),
            "headers": headers,
        }
    )


@dataclass(frozen=True, slots=True)
class LetterPlan(WrappedPlan):
    """What was decided about the part of a batch that the target does not have yet."""

    plan: TargetPlan
    starts: Starts
    found_by: Set[str] = frozenset()

    @property
    def written_by(self) -> Set[str]:
        """See `TargetPlan`."""
        return self.found_by


class DeadLetterTarget:
    """Writes dead letters, clipping batches to what is not there yet; see `connectors.sinks.target.Target`."""

    def __init__(
        self,
        target: Target,
        place: DeadLetterPlace,
        shape: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    ) -> None:
        """Write dead letters, converted by ``shape`` if given, to ``target``, which is at ``place``."""
        self._target = target
        self._place = place
        self._shape = shape
        self._extents: Extents = {}
        """Set by `begin`; tasks need it, and their messages do not."""

    def __str__(self) -> str:
        """See `Target`."""
        return f"{self._place}"

    @property
    def offsets_first(self) -> bool:
        """See `Target`."""
        return self._target.offsets_first

    def stored(self, batch: Batch) -> Stored:
        """See `Target.stored`."""
        return self._target.stored(batch)

    def begin(self, batch: Batch) -> LetterPlan:
        """See `Target.begin`.

        Raises:
            OffsetMismatchError: if the target has not seen all records before the batch.
            DeliveryError: if the query has state, or its rows do not name their record.
        """
        self._refuse_state(batch)
        starts = clip(batch, self._target.stored(batch))
        if isinstance(starts, Behind):
            raise self._behind(starts, batch)
        own = clipped(batch, starts)
        self._extents = _extents(batch, own)
        plan = self._target.begin(own)
        if starts and not still_there(starts, self._target.stored(batch)):
            raise DeliveryError(
                f"{batch}: dead letters that were already in {self._place} are no longer there: its offsets were moved "
                "back when the batch began, by hand or since a transaction had timed out. Start the query again: the "
                "batch is then compared with the current offsets"
            )
        has_part = bool(starts) or not plan.writes_rows
        return LetterPlan(plan, starts, self._found_by(batch.record) if has_part else frozenset())

    def records(self, app_id: str) -> Iterable[BatchRecord]:
        """See `Target.records`."""
        return self._target.records(app_id)

    def _found_by(self, record: BatchRecord) -> Set[str]:
        """Return the rules that found dead letters of these records, as far as they and the batch's own are known."""
        found: set[str] = set()
        unseen = set() if record.rules is None else set(record.moved)
        for written in self.records(record.app_id) if unseen else ():
            there = {key: written.moved[key] for key in written.moved.keys() & unseen}
            before = {key for key, extent in there.items() if extent.end <= record.moved[key].start}
            has_part = any(there[key].start < record.moved[key].end for key in there.keys() - before)
            if has_part and written.rules is not None:
                found.add(written.rules)
            unseen -= before  # older batches end before this batch, too
            if not unseen:
                break
        return found

    def open(self, plan: TargetPlan, task: Task) -> TaskWriter | None:
        """See `Target.open`."""
        writer = self._target.open(_own(plan).plan, task)
        return None if writer is None else LetterWriter(writer, self._extents, self._shape, task.batch_id)

    def finish(self, batch: Batch, plan: TargetPlan, parts: Sequence[object]) -> None:
        """See `Target.finish`."""
        # Spark creates the state folder while it plans batch 0: it may have appeared since `begin`.
        self._refuse_state(batch)
        self._target.finish(clipped(batch, _own(plan).starts), _own(plan).plan, parts)

    def abort(self, batch: Batch, plan: TargetPlan, parts: Sequence[object], *, every_task_answered: bool) -> None:
        """See `Target.abort`."""
        own = _own(plan)
        self._target.abort(clipped(batch, own.starts), own.plan, parts, every_task_answered=every_task_answered)

    def _refuse_state(self, batch: Batch) -> None:
        if batch.stateful:
            raise DeliveryError(
                f"{batch}: the query keeps state (aggregation, deduplication, stream join), so its rows may come from "
                "records of earlier batches, and dead letters could not be distinguished from those that "
                f"{self._place} has. Mark and write dead letters in a query without state, and aggregate what it "
                "writes in another"
            )

    def _behind(self, behind: Behind, batch: Batch) -> OffsetMismatchError:
        source, tp = behind.key
        stored, start, app_id = behind.stored, behind.extent.start, batch.record.app_id
        if self._place.table is not None:
            words = f"--app-id {app_id} --source {source} --topic {tp.topic} --topic-id {tp.topic_id}"
            way_on = (
                f"sparkonce offsets set {self._place.table} {words} --partition {tp.partition} --offset {start} --apply"
            )
        else:
            words = f"--topic {tp.topic}:{tp.partition} --to-offset {start} --execute"
            way_on = f"kafka-consumer-groups --group {dead_letters_group(app_id)} --reset-offsets {words}"
        return OffsetMismatchError(
            f"{batch} begins at {start} of {tp} (source {source!r}), and {self._place} has the dead letters of records "
            f"below {stored} only: dead letters of offsets {stored} to {start - 1} may be missing. If there are none, "
            f"because the query ran without deadLetters or its offsets were set forward by hand, set them forward "
            f"here, too: {way_on}"
        )


@dataclass(frozen=True, slots=True)
class LetterWriter:
    """Writes the dead letters of one task that are not there yet; see `connectors.sinks.target.TaskWriter`."""

    writer: TaskWriter
    extents: Extents
    shape: Callable[[pa.RecordBatch], pa.RecordBatch] | None
    batch_id: int

    def write(self, rows: pa.RecordBatch) -> None:
        """Write dead letters. Raises DeliveryError if one is not of a record of this batch."""
        missing = not_yet_there(rows, self.extents, self.batch_id)
        if missing.num_rows:
            self.writer.write(missing if self.shape is None else self.shape(missing))

    def close(self) -> object | None:
        """See `TaskWriter.close`."""
        return self.writer.close()

    def discard(self) -> None:
        """See `TaskWriter.discard`."""
        self.writer.discard()

    @property
    def written(self) -> BatchCounts:
        """See `TaskWriter.written`: the rows are dead letters."""
        found = self.writer.written
        return replace(found, rows=0, dead_letters=found.rows)


def not_yet_there(letters: pa.RecordBatch, extents: Extents, batch_id: int) -> pa.RecordBatch:
    """Return letters that the target has not seen. Raises DeliveryError for one of no record of the batch."""
    for name in ("topic", "partition", "offset"):
        if letters.column(name).null_count:
            raise DeliveryError(
                f"batch {batch_id}: a row has null as the {name} of its {COLUMN}: that must be the record that the row "
                "comes from. Build the column with sparkonce.mark"
            )
    topics = letters.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    offsets = letters.column("offset").to_numpy()
    codes = np.stack([topics.indices.to_numpy(), letters.column("partition").to_numpy()], axis=1)
    pairs, which = np.unique(codes, axis=0, return_inverse=True)
    known = [extents.get((names[code], int(partition)), (0, 0, 0)) for code, partition in pairs]
    bounds = np.array(known, dtype=np.int64).reshape(-1, 3)[which.ravel()]
    begin, start, end = bounds[:, 0], bounds[:, 1], bounds[:, 2]
    outside = (offsets < begin) | (offsets >= end)
    if outside.any():
        first = int(np.argmax(outside))
        record = f"offset {offsets[first]} of {letters.column('topic')[first]}-{letters.column('partition')[first]}"
        raise DeliveryError(
            f"batch {batch_id}: the {COLUMN} of a row names {record}, which is no record that "
            "kafka_once read in this batch. Only these can be dead letters: mark the records of the stream itself, "
            "before it is joined with other data"
        )
    is_new = offsets >= start
    return letters if is_new.all() else letters.filter(pa.array(is_new))


def _extents(batch: Batch, own: Batch) -> Extents:
    """Return the extents by topic name and partition: rows have neither the source's name nor the topic's id.

    Raises:
        DeliveryError: if two sources read a partition of one name from different clusters or at different offsets.
    """
    extents: dict[tuple[str, int], tuple[int, int, int]] = {}
    for key, extent in batch.record.ranges.items():
        source, tp = key
        if (tp.topic, tp.partition) in extents:
            raise DeliveryError(
                f"{batch}: two sources of the query read {tp}, {source!r} is one: a dead letter does not identify "
                "which of them it is from. Write each source with its own query and appId"
            )
        extents[tp.topic, tp.partition] = (extent.start, own.record.ranges[key].start, extent.end)
    return extents


def _own(plan: TargetPlan) -> LetterPlan:
    assert isinstance(plan, LetterPlan), "a target is given the plans that it made"
    return plan
