"""Judges the rows of a set-back cell by the expected ones, and the error of a run that does not continue.

Tables are read with delta-rs, topics with librdkafka, the database with sqlite3; no code of the product is used.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lab.verify.records import Delivered, is_rejected, read_delivered
from lab.verify.setback.cells import Query, SetBack, SetBackCell, Sink
from lab.verify.setback.due import Row, due
from lab.verify.setback.queries import COLUMNS, COUNT_COLUMN, Setup
from lab.verify.transactions import held_up, lags, open_transactions

_OURS = re.compile(r"^sparkonce\.(?:exactly_once\.errors|(?:connectors|offset_store)\.[\w.]+)\.\w+: ")
_WAY_OUT = re.compile(r"new checkpointLocation|from the checkpoint|old checkpoint|copy of the checkpoint")
_COMMITTED_ALREADY = "[CONCURRENT_STREAM_LOG_UPDATE]"
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Found:
    """The fate of the expected rows."""

    due: int
    lost: int
    duplicated: int
    strange: tuple[str, ...]
    """Unexpected rows, in words: examples."""

    @property
    def is_right(self) -> bool:
        """Whether each expected row occurs once, and nothing else."""
        return not (self.lost or self.duplicated or self.strange)

    def __str__(self) -> str:
        parts = [f"{self.lost} lost", f"{self.duplicated} doubled", *self.strange]
        return f"{', '.join(parts)} of {self.due} rows"


def names_way_out(error: str) -> bool:
    """Whether an error is ours and names the remedy."""
    return _OURS.match(error) is not None and _WAY_OUT.search(error) is not None


def is_sparks_own(cell: SetBackCell, error: str) -> bool:
    """Whether it is Spark's own error: it repeats the batch before the deleted one, which is in ``commits`` already."""
    return cell.setback is SetBack.OFFSETS_DELETED and _COMMITTED_ALREADY in error


def compare(wanted: Iterable[Row], there: Iterable[Row]) -> Found:
    """Compare the rows with the expected ones, each once."""
    expected, found = set(wanted), Counter(there)
    strange = sorted(row for row in found if row not in expected)
    words = f"{len(strange)} not due: {', '.join(map(str, strange[:_EXAMPLES]))}"
    return Found(
        due=len(expected),
        lost=sum(1 for row in expected if found[row] == 0),
        duplicated=sum(found[row] - 1 for row in expected if found[row] > 1),
        strange=(words,) if strange else (),
    )


def find(cell: SetBackCell, setup: Setup, records: int, files: int) -> Found:
    """Read the result, and compare.

    Raises:
        DeltaError, OSError, LoadError: if it cannot be read.
    """
    return compare(due(cell.query, records, files), _rows(cell, setup))


def left_behind(cell: SetBackCell, setup: Setup) -> list[str]:
    """Return leftovers in Kafka that must not exist, in words: open transactions, and offsets that are not the ends.

    Raises:
        LoadError: if the broker returns an error.
    """
    servers, output = setup.bootstrap_servers, setup.output_topic
    if output is None:
        return []
    left = [f"transaction left behind: {each}" for each in open_transactions(servers, setup.app_id)]
    left += [f"readers are held up: {each}" for each in held_up(servers, [output])]
    if cell.sink is Sink.TOPIC and cell.query is not Query.FILES:
        left += [f"group {setup.app_id} lags: {each}" for each in lags(servers, setup.app_id, setup.topic)]
    return left


def _rows(cell: SetBackCell, setup: Setup) -> Iterator[Row]:
    if cell.sink is Sink.FOREACH_BATCH:
        with closing(sqlite3.connect(setup.database)) as connection:
            yield from connection.execute("SELECT key, value FROM result").fetchall()
        return
    if cell.sink is not Sink.TOPIC:
        yield from _of_table(setup, merged=cell.sink is Sink.MERGE)
    if setup.output_topic is not None:
        for each in read_delivered(setup.bootstrap_servers, setup.output_topic):
            yield _dead_row(each) if cell.sink is Sink.DEAD_LETTERS else (_text(each.key), _text(each.value))


def _of_table(setup: Setup, merged: bool) -> Iterator[Row]:
    columns = [*COLUMNS, *([COUNT_COLUMN] if merged else [])]
    try:
        data = DeltaTable(setup.table).to_pyarrow_table(columns=columns)
    except TableNotFoundError:
        return
    for row in data.to_pylist():
        for _ in range(row.get(COUNT_COLUMN, 1)):
            yield row["key"], row["value"]


def _dead_row(letter: Delivered) -> Row:
    """Return the row of a dead letter; one that the rule accepts is not expected."""
    number = _text(letter.value).rpartition(" ")[2]
    return f"record {number}", "" if is_rejected(letter.value or b"") else "rejected in spite of the rule"


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()
