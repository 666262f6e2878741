"""Commits as other drivers and delta-rs make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable
from deltalake.transaction import AddAction

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import AddFile
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.table_log import TableLog


def append(table: DeltaTable, transactions: Mapping[str, int], info: Mapping[str, Any]) -> None:
    """Commit what was decided from the version of ``table``. Raises as `TableLog.commit`."""
    log = TableLog(Location.parse(table.table_uri), table._storage_options or {})
    log.commit(Proposal(transactions, info), log.state_at(table.version()))


def of_delta_rs(file: AddFile) -> AddAction:
    """Return the action with which delta-rs adds a file."""
    return AddAction(
        file.path, file.size, dict(file.partition_values), file.modification_time_ms, True, file.statistics
    )
