"""A program without Spark that does what a direct query does: confluent-kafka, orjson, pyarrow and deltalake.

It is what one would write in an afternoon, with each library used as its documentation shows: two processes, as
many as the sessions have task slots, each with half of the partitions. Records are gathered into files of some hundred
thousand rows; each is one append to the table, with the partitions' next offsets as Delta's transaction ids. It has no
leader epochs, no data loss rules, no fencing and no restart: it shows what these cost.

Started as ``python -m lab.bench.loop ARGUMENT``; requests and answers are those of `spark_side`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lab.bench.load import KEPT_SITE, LoadError, records_in
from lab.bench.processes import cpu_s
from lab.bench.settings import PARTITIONS
from lab.bench.spark_side import Outcome, Query, count
from lab.child_process import event_writer

PROCESSES = 2
ROWS_PER_FILE = 500_000
_CONSUME_AT_ONCE = 50_000
_CONSUME_S = 0.2
_DOCUMENT = pa.schema(
    [
        ("id", pa.int64()),
        ("device", pa.string()),
        ("site", pa.string()),
        ("at", pa.string()),
        ("day", pa.string()),
        ("temperature", pa.float64()),
        ("humidity", pa.float64()),
        ("count", pa.int32()),
        ("valid", pa.bool_()),
        ("note", pa.string()),
    ]
)
_TIME = pa.timestamp("us", "UTC")


def record_columns(messages: Sequence[Message]) -> pa.Table:
    """Return the columns of undecoded records."""
    times = [message.timestamp() for message in messages]
    return pa.table(
        {
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
            "topic": pa.array([message.topic() for message in messages], pa.string()),
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp": pa.array([ms * 1000 for _, ms in times], pa.int64()).cast(_TIME),
            "timestampType": pa.array([kind for kind, _ in times], pa.int32()),
        }
    )


def document_columns(messages: Sequence[Message]) -> pa.Table:
    """Return the ten typed columns of `load.documents`."""
    return _typed([orjson.loads(message.value()) for message in messages])


def kept_columns(messages: Sequence[Message]) -> pa.Table:
    """Return the expressions over the documents of one site; see `direct.EXPRESSIONS`."""
    documents = (orjson.loads(message.value()) for message in messages)
    rows = _typed([document for document in documents if document["site"] == KEPT_SITE])
    whole = pc.divide(rows["id"], 1000)
    return pa.table(
        {
            "site": rows["site"],
            "bucket": pc.subtract(rows["id"], pc.multiply(whole, 1000)),
            "device": pc.utf8_upper(rows["device"]),
            "fahrenheit": pc.add(pc.multiply(rows["temperature"], 1.8), 32.0),
            "humidity": pc.if_else(rows["valid"], rows["humidity"], 0.0),
            "label": pc.binary_join_element_wise(rows["site"], rows["note"], "/"),
        }
    )


COLUMNS: Mapping[str, Callable[[Sequence[Message]], pa.Table]] = {
    "records": record_columns,
    "documents": document_columns,
    "kept": kept_columns,
}
"""The values of a request's option ``columns``."""


def _typed(documents: Sequence[Mapping[str, object]]) -> pa.Table:
    rows = pa.Table.from_pylist(list(documents), _DOCUMENT)
    for name, kind in (("at", _TIME), ("day", pa.date32())):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(kind))
    return rows


def copy_partitions(bootstrap_servers: str, topic: str, partitions: Sequence[int], columns: str, table: str) -> None:
    """Append the records of some partitions, from first to last, to a table.

    Raises:
        LoadError: if the broker returns an error.
    """
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "loop", "enable.partition.eof": True}
    make, waiting, unfinished, following = COLUMNS[columns], [], set(partitions), dict.fromkeys(partitions, 0)
    rows = 0
    with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while unfinished:
            messages = consumer.consume(_CONSUME_AT_ONCE, _CONSUME_S)
            for message in messages:
                error = message.error()
                if error is None:
                    following[message.partition()] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise LoadError(f"reading {topic}: {error.str()}")
            read = [message for message in messages if message.error() is None]
            rows += len(read)
            if read:
                waiting.append(make(read))
            if waiting and (rows >= ROWS_PER_FILE or not unfinished):
                _append(table, pa.concat_tables(waiting), topic, following)
                waiting, rows = [], 0


def _append(table: str, rows: pa.Table, topic: str, following: Mapping[int, int]) -> None:
    transactions = [Transaction(f"{topic}-{partition}", offset) for partition, offset in following.items()]
    write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(app_transactions=transactions))


def run_loop(pool: Pool, query: Query) -> Outcome:
    """Copy a topic into a new table, which is deleted afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    table, columns = str(directory / "table"), query.source_options["columns"]
    try:
        cpu_before_s, began = cpu_s(os.getpid()), time.perf_counter()
        DeltaTable.create(table, COLUMNS[columns]([]).schema)
        pool.starmap(
            copy_partitions,
            [
                (query.bootstrap_servers, query.topic, list(range(PARTITIONS))[number::PROCESSES], columns, table)
                for number in range(PROCESSES)
            ],
        )
        wall_s, spent_s = time.perf_counter() - began, cpu_s(os.getpid()) - cpu_before_s
        read = records_in(query.bootstrap_servers, query.topic, PARTITIONS)
        return Outcome(wall_s, read, (), spent_s, asdict(count(table, read_files=True)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Answer requests until the input ends."""
    answer = event_writer()
    with get_context("spawn").Pool(PROCESSES) as pool:
        answer(ready="loop")
        for line in sys.stdin:
            try:
                answer(**asdict(run_loop(pool, Query(**json.loads(line)))))
            except Exception as error:  # the parent decides what a failure means
                answer(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
