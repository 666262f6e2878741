"""Whether the rows that a log proves are there: the data files that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deltalake import DeltaTable

from sparkonce.exactly_once.audit_findings import Finding, Problem
from sparkonce.offset_store.data_files import lost_files
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location


def look_for_files(location: Location, storage_options: Mapping[str, str], table: DeltaTable) -> Iterator[Finding]:
    """Find data files of a table that are lost, or say why they cannot be looked for."""
    try:
        lost = lost_files(location, storage_options, table)
    except OffsetStoreError as error:
        yield Finding(Problem.FILES_NOT_EXAMINED, str(error))
        return
    for each in lost:
        message = f"{location}: {each}, so its rows cannot be read. Bring it back from a backup, or write them again "
        yield Finding(Problem.FILE_LOST, message + "from a version before it: sparkonce offsets rewind --restore")
