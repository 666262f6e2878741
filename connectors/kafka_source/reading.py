"""What a Spark task does: read one range of one partition and yield it as Arrow record batches.

It runs in a Python worker of an executor, which Spark reuses for later tasks; the client is kept in the process, so
that only the first task of a worker connects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext

from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.connectors.kafka_source.data_loss import NEW_CHECKPOINT, RETENTION, report_loss, report_replaced
from sparkonce.connectors.kafka_source.decode import FetchedBatches, RecordDecoder
from sparkonce.connectors.kafka_source.fetch import Fetched, LogReplacedError, OffsetOutOfRangeError, RangeFetcher
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.ranges import (
    FetchRange,
    NoLeaderError,
    ReadCount,
    RecreatedTopicError,
    check_same_topic,
)
from sparkonce.connectors.kafka_source.resolving import close, is_open
from sparkonce.connectors.runtime.memory import begin_call
from sparkonce.connectors.values.rows import RowMaker
from sparkonce.crash_points import reach
from sparkonce.kafka.client.client import EARLIEST, LATEST, READING, Client, shared_client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.offset_store.offsets import Position, TopicPartition


def read_ranges(
    options: SourceOptions, wanted: Sequence[FetchRange], count: ReadCount | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges of one task, in order, and count them; raises as `read_range`, and more.

    Raises:
        MissingTopicError, RecreatedTopicError: if the topic of a batch query that was planned to the latest offset is
            gone, or another one by now, and failOnDataLoss is true.
    """
    begin_call()
    if any(map(is_open, wanted)):
        wanted = _close(_shared(options), wanted, fail_on_data_loss=options.fail_on_data_loss)
    for each in wanted:
        yield from read_range(options, each, count)


def read_ranges_whole(
    options: SourceOptions, wanted: Sequence[FetchRange], count: ReadCount
) -> Iterator[FetchedBatches]:
    """Yield the record batches of the ranges of one task, in order; raises as `read_range`."""
    begin_call()
    for each in wanted:
        yield from read_batches(options, each, count)


def _close(client: Client, wanted: Sequence[FetchRange], *, fail_on_data_loss: bool) -> list[FetchRange]:
    """Resolve ``earliest`` and ``latest`` of a batch query now; skip topics that are gone."""
    topics = client.existing_topics({each.topic for each in wanted})
    kept = []
    for each in wanted:
        try:
            if each.topic not in topics:
                raise MissingTopicError(f"topic {each.topic} existed when the query was planned, and no longer does")
            check_same_topic(each.topic, each.topic_id, topics[each.topic].topic_id)
            kept.append(each)
        except (MissingTopicError, RecreatedTopicError) as error:
            if fail_on_data_loss:
                raise
            report_loss(f"could not read {each.topic}-{each.partition}: {error}", fail=False)
    return close(kept, lambda word, slots: client.offsets(dict.fromkeys(slots, word), topics))


def read_range(
    options: SourceOptions, wanted: FetchRange, count: ReadCount | None = None, client: Client | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, and add them to ``count``.

    Without a client it is this process's, which only one thread may use at a time.

    Raises:
        DataLossError: if records of the range, or its topic, are gone or have been replaced, and failOnDataLoss is
            true.
        CorruptBatchError: if what is stored is damaged.
        MalformedValueError: for a value that does not parse, in mode FAILFAST.
        RecreatedTopicError: if the topic is not the one that was planned for and failOnDataLoss is true.
        KafkaUnreachableError: if no broker answers in time.
        TimeoutError: if a broker returns nothing in time, or keeps rejecting an offset that it reports to have.
    """
    decoder = RecordDecoder(
        wanted.topic,
        wanted.partition,
        columns=options.rows.decoded,
        check_crcs=options.settings.check_crcs,
    )
    maker = RowMaker(options.rows, wanted.topic, wanted.partition)
    count = count or ReadCount()
    batch_id = _batch_id()
    client = client or _shared(options)
    for fetched, start, end in _fetch(client, options, wanted, decoder):
        count.bytes += fetched.data.shape[0]
        for batch in decoder.rows(fetched.data, fetched.scanned, start, end, fetched.aborted):
            count.records += batch.num_rows
            yield from maker.batches(batch)
            count.unknown |= maker.unknown
            reach(SourcePoint.READING, batch_id, options.app_id)


def read_batches(options: SourceOptions, wanted: FetchRange, count: ReadCount) -> Iterator[FetchedBatches]:
    """Yield the record batches of a range, in order, without decoding them; each is invalid after the next is taken.

    Who uses the records adds them to ``count``. Raises as `read_range`.
    """
    decoder = RecordDecoder(wanted.topic, wanted.partition, columns=(), check_crcs=options.settings.check_crcs)
    batch_id = _batch_id()
    client = _shared(options)
    for fetched, start, end in _fetch(client, options, wanted, decoder):
        count.bytes += fetched.data.shape[0]
        table = decoder.visible(fetched.data, fetched.scanned, start, end, fetched.aborted)
        yield FetchedBatches(wanted.topic, wanted.partition, fetched.data, table, start, end, decoder, count)
        reach(SourcePoint.READING, batch_id, options.app_id)


def _shared(options: SourceOptions) -> Client:
    """Return this process's client, which waits through an outage: who planned the ranges has reached the cluster."""
    return shared_client(options.settings, READING, reached=True)


def _fetch(
    client: Client, options: SourceOptions, wanted: FetchRange, decoder: RecordDecoder
) -> Iterator[tuple[Fetched, int, int]]:
    """Yield what is fetched of a range, with the offsets that are wanted of it: from the first up to the second."""
    if wanted.lost:
        return
    if wanted.leaderless:
        raise NoLeaderError(f"partition {wanted.topic}-{wanted.partition} has no leader: its records are read later")
    batch_id = _batch_id()
    position, pauses_s, last_read_s = wanted.start, options.pauses_s(), time.monotonic()
    while position < wanted.end:
        fetcher = RangeFetcher(client, decoder, replace(wanted, start=position), options.poll_timeout_ms)
        try:
            for fetched in fetcher.ahead():
                yield fetched, position, wanted.end
                position = fetched.scanned.next_offset or position
                pauses_s, last_read_s = options.pauses_s(), time.monotonic()
                if position >= wanted.end:
                    reach(SourcePoint.READ, batch_id, options.app_id)
        except LogReplacedError as error:
            wanted = _without_replaced(options, wanted, error)
        except (MissingTopicError, RecreatedTopicError, OffsetOutOfRangeError) as error:
            if (pause_s := next(pauses_s, None)) is not None:
                time.sleep(pause_s)
                continue
            if not isinstance(error, OffsetOutOfRangeError):
                _skip_lost_topic(options, wanted, position, error)
                return
            pauses_s, refused = options.pauses_s(), position
            position = _skip_lost(client, options, wanted, position)
            if position == refused and time.monotonic() - last_read_s > options.poll_timeout_ms / 1000:
                raise TimeoutError(
                    f"could not continue within {options.poll_timeout_ms} ms: {error}, by the partition's leader, "
                    "although its first and last offsets include it"
                ) from error


def _without_replaced(options: SourceOptions, wanted: FetchRange, error: LogReplacedError) -> FetchRange:
    """Report that the log was truncated, fail if configured, and return what is left of the range.

    The next batch begins where the log diverges, so the records from there on belong to that one.
    """
    tp = TopicPartition(wanted.topic, wanted.topic_id, wanted.partition)
    planned, fail = Position(wanted.end, wanted.end, wanted.epoch), options.fail_on_data_loss
    report_replaced(tp, planned, error.divergence, None, fail=fail, this_query="was reading")
    return replace(wanted, end=min(wanted.end, error.divergence.offset), leader=error.leader)


def _skip_lost_topic(options: SourceOptions, wanted: FetchRange, position: int, error: Exception) -> None:
    """Report what cannot be read because the topic or partition is gone; fail if configured."""
    if options.fail_on_data_loss and isinstance(error, RecreatedTopicError):
        raise error
    name = f"{wanted.topic}-{wanted.partition}"
    what = f"could not read the records of {name} at offsets {position} to {wanted.end - 1}: {error}"
    report_loss(what, fail=options.fail_on_data_loss, instead=_instead())


def _skip_lost(client: Client, options: SourceOptions, wanted: FetchRange, position: int) -> int:
    """Find out what is lost, fail if configured, and return the offset to continue at."""
    key = (wanted.topic, wanted.partition)
    topics = client.topics([wanted.topic])
    earliest = client.offsets({key: EARLIEST}, topics)[key]
    latest = client.offsets({key: LATEST}, topics)[key]
    if earliest <= position <= latest:
        return position
    name = f"{wanted.topic}-{wanted.partition}"
    if position < earliest:
        lost_to = min(earliest, wanted.end)
        end_of_log, prevention = f"begins at {earliest}", RETENTION
    else:
        lost_to = wanted.end
        end_of_log, prevention = f"ends at {latest}", ""
    what = f"records of {name} at offsets {position} to {lost_to - 1} are gone: its log {end_of_log}"
    report_loss(what, fail=options.fail_on_data_loss, instead=_instead(), prevention=prevention)
    return lost_to


def _instead() -> str:
    """Return the remedy for records that existed when they were planned: a batch query has no checkpoint."""
    return NEW_CHECKPOINT if _batch_id() is not None else "or load the DataFrame again, which requests current offsets"


def _batch_id() -> int | None:
    """Return the id of the micro-batch that this task belongs to; None in a batch query."""
    context = TaskContext.get()
    text = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return int(text) if text else None
