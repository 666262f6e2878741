"""Records whose own time is no timestamp, and rows that no partition can have: dead letters, or the record is named."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkonce.connectors.direct.source import DirectSource
from sparkonce.connectors.kafka_source.decode import RecordDecoder, TimestampRangeError
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.values.options import RowOptions
from sparkonce.connectors.values.rows import MalformedValueError, RowMaker
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.cases import each_case
from tests.record_times import FIT, TIMES_MS

GIVEN = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "valueFormat": "json", "valueSchema": "a INT, d DATE"}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SQL = {
    "no sql": None,
    "sql": "SELECT offset, value.a FROM records",
    "sql with time": "SELECT timestamp, value.a FROM records",
}


def options(sql: str | None = None, partitioned: tuple[str, ...] = (), **given: str) -> RowOptions:
    rows = SourceOptions.read({**GIVEN, "handOver": "ranges", **given}).rows
    rows = rows if sql is None else rows.with_select(check_select(sql, rows.record_schema()))
    return replace(rows, partitioned=partitioned)


def made(rows: RowOptions, records: list[Record]) -> list[dict[str, Any]]:
    """Return the rows of records as a broker has them: their batch is decoded, and its columns made into rows."""
    decoder = RecordDecoder("t", 3, columns=rows.decoded)
    data = np.frombuffer(encode_batch(records), np.uint8)
    found = []
    for batch in decoder.rows(data, decoder.scan(data, 0), 0, len(records)):
        for each in RowMaker(rows, "t", 3).batches(batch):
            each.validate(full=True)
            found += each.cast(pa.schema([*map(_as_number, each.schema)])).to_pylist()
    return found


def _as_number(field: pa.Field) -> pa.Field:
    """Return a field whose times Python has in any case: as numbers."""
    return field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field


def letters_of(rows: RowOptions, records: list[Record]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows that are no dead letters, and the dead letters, whose times are in microseconds."""
    decoder = RecordDecoder("t", 3, columns=rows.decoded)
    data = np.frombuffer(encode_batch(records), np.uint8)
    (batch,) = decoder.rows(data, decoder.scan(data, 0), 0, len(records))
    found = RowMaker(rows, "t", 3).rows(batch)
    found.validate(full=True)
    letters = found.column("_dead_letter")
    fine = found.filter(letters.is_null()).drop_columns(["_dead_letter"])
    dead = pa.RecordBatch.from_struct_array(letters.filter(letters.is_valid()))
    numbers = [each.cast(pa.schema([*map(_as_number, each.schema)])).to_pylist() for each in (fine, dead)]
    return numbers[0], numbers[1]


def test_each_time_in_each_choice_of_columns() -> None:
    """Good and bad values of each time: where the time is not asked for, only the value decides."""
    values = (b'{"a":1}', b"{")
    choices = itertools.product(SQL.items(), ("value,offset", "value,offset,timestamp"), TIMES_MS)
    count = 0
    for (name, sql), columns, time in choices:
        if name == "sql with time" and "timestamp" not in columns:
            continue
        asked = name == "sql with time" or (sql is None and "timestamp" in columns)
        rows = options(sql, columns=columns, includeDeadLetters="true")
        fine, dead = letters_of(rows, [Record(b"k", value, time) for value in values])
        told = f"the timestamp {time}, which does not fit"
        assert [each["offset"] for each in dead] == ([0, 1] if asked and time not in FIT else [1]), (
            name,
            columns,
            time,
        )
        for letter in dead:
            assert letter["timestamp"] == (1000 * time if time in FIT else None)
            assert (told in letter["reason"]) == (time not in FIT), letter["reason"]
            assert (letter["key"], letter["value"]) == (b"k", values[letter["offset"]])
        assert len(fine) == 2 - len(dead)
        if asked and fine:
            assert fine[0]["timestamp"] == 1000 * time
        count += 1
    assert count == 5 * len(TIMES_MS)


@each_case("time", [each for each in TIMES_MS if each not in FIT])
def test_without_dead_letters_such_a_time_stops_those_who_ask_for_it_only(time: int) -> None:
    record = [Record(None, b'{"a":1}', time)]
    for rows in (options(columns="value,offset,timestamp"), options(SQL["sql with time"], columns="value,timestamp")):
        with pytest.raises(
            TimestampRangeError, match=rf"partition 3, at offset 0 has the timestamp {time}, .*includeDeadLetters"
        ):
            made(rows, record)
    assert made(options(columns="value"), record) == [{"value": {"a": 1, "d": None}}]
    assert made(options(SQL["sql"]), record) == [{"offset": 0, "a": 1}]


DATED = [b'{"a":1,"d":"2024-05-06"}', b'{"a":2,"d":"+20233-01-01"}', b'{"a":3}', b'{"a":4,"d":"0000-01-01"}', b"{"]
BY_DAY = "SELECT value.a, value.d AS day FROM records WHERE value.a <> 1"


def test_rows_that_no_partition_can_have_are_dead_letters() -> None:
    records = [Record(b"k", value, 5) for value in DATED]
    fine, dead = letters_of(options(BY_DAY, ("day",), includeDeadLetters="true"), records)
    assert [each["a"] for each in fine] == [3]
    assert [(each["offset"], each["value"]) for each in dead] == [(1, DATED[1]), (3, DATED[3]), (4, DATED[4])]
    assert (
        "column day is +20233-01-01, and a partition's date or time must be of the years 1 to 9999" in dead[0]["reason"]
    )
    assert "column day is 0000-01-01, " in dead[1]["reason"]


@each_case(
    "time, told",
    [
        (253_402_300_800_000, r"\+10000-01-01T00:00:00\.000000Z"),
        (1_700_000_000_000_000, r"\+55840-11-08T22:13:20\.000000Z"),
    ],
)
def test_the_record_of_a_row_that_no_partition_can_have_is_named(time: int, told: str) -> None:
    records = [Record(b"k", b'{"a":1}', 5), Record(b"k", b'{"a":2}', time)]
    for rows in (options(partitioned=("timestamp",)), options(SQL["sql with time"], ("timestamp",))):
        where = r"the record of topic t, partition 3, at offset 1 makes a row that the table cannot have"
        with pytest.raises(
            MalformedValueError, match=rf"{where}: column timestamp is {told}, .*includeDeadLetters=true"
        ):
            made(rows, records)
    dead = letters_of(options(partitioned=("timestamp",), includeDeadLetters="true"), records)[1]
    assert [(each["offset"], each["timestamp"]) for each in dead] == [(1, 1000 * time)]


def test_rows_of_bytes_are_checked_for_the_tables_partitions_too() -> None:
    rows = SourceOptions.read({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "columns": "value,timestamp"}).rows
    by_time = replace(rows, partitioned=("timestamp",))
    assert [each["value"] for each in made(by_time, [Record(None, b"v", 5)])] == [b"v"]
    with pytest.raises(MalformedValueError, match=r"at offset 0 makes a row"):
        made(by_time, [Record(None, b"v", 253_402_300_800_000)])


def test_what_the_table_is_partitioned_by_is_in_the_rules_of_dead_letters_only() -> None:
    """A batch that was begun before is completed by the same rules: such a row stops the query then."""
    given = {**GIVEN, "handOver": "ranges", "includeDeadLetters": "true"}
    before = DirectSource(SourceOptions.read(given), HandOver.of(given))
    now = before.partitioned_by(["TIMESTAMP", "value", "topic"])
    assert now.options.rows.partitioned == ("timestamp",)
    assert now.rules != before.rules
    again = now.with_rules(before.rules)
    assert again is not None
    assert again.options.rows.partitioned == ()
    assert before.with_rules(now.rules) is None
    without = DirectSource(SourceOptions.read({**given, "includeDeadLetters": "false"}), HandOver.of(given))
    assert without.partitioned_by(["timestamp"]).rules == without.rules


def test_a_batch_from_before_times_were_in_the_rules_is_completed() -> None:
    """The digest is what an earlier version made of these options; a batch that it began had no such time."""
    older, given = "d6c7cce89714a076", {**GIVEN, "handOver": "ranges", "includeDeadLetters": "true", "columns": "value"}
    now = DirectSource(SourceOptions.read(given), HandOver.of(given))
    again = now.with_rules(older)
    assert now.rules != older
    assert again is not None
    assert again.rules == older
    other = DirectSource(SourceOptions.read({**given, "columns": "value,timestamp"}), HandOver.of(given))
    assert other.with_rules(now.rules) is None
