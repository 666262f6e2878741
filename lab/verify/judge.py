"""Judges the result of a cell only by the records acknowledged to its producer.

Topics are read with librdkafka, the table with delta-rs, and the database with sqlite3. No module of the connectors,
`exactly_once` or `offset_store` is used: a bug in their offsets must not hide a bug in the rows they
write.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lab.verify import evolving
from lab.verify.cells import Shows
from lab.verify.records import DOCUMENT_FIELD, Delivered, TopicRecord, document, is_rejected

COUNT_COLUMN = "n"
REASON_HEADER, TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER = "reason", "topic", "partition", "offset"
"""The headers of a dead letter: reason and source of the record."""
_EXAMPLES = 3
_Content = tuple[bytes, bytes]
"""Key and value of a record; unique within a cell."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: a record, and its count (1 where rows are appended)."""

    record: TopicRecord
    times: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of the records."""

    records: int
    """How many records were acknowledged."""
    lost: int
    """Acknowledged records without a row."""
    duplicated: int
    """Rows, or counts, beyond the first of each record."""
    most_times: int
    """The count of the most frequent record."""
    strange: tuple[str, ...]
    """Unexpected records in topic or table: examples, in words."""

    def contradicts(self, shows: Shows, batch: int, times: int = 2) -> str | None:
        """Return why this differs from what a cell must show, or None.

        One crash affects one batch, of ``batch`` records; if that is repeated, a record occurs at most ``times`` times.
        """
        if self.strange:
            return "; ".join(self.strange)
        found = f"{self.lost} lost and {self.duplicated} duplicated of {self.records} records"
        expected = {
            Shows.NEITHER: (self.lost == 0 and self.duplicated == 0, "neither loss nor duplicates"),
            Shows.LOSS: (
                0 < self.lost <= batch and self.duplicated == 0,
                f"a loss and no duplicates, {batch} records at most",
            ),
            Shows.DUPLICATES: (
                self.lost == 0 and 0 < self.duplicated <= batch * (times - 1) and 1 < self.most_times <= times,
                f"duplicates and no loss, {batch} records at most and none more than {times} times",
            ),
            Shows.MAYBE_LOSS: (
                self.lost <= batch and self.duplicated == 0,
                f"no duplicates, and a loss of {batch} at most",
            ),
            Shows.MAYBE_DUPLICATES: (
                self.lost == 0 and self.duplicated <= batch * (times - 1) and self.most_times <= times,
                f"no loss, and duplicates of {batch} records at most, none more than {times} times",
            ),
        }
        right, what = expected[shows]
        return None if right else f"must show {what}; found {found}"


def judge(acknowledged: Sequence[_Content], topic: Iterable[TopicRecord], rows: Iterable[Row]) -> Verdict:
    """Compare topic and table with the acknowledged records; each key was sent once."""
    in_topic, in_table = list(topic), list(rows)
    strange = [*_strange_rows(in_topic, in_table), *_strange_topic(acknowledged, in_topic)]
    return _verdict(acknowledged, [(_content(row.record), row.times) for row in in_table], strange)


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the fate of the records of several topics, each with a table of its own."""
    found = list(verdicts)
    return Verdict(
        sum(each.records for each in found),
        sum(each.lost for each in found),
        sum(each.duplicated for each in found),
        max(each.most_times for each in found),
        tuple(what for each in found for what in each.strange),
    )


def judge_copies(
    acknowledged: Sequence[_Content], topic: Iterable[TopicRecord], copies: Iterable[Delivered]
) -> Verdict:
    """Compare a topic and its copy with the acknowledged records."""
    sent, found = set(acknowledged), [(each.key, each.value) for each in copies]
    strange = _some("copies of records that nobody sent", [each for each in found if each not in sent])
    strange += _strange_topic(acknowledged, list(topic))
    return _verdict(acknowledged, [((key or b"", value or b""), 1) for key, value in found], strange)


def judge_dead_letters(
    acknowledged: Sequence[_Content],
    topic: Iterable[TopicRecord],
    rows: Iterable[Row],
    letters: Iterable[Delivered],
    topic_name: str,
) -> Verdict:
    """Compare topic, table and dead letters with the acknowledged records: each belongs in one of the two."""
    in_topic, in_table = list(topic), list(rows)
    told = [(letter, _origin(letter, topic_name)) for letter in letters]
    dead = [origin for _, origin in told if origin is not None]
    known = set(in_topic)
    strange = [
        *_strange_rows(in_topic, in_table),
        *_some("rows that the rule rejects", [row.record for row in in_table if is_rejected(row.record.value)]),
        *_some("dead letters without origin or reason", [letter for letter, origin in told if origin is None]),
        *_some("dead letters that are not records of the topic", [each for each in dead if each not in known]),
        *_some("dead letters that the rule lets pass", [each for each in dead if not _may_be_dead(each.value)]),
        *_strange_topic(acknowledged, in_topic),
    ]
    found = [_content(record) for record in (*(row.record for row in in_table), *dead)]
    return _verdict(acknowledged, [(each, 1) for each in found], strange)


def _may_be_dead(value: bytes) -> bool:
    """Whether a record may be a dead letter: an ambiguous one is counted in both places."""
    return is_rejected(value) or evolving.is_ambiguous(value)


def _origin(letter: Delivered, topic_name: str) -> TopicRecord | None:
    """Return a dead letter's source record; None if it names none, or has no reason."""
    headers = {name: value or b"" for name, value in letter.headers}
    if len(headers) != len(letter.headers) or headers.get(TOPIC_HEADER) != topic_name.encode():
        return None
    if not headers.get(REASON_HEADER) or letter.key is None or letter.value is None:
        return None
    try:
        partition, offset = int(headers[PARTITION_HEADER]), int(headers[OFFSET_HEADER])
    except (KeyError, ValueError):
        return None
    return TopicRecord(partition, offset, letter.key, letter.value)


def _verdict(acknowledged: Sequence[_Content], found: Iterable[tuple[_Content, int]], strange: list[str]) -> Verdict:
    sent, times = set(acknowledged), Counter[_Content]()
    for content, number in found:
        times[content] += number
    lost = sum(1 for record in sent if times[record] == 0)
    duplicated = sum(times[record] - 1 for record in sent if times[record] > 1)
    return Verdict(len(sent), lost, duplicated, max(times.values(), default=0), tuple(strange))


def _content(record: TopicRecord) -> _Content:
    return record.key, record.value


def _strange_rows(topic: Sequence[TopicRecord], rows: Sequence[Row]) -> list[str]:
    known = set(topic)
    return [
        *_some("rows that are not records of the topic", [row.record for row in rows if row.record not in known]),
        *_some("rows with a count below 1", [row for row in rows if row.times < 1]),
    ]


def _strange_topic(acknowledged: Sequence[_Content], topic: Sequence[TopicRecord]) -> list[str]:
    sent, stored = set(acknowledged), Counter(_content(record) for record in topic)
    return [
        *_some("records in the topic that nobody sent", [each for each in stored if each not in sent]),
        *_some("acknowledged records that are not in the topic", [each for each in sent if each not in stored]),
        *_some("records that are in the topic twice", [each for each, count in stored.items() if count > 1]),
    ]


def _some(what: str, found: Sequence[object]) -> list[str]:
    examples = ", ".join(str(each) for each in sorted(found, key=str)[:_EXAMPLES])
    return [f"{len(found)} {what}: {examples}"] if found else []


def read_rows(table: str | Path, merged: bool, storage_options: Mapping[str, str] | None = None) -> list[Row]:
    """Read the table at a path or a URI; one that does not exist has no rows.

    A decoded value is encoded again, as by the producer.
    """
    columns = ["partition", "offset", "key", "value", *([COUNT_COLUMN] if merged else [])]
    try:
        data = DeltaTable(table, storage_options=dict(storage_options or {}) or None).to_pyarrow_table(columns=columns)
    except TableNotFoundError:
        return []
    if pa.types.is_struct(data.schema.field("value").type):
        data = data.set_column(data.schema.get_field_index("value"), "value", [_written(data["value"].to_pylist())])
    parts = [data[column].to_pylist() for column in columns]
    times = parts[4] if merged else [1] * data.num_rows
    return [Row(TopicRecord(*record), count) for *record, count in zip(*parts[:4], times, strict=True)]


def _written(values: Sequence[Mapping[str, Any] | None]) -> list[bytes]:
    """Return the values from which these were decoded."""
    if any(evolving.NOTE in value for value in values if value is not None):
        return [evolving.value_of_row(value) for value in values]
    return [document((value or {}).get(DOCUMENT_FIELD)) for value in values]


def read_database(path: Path) -> list[Row]:
    """Read the database; one that no query has created yet has no rows."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        return [Row(TopicRecord(*record), 1) for record in connection.execute("SELECT * FROM records")]
