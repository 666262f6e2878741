"""A Delta table that is followed: its log is read once, in parts, and then only new commits.

Reading a log of 100,000 versions takes 20 seconds, so no single request reads all of it. Each call reads on
for at most `BUDGET_S`; until the newest version is reached, the audit reports its progress instead of a verdict. Then
a call costs one request to the file system, and a commit is audited a moment after it was made.

The audit is that of `sparkonce audit`, updated after each commit. What only that command checks is reported as
not examined.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparkonce.exactly_once.audit import Auditor, Report
from sparkonce.exactly_once.audit_files import look_for_files
from sparkonce.exactly_once.audit_findings import Finding, Problem
from sparkonce.exactly_once.audit_report import Examined, Verdict, sentence
from sparkonce.exactly_once.audit_table import by_delta_spark, offsets_of_source, outside_commits
from sparkonce.jobs.cli.audit_readers import offsets_of, result_of
from sparkonce.jobs.cli.doctor.table_growth import growth
from sparkonce.jobs.ui.delta.paced import PAUSE, PacedResults
from sparkonce.jobs.ui.delta.queries_seen import QueriesSeen
from sparkonce.jobs.ui.delta.ranges import RangeIndex, Restore
from sparkonce.offset_store.administration import ChangeKind
from sparkonce.offset_store.commit_log import CommitLog, LogCommit
from sparkonce.offset_store.data_files import names_of
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.reader import DeltaLog, commit_file
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.log.storage import Tag
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.secrets import hidden_secrets

BUDGET_S = 0.25
"""How long one look may read on."""
_WRONG = frozenset(problem for problem in Problem if problem.is_error)
FILES_EVERY_S, REMOTE_FILES_EVERY_S = 2.0, 60.0
"""The least time between two looks at the data files, in a folder and in an object store; it grows with their cost."""
SLOW_S = 1.0
"""What fails after so long, as a store that does not answer, is tried again after a pause: other tables wait for it."""
MAX_FILES = 1_000_000
"""Data files whose commits are known; those of later commits are found nowhere."""
MAX_COVERED = 100
"""The number of stretches of one chain to show."""


@dataclass(frozen=True, slots=True)
class ChainState:
    """One partition of one source of one application, as far as the log has been read."""

    app_id: str
    source: str
    topic: str
    """"" if only the id is known."""
    topic_id: str
    partition: int
    covered: tuple[tuple[int, int], ...]
    """The offsets in kept commits, each once: one stretch if nothing is missing."""
    stretches: int
    """The number of stretches; `covered` has the first ones."""
    end: int | None
    stored: int | None
    commits: int

    @property
    def start(self) -> int | None:
        """The first offset in a kept commit."""
        return self.covered[0][0] if self.covered else None

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic or self.topic_id}-{self.partition}"


@dataclass(frozen=True, slots=True)
class AuditState:
    """What is known of a table's log."""

    verdict: Verdict | None
    """None while the log is being read."""
    read: int = 0
    """The number of commits read."""
    kept: int = 0
    """The number of commits in the log."""
    summary: str = ""
    """The last line of `sparkonce audit`."""
    findings: tuple[tuple[str, str], ...] = ()
    """Each as ``wrong``, ``unseen`` or ``warning``, with a text; the first few of each kind."""
    more_findings: int = 0
    problems: frozenset[Problem] = frozenset()
    """What was found, warnings included."""
    lost_files: tuple[str, ...] = ()
    """The first few data files that are lost, in words."""
    lost_from: int | None = None
    """The version that has added the one file that is lost; None if more are, or if it is not known."""
    chains: tuple[ChainState, ...] = ()

    @property
    def words(self) -> str:
        """Describe the verdict in a sentence."""
        if self.verdict is None:
            return f"The log is being read: {self.read:,} of {self.kept:,} commits. Nothing is proven before its end."
        if self.verdict is Verdict.PROVEN:
            text = f"The ranges of {self.kept:,} kept commits join without a gap or an overlap, and the stored offsets "
            return text + ("are their ends." if not self.findings else "are their ends; what else was found is below.")
        if self.verdict is Verdict.BROKEN:
            if self.problems.intersection(_WRONG) == {Problem.FILE_LOST}:
                return "The ranges of all kept commits join, and data files of the table are lost: their rows are gone."
            return "The log contradicts that every offset was written once."
        if not self.chains or not any(chain.covered for chain in self.chains):
            return "Not proven: no kept commit of a batch moved offsets, so there is no range to examine."
        return "Not proven: nothing is wrong, and something was not examined."


_LOST = re.compile(r"the data file (.+?) (?:is missing|has [\d,]+ bytes)")
_NOT_LOOKED_FOR = Finding(Problem.FILES_NOT_EXAMINED, "the data files were not looked for yet")


@dataclass(slots=True)
class Reading:
    """One table, until it is replaced by another one."""

    log: CommitLog
    auditor: Auditor
    stored: TableLog
    beside: tuple[Finding, ...]
    """Metadata outside commits, which does not change."""
    next_version: int
    mark: Tag | None = None
    """Size and time of the last file read: a changed one means another table."""
    ranges: RangeIndex = field(default_factory=RangeIndex)
    queries: QueriesSeen = field(default_factory=QueriesSeen)
    files: dict[str, int] = field(default_factory=dict)
    """The commit that added each data file."""
    audit: AuditState | None = None
    files_found: tuple[Finding, ...] = (_NOT_LOOKED_FOR,)
    """What is known of the data files."""
    look_at_s: float = 0.0
    """When to look for them again, by the monotonic clock: they may be lost without a commit."""
    listed: PacedResults[int] = field(default_factory=PacedResults)
    """The newest version that the folder has: a handle stops before one that is missing."""
    growth: PacedResults[tuple[str, ...]] = field(default_factory=PacedResults)
    """Warnings of growth."""

    def version_of(self, path: str) -> int | None:
        """Return the commit that added a data file, by its path in a log or from a reader; None if it is not known."""
        names = names_of(path, self.log.location)
        return next((version for name in names if (version := self.files.get(name)) is not None), None)

    @property
    def is_at_end(self) -> bool:
        """Whether all commits up to the handle's version were read."""
        return self.next_version > self.log.newest_version


class FollowedTable:
    """One table, for several threads."""

    def __init__(
        self, location: Location, storage_options: Mapping[str, str] | None = None, budget_s: float = BUDGET_S
    ) -> None:
        """``budget_s`` limits the time of one call."""
        self.location = location
        self.budget_s = budget_s
        self.storage_options = dict(storage_options or {})
        self.lock = threading.RLock()
        """Held by readers of `reading`."""
        self._reading: Reading | None = None
        self.looked_at_s = 0.0
        """When `look` last had time for data files, by the monotonic clock."""
        self._failed: tuple[float, Exception] | None = None
        """Until when the table is not tried again, by the monotonic clock, and why."""

    def look(self, budget_s: float | None = None) -> AuditState:
        """Read commits for ``budget_s`` (None: the table's own); return the state. Raises OffsetStoreError."""
        with self.lock:
            began_s = time.monotonic()
            if budget_s != 0:
                self.looked_at_s = began_s
            if self._failed is not None and began_s < self._failed[0]:
                raise self._failed[1].with_traceback(None)
            try:
                found = self._looked(budget_s)
            except (OffsetStoreError, OSError, ValueError) as error:
                ended_s = time.monotonic()
                if ended_s - began_s >= SLOW_S:
                    self._failed = ended_s + PAUSE * (ended_s - began_s), error
                raise
            self._failed = None
            return found

    def _looked(self, budget_s: float | None) -> AuditState:
        reading = self._follow()
        if not reading.is_at_end or reading.audit is None:
            self._read_on(reading, time.monotonic() + (self.budget_s if budget_s is None else budget_s))
        is_due = not reading.look_at_s or (budget_s != 0 and time.monotonic() >= reading.look_at_s)
        if reading.is_at_end and is_due:
            self._look_for_files(reading)
        assert reading.audit is not None
        return reading.audit

    @property
    def known(self) -> AuditState | None:
        """The result of the last call of `look`; None before the first, and after a failed one."""
        reading = self._reading
        return None if reading is None else reading.audit

    def reading(self) -> Reading:
        """Return what has been read so far; read if nothing has. Raises OffsetStoreError as `look`."""
        with self.lock:
            if self._reading is None:
                self.look()
            assert self._reading is not None
            return self._reading

    def growth(self) -> tuple[str, ...]:
        """Return what `sparkonce doctor` says of the table's growth; () until the log has been read."""
        with self.lock:
            reading = self.reading()
            if reading.audit is None or reading.audit.verdict is None:
                return ()
            return reading.growth.get("", lambda: _growth(reading))

    def _follow(self) -> Reading:
        """Update the handle to the newest version; start anew for another table, or the first time."""
        if self._reading is None or not self._brought_on(self._reading):
            self._reading = None
            self._reading = self._open()
        return self._reading

    def _brought_on(self, reading: Reading) -> bool:
        """Update the handle to the newest version; False if the table was replaced, or it fails."""
        if self._mark(reading, reading.next_version - 1) != reading.mark:
            return False
        newest = reading.log.newest_version
        listed = reading.listed.get("", lambda: _newest_listed(reading.log.log))  # before the next one is checked
        if self._mark(reading, newest + 1) is None:
            return listed <= newest  # later ones without the next: reopening shows which is missing
        return _updated(reading.log.table)

    def _open(self) -> Reading:
        with hidden_secrets(self.storage_options):
            log = CommitLog.open(self.location, self.storage_options)
            kept = log.oldest_state()
            auditor = Auditor(None, kept, partial(offsets_of_source, self.storage_options))
            beside = (*outside_commits(log, kept), *_rows_elsewhere(log))
        stored = TableLog(self.location, self.storage_options)
        made = Reading(log, auditor, stored, beside, log.oldest_version)
        made.mark = self._mark(made, made.next_version - 1)
        return made

    def _read_on(self, reading: Reading, until_s: float) -> None:
        with hidden_secrets(self.storage_options):
            for commit in reading.log.commits(reading.next_version):
                _add(reading, commit)
                if time.monotonic() >= until_s:
                    break
        reading.mark = self._mark(reading, reading.next_version - 1)
        reading.audit = _state(reading)

    def _look_for_files(self, reading: Reading) -> None:
        began_s, before = time.monotonic(), reading.files_found
        reading.files_found = tuple(
            look_for_files(self.location, self.storage_options, reading.log.table, reading.auditor.files)
        )
        ended_s = time.monotonic()
        least_s = FILES_EVERY_S if self.location.is_local else REMOTE_FILES_EVERY_S
        reading.look_at_s = ended_s + max(PAUSE * (ended_s - began_s), least_s)
        if reading.files_found != before:
            reading.audit = _state(reading)

    def _mark(self, reading: Reading, version: int) -> Tag | None:
        with hidden_secrets(self.storage_options):
            return reading.log.log.storage.tag(commit_file(version))


def _newest_listed(log: DeltaLog) -> int:
    return max(log.listing().commits, default=-1)


def _updated(table: DeltaTable) -> bool:
    try:
        table.update_incremental()
    except (DeltaError, OSError, ValueError):  # reopening shows what is wrong
        return False
    return True


def _add(reading: Reading, commit: LogCommit) -> None:
    reading.auditor.add(commit)
    reading.next_version = commit.version + 1
    change = commit.entry.change
    if change is not None and change.kind is ChangeKind.RESTORE:
        reading.ranges.restores.append(Restore(commit.version, change.to_version, with_offsets=True))
    elif commit.entry.operation == "RESTORE":
        reading.ranges.restores.append(Restore(commit.version, commit.entry.restored_to, with_offsets=False))
    if len(reading.files) < MAX_FILES:
        reading.files.update((path, commit.version) for path, _ in commit.added)
    if commit.entry.batch is not None:
        reading.ranges.add(commit.entry.batch)
        reading.queries.add(commit.entry.batch)


def _growth(reading: Reading) -> tuple[str, ...]:
    try:
        state = reading.stored.state_at(reading.log.newest_version)
        return tuple(each.words for each in growth(reading.stored.reader, state))
    except OffsetStoreError as error:  # the rest of the page is readable
        return (f"How the table grows is not known: {error}",)


def _rows_elsewhere(log: CommitLog) -> Iterator[Finding]:
    """Report rows that delta-spark writes to another table: `sparkonce audit` reads that whole log, a page does not."""
    result = result_of(log)
    if result is not None:
        message = f"the rows are in {result}, which is not examined here: sparkonce audit {log.location} does that"
        yield Finding(Problem.ROWS_OF_UNKNOWN_ORIGIN, message)


def _state(reading: Reading) -> AuditState:
    log = reading.log
    read, kept = reading.next_version - log.oldest_version, log.newest_version - log.oldest_version + 1
    if not reading.is_at_end:
        return AuditState(None, read, kept)
    report = reading.auditor.finish(partial(_look_up, reading.stored.state_at(log.newest_version)))
    app_ids = sorted({chain.app_id for chain in report.chains})
    report = report.adding([*reading.beside, *by_delta_spark(log, app_ids, offsets_of), *reading.files_found])
    examined = Examined(
        str(log.location), log.oldest_version, log.newest_version, None, report, False, None, None, None
    )
    shown = tuple((_kind(each.problem), sentence(each)) for each in report.findings)
    problems = frozenset(problem for problem, count in report.counts.items() if count)
    more = sum(report.counts.values()) - len(shown)
    lost = tuple(each.message for each in report.findings if each.problem is Problem.FILE_LOST)
    path = _LOST.search(lost[0]) if len(lost) == 1 else None
    added = None if path is None else reading.version_of(path[1])
    chains = _chains(report)
    return AuditState(examined.verdict, read, kept, examined.summary, shown, more, problems, lost, added, chains)


def _look_up(state: TableState, txn_ids: Iterable[str]) -> dict[str, int]:
    stored = state.transactions
    return {txn_id: stored[txn_id] for txn_id in txn_ids if txn_id in stored}


def _kind(problem: Problem) -> str:
    return "wrong" if problem.is_error else "unseen" if problem.is_gap_of_proof else "warning"


def _chains(report: Report) -> tuple[ChainState, ...]:
    found = []
    for chain in report.chains:
        covered = [(extent.start, extent.end) for extent in chain.covered()]
        found.append(
            ChainState(
                chain.app_id,
                chain.source,
                chain.topic,
                chain.topic_id,
                chain.partition,
                tuple(covered[:MAX_COVERED]),
                len(covered),
                chain.end,
                chain.stored,
                chain.commits,
            )
        )
    return tuple(found)
