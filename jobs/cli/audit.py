"""`sparkonce audit TABLE`: proof from a table's log that every offset was written once.

Exit status: 0 proven, 1 something is wrong, could not be examined, or there was nothing to examine, 2 the command line
cannot be used. The arithmetic is in `exactly_once.audit` (the chains), `audit_broker` and `audit_rows`; this module
reads what they need and prints what they found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from sparkonce.broker_lite.config import ConfigError
from sparkonce.exactly_once.audit import Auditor, Report, Scope
from sparkonce.exactly_once.audit_broker import BrokerSide, compare_with_broker
from sparkonce.exactly_once.audit_findings import Chain, CommitName, Finding, Problem
from sparkonce.exactly_once.audit_rows import RowCount
from sparkonce.exactly_once.recovery import describe_outdated
from sparkonce.jobs.cli.audit_files import look_for_files
from sparkonce.jobs.cli.audit_inputs import Coordinates, CoordinatesError, RowCounts, RowsError, ask_broker, count_rows
from sparkonce.jobs.cli.audit_report import Examined, Verdict, as_json, as_text
from sparkonce.jobs.cli.audit_result import look_at_result, offsets_of
from sparkonce.jobs.shared.arguments import UsageError, add_kafka, add_table
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.kafka_options import settings_from
from sparkonce.jobs.shared.verdicts import coloured
from sparkonce.kafka.client.client import MissingTopicError
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.offset_store import DELTA
from sparkonce.offset_store.accounted_rows import is_own_or_elsewhere, stored_in
from sparkonce.offset_store.clones import CloneSource
from sparkonce.offset_store.commit_log import CommitLog, StoredState
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.own_commits import OwnCommit
from sparkonce.offset_store.txn_ids import OffsetTxn, intent_txn_id, merge_txn_id
from sparkonce.options import OptionError
from sparkonce.words import counted

PROGRESS_FROM_COMMITS = 2_000
"""Logs shorter than this are read before a progress bar would be useful."""


class AuditError(RuntimeError):
    """It could not be examined; the message says why, and what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_table(parser)
    parser.add_argument("--app-id", help="only this application; all, if left out")
    parser.add_argument("--source", help="only this source of it; all, if left out")
    add_kafka(parser, "compare with the logs of these brokers, and show the lag")
    parser.add_argument(
        "--coordinates",
        metavar="PARTITION,OFFSET[,TOPIC]",
        type=_coordinates,
        help="the columns with each row's partition, offset and topic: count rows for lost and duplicated ones",
    )
    parser.add_argument(
        "--expect-all-rows",
        action="store_true",
        help="with --coordinates: a missing row is an error (the query drops none, the topic has no transactions)",
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as wrong too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON; the AUDIT line goes to stderr")


def run(options: argparse.Namespace) -> int:
    """Examine a table; returns the exit status."""
    try:
        examined = examine(options)
    except (UsageError, OptionError, ConfigError, CoordinatesError) as error:
        print(f"sparkonce audit: {error}", file=sys.stderr)
        return USAGE
    except (AuditError, OffsetStoreError) as error:
        print(f"sparkonce audit: {error}", file=sys.stderr)
        return FAILED
    if options.json:
        print(json.dumps(as_json(examined), indent=2))
        print(examined.summary, file=sys.stderr)
    else:
        *lines, last = as_text(examined)
        print("\n".join([*lines, coloured(last, good=examined.proven)]))
    return GOOD if examined.verdict is Verdict.PROVEN else FAILED


def examine(options: argparse.Namespace) -> Examined:
    """Examine all that was requested.

    Raises:
        AuditError, OffsetStoreError: if something cannot be checked.
        UsageError, OptionError, ConfigError, CoordinatesError: if the command line cannot be used.
    """
    if options.expect_all_rows and options.coordinates is None:
        raise UsageError("--expect-all-rows says how rows are judged, so --coordinates must say how they are counted")
    return _examine(
        options.table,
        Scope(options.app_id, options.source),
        settings_from(options),
        options.coordinates,
        dict(options.storage),
        expect_all_rows=options.expect_all_rows,
        strict=options.strict,
    )


def audit(
    path: str,
    *,
    app_id: str | None = None,
    source: str | None = None,
    kafka: Mapping[str, str] | None = None,
    coordinates: str | None = None,
    expect_all_rows: bool = False,
    strict: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Examined:
    """Prove from the log of the table at ``path`` that every offset was written once, as ``sparkonce audit`` does.

    ``kafka`` are ``kafka.*`` options of the source, to compare with the brokers' logs. ``coordinates`` names the
    columns of partition, offset and, if there are several, topic of each row (``"partition,offset,topic"``), to count
    the rows.
    The result shows itself in a notebook and as text; ``.proven`` is the verdict.

    Raises:
        AuditError, OffsetStoreError: if something cannot be checked.
        ValueError, OptionError: for arguments that cannot be used.
    """
    if expect_all_rows and coordinates is None:
        raise ValueError("expect_all_rows says how rows are judged, so coordinates must say how they are counted")
    return _examine(
        Location.parse(path.removeprefix(DELTA)),
        Scope(app_id, source),
        kafka or {},
        None if coordinates is None else Coordinates.parse(coordinates),
        storage_options or {},
        expect_all_rows=expect_all_rows,
        strict=strict,
    )


def _examine(
    table: Location,
    scope: Scope,
    kafka: Mapping[str, str],
    coordinates: Coordinates | None,
    storage: Mapping[str, str],
    *,
    expect_all_rows: bool,
    strict: bool,
) -> Examined:
    log = CommitLog.open(table, storage)
    kept = log.oldest_state()
    auditor = Auditor(scope, kept, partial(offsets_of_source, storage))
    with _progress(log.newest_version - log.oldest_version + 1) as advance:
        for commit in log.commits():
            auditor.add(commit)
            advance()
    report = auditor.finish(log.stored)
    app_ids = sorted({chain.app_id for chain in report.chains})
    report = report.adding([*outside_commits(log, kept), *by_delta_spark(log, app_ids)])
    report = report.adding([*look_at_result(log, app_ids), *look_for_files(table, storage, log.table)])
    _require_chains(log, scope, report)
    sides: Sequence[BrokerSide] | None = None
    if kafka:
        sides, findings = _ask(kafka, report.chains)
        report = report.adding(findings)
    rows = _count(log, report.chains, coordinates)
    if rows is not None:
        report = report.adding(_judge_rows(rows, expect_all_rows))
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
    paths = log.log.checkpoint_column(log.listing, kept.version, "add.path")
    first = next((path for path in paths if is_own_or_elsewhere(path)), None)
    if first is not None:
        message = f"the checkpoint of version {kept.version} has rows that sparkonce may have written ({first}) and no "
        message += "offsets: the commit that brought them is no longer kept"
        yield Finding(Problem.ROWS_OF_UNKNOWN_ORIGIN, message, CommitName(kept.version))


def by_delta_spark(log: CommitLog, app_ids: Iterable[str]) -> Iterator[Finding]:
    """Find applications whose rows delta-spark writes now: their offsets are in another table."""
    for app_id in app_ids:
        written, recorded = merge_txn_id(app_id), intent_txn_id(app_id)
        numbers = log.stored([written, recorded])
        if written in numbers and recorded not in numbers:
            found = offsets_of(log)
            message = f"{describe_outdated(app_id, numbers[written])}{'' if found is None else f', {found}'}. The rows "
            message += "of those writes are not examined here"
            yield Finding(Problem.ROWS_OF_UNKNOWN_ORIGIN, message, None)


def _coordinates(text: str) -> Coordinates:
    try:
        return Coordinates.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _require_chains(log: CommitLog, scope: Scope, report: Report) -> None:
    if report.chains:
        return
    asked = [f"{name} {value}" for name, value in (("appId", scope.app_id), ("source", scope.source)) if value]
    others = sorted(report.tally.other_apps)
    hint = f"; appIds there: {', '.join(others)}" if others else f". {_where_offsets_are(log, report)}"
    raise AuditError(f"{log.location} holds no offsets{' of ' + ' and '.join(asked) if asked else ''}{hint}")


def _where_offsets_are(log: CommitLog, report: Report) -> str:
    found = offsets_of(log)
    if found is not None:
        return f"Those of AppendWriter and MergeWriter are in {found}: audit that table"
    if report.tally.own[OwnCommit.NUMBERED_WRITE]:
        return "AppendWriter or MergeWriter writes its rows: audit the table of offsets that its argument offsets names"
    return "If they live in another place (offsetStore=delta:<path>), audit that table"


def _ask(options: Mapping[str, str], chains: Sequence[Chain]) -> tuple[Sequence[BrokerSide], list[Finding]]:
    try:
        topics = ask_broker(options, chains)
    except (OSError, KafkaError, MissingTopicError) as error:
        raise AuditError(f"the broker could not be asked: {error}") from error
    return compare_with_broker(chains, topics)


def _count(log: CommitLog, chains: Sequence[Chain], coordinates: Coordinates | None) -> RowCounts | None:
    if coordinates is None:
        return None
    try:
        return count_rows(log.table, chains, coordinates)
    except RowsError as error:
        raise AuditError(f"the rows of {log.location} cannot be read: {error}") from error


def _judge_rows(rows: RowCounts, expect_all: bool) -> Iterator[Finding]:
    for (topic, partition), count in sorted(rows.by_partition.items()):
        where = f"{topic}-{partition}" if topic else f"partition {partition}"
        if count.duplicated:
            message = (
                f"{where}: {counted(count.duplicated, 'row')} too many, at offsets {_stretches(count, duplicated=True)}"
            )
            yield Finding(Problem.DUPLICATED, message)
        if count.missing:
            why = "" if expect_all else " (a filter of the query, or a transaction's markers, leave offsets out too)"
            missing = f"{counted(count.missing, 'offset')} without a row"
            message = f"{where}: {missing}, at {_stretches(count, duplicated=False)}{why}"
            yield Finding(Problem.MISSING if expect_all else Problem.MISSING_ALLOWED, message)


def _stretches(count: RowCount, duplicated: bool) -> str:
    stretches = count.duplicated_at if duplicated else count.missing_at
    named = ", ".join(f"[{extent.start}, {extent.end})" for extent in stretches)
    whole = sum(extent.end - extent.start for extent in stretches) == (
        count.duplicated if duplicated else count.missing
    )
    return named if whole else named + ", …"


@contextlib.contextmanager
def _progress(commits: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error, if that is a terminal and it will take a while."""
    if commits < PROGRESS_FROM_COMMITS or not sys.stderr.isatty():
        yield lambda: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:  # rich comes with the extra "demo" only
        yield lambda: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the log", total=commits)
        yield lambda: bar.advance(task)
