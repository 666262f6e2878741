"""The result of an audit, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Any

from sparkonce.exactly_once.audit import Report
from sparkonce.exactly_once.audit_broker import BrokerSide
from sparkonce.exactly_once.audit_counting import Coordinates, RowCounts
from sparkonce.exactly_once.audit_findings import Chain, CommitName, Finding, Problem
from sparkonce.exactly_once.audit_rows import RowCount
from sparkonce.notebook import table
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.own_commits import OwnCommit
from sparkonce.words import counted

SHOWN_PARTITIONS = 50
"""The number of partitions in the text; JSON has all."""


_IN_SUMMARY = frozenset({Problem.GAP, Problem.OVERLAP})
"""The errors that the last line counts one by one."""


class Verdict(Enum):
    """The verdict of an audit."""

    PROVEN = "proven"
    BROKEN = "broken"
    UNPROVEN = "unproven"
    """Nothing is wrong, and something was not examined: rows of unknown origin, or no kept batch moved offsets."""


@dataclass(frozen=True, slots=True)
class Examined:
    """All that was checked, and the findings."""

    table: str
    oldest_version: int
    newest_version: int
    checkpoint_version: int | None
    """The version of the checkpoint that replaces missing commits; None if none does."""
    report: Report
    strict: bool
    broker: Sequence[BrokerSide] | None
    coordinates: Coordinates | None
    rows: RowCounts | None

    @property
    def verdict(self) -> Verdict:
        """Proven if nothing is wrong; under ``strict`` without warnings, except for rows that a query may drop."""
        if not self.report.proven or self.first_bad is not None:
            return Verdict.BROKEN
        unseen = any(problem.is_gap_of_proof and count for problem, count in self.report.counts.items())
        return Verdict.PROVEN if self.report.has_ranges and not unseen else Verdict.UNPROVEN

    @property
    def first_bad(self) -> Finding | None:
        """The finding in the lowest version; None if there is none."""
        if not self.strict or self.report.first_bad is not None:
            return self.report.first_bad
        return next((each for each in self.report.findings if each.problem is not Problem.MISSING_ALLOWED), None)

    @property
    def summary(self) -> str:
        """The last line."""
        counts = self.report.counts
        warnings = sum(count for problem, count in counts.items() if problem.is_warning)
        others = sum(count for problem, count in counts.items() if problem.is_error and problem not in _IN_SUMMARY)
        return (
            f"AUDIT commits={self.report.tally.commits} partitions={len(self.report.chains)} "
            f"gaps={counts.get(Problem.GAP, 0)} overlaps={counts.get(Problem.OVERLAP, 0)} "
            f"warnings={warnings} {f'others={others} ' if others else ''}verdict={self.verdict.value}"
        )

    @property
    def proven(self) -> bool:
        """Whether every offset was written once."""
        return self.verdict is Verdict.PROVEN

    def __str__(self) -> str:
        return "\n".join(as_text(self))

    def _repr_html_(self) -> str:
        head, *rows = _lines(self)
        findings = [(finding.problem.value, sentence(finding)) for finding in self.report.findings]
        title = f"Audit of {self.table}: {self.verdict.value}"
        chains = table([str(name) for name in head], rows, title=title, note=self.summary)
        return chains + (table(("problem", "finding"), findings) if findings else "")

    def rows_of(self, chain: Chain) -> RowCount | None:
        """Return a chain's row counts, if rows were counted."""
        if self.rows is None or self.coordinates is None:
            return None
        return self.rows.by_partition.get((chain.topic if self.coordinates.topic else "", chain.partition))


def as_text(examined: Examined) -> Iterator[str]:
    """Yield the lines of a report."""
    report = examined.report
    yield f"Table {examined.table}: versions {examined.oldest_version} to {examined.newest_version}."
    yield _reach(examined)
    yield from _tally(report)
    yield ""
    yield from _table(examined)
    if examined.rows is not None and examined.rows.outside:
        outside = counted(examined.rows.outside, "row")
        yield f"{outside} with coordinates that no kept commit covers, or without any: not judged."
    warnings = [finding for finding in report.findings if finding.problem.is_warning]
    unseen = [finding for finding in report.findings if finding.problem.is_gap_of_proof]
    errors = [finding for finding in report.findings if finding.problem.is_error]
    for title, found in (("Worth knowing", warnings), ("Not examined", unseen), ("Wrong", errors)):
        if found:
            yield f"\n{title}:"
            yield from (f"  {line}" for line in _findings(report, found))
    bad = examined.first_bad
    if bad is not None:
        yield "\nFirst bad commit: " + (sentence(bad) if bad.commit else "none, each for itself is right")
    if examined.verdict is Verdict.UNPROVEN and not report.has_ranges:
        yield "\nNot proven: no kept commit of a batch moved offsets, so there is no range to examine."
    yield ""
    yield examined.summary


def _reach(examined: Examined) -> str:
    if examined.checkpoint_version is None:
        return "Every commit since the table was made is kept: the chains are followed from their beginning."
    why = "were cleaned up (delta.logRetentionDuration)"
    if examined.report.counts.get(Problem.COMMIT_MISSING):
        why = "are not all there"
    return (
        f"Versions before {examined.oldest_version} {why}: the chains are "
        f"followed from there, and from what the checkpoint of version {examined.checkpoint_version} holds."
    )


def _tally(report: Report) -> Iterator[str]:
    tally = report.tally
    yield f"{counted(tally.commits, 'commit')}, {tally.ours:,} of them of batches."
    for (app_id, guarantee), count in sorted(tally.guarantees.items(), key=lambda each: each[0][0]):
        yield f"  appId {app_id}: {counted(count, 'batch')} written {guarantee.value}"
    if tally.other_apps:
        yield f"  other appIds, not checked: {', '.join(sorted(tally.other_apps))}"
    if tally.own:
        own = ", ".join(f"{kind.value} {tally.own[kind]:,}" for kind in OwnCommit if tally.own[kind])
        yield f"  other commits of sparkonce: {own}"
    if tally.foreign:
        others = ", ".join(f"{operation} {count:,}" for operation, count in sorted(tally.foreign.items()))
        yield f"  skipped, with no record of ours: {others}"


def _lines(examined: Examined) -> Iterator[list[object]]:
    """Yield the names of the columns, and a line for each partition."""
    head = ["appId", "source", "partition", "topic id", "commits", "from", "to", "stored"]
    head += ["log start", "log end", "lag"] if examined.broker is not None else []
    head += ["rows", "distinct", "duplicated", "missing"] if examined.rows is not None else []
    yield [*head]
    for number, chain in enumerate(examined.report.chains):
        name = f"{chain.topic or '?'}-{chain.partition}"
        line: list[object] = [
            chain.app_id,
            chain.source,
            name,
            chain.topic_id or "-",
            chain.commits,
            chain.start,
            chain.end,
        ]
        line.append(chain.stored)
        if examined.broker is not None:
            side = examined.broker[number]
            line += [side.log.start, side.log.end, side.lag] if side.log else [None, None, None]
        if examined.rows is not None:
            count = examined.rows_of(chain)
            line += [count.total, count.distinct, count.duplicated, count.missing] if count else [None] * 4
        yield line


def _table(examined: Examined) -> Iterator[str]:
    kept = islice(_lines(examined), SHOWN_PARTITIONS + 1)
    lines = [["-" if cell is None else str(cell) for cell in line] for line in kept]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        left = [cell.ljust(width) for cell, width in zip(cells[:4], widths[:4], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(cells[4:], widths[4:], strict=True)]
        yield "  ".join(left + right).rstrip()
    hidden = len(examined.report.chains) - SHOWN_PARTITIONS
    if hidden > 0:
        yield f"… and {counted(hidden, 'partition')} more; --json shows all."


def _findings(report: Report, found: Sequence[Finding]) -> Iterator[str]:
    shown: dict[Problem, int] = {}
    for finding in found:
        shown[finding.problem] = shown.get(finding.problem, 0) + 1
        yield sentence(finding)
    for problem, count in shown.items():
        if report.counts[problem] > count:
            yield f"… and {report.counts[problem] - count:,} more of {problem.value}."


def sentence(finding: Finding) -> str:
    """Return a finding in words, with its commit."""
    where = f"{_commit_text(finding.commit)}: " if finding.commit else ""
    return f"{where}[{finding.problem.value}] {finding.message}"


def _commit_text(commit: CommitName) -> str:
    parts = [f"version {commit.version}"]
    if commit.timestamp_ms:
        parts.append(_time(commit.timestamp_ms))
    if commit.query_id is not None:
        parts.append(f"batch {commit.batch_id} of query {commit.query_id}")
    elif commit.operation:
        parts.append(commit.operation)
    return ", ".join(parts)


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def as_json(examined: Examined) -> dict[str, Any]:
    """Return the whole report as one JSON object."""
    report, tally = examined.report, examined.report.tally
    sides: Sequence[BrokerSide | None] = examined.broker or [None] * len(report.chains)
    return {
        "table": examined.table,
        "oldestVersion": examined.oldest_version,
        "newestVersion": examined.newest_version,
        "checkpointVersion": examined.checkpoint_version,
        "commits": {
            "all": tally.commits,
            "ofBatches": tally.ours,
            "ofOtherAppIds": dict(tally.other_apps),
            "ofSparkonce": {kind.value: tally.own[kind] for kind in OwnCommit if tally.own[kind]},
            "passedOver": dict(tally.foreign),
            "manualChanges": tally.changes,
        },
        "guarantees": [
            {"appId": app_id, "guarantee": guarantee.value, "batches": count}
            for (app_id, guarantee), count in tally.guarantees.items()
        ],
        "partitions": [
            _partition_json(chain, side, examined.rows_of(chain))
            for chain, side in zip(report.chains, sides, strict=True)
        ],
        "rowsOutside": examined.rows.outside if examined.rows else None,
        "counts": {problem.value: count for problem, count in report.counts.items() if count},
        "findings": [_finding_json(finding) for finding in report.findings],
        "firstBad": _finding_json(examined.first_bad) if examined.first_bad else None,
        "verdict": examined.verdict.value,
    }


def _partition_json(chain: Chain, side: BrokerSide | None, rows: RowCount | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "appId": chain.app_id,
        "source": chain.source,
        "topic": chain.topic,
        "topicId": chain.topic_id,
        "partition": chain.partition,
        "commits": chain.commits,
        "firstVersion": chain.first_version,
        "lastVersion": chain.last_version,
        "ranges": [_range_json(extent) for extent in chain.covered()],
        "end": chain.end,
        "stored": chain.stored,
    }
    if side is not None:
        log = side.log
        found["broker"] = {"logStart": log.start, "logEnd": log.end, "lag": side.lag} if log else None
    if rows is not None:
        found["rows"] = {
            "total": rows.total,
            "distinct": rows.distinct,
            "duplicated": rows.duplicated,
            "missing": rows.missing,
            "duplicatedAt": [_range_json(extent) for extent in rows.duplicated_at],
            "missingAt": [_range_json(extent) for extent in rows.missing_at],
        }
    return found


def _finding_json(finding: Finding) -> dict[str, Any]:
    commit = finding.commit
    return {
        "problem": finding.problem.value,
        "error": finding.problem.is_error,
        "message": finding.message,
        "version": commit.version if commit else None,
        "time": _time(commit.timestamp_ms) if commit and commit.timestamp_ms else None,
        "queryId": commit.query_id if commit else None,
        "batchId": commit.batch_id if commit else None,
        "attemptId": commit.attempt_id if commit else None,
    }


def _range_json(extent: OffsetRange) -> list[int]:
    return [extent.start, extent.end]
