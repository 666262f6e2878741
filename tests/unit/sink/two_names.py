"""The first batch of an application of a partition, with all that may be there: a case, and what must become of it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.target import DeltaTarget
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.refusals import THE_TABLE, StoreName
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey

START = 10
"""Where the batch begins."""
WRITTEN, COVERED, LATE, OTHER = "written", "covered twice", "begins late", "as for any chain"
_SAYS = {COVERED: "coveredTwice=true", LATE: "beginsLate=true"}


@dataclass(frozen=True, slots=True)
class Case:
    """What is in the table, and what comes."""

    same_app: bool
    same_topic: bool
    other_end: int
    """Where the application that is in the table ends."""
    is_late: bool
    """Whether the checkpoint of the batch has read records before it."""
    kind: str
    """What the shared table holds: rows, dead letters or offsets."""
    may_cover: bool
    may_begin_late: bool
    guarantee: Guarantee
    same_source: bool
    """Whether the sources of both queries have one name."""
    is_later: bool
    """Whether the query has written another topic before it reads this one."""

    @property
    def goes_on(self) -> bool:
        """Whether the source has offsets where its batch is compared: then nothing of this is looked at."""
        is_new = self.kind == "offsets" and self.guarantee is Guarantee.EXACTLY_ONCE
        return self.same_app and self.same_source and not is_new

    @property
    def expected(self) -> str:
        """What must become of the batch, by the records: which would be there twice, and which would be nowhere."""
        is_apart = self.kind == "offsets"  # then the rows of each are in a table of its own
        if self.goes_on:
            return OTHER
        if self.kind == "dead letters" or (is_apart and self.guarantee is not Guarantee.EXACTLY_ONCE):
            return WRITTEN
        there = set(range(self.other_end)) if self.same_topic and not is_apart else set[int]()
        if there & set(range(START, START + 5)) and not self.may_cover:
            return COVERED
        if self.same_app and not is_apart and not self.is_later:  # of a renamed source, of which nothing is there
            return WRITTEN
        missing = {START - 1} - there if self.is_late else set()
        unknown = self.is_late and max(there, default=0) >= START  # these rows may be those of the other alone
        return LATE if (missing or unknown) and not self.may_begin_late else WRITTEN


def cases() -> Iterator[Case]:
    """Return all."""
    flags = (True, False)
    ends, kinds = (START - 4, START, START + 4), ("rows", "dead letters", "offsets")
    for values in itertools.product(flags, flags, ends, flags, kinds, flags, flags, Guarantee, flags, flags):
        yield Case(*values)


def outcome(case: Case, folder: Path) -> str:
    """Let it happen in real tables; a batch that is written must be in the table with its offsets."""
    try:
        return _outcome(case, folder)
    finally:
        shutil.rmtree(folder)


def _outcome(case: Case, folder: Path) -> str:
    old = ("kafka", TopicPartition("topic", "id", 0))
    _write(case, folder, "old", "old query", 0, {old: (0, case.other_end)})
    app_id, source = "old" if case.same_app else "new", "kafka" if case.same_source else "renamed"
    new = (source, TopicPartition("topic", "id" if case.same_topic else "recreated", 0))
    first, begun = (source, TopicPartition("first", "first", 0)), dict[PartitionKey, tuple[int, int]]()
    if case.is_later:
        _write(case, folder, app_id, "new query", 0, {first: (0, 3)})
        begun = {first: (3, 3)}
    batch_id = int(case.is_late) + int(case.is_later)
    read_before = {new: 0} if case.is_late else {}
    spans = {**begun, new: (START, START + 5)}
    try:
        _write(case, folder, app_id, "new query", batch_id, spans, read_before, says=True)
    except OffsetMismatchError as error:
        if case.goes_on and "is the first of this appId" not in str(error):
            return OTHER
        return next((what for what, says in _SAYS.items() if says in str(error)), str(error))
    return OTHER if case.goes_on else WRITTEN


def _write(
    case: Case,
    folder: Path,
    app_id: str,
    query_id: str,
    batch_id: int,
    spans: Mapping[PartitionKey, tuple[int, int]],
    read_before: Mapping[PartitionKey, int] = MappingProxyType({}),
    *,
    says: bool = False,
) -> None:
    own = case.kind == "offsets"
    options = SinkOptions(
        table=Location.parse(str(folder / (f"rows of {query_id}" if own else "table"))),
        app_id=app_id,
        checkpoint="/nowhere",
        guarantee=case.guarantee,
        offset_store=f"delta:{folder / 'offsets'}" if own else None,
        covered_twice=says and case.may_cover,
        begins_late=says and case.may_begin_late,
    )
    place = StoreName("the table of dead letters", None) if case.kind == "dead letters" else THE_TABLE
    deliver(options, query_id, batch_id, spans, read_before, place)


def deliver(
    options: SinkOptions,
    query_id: str,
    batch_id: int,
    spans: Mapping[PartitionKey, tuple[int, int]],
    read_before: Mapping[PartitionKey, int] = MappingProxyType({}),
    place: StoreName = THE_TABLE,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Write a batch without rows, and call ``between`` while its tasks would run."""
    ranges = {key: OffsetRange(*span) for key, span in spans.items()}
    fingerprint = Fingerprint.of(sorted(spans.values()), batch_id)
    record = BatchRecord(options.app_id, query_id, batch_id, f"{query_id} {batch_id}", ranges, fingerprint)
    batch = Batch(record, False, is_one_of_all=True, read_before=read_before)
    target = DeltaTarget(options, t.StructType([t.StructField("v", t.LongType())]), place)
    plan = target.begin(batch)
    between()
    target.finish(batch, plan, [])
    assert target.stored(batch).next_offsets == {key: extent.end for key, extent in record.moved.items()}
