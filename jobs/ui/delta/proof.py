"""Whether a range of offsets was written once, by the commits that cover it; and what is unknown about it.

"Proven" requires: the audit has read the whole log and found nothing wrong, exactly one commit stores these
offsets, exactly one has their rows, both are of one attempt, and no other application or source has written them here.
Anything missing makes it "unknown"; two commits with the same rows contradict it. Commits that a restore
reverted do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sparkonce.exactly_once.audit_findings import Problem
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.ui.delta.followed import AuditState
from sparkonce.jobs.ui.delta.ranges import Covering, Owner, RangeIndex
from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.offset_store.errors import OffsetStoreError

_ROWS_TOUCHED = {
    Problem.ROWS_RESTORED: "a RESTORE reverted rows of this table",
    Problem.ROWS_REMOVED: "another writer or application removed or replaced files of this table",
}


MAX_OTHERS = 5
"""The number of commits of other applications to name."""


class Level(Enum):
    """The certainty of a statement."""

    PROVEN = "proven"
    KNOWN = "known"
    """Read from the log or the table; it proves nothing."""
    UNKNOWN = "unknown"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Statement:
    """One known or unknown fact."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a range of one partition, as read by one source of one application."""

    owner: Owner
    start: int
    end: int
    statements: tuple[Statement, ...]
    """The first one says whether it was written once."""
    coverings: tuple[Covering, ...]
    undone: tuple[Covering, ...] = ()
    """Commits that a restore reverted."""

    @property
    def level(self) -> Level:
        """Whether it was written once."""
        return self.statements[0].level


def prove(watch: TableWatch, owner: Owner, start: int, end: int) -> Proof:
    """Check whether offsets ``[start, end)`` of an owner were written once. Raises OffsetStoreError if not readable."""
    with watch.followed.lock:
        audit, reading = watch.look(), watch.followed.reading()
        found = list(reading.ranges.overlapping(owner, start, end))
        reason = _why_unknown(audit, reading.ranges, reading.log.newest_version)
        undone = [each for each in found if reading.ranges.is_undone(each)]
        by_delta = [each for each in reading.ranges.restores if not each.with_offsets]
        reverted = [each for each in found if any(by.undoes(each) for by in by_delta)]
        oldest = reading.log.oldest_version
        others = [each for each in reading.ranges.of_others(owner, start, end) if each.has_rows]
        others = [each for each in others if not reading.ranges.is_undone(each)]
    live = [each for each in found if each not in undone]
    since = (
        "since the table was made" if oldest == 0 else f"since version {oldest}; what older ones did is not examined"
    )
    verdict = _verdict(watch, live, start, end, reason, since, replaced=Problem.LOG_REPLACED in audit.problems)
    if others and verdict.level is Level.PROVEN:
        verdict = _by_others_too(owner, others)
    beside = _beside(audit, undone, reverted, live)
    return Proof(owner, start, end, (verdict, *beside), tuple(found), tuple(undone))


def _why_unknown(audit: AuditState, ranges: RangeIndex, newest: int) -> str | None:
    """Return why nothing can be proven about any offset of the table; None if something can."""
    if audit.verdict is None:
        return f"the log is still being read: {audit.read:,} of {audit.kept:,} commits"
    if ranges.complete_to is not None and ranges.complete_to < newest:
        return f"the ranges of commits after version {ranges.complete_to} are too many to be kept here"
    if audit.verdict is Verdict.BROKEN:
        first = next((text for kind, text in audit.findings if kind == "wrong"), "")
        return f"the audit of this table found what is wrong: {first}"
    if audit.verdict is Verdict.UNPROVEN:
        first = next((text for kind, text in audit.findings if kind == "unseen"), "no range could be examined")
        return f"the audit of this table could not examine everything: {first}"
    return None


def _verdict(
    watch: TableWatch, live: Sequence[Covering], start: int, end: int, reason: str | None, since: str, *, replaced: bool
) -> Statement:
    rows, stored = [each for each in live if each.has_rows], [each for each in live if each.has_offsets]
    if replaced and len(live) > 1 and len(rows) > 1:
        text = "The log of the topic was replaced, so that two records had this offset: see the audit"
        return Statement(Level.UNKNOWN, text)
    if len(rows) > 1:
        text = f"Written {len(rows)} times: versions {_listed(rows)} hold rows of the same offsets"
        return Statement(Level.CONTRADICTED, text)
    if len(stored) > 1:
        text = f"Stored {len(stored)} times: versions {_listed(stored)} cover the same offsets"
        return Statement(Level.CONTRADICTED, text)
    if reason is not None:
        return Statement(Level.UNKNOWN, f"Whether it was written once is not known: {reason}")
    if not live:
        return Statement(Level.UNKNOWN, "No kept commit covers it")
    if not rows:
        text = f"Version {_listed(stored)} stores the offsets, and no kept commit of this table holds their rows: they "
        text += "are in another table; or with at-most-once, a crash has lost them, or the batch still runs"
        return Statement(Level.UNKNOWN, text)
    if not stored:
        text = f"Version {_listed(rows)} holds the rows, and no kept commit of this table stores their offsets: they "
        text += "are in another table; or with at-least-once, a crash has left them, and the rows are written again"
        return Statement(Level.UNKNOWN, text)
    if rows[0].start > start or rows[0].end < end:
        return Statement(Level.UNKNOWN, "The commit with the rows covers only a part of it")
    if rows[0] != stored[0] and not _of_one_attempt(watch, rows[0], stored[0]):
        text = f"Versions {rows[0].version} (rows) and {stored[0].version} (offsets) are not of one attempt"
        return Statement(Level.UNKNOWN, text)
    where = f"version {rows[0].version} holds the rows and stores the offsets"
    if rows[0] != stored[0]:
        where = f"version {rows[0].version} holds the rows, and version {stored[0].version} of the same attempt stores "
        where += "the offsets"
    return Statement(Level.PROVEN, f"Written once: {where}, and no other commit covers them, of all commits {since}")


def _by_others_too(owner: Owner, others: Sequence[Covering]) -> Statement:
    by = ", ".join(dict.fromkeys(f"appId {each.app_id}, source {each.source}" for each in others[:MAX_OTHERS]))
    text = f"Written once by this source of appId {owner[0]}, and written to this table by {by} as well: versions "
    return Statement(Level.KNOWN, text + _listed(others[:MAX_OTHERS]))


def _of_one_attempt(watch: TableWatch, one: Covering, other: Covering) -> bool:
    try:
        batches = [watch.version(each.version).batch for each in (one, other)]
    except OffsetStoreError:  # deleted by log cleanup since
        return False
    attempts = {batch.record.attempt_id for batch in batches if batch is not None}
    return len(attempts) == 1 and None not in batches


def _beside(
    audit: AuditState, undone: Sequence[Covering], reverted: Sequence[Covering], live: Sequence[Covering]
) -> list[Statement]:
    found = []
    if undone:
        text = f"What versions {_listed(undone)} wrote was taken back, rows and offsets together"
        found.append(Statement(Level.KNOWN, text))
    if any(each in live for each in reverted):
        found.append(Statement(Level.UNKNOWN, "A RESTORE of Delta may have taken the rows out again, or back in"))
    for problem, words in _ROWS_TOUCHED.items():
        if problem in audit.problems and live:
            text = f"The proof is of what was written; whether the rows are still there is not, since {words}"
            found.append(Statement(Level.UNKNOWN, text))
    return found


def _listed(coverings: Sequence[Covering]) -> str:
    return " and ".join(str(each.version) for each in coverings)
