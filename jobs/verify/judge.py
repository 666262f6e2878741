"""Judges the result of a cell by the records that its producer got acknowledged, and nothing of the pipeline's.

The topic is read with librdkafka and the table with delta-rs. No module of the connectors, of `exactly_once` or of
`offset_store` has a say here: a bug in the offsets they keep must not hide a bug in the rows they write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from jobs.verify.cells import Shows
from jobs.verify.records import Record

COUNT_COLUMN = "n"
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a record, and how often it was counted (1 where rows are appended)."""

    record: Record
    times: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the records."""

    records: int
    """How many were acknowledged."""
    lost: int
    """Acknowledged, and in no row."""
    duplicated: int
    """Rows, or counts, beyond the first of each record."""
    most_times: int
    """How often the record came that came most often."""
    strange: tuple[str, ...]
    """What is in topic or table and should not be: examples, in words."""

    def contradicts(self, shows: Shows, batch: int) -> str | None:
        """Give why this is not what a cell must show, or None if it is.

        One crash hurts one batch, of ``batch`` records; if that comes again it comes twice.
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
                self.lost == 0 and 0 < self.duplicated <= batch and self.most_times == 2,
                f"duplicates and no loss, {batch} records at most and none more than twice",
            ),
        }
        right, what = expected[shows]
        return None if right else f"must show {what}; found {found}"


def judge(acknowledged: Sequence[tuple[bytes, bytes]], topic: Iterable[Record], rows: Iterable[Row]) -> Verdict:
    """Hold topic and table against what was acknowledged; each key was sent once."""
    sent, in_topic, in_table = set(acknowledged), list(topic), list(rows)
    strange = _strange(sent, in_topic, in_table)
    times: Counter[tuple[bytes, bytes]] = Counter()
    for row in in_table:
        times[row.record.key, row.record.value] += row.times
    lost = sum(1 for record in sent if times[record] == 0)
    duplicated = sum(times[record] - 1 for record in sent if times[record] > 1)
    return Verdict(len(sent), lost, duplicated, max(times.values(), default=0), tuple(strange))


def _strange(sent: set[tuple[bytes, bytes]], topic: Sequence[Record], rows: Sequence[Row]) -> list[str]:
    known = set(topic)
    stored = Counter((record.key, record.value) for record in topic)
    return [
        *_some("rows that are not records of the topic", [row.record for row in rows if row.record not in known]),
        *_some("rows with a count below 1", [row for row in rows if row.times < 1]),
        *_some("records in the topic that nobody sent", [each for each in stored if each not in sent]),
        *_some("acknowledged records that are not in the topic", [each for each in sent if each not in stored]),
        *_some("records that are in the topic twice", [each for each, count in stored.items() if count > 1]),
    ]


def _some(what: str, found: Sequence[object]) -> list[str]:
    examples = ", ".join(str(each) for each in sorted(found, key=str)[:_EXAMPLES])
    return [f"{len(found)} {what}: {examples}"] if found else []


def read_rows(table: Path, merged: bool) -> list[Row]:
    """Read the table; one that does not exist has no rows."""
    columns = ["partition", "offset", "key", "value", *([COUNT_COLUMN] if merged else [])]
    try:
        data = DeltaTable(table).to_pyarrow_table(columns=columns)
    except TableNotFoundError:
        return []
    parts = [data[column].to_pylist() for column in columns]
    times = parts[4] if merged else [1] * data.num_rows
    return [Row(Record(*record), count) for *record, count in zip(*parts[:4], times, strict=True)]
