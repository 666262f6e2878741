"""Whether rows that delta-spark wrote are still in the result, if the audit is of its offset table.

`AppendWriter` and `MergeWriter` keep the offset table in the result's folder by default. So the result is
found from it, and its log shows whether it has the confirmed writes, and what others did to their rows since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparkonce.connectors.delta_spark.intents import OFFSETS_FOLDER
from sparkonce.exactly_once.audit import Auditor
from sparkonce.exactly_once.audit_findings import Finding, Problem
from sparkonce.jobs.cli.audit_files import look_for_files
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.errors import OffsetStoreError, StoreMissingError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.txn_ids import intent_txn_id, merge_txn_id

_OF_ROWS = (Problem.ROWS_RESTORED, Problem.ROWS_REMOVED, Problem.DAMAGED)


def result_of(offsets: CommitLog) -> Location | None:
    """Return the table in whose folder this offset table is, by default."""
    folder, _, name = offsets.location.text.rpartition("/")
    return Location(folder, offsets.location.is_local) if name == OFFSETS_FOLDER and folder else None


def offsets_of(result: CommitLog) -> Location | None:
    """Return the table of offsets in the folder of this one; None if there is none, or it cannot be read."""
    try:
        location = Location(f"{result.location.text}/{OFFSETS_FOLDER}", result.location.is_local)
        return CommitLog.open(location, result.log.storage_options).location
    except OffsetStoreError:
        return None


def look_at_result(offsets: CommitLog, app_ids: Iterable[str]) -> Iterator[Finding]:
    """Compare the applications' confirmed writes with the result, and follow later changes of their rows.

    Raises:
        OffsetStoreError: if the result cannot be read.
    """
    numbers = {app_id: offsets.stored([intent_txn_id(app_id), merge_txn_id(app_id)]) for app_id in app_ids}
    confirmed = {app_id: found[merge_txn_id(app_id)] for app_id, found in numbers.items() if len(found) == 2}
    location = result_of(offsets)
    if not confirmed or location is None:
        return
    try:
        result = CommitLog.open(location, offsets.log.storage_options)
    except StoreMissingError:
        yield Finding(Problem.STORED_MISMATCH, f"the result {location}, whose writes are confirmed here, is not there")
        return
    for app_id, number in sorted(confirmed.items()):
        written = result.stored([merge_txn_id(app_id)]).get(merge_txn_id(app_id), 0)
        if written < number:
            message = f"write {number} of appId {app_id} is confirmed here, and the result {location} has "
            message += f"{written or 'none'}: it was deleted, replaced, or dropped transaction ids"
            yield Finding(Problem.STORED_MISMATCH, message)
    yield from look_for_files(location, offsets.log.storage_options, result.table)
    auditor = Auditor()
    for commit in result.commits():
        auditor.add(commit)
    for finding in auditor.finish(result.stored).findings:
        if finding.problem in _OF_ROWS and finding.commit is not None:
            yield Finding(
                finding.problem, f"the result {location}, version {finding.commit.version}: {finding.message}"
            )
