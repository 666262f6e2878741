"""The audit of a table: its log followed, and compared with the brokers' logs and the rows if that is requested.

The arithmetic is in `audit` (the chains), `audit_broker` and `audit_rows`. The caller passes in `Readers` for what only
other folders can read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from sparkonce.exactly_once.audit import Auditor, Report, Scope
from sparkonce.exactly_once.audit_broker import BrokerSide, BrokerTopic, compare_with_broker
from sparkonce.exactly_once.audit_counting import Coordinates, RowCounts, RowsError, count_rows, judge_rows
from sparkonce.exactly_once.audit_files import look_for_files
from sparkonce.exactly_once.audit_findings import Chain, CommitName, Finding, Problem
from sparkonce.exactly_once.audit_report import Examined
from sparkonce.exactly_once.recovery import describe_outdated
from sparkonce.offset_store.accounted_rows import is_own_or_elsewhere, stored_in
from sparkonce.offset_store.clones import CloneSource
from sparkonce.offset_store.commit_log import CommitLog, StoredState
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.own_commits import OwnCommit
from sparkonce.offset_store.txn_ids import OffsetTxn, intent_txn_id, merge_txn_id

OffsetsOf = Callable[[CommitLog], Location | None]
"""Returns the table of offsets that belongs to a result of `AppendWriter` or `MergeWriter`; None if there is none."""


class AuditError(RuntimeError):
    """It could not be examined; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Readers:
    """What an audit reads besides the table and its log."""

    ask_broker: Callable[[Mapping[str, str], Sequence[Chain]], Mapping[str, BrokerTopic | None]]
    """Returns the brokers' topics, by the options ``kafka.*``; raises `AuditError` if they do not answer."""
    look_at_result: Callable[[CommitLog, Iterable[str]], Iterable[Finding]]
    """Compares the confirmed writes of applications with the result of `AppendWriter` or `MergeWriter`."""
    offsets_of: OffsetsOf


def audit_table(
    table: Location,
    scope: Scope,
    kafka: Mapping[str, str],
    coordinates: Coordinates | None,
    storage: Mapping[str, str],
    *,
    expect_all_rows: bool,
    strict: bool,
    readers: Readers,
    progress: Callable[[int], AbstractContextManager[Callable[[], None]]],
) -> Examined:
    """Examine a table as far as requested. ``progress`` gets the number of commits, and gives what to call after each.

    Raises:
        AuditError, CoordinatesError, OffsetStoreError: if something cannot be checked.
    """
    log = CommitLog.open(table, storage)
    kept = log.oldest_state()
    auditor = Auditor(scope, kept, partial(offsets_of_source, storage))
    with progress(log.newest_version - log.oldest_version + 1) as advance:
        for commit in log.commits():
            auditor.add(commit)
            advance()
    report = auditor.finish(log.stored)
    app_ids = sorted({chain.app_id for chain in report.chains})
    report = report.adding([*outside_commits(log, kept), *by_delta_spark(log, app_ids, readers.offsets_of)])
    files = look_for_files(table, storage, log.table, auditor.files)
    report = report.adding([*readers.look_at_result(log, app_ids), *files])
    _require_chains(log, scope, report, readers.offsets_of)
    sides: Sequence[BrokerSide] | None = None
    if kafka:
        sides, findings = compare_with_broker(report.chains, readers.ask_broker(kafka, report.chains))
        report = report.adding(findings)
    rows = _count(log, report.chains, coordinates)
    if rows is not None:
        report = report.adding(judge_rows(rows, expect_all_rows))
    return Examined(
        str(log.location),
        log.oldest_version,
        log.newest_version,
        kept.version if kept else None,
        report,
        strict,
        sides,
        coordinates,
        rows,
    )


def offsets_of_source(storage: Mapping[str, str], source: CloneSource) -> Mapping[OffsetTxn, int] | None:
    """Return the offsets stored in the source of a clone; None if it cannot be read."""
    stored = stored_in(source, storage)
    return None if stored is None else stored.offsets


def outside_commits(log: CommitLog, kept: StoredState | None) -> Iterator[Finding]:
    """Find rows without kept commits: older rows, and missing commits."""
    yield from _rows_before(log, kept)
    yield from _holes(log)


def _holes(log: CommitLog) -> Iterator[Finding]:
    missing = log.missing_below
    if missing is not None:
        message = f"version {missing} is not in the log, and older ones are: the chains are followed from version "
        message += f"{log.oldest_version}, and from a checkpoint"
        yield Finding(Problem.COMMIT_MISSING, message, CommitName(missing))


def _rows_before(log: CommitLog, kept: StoredState | None) -> Iterator[Finding]:
    """Find files of ours that are older than all kept commits, and whose offsets are unknown."""
    if kept is None or kept.transactions:
        return
    first = next((path for path in log.checkpoint(kept.version).paths("add") if is_own_or_elsewhere(path)), None)
    if first is not None:
        message = f"the checkpoint of version {kept.version} has rows that sparkonce may have written ({first}) and no "
        message += "offsets: the commit that brought them is no longer kept"
        yield Finding(Problem.ROWS_OF_UNKNOWN_ORIGIN, message, CommitName(kept.version))


def by_delta_spark(log: CommitLog, app_ids: Iterable[str], offsets_of: OffsetsOf) -> Iterator[Finding]:
    """Find applications whose rows delta-spark writes now: their offsets are in another table."""
    for app_id in app_ids:
        written, recorded = merge_txn_id(app_id), intent_txn_id(app_id)
        numbers = log.stored([written, recorded])
        if written in numbers and recorded not in numbers:
            found = offsets_of(log)
            message = f"{describe_outdated(app_id, numbers[written])}{'' if found is None else f', {found}'}. The rows "
            message += "of those writes are not examined here"
            yield Finding(Problem.ROWS_OF_UNKNOWN_ORIGIN, message, None)


def _require_chains(log: CommitLog, scope: Scope, report: Report, offsets_of: OffsetsOf) -> None:
    if report.chains:
        return
    asked = [f"{name} {value}" for name, value in (("appId", scope.app_id), ("source", scope.source)) if value]
    others = sorted(report.tally.other_apps)
    hint = f"; appIds there: {', '.join(others)}" if others else f". {_where_offsets_are(report, offsets_of(log))}"
    raise AuditError(f"{log.location} holds no offsets{' of ' + ' and '.join(asked) if asked else ''}{hint}")


def _where_offsets_are(report: Report, found: Location | None) -> str:
    if found is not None:
        return f"Those of AppendWriter and MergeWriter are in {found}: audit that table"
    if report.tally.own[OwnCommit.NUMBERED_WRITE]:
        return "AppendWriter or MergeWriter writes its rows: audit the table of offsets that its argument offsets names"
    return "If they live in another place (offsetStore=delta:<path>), audit that table"


def _count(log: CommitLog, chains: Sequence[Chain], coordinates: Coordinates | None) -> RowCounts | None:
    if coordinates is None:
        return None
    try:
        return count_rows(log.table, chains, coordinates)
    except RowsError as error:
        raise AuditError(f"the rows of {log.location} cannot be read: {error}") from error
