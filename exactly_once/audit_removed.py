"""Rows that later commits took out of the table, while the offsets of their records stayed stored.

A `RESTORE` of Delta leaves all offsets. Ours moves those that the table has, so not those of an application whose
offsets are in another table. What removes files, of a writer of any kind, leaves them too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sparkonce.exactly_once.audit_findings import CommitName, Finding, Problem
from sparkonce.words import counted

_NOT_AGAIN = "unchanged, so these records are not read again"


@dataclass(slots=True)
class LastRows:
    """The last version in which each application wrote rows."""

    versions: dict[str, int] = field(default_factory=dict)
    """Those in force: a restore takes back what is newer."""
    _written: dict[str, int] = field(default_factory=dict)
    """Those ever written."""
    _replaced_in: int = -1
    """The last batch that removed files."""

    def note(self, app_id: str, version: int) -> None:
        """Note a commit with rows."""
        self.versions[app_id] = self._written[app_id] = version

    def removed(self, files: int, name: CommitName) -> list[Finding]:
        """Report that a DELETE, TRUNCATE, overwrite, REPLACE or UPDATE, or a batch, may have removed rows of ours.

        A batch in complete mode replaces all rows each time: those of its own application are meant, those of others
        are gone with the first.
        """
        own = name.app_id
        since = -1 if own is None else self._replaced_in
        others = [app_id for app_id, last in self.versions.items() if app_id != own and last > since]
        if own is not None:
            self._replaced_in = name.version
        if not others:
            return []
        apps = ", ".join(f"appId {app_id} wrote" for app_id in sorted(others))
        message = f"it removed or replaced {counted(files, 'data file')}, which may have held rows that {apps}; the "
        message += f"stored offsets are {_NOT_AGAIN}. The proof is of what was written"
        return [Finding(Problem.ROWS_REMOVED, message, name)]

    def reverted(self, target: int | None, name: CommitName) -> list[Finding]:
        """Report which applications' rows a RESTORE of Delta to a version (None: unknown) removed."""
        found, to = [], "an older version" if target is None else f"version {target}"
        for app_id, last in self._newer(target):
            message = f"RESTORE to {to} removed the rows that appId {app_id} wrote after it (the last in version "
            message += f"{last}); the stored offsets are {_NOT_AGAIN}"
            found.append(Finding(Problem.ROWS_RESTORED, message, name))
        self._take_back(target)
        return found

    def restored(self, target: int | None, agreeing: Collection[str], name: CommitName) -> list[Finding]:
        """Report which applications' rows a restore of ours removed, except those whose offsets agree with it."""
        found = []
        for app_id, last in self._newer(target):
            if app_id not in agreeing:
                message = f"the restore to version {target} removed the rows that appId {app_id} wrote after it (the "
                message += f"last in version {last}) and did not move its offsets, which may be in another table: they "
                message += f"are {_NOT_AGAIN}"
                found.append(Finding(Problem.ROWS_RESTORED, message, name))
        self._take_back(target)
        return found

    def _take_back(self, target: int | None) -> None:
        if target is not None:
            self.versions = {app_id: min(last, target) for app_id, last in self._written.items()}

    def _newer(self, target: int | None) -> list[tuple[str, int]]:
        return sorted((app_id, last) for app_id, last in self.versions.items() if target is None or target < last)
