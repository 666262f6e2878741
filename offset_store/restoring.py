"""The commit that takes a table's rows back to an older version, as delta-spark's RESTORE does.

Files of that version that are not in the table now are added again, those that came since are removed, each by path
and deletion vector. The metadata becomes that of the version, but for what must not go back: ids of columns that were
given since, the names of the columns for row ids, and in-commit timestamps, which a log has from one version on. The
protocol is never lowered. Row ids of files that are added again are those that they had; a file from before row
tracking gets new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkonce.offset_store.data_files import gone_files
from sparkonce.offset_store.errors import OffsetStoreError, plain
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.checkpoint_rows import DROPPED
from sparkonce.offset_store.log.files import active_files
from sparkonce.offset_store.log.proposal import ROW_TRACKING, Proposal, rows_of
from sparkonce.offset_store.log.protocol import unwritable
from sparkonce.offset_store.log.protocol_changes import merged, to_action
from sparkonce.offset_store.log.state import (
    CLUSTERING_DOMAIN,
    IN_COMMIT_TIMESTAMPS,
    MAX_COLUMN_ID,
    RESTORE,
    TIMESTAMPS_SINCE,
    TableState,
)
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.words import some_of

_IDENTITY = "delta.identity."
_APPEND_ONLY = "delta.appendOnly"
_ROW_ID_COLUMNS = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_TIMESTAMPS = (
    IN_COMMIT_TIMESTAMPS,
    TIMESTAMPS_SINCE,
    "delta.inCommitTimestampEnablementTimestamp",
)


def restoration(log: TableLog, now: TableState, then: TableState) -> Proposal:
    """Return the commit that restores ``then`` in the table at ``now``; it conflicts with every commit in between.

    Raises:
        OffsetStoreError: if that is impossible: files are gone, or cannot be looked for; the table does not allow it.
    """
    there, wanted = active_files(log.reader, now.version), active_files(log.reader, then.version)
    added = [_added(add) for key, add in wanted.items() if key not in there]
    removed = [add for key, add in there.items() if key not in wanted]
    protocol = merged(then.protocol, now.protocol)
    unknown = unwritable(protocol)
    what = f"version {then.version} of {log.location} cannot be restored"
    for problem in [f"it requires {unknown}"] if unknown else _problems(now, then, added, removed):
        raise OffsetStoreError(f"{what}: {problem}")
    try:
        gone = gone_files(log.location, log.storage_options, added)
    except (OSError, ValueError) as error:
        raise OffsetStoreError(f"{what}: its files cannot be looked for: {plain(error)}") from error
    if gone:
        raise OffsetStoreError(
            f"{what}: {len(gone)} of the files that it needs are gone: {some_of(gone)}. A VACUUM has removed them, or "
            "they were deleted by hand. Restore a newer version"
        )
    return Proposal(
        removed=removed,
        restored=added,
        domains=_domains(now, then),
        metadata=_metadata(now, then),
        protocol=None if protocol == now.protocol else to_action(protocol),
        operation=RESTORE,
        parameters={"version": then.version, "timestamp": None},
        metrics=_metrics(added, removed, list(wanted.values())),
        alone=True,
    )


def _problems(now: TableState, then: TableState, added: Sequence[Action], removed: Sequence[Action]) -> Iterator[str]:
    if removed and (now.metadata.is_on(_APPEND_ONLY) or then.metadata.is_on(_APPEND_ONLY)):
        yield f"it has {_APPEND_ONLY}=true, and rows that came since would be removed"
    if _IDENTITY in now.metadata.schema_json and now.metadata.schema_json != then.metadata.schema_json:
        yield "it has identity columns, and would give numbers again that it has given since"
    if ROW_TRACKING in now.protocol.writer_features:
        bare = next((add["path"] for add in added if "baseRowId" not in add and rows_of(add) is None), None)
        if bare is not None:
            yield f"the table tracks rows, and the statistics of {bare} do not say how many it has"
    elif ROW_TRACKING in then.protocol.writer_features:
        yield f"it has the feature {ROW_TRACKING}, which was dropped since. Restore a newer version"


def _added(add: Action) -> Action:
    kept = add.keys() - DROPPED["add"]
    return {name: add[name] for name in add if name in kept and add[name] is not None} | {"dataChange": True}


def _metadata(now: TableState, then: TableState) -> Action:
    before, current = then.metadata.configuration, now.metadata.configuration
    found = {name: value for name, value in before.items() if name not in _TIMESTAMPS}
    found |= {name: current[name] for name in _TIMESTAMPS if name in current}
    if ROW_TRACKING in now.protocol.writer_features:
        found |= {name: current[name] for name in _ROW_ID_COLUMNS if name in current}
    if MAX_COLUMN_ID in found:
        found[MAX_COLUMN_ID] = str(max(int(each.get(MAX_COLUMN_ID, 0)) for each in (before, current)))
    kept = {name: value for name, value in then.metadata.action.items() if value is not None}
    return {**kept, "configuration": found}


def _domains(now: TableState, then: TableState) -> list[Action]:
    if now.domains.get(CLUSTERING_DOMAIN) == then.domains.get(CLUSTERING_DOMAIN):
        return []
    none = json.dumps({"clusteringColumns": [], "domainName": CLUSTERING_DOMAIN}, separators=(",", ":"))
    configuration = then.domains.get(CLUSTERING_DOMAIN, none)
    return [{"domain": CLUSTERING_DOMAIN, "configuration": configuration, "removed": False}]


def _metrics(added: Sequence[Action], removed: Sequence[Action], after: Sequence[Action]) -> Mapping[str, str]:
    def size(files: Sequence[Action]) -> int:
        return sum(int(each.get("size") or 0) for each in files)

    found: dict[str, Any] = {
        "numRestoredFiles": len(added),
        "restoredFilesSize": size(added),
        "numRemovedFiles": len(removed),
        "removedFilesSize": size(removed),
        "numOfFilesAfterRestore": len(after),
        "tableSizeAfterRestore": size(after),
    }
    return {name: str(value) for name, value in found.items()}
