"""Checks that the parts of a batch that tasks have read are the whole batch, each record once.

In a query that hands over ranges (`connectors.direct`) the rows that Spark passes to the sink are the ranges to read.
A filter between source and sink would drop some of them, a union duplicate them, and the written rows would
look complete. So the ranges that tasks have read are compared with Spark's own entry of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import PlanError
from sparkonce.offset_store.offsets import TopicPartition

_Extent = tuple[int, int]
_Key = tuple[str, str, int]


class Part(NamedTuple):
    """The records ``[start, end)`` of one partition, which one task has read."""

    source: str
    tp: TopicPartition
    start: int
    end: int


def check_coverage(batch: Batch, parts: Iterable[Part]) -> None:
    """Check that ``parts`` are the ranges of the batch, without gaps and overlaps.

    Raises:
        PlanError: if they are not; it names the first partition that differs.
    """
    # By name: a batch has one topic of a name for each source, and the id may have become known only after its plan.
    found: dict[_Key, list[_Extent]] = {}
    for part in parts:
        found.setdefault((part.source, part.tp.topic, part.tp.partition), []).append((part.start, part.end))
    moved = batch.record.moved.items()
    logged = {(source, tp.topic, tp.partition): (extent.start, extent.end) for (source, tp), extent in moved}
    for key in sorted(logged.keys() | found.keys()):
        whole, read = logged.get(key), sorted(found.get(key, []))
        if not _tiles(read, whole):
            source, topic, partition = key
            raise PlanError(
                f"{batch}: Spark has planned {_text(whole)} of {topic}-{partition} (source {source!r}), and its tasks "
                f"were told to read {', '.join(map(_text, read)) or _text(None)}: "
                "with handOver=ranges, no operator between source and sink may drop or repeat rows (filter, limit, "
                "sample, dropDuplicates, union). The batch was stopped before its commit. Remove that operator, or "
                "set handOver=rows on the source"
            )


def _text(extent: _Extent | None) -> str:
    return "nothing" if extent is None else f"[{extent[0]}, {extent[1]})"


def _tiles(read: list[_Extent], whole: _Extent | None) -> bool:
    if whole is None:
        return not read
    position = whole[0]
    for start, end in read:
        if start != position or end <= start:
            return False
        position = end
    return position == whole[1]
