"""Lengths of CHAR(n) and VARCHAR(n), which Delta stores as text with the declared type in the column's metadata.

As delta-spark does, characters are counted, trailing spaces too, and values are stored as they are: a CHAR is not
filled up. Only columns are handled: what is declared inside a struct, array or map is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of a column's metadata that holds the type as it was declared, in SQL."""
_TYPE = re.compile(r"((?:var)?char)\((\d+)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Length:
    """The length of one column's values."""

    column: str
    """Its name as files have it."""
    name: str = field(compare=False)
    kind: str
    limit: int

    @property
    def what(self) -> str:
        """What the table declares, for messages."""
        return f"column {self.name} is {self.kind}({self.limit})"

    def too_long(self, values: pa.Array) -> dict[int, str]:
        """Return the rows with longer values, and why that is wrong."""
        longer = pc.fill_null(pc.greater(pc.utf8_length(values), self.limit), False)
        why = f"{self.what} in the table, and there is a longer value in it"
        return dict.fromkeys(np.flatnonzero(np.asarray(longer)).tolist(), why)


def length_of(column: str, name: str, metadata: Mapping[str, Any]) -> Length | None:
    """Return the length that a column's metadata declares; None if there is none, or it is inside another type."""
    found = _TYPE.fullmatch(str(metadata.get(DECLARED, "")).strip())
    return None if found is None else Length(column, name, found[1].upper(), int(found[2]))
