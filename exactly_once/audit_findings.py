"""The findings of an audit: the chains of ranges, and their contradictions, each with its commit."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from sparkonce.offset_store.commit_log import LogCommit
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition

KEPT_FINDINGS = 20
"""How many findings of one problem are reported in full; the rest are only counted."""


class Problem(Enum):
    """The problems, as reports name them."""

    GAP = "gap"
    OVERLAP = "overlap"
    COVERED_TWICE = "covered-twice"
    """Two applications wrote rows of the same offsets of one topic, and no option says that it is meant."""
    BEGINS_LATE = "begins-late"
    """The first batch of an application follows others of its query that are not in the table; not meant either."""
    BATCH_ID = "batch-id-goes-back"
    TXN_MISMATCH = "txn-mismatch"
    """The ``txn`` actions of a commit do not match its record."""
    BATCH_TWICE = "batch-twice"
    """Delta's own sink had written the batch, with the same checkpoint, and it was written again."""
    FILES_MISMATCH = "files-mismatch"
    """A commit adds another number of data files than its record says."""
    REMOVED_TWICE = "removed-twice"
    """A commit removed a data file that an earlier one had removed."""
    SNAPSHOT_MISMATCH = "snapshot-mismatch"
    """Readers load other data files than the kept commits have left, from a checkpoint that is wrong."""
    ATTEMPT_TWICE = "attempt-twice"
    HALVES_DIFFER = "halves-differ"
    """The two commits of one attempt cover different ranges."""
    ROWS_TAKEN_OUT = "rows-taken-out"
    """Offsets were stored after a restore had removed the rows of the same attempt."""
    ROWS_RETURNED = "rows-returned"
    """A RESTORE brought back rows past the stored offset: their records are read again."""
    OFFSETS_TAKEN_BACK = "offsets-taken-back"
    """Rows were committed after a restore had reverted the offsets of the same attempt."""
    MOVED_BY_HAND = "moved-by-hand"
    """Stored offsets were moved by a commit without a record of it."""
    UNREADABLE = "unreadable-record"
    DAMAGED = "damaged-commit"
    """The file of a commit is empty or truncated: readers treat it as a commit without changes."""
    COMMIT_MISSING = "missing-commit"
    """A commit is not in the log, between others that are."""
    FILE_LOST = "file-lost"
    """A data file that the newest version names is missing, or is not as long as its log says."""
    STORED_MISMATCH = "stored-mismatch"
    """The stored offset is not the end of the chain."""
    TOPIC_DELETED = "topic-deleted"
    TOPIC_RECREATED = "topic-recreated"
    LOG_TRUNCATED = "log-truncated"
    """The broker's log no longer has all records before the stored offset: it ends earlier, or was rewritten."""
    LOG_REPLACED = "log-replaced"
    """Records that were written had been replaced in the log, and a query continued with the new ones."""
    RECORDS_EXPIRED = "records-expired"
    """The broker's log begins after the stored offset."""
    DUPLICATED = "duplicated"
    MISSING = "missing"
    MISSING_ALLOWED = "missing-allowed"
    """As MISSING, where a query may drop rows on purpose."""
    ROWS_WITHOUT_OFFSETS = "rows-without-offsets"
    OFFSETS_WITHOUT_ROWS = "offsets-without-rows"
    MOVED_ON_PURPOSE = "moved-on-purpose"
    """Stored offsets were moved by a recorded manual change."""
    ROWS_RESTORED = "rows-restored"
    """A RESTORE reverted rows, and left their offsets unchanged."""
    ROWS_REMOVED = "rows-removed"
    """Another writer, or application, removed or rewrote files that may have held rows of ours."""
    CLONED = "cloned"
    """A CLONE copied rows of a table that had offsets."""
    OFFSETS_NOT_COPIED = "offsets-not-copied"
    """As CLONED, and the offsets of that table were never copied."""
    ROWS_OF_UNKNOWN_ORIGIN = "rows-of-unknown-origin"
    """Rows that may be ours, whose offsets cannot be determined."""
    FILES_NOT_EXAMINED = "files-not-examined"
    """Whether the data files are there is not known."""

    @property
    def is_error(self) -> bool:
        """Whether it breaks the proof."""
        return not self.is_warning and not self.is_gap_of_proof

    @property
    def is_warning(self) -> bool:
        """Whether it is a warning: it contradicts nothing."""
        return self in _WARNINGS

    @property
    def is_gap_of_proof(self) -> bool:
        """Whether it contradicts nothing, but leaves rows that were not examined."""
        return self in (Problem.ROWS_OF_UNKNOWN_ORIGIN, Problem.FILES_NOT_EXAMINED)


_WARNINGS = {
    Problem.MISSING_ALLOWED,
    Problem.ROWS_WITHOUT_OFFSETS,
    Problem.OFFSETS_WITHOUT_ROWS,
    Problem.MOVED_ON_PURPOSE,
    Problem.ROWS_RESTORED,
    Problem.ROWS_REMOVED,
    Problem.LOG_REPLACED,
    Problem.CLONED,
    Problem.COMMIT_MISSING,
}


@dataclass(frozen=True, slots=True)
class CommitName:
    """The identity of a commit, and of the batch in it, in a report."""

    version: int
    timestamp_ms: int = 0
    operation: str = ""
    """As `CommitEntry.name`."""
    app_id: str | None = None
    query_id: str | None = None
    batch_id: int | None = None
    attempt_id: str | None = None

    @classmethod
    def of(cls, commit: LogCommit) -> CommitName:
        """Name a commit."""
        entry = commit.entry
        if entry.batch is None:
            return cls(entry.version, entry.timestamp_ms, entry.name)
        record = entry.batch.record
        batch = record.app_id, record.query_id, record.batch_id, record.attempt_id
        return cls(entry.version, entry.timestamp_ms, entry.name, *batch)


@dataclass(slots=True)
class Chain:
    """The ranges of one partition that one source of one application has read.

    Offsets are Kafka's; each range is half-open.
    """

    app_id: str
    source: str
    topic: str
    """The topic's last known name; "" if only its id is known."""
    topic_id: str
    partition: int
    end: int | None = None
    """Where the next range must begin; None if unknown."""
    stored: int | None = None
    """The offset to read next, as the table has it now."""
    epoch: int | None = None
    """The leader epoch of the record before ``end``; once the chain is whole, as the table has it now."""
    parted_at: int | None = None
    """The offset from which the broker's log has other records than were read; None if none is known."""
    before: str = ""
    """The cause of the chain's current end, for messages."""
    cloned: str = ""
    """The source of a clone, if the chain ends where that did, and nothing was stored here since."""
    commits: int = 0
    first_version: int | None = None
    last_version: int | None = None
    ranges: list[OffsetRange] = field(default_factory=list)
    """The ranges of kept commits: one range if the chain is whole."""
    earlier: list[list[OffsetRange]] = field(default_factory=list)
    """The ranges of the log before it was truncated and rewritten from an offset among these."""
    _versions: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _ends: array[int] = field(default_factory=lambda: array("q"), repr=False)

    @property
    def start(self) -> int | None:
        """Where the oldest kept range begins; None if no kept commit moved this partition."""
        return min((extent.start for extent in self.ranges), default=None)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.topic_id, self.partition)

    @property
    def order(self) -> tuple[str, str, str, str, int]:
        """The sort key of reports."""
        return self.app_id, self.source, self.topic, self.topic_id, self.partition

    def end_at(self, version: int) -> int | None:
        """Return where the chain ended at a version, as far as kept commits show."""
        position = bisect_right(self._versions, version)
        return self._ends[position - 1] if position else None

    @property
    def furthest_end(self) -> int | None:
        """The highest offset at which the chain ever ended, as far as kept commits show."""
        return max(self._ends, default=None)

    def remember(self, version: int) -> None:
        """Note for `end_at` where the chain ends from a version on."""
        if self.end is not None:
            self._versions.append(version)
            self._ends.append(self.end)

    def extend(self, extent: OffsetRange, version: int) -> None:
        """Append the next range."""
        if self.ranges and self.ranges[-1].end == extent.start:
            self.ranges[-1] = OffsetRange(self.ranges[-1].start, extent.end)
        elif extent.end > extent.start:
            self.ranges.append(extent)
        self.end, self.before, self.cloned = extent.end, f"version {version}", ""
        self.epoch = extent.epoch
        self.commits += 1
        self.first_version = version if self.first_version is None else self.first_version
        self.last_version = version

    def jump(self, to: int, because: str) -> None:
        """Continue from an offset that no range of ours led to."""
        self.end, self.before, self.cloned = to, because, ""

    def cut(self, to: int, because: str) -> None:
        """Continue from where the log was truncated: later ranges were of other records, whose rows stay."""
        self.earlier.append([OffsetRange(max(each.start, to), each.end) for each in self.ranges if each.end > to])
        kept = (OffsetRange(each.start, min(each.end, to)) for each in self.ranges)
        self.ranges = [each for each in kept if each.end > each.start]
        self.jump(to, because)

    def undo(self, to: int) -> None:
        """Forget ranges from ``to`` on: their rows were removed together with the offsets."""
        kept = (OffsetRange(extent.start, min(extent.end, to)) for extent in self.ranges)
        self.ranges = [extent for extent in kept if extent.end > extent.start]

    def covered(self) -> Iterator[OffsetRange]:
        """Yield the ranges of kept commits, in order: each offset once, and again for each truncation of the log."""
        for ranges in (*self.earlier, self.ranges):
            yield from _joined(ranges)

    def __str__(self) -> str:
        topic = self.topic or f"topic id {self.topic_id}"
        return f"{topic}-{self.partition} (appId {self.app_id}, source {self.source})"


def _joined(ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield ranges in order, each offset once."""
    start = end = None
    for extent in sorted(ranges, key=lambda each: each.start):
        if start is None or end is None:
            start, end = extent.start, extent.end
        elif extent.start <= end:
            end = max(end, extent.end)
        else:
            yield OffsetRange(start, end)
            start, end = extent.start, extent.end
    if start is not None and end is not None:
        yield OffsetRange(start, end)


@dataclass(frozen=True, slots=True)
class Finding:
    """One error or warning."""

    problem: Problem
    message: str
    commit: CommitName | None = None
    """The commit that caused it; None if no single commit did."""
    partition: Chain | None = field(default=None, repr=False)


@dataclass(slots=True)
class Findings:
    """The first few findings of each problem, and the number of all."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[Problem] = field(default_factory=Counter)

    def add(self, problem: Problem, message: str, commit: CommitName | None, partition: Chain | None = None) -> None:
        """Add a finding."""
        self.counts[problem] += 1
        if self.counts[problem] <= KEPT_FINDINGS:
            self.kept.append(Finding(problem, message, commit, partition))

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Add findings."""
        for each in findings:
            self.add(each.problem, each.message, each.commit, each.partition)

    def in_order(self) -> tuple[Finding, ...]:
        """Return the kept findings by version; those without a commit come last."""
        return tuple(sorted(self.kept, key=_version_of))


def _version_of(finding: Finding) -> float:
    return finding.commit.version if finding.commit else float("inf")
