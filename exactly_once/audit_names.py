"""Two names for one table, in an audit: records covered twice, and chains whose beginning is elsewhere.

Records are covered twice by two applications, or by two sources of one that no query reads together.

The sink rejects both unless an option allows them, which it stores in the table (`meant_txn_id`). Logs
of earlier versions of sparkonce may have either. Only tables of rows are judged: those of offsets alone, and of dead
letters, are shared by applications on purpose.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from sparkonce.exactly_once.audit_findings import Chain, CommitName, Finding, Problem
from sparkonce.offset_store.administration import ChangeKind
from sparkonce.offset_store.commit_log import LogCommit
from sparkonce.offset_store.log.state import RESTORE
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.other_apps import other_apps
from sparkonce.offset_store.record import BatchRecord, Writes
from sparkonce.offset_store.txn_ids import BEGINS_LATE, COVERED_TWICE, FIRST_TXN_ID, meant_txn_id


@dataclass(slots=True)
class Names:
    """Follows the applications of one table."""

    _rows: dict[str, bool] = field(default_factory=dict)
    """For each application of kept commits: whether it wrote rows that are not dead letters."""
    _late: dict[str, list[Finding]] = field(default_factory=dict)
    """For each application whose first batch was seen: the partitions that begin late."""
    _sources: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """For each query of an application: its sources."""
    _by_others: dict[str, deque[tuple[int, int]]] = field(default_factory=lambda: defaultdict(_newest))
    """For each transaction id of another writer: its numbers, each with the version that has it."""
    _by_us: dict[str, deque[tuple[int, int]]] = field(default_factory=lambda: defaultdict(_newest))
    """For each query: the batches of which we have written rows, each with its version."""
    _twice: list[Finding] = field(default_factory=list)
    """Batches that Delta's own sink, which names them by the query's id, has written, and we, too."""

    def pass_over(self, commit: LogCommit) -> None:
        """Note a commit that is no batch of ours."""
        change = commit.entry.change
        if (change is not None and change.kind is ChangeKind.RESTORE) or commit.entry.operation == RESTORE:
            target = commit.entry.restored_to if change is None else change.to_version
            to = -1 if target is None else target  # what was written after that version is gone
            for written in (self._by_others, self._by_us):
                for name, known in written.items():
                    written[name] = _newest(each for each in known if each[1] <= to)
        for name, number in commit.others.items():
            version = _version_of(self._by_us.get(name), number)
            if version is not None and not commit.is_overwrite:
                self._note_twice(commit, f"Delta's own sink wrote batch {number} of query {name}", version)
            self._by_others[name].append((number, commit.version))

    def _note_twice(self, commit: LogCommit, what: str, before: int) -> None:
        message = f"{what}, and version {before} had its rows already: they are there twice"
        self._twice.append(Finding(Problem.BATCH_TWICE, message, CommitName.of(commit)))

    def add(self, commit: LogCommit, before: Mapping[str, int], *, is_known: bool) -> None:
        """Add a batch, before which these transaction ids were stored; ``is_known``: these are all."""
        batch = commit.entry.batch
        assert batch is not None, "only of batches"
        app_id, counts = batch.record.app_id, batch.record.counts
        has_rows = Writes.ROWS in batch.writes and (counts is None or counts.rows > 0)
        self._rows[app_id] = has_rows or self._rows.get(app_id, False)
        self._sources.setdefault((app_id, batch.record.query_id), set()).update(
            source for source, _ in batch.record.moved
        )
        query_id, number = batch.record.query_id, batch.record.batch_id
        if has_rows and not commit.is_overwrite:
            version = _version_of(self._by_others.get(query_id), number)
            if version is not None:
                self._note_twice(commit, f"batch {number} was written after Delta's own sink had written it", version)
            self._by_us[query_id].append((number, commit.version))
        if app_id not in self._late and Writes.OFFSETS in batch.writes:
            is_checked = not is_known or FIRST_TXN_ID in commit.transactions
            self._late[app_id] = [] if is_checked else _begins_late(batch.record, CommitName.of(commit), before)

    def judge(self, chains: Sequence[Chain], stored: Mapping[str, int]) -> Iterator[Finding]:
        """Yield the problems, given all chains and the stored transaction ids."""
        yield from self._twice
        yield from self._covered_twice(chains, stored)
        for app_id, late in sorted(self._late.items()):
            if self._rows[app_id] and meant_txn_id(app_id, BEGINS_LATE) not in stored:
                yield from late

    def _covered_twice(self, chains: Sequence[Chain], stored: Mapping[str, int]) -> Iterator[Finding]:
        of_place: dict[tuple[str, str, int], list[Chain]] = {}
        for chain in chains:
            topic = (chain.topic_id, "") if chain.topic_id else (chain.topic, chain.source)
            of_place.setdefault((*topic, chain.partition), []).append(chain)
        for one, other in (pair for together in of_place.values() for pair in combinations(together, 2)):
            is_meant = any(meant_txn_id(each.app_id, COVERED_TWICE) in stored for each in (one, other))
            if is_meant or not self._have_rows(one.app_id, other.app_id) or self._are_one(one, other):
                continue
            twice = _common(_known(one), _known(other))
            if twice is not None:
                who = f"source {other.source}" if one.app_id == other.app_id else f"appId {other.app_id}"
                message = (
                    f"{one}: {who} wrote rows of [{twice.start}, {twice.end}) too. If that is one "
                    "pipeline under two names, its rows are there twice; if it is meant (queries that divide a topic "
                    "by WHERE), set coveredTwice=true on the sink of one of them, which records it"
                )
                yield Finding(Problem.COVERED_TWICE, message, None, one)

    def _are_one(self, one: Chain, other: Chain) -> bool:
        """Whether one query read both, as in a self-union; or their commits are no longer kept, so that it may have."""
        if one.app_id != other.app_id:
            return False
        both = {one.source, other.source}
        read = [sources for (app_id, _), sources in self._sources.items() if app_id == one.app_id]
        return any(both <= sources for sources in read) or not both <= set().union(*read)

    def _have_rows(self, one: str, other: str) -> bool:
        """Whether both write rows; one whose commits are no longer kept counts as the other."""
        known = [self._rows[each] for each in (one, other) if each in self._rows]
        return bool(known) and all(known)


def _newest(batches: Iterable[tuple[int, int]] = ()) -> deque[tuple[int, int]]:
    return deque(batches, maxlen=10_000)  # a few would do: only the last batch before a move is in doubt


def _version_of(known: Sequence[tuple[int, int]] | None, number: int) -> int | None:
    """Return the version that has a batch or the one after it, of batches whose numbers grow; None if none does."""
    if not known or known[-1][0] < number:
        return None
    return next(version for batch, version in known if batch >= number)


def _begins_late(record: BatchRecord, name: CommitName, before: Mapping[str, int]) -> list[Finding]:
    """Return the partitions of a first batch that do not begin where anything in the table ends.

    A stream that begins at the newest records has an empty batch 0, which makes no commit: so batch 1 may be the first.
    """
    others = other_apps(before, record, record.moved)
    if not others.is_first or record.batch_id < 2 or others.last_batch == record.batch_id - 1:
        return []
    return [
        Finding(
            Problem.BEGINS_LATE,
            f"{tp} (appId {record.app_id}, source {source}): its first batch here is batch {record.batch_id}, which "
            f"begins at {extent.start}, and nothing shows where the batches before it were written: the checkpoint may "
            "be that of another table. If it is meant, set beginsLate=true on the sink, which records it",
            name,
        )
        for (source, tp), extent in sorted(record.moved.items())
        if extent.start > 0 and extent.follows not in others.next_offsets.get((source, tp), {}).values()
    ]


def _known(chain: Chain) -> list[OffsetRange]:
    """Return the ranges that a chain certainly covers; if no kept commit moved it, the last record."""
    if chain.ranges or chain.commits or chain.end is None or chain.cloned:
        return chain.ranges
    return [OffsetRange(chain.end - 1, chain.end)] if chain.end > 0 else []


def _common(one: Sequence[OffsetRange], other: Sequence[OffsetRange]) -> OffsetRange | None:
    """Return the first offsets that are in both."""
    found = (OffsetRange(max(mine.start, theirs.start), min(mine.end, theirs.end)) for mine in one for theirs in other)
    return min((each for each in found if each.start < each.end), key=lambda each: each.start, default=None)
