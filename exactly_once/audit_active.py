"""Which data files are in the table, as far as its kept commits show, and what contradicts them.

A file is named by its path and the id of its deletion vector (PROTOCOL.md, "Action Reconciliation"). Where the oldest
kept commit is not the table's first, or a commit is damaged, a file that no later one names is unknown, and not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkonce.exactly_once.audit_findings import CommitName, Finding, Problem
from sparkonce.offset_store.commit_log import LogCommit
from sparkonce.offset_store.log.checkpoint_rows import FileKey
from sparkonce.words import counted

MAX_FILES = 1_000_000
"""Files that are followed; later ones are unknown."""


@dataclass(slots=True)
class ActiveFiles:
    """The data files of the table after the commits so far."""

    _vectors: dict[str, str] = field(default_factory=dict)
    """The deletion vector of each file that is in the table; "" for none."""
    _removed: set[str] = field(default_factory=set)
    """Files that are not in the table any more; unless all files are known."""
    _knows_all: bool = False
    _again: list[tuple[int, Finding]] = field(default_factory=list)
    """Commits that removed files a second time."""
    _restores: list[tuple[int, int]] = field(default_factory=list)
    """Commits that restored a version, and which; `sparkonce compact` undoes a merge that came late so."""

    @property
    def removed_twice(self) -> list[Finding]:
        """The commits, still in force, that removed files which were not in the table any more."""
        found, newest = list[Finding](), float("inf")
        for version, target in [*reversed(self._restores), (-1, -1)]:
            if version <= newest:
                found += [each for at, each in self._again if version < at <= newest]
                newest = target
        return found

    def restored(self, version: int, target: int | None) -> None:
        """Note a commit that restored a version; nothing is taken for undone if it is not known which (None)."""
        if target is not None:
            self._restores.append((version, target))

    def follow(self, commit: LogCommit, name: CommitName) -> list[Finding]:
        """Apply the next commit; return what is wrong with it, but for `removed_twice`."""
        if commit.damage is not None:  # it may have named any file
            self._vectors.clear()
            self._removed.clear()
            self._knows_all = False
        elif commit.version == 0:
            self._knows_all = True
        found = [] if commit.damage is not None else _counted_otherwise(commit, name)
        if commit.removed:
            self._remove(commit.removed, name)
        for path, vector in commit.added:
            self._add(path, vector)
        return found

    def differences(self, read: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
        """Compare with the files that a reader of the newest version has; each may have several names."""
        names = {name for each in read.values() for name in each}
        lacking = [path for path in self._vectors if path not in names]
        more = [path for path, each in read.items() if all(map(self._is_gone, each))]
        for found, what in (
            (lacking, ("lacks", "were added and not removed")),
            (more, ("has", "are not in the table any more")),
        ):
            if found:
                message = f"what readers load as the newest version {what[0]} {counted(len(found), 'data file')}, such "
                message += f"as {found[0]}, that by the kept commits {what[1]}: a checkpoint is wrong, or a commit"
                yield Finding(Problem.SNAPSHOT_MISMATCH, message)

    def _remove(self, files: Sequence[FileKey], name: CommitName) -> None:
        again = []
        for path, vector in files:
            if self._is_gone(path) or self._vectors.get(path, vector) != vector:
                again.append(path)
                continue
            self._vectors.pop(path, None)
            if not self._knows_all and len(self._removed) < MAX_FILES:
                self._removed.add(path)
        if again:
            message = f"it removed {counted(len(again), 'data file')} that earlier commits had removed or replaced, "
            message += f"such as {again[0]}: it was written from an older version, and its rows may be there twice"
            self._again.append((name.version, Finding(Problem.REMOVED_TWICE, message, name)))

    def _add(self, path: str, vector: str) -> None:
        self._removed.discard(path)
        if len(self._vectors) < MAX_FILES or path in self._vectors:
            self._vectors[path] = vector
        else:
            self._knows_all = False

    def _is_gone(self, path: str) -> bool:
        return path not in self._vectors and (self._knows_all or path in self._removed)


def _counted_otherwise(commit: LogCommit, name: CommitName) -> list[Finding]:
    """Compare the files of a batch with what its record counts; records of earlier versions count nothing."""
    counts = None if commit.entry.batch is None else commit.entry.batch.record.counts
    if counts is None or not counts.files or counts.files == len(commit.added):
        return []
    message = f"it adds {counted(len(commit.added), 'data file')}, and its record says {counts.files:,}, with "
    message += f"{counted(counts.rows, 'row')}: the file of the commit was changed or truncated"
    return [Finding(Problem.FILES_MISMATCH, message, name)]
