"""A second opinion: the audit of the table's log, after every cell.

The judge looks at rows and at nothing that our code says of itself; the audit looks at what the commits say and at no
row. A cell must satisfy both: the chain of offset ranges has no gap and no overlap, whatever the guarantee.
"""

from __future__ import annotations

from pathlib import Path

from sparkonce.exactly_once.audit import Auditor, Scope
from sparkonce.jobs.lab.verify.cells import Result
from sparkonce.jobs.lab.verify.timeline import OFFSETS_OF_MERGES
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.locations import Location


def broken_chain(table: Path, app_id: str, result: Result) -> str | None:
    """Return what contradicts the chain of offsets, or None if nothing does, as where there is no table.

    Raises:
        OffsetStoreError: if the table cannot be read.
    """
    if result in (Result.TOPIC, Result.FOREACH_BATCH):  # no Delta table
        return None
    audited = table / OFFSETS_OF_MERGES if result is Result.MERGE else table
    log = CommitLog.open(Location.parse(str(audited)), {})
    auditor = Auditor(Scope(app_id), log.oldest_state())
    for commit in log.commits():
        auditor.add(commit)
    report = auditor.finish(log.stored)
    if report.proven:
        return None if report.chains else "the audit found no offsets"
    return f"the audit found: {report.first_bad.message if report.first_bad else 'a broken chain'}"
