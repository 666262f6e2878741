"""The source of a task's rows, if Spark passes it ranges to read instead of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any, Protocol

import pyarrow as pa

from sparkonce.exactly_once.coverage import Part


class Count(Protocol):
    """The amounts read."""

    @property
    def records(self) -> int:
        """Records that a consumer may see."""

    @property
    def bytes(self) -> int:
        """Bytes that the brokers returned for them."""

    @property
    def unknown(self) -> Set[str]:
        """The schemas named by records that the registry does not have."""


class Reading(Protocol):
    """The ranges of one task."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The ranges to read; known before it reads."""

    @property
    def count(self) -> Count:
        """The amounts read so far."""

    def rows(self) -> Iterator[Any]:
        """Read them: batches of Arrow or of the targets' writers, with ``num_rows``. Raises what the source raises."""


class RangeReader(Protocol):
    """Reads the rows of ranges. Sent to the tasks."""

    @property
    def rules(self) -> str | None:
        """The rules that make rows and dead letters of records, see `connectors.values.rules`; None without."""

    def with_rules(self, rules: str) -> RangeReader | None:
        """Return the reader with these rules, for a batch of which a part was written by them; None if there is none.

        They may be today's: today the registry must lack exactly the same schemas.
        """

    def open(self, handed_over: Iterable[pa.RecordBatch]) -> Reading:
        """Return the ranges that Spark has passed to a task. Raises ValueError for a row that is not a range."""
