"""Where the rows of a task come from, if Spark passes it ranges to read in place of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any, Protocol

import pyarrow as pa

from sparkonce.exactly_once.coverage import Part


class Count(Protocol):
    """What was read."""

    @property
    def records(self) -> int:
        """Records that a consumer may see."""

    @property
    def bytes(self) -> int:
        """Bytes that the brokers returned for them."""

    @property
    def unknown(self) -> Set[str]:
        """The schemas that the records name and the registry does not have."""


class Reading(Protocol):
    """The ranges of one task."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the task is to read; known before it reads."""

    @property
    def count(self) -> Count:
        """What was read so far."""

    def rows(self) -> Iterator[Any]:
        """Read them: Arrow batches, or others of which the targets' writers know, with their number as ``num_rows``.

        Raises:
            Exception: whatever the source raises.
        """


class RangeReader(Protocol):
    """Reads the rows of ranges. Sent to the tasks."""

    @property
    def rules(self) -> str | None:
        """What makes rows and dead letters of records, as `connectors.values.rules` has it; None if nothing does."""

    def with_rules(self, rules: str) -> RangeReader | None:
        """Return the reader that has these rules, for a batch of which a part was written by them; None if none can.

        They may be today's: what the registry lacked then must be all that it lacks now.
        """

    def open(self, handed_over: Iterable[pa.RecordBatch]) -> Reading:
        """Return the ranges that Spark has passed to a task.

        Raises:
            ValueError: for a row that is not a range.
        """
