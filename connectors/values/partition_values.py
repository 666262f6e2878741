"""Values of partition columns: as text, as in Delta's protocol, and those that no table can have.

The years are those that every reader supports: delta-rs (1.6) does not open a table with a partition of the year
294,247, and makes no rows in Python of a date before the year 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

DATES = -719_162, 2_932_896
"""From 0001-01-01 to 9999-12-31, in days since 1970."""
_US_PER_DAY = 86_400_000_000
TIMES = DATES[0] * _US_PER_DAY, (DATES[1] + 1) * _US_PER_DAY - 1
_LAST_YEAR = 9999


def texts(values: pa.Array) -> list[str | None]:
    """Return values as Delta's protocol writes them ("Partition Value Serialization").

    Years after 9999 have a sign, as Spark writes them; Python has no such times, and Arrow no text for all of them.
    """
    kind = values.type
    if pa.types.is_date32(kind):
        return [None if day is None else _date(day) for day in values.view(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        form = "{} {}" if kind.tz is None else "{}T{}Z"
        numbers = values.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).to_pylist()
        return [
            None if us is None else form.format(_date(us // _US_PER_DAY), _time(us % _US_PER_DAY)) for us in numbers
        ]
    if pa.types.is_decimal(kind):
        return [None if each is None else format(each, "f") for each in values.to_pylist()]
    return [each or None for each in values.cast(pa.string()).to_pylist()]


def _date(day: int) -> str:
    text = str(np.datetime64(day, "D"))
    year = int(text[: -len("-MM-DD")])
    written = f"{year:+}" if year > _LAST_YEAR else f"{year:05}" if year < 0 else f"{year:04}"
    return written + text[-len("-MM-DD") :]


def _time(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def outside(column: pa.Array) -> NDArray[np.int64]:
    """Return the rows of a column whose date or time is outside the years 1 to 9999."""
    kind = column.type
    if pa.types.is_date32(kind):
        numbers, (first, last) = column.view(pa.int32()), DATES
    elif pa.types.is_timestamp(kind):
        numbers, (first, last) = column.view(pa.int64()), TIMES
    else:
        return np.zeros(0, np.int64)
    found = pc.min_max(numbers)
    if not found["min"].is_valid or (found["min"].as_py() >= first and found["max"].as_py() <= last):
        return np.zeros(0, np.int64)
    wrong = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    return np.flatnonzero(np.asarray(pc.fill_null(wrong, False)))


def refusal(name: str, column: pa.Array, row: int) -> str:
    """Return why a row with a value that is `outside` is not written."""
    (value,) = texts(column.slice(row, 1))
    return (
        f"column {name} is {value}, and a partition's date or time must be of the years 1 to 9999, which every reader "
        "of the table has"
    )


def unwritable(rows: pa.RecordBatch, partition_columns: Sequence[str]) -> dict[int, str]:
    """Return, by row number, why a row cannot be in a table with these partition columns."""
    by_name = {name.lower(): name for name in rows.schema.names}
    found: dict[int, str] = {}
    for name in partition_columns:
        column = rows.column(by_name[name.lower()])
        found = {**{row: refusal(name, column, row) for row in outside(column).tolist()}, **found}
    return found
