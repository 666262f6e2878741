"""Arrow's buffers as the encoder takes them. The driver knows these and need not load the compiler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Values(NamedTuple):
    """The buffers of a column of Arrow's binary or string type.

    ``bits`` is empty if there is no null, ``offsets`` if there is no such column; ``first_bit`` is where the bits of
    row 0 begin.
    """

    offsets: Int32s
    data: Bytes
    bits: Bytes
    first_bit: int


class Headers(NamedTuple):
    """The buffers of a column of lists of (key, value); a null list has no header."""

    lists: Int32s
    bits: Bytes
    first_bit: int
    keys: Values
    values: Values


class Columns(NamedTuple):
    """The rows to write. Partitions are empty if there is no such column, topics if all rows go to topic 0."""

    keys: Values
    values: Values
    headers: Headers
    partitions: Int32s
    partition_bits: Bytes
    first_partition_bit: int
    topics: Int32s


class Rows(NamedTuple):
    """One Arrow batch: its buffers, and the names that the topic numbers of the buffers stand for."""

    size: int
    columns: Columns
    topics: tuple[str, ...]


class RowError(ValueError):
    """A row that cannot become a record; the message says why, and what to do."""
