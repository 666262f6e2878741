"""Partition columns: splitting rows by them, and writing their values as text and as directory names.

Delta keeps a partition value as text in the add action (``partitionValues``), and readers use only that. The
directory's name, ``column=value`` as Hive writes it, is for people. An empty string and null are the same in Delta:
both are read back as null, here as with delta-spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.connectors.values.partition_values import texts

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_CHARACTERS = 100
"""Of a column or a value in a directory's name; file systems allow 255 bytes for both together."""

# Hive's FileUtils.escapePathName, and other characters that are special in file systems or URIs.
_ESCAPED = set("\"#%'*/:=?\\{[]^<>|\x7f +&~") | {chr(code) for code in range(0x20)}

PartitionValues = tuple[str | None, ...]
"""The text of each partition column's value, in the order of the columns."""


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Yield the rows of each combination of partition values, in one batch each, without the partition columns.

    Each has its own buffers: a slice would keep all rows of ``batch`` in memory while a few of them are buffered.
    """
    data = batch.drop_columns(list(columns))
    if batch.num_rows == 0:
        return
    encoded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in columns]
    written = [texts(column.dictionary) for column in encoded]
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]  # below the number of rows: the next product fits
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate(([0], np.flatnonzero(np.diff(codes[order])) + 1, [batch.num_rows]))
    is_whole = len(starts) == 2
    for start, end in pairwise(starts.tolist()):
        first = order[start]
        values = tuple(known[column.indices[first].as_py()] for known, column in zip(written, encoded, strict=True))
        yield values, data if is_whole else data.take(pa.array(order[start:end]))


def directory(columns: Sequence[str], values: PartitionValues) -> str:
    """Return the directory of a partition, relative to the table; "" without partition columns."""
    pairs = zip(columns, values, strict=True)
    return "/".join(f"{_escape(name)}={NULL_DIRECTORY if value is None else _escape(value)}" for name, value in pairs)


def _escape(text: str) -> str:
    """Escape a name or value so that it is one valid path component, in ASCII."""
    escaped = "".join(
        character if character.isascii() and character not in _ESCAPED else _percent(character) for character in text
    )
    if len(escaped) > MAX_NAME_CHARACTERS:
        return escaped[:MAX_NAME_CHARACTERS] + "-" + sha256(text.encode()).hexdigest()[:16]
    # "." and ".." would be other directories.
    return escaped if escaped.strip(".") else escaped.replace(".", "%2E")


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())
