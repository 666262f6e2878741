"""Proof from a table's log that every offset was written once: the chain of ranges of each partition.

Every commit that moves offsets records the range that it covers (in the commit info) and the offset that is stored from
then on (its ``txn`` actions). For each application, source, topic id and partition the ranges, ordered by version, must
join without a gap or an overlap, and the stored offset must always be the end of the last range. `Auditor` reads the
commits oldest first, keeps a few numbers for each partition, and reports what does not fit as a `Finding`.

The chain reaches back to the oldest kept commit. If older ones were cleaned up, the oldest kept checkpoint shows what
was stored at its version: it must agree with the chain there, and where a partition has not yet moved since, the first
range must join it.

After an upgrade to brokers with topic ids (Kafka 2.8) a topic continues under its id: the first range under the id
joins the chain under the name.

The three guarantees in the log: exactly-once writes rows and offsets in one commit; at-least-once in two, rows first;
at-most-once in two, offsets first. The two commits of an attempt carry its id. The second may be missing after a crash,
as those guarantees allow: a warning, not an error. It must not follow a restore that undid the first: rows whose
offsets were undone are duplicated, and offsets without rows are data loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sparkonce.exactly_once.audit_active import ActiveFiles
from sparkonce.exactly_once.audit_findings import Chain, CommitName, Finding, Findings, Problem
from sparkonce.exactly_once.audit_names import Names
from sparkonce.exactly_once.audit_removed import LastRows
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.administration import ChangeKind, ManualChange
from sparkonce.offset_store.clones import CloneSource
from sparkonce.offset_store.commit_log import LogCommit, StoredState
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.own_commits import OwnCommit
from sparkonce.offset_store.record import BatchRecord, Commit, CommittedBatch, PartitionKey, Writes
from sparkonce.offset_store.txn_ids import (
    MOVED_TO_ID,
    UNKNOWN_EPOCH,
    MergeTxn,
    OffsetTxn,
    QueryTxn,
    epoch_txn_id,
    named_txn_ids,
    offset_txn_id,
    parse_txn_id,
    query_txn_id,
    transactions_of,
)

BOTH = Writes.ROWS | Writes.OFFSETS


@dataclass(frozen=True, slots=True)
class Scope:
    """The applications and sources to audit; None for all."""

    app_id: str | None = None
    source: str | None = None

    def has_app(self, app_id: str) -> bool:
        """Whether commits of this application are audited."""
        return self.app_id in (None, app_id)

    def has_key(self, app_id: str, source: str) -> bool:
        """Whether offsets of this source of this application are audited."""
        return self.has_app(app_id) and self.source in (None, source)


@dataclass(slots=True)
class Tally:
    """The number of commits of each kind."""

    commits: int = 0
    ours: int = 0
    """Commits of batches of the selected applications."""
    other_apps: Counter[str] = field(default_factory=Counter)
    """Commits of batches of other applications."""
    changes: int = 0
    """Recorded manual changes."""
    own: Counter[OwnCommit] = field(default_factory=Counter)
    """Our other commits (not only of a batch), of any application, by kind."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Commits of others, by operation."""
    guarantees: Counter[tuple[str, Guarantee]] = field(default_factory=Counter)
    """Attempts whose order of writes shows a guarantee, by application."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an audit; ``chains`` in the order of their keys."""

    chains: tuple[Chain, ...]
    findings: tuple[Finding, ...]
    """By version; findings without a commit come last."""
    counts: Mapping[Problem, int]
    """How often each problem was found; ``findings`` has the first few of each."""
    tally: Tally

    @property
    def proven(self) -> bool:
        """Whether nothing contradicts exactly one write of every offset of every chain; see `has_ranges`."""
        return not any(problem.is_error and count for problem, count in self.counts.items())

    @property
    def has_ranges(self) -> bool:
        """Whether any kept commit of a batch moved offsets; if not, `proven` is true because nothing was examined."""
        return any(chain.ranges for chain in self.chains)

    def adding(self, findings: Iterable[Finding]) -> Report:
        """Return a report with more findings, for example of a comparison with the broker."""
        more = Findings(list(self.findings), Counter(self.counts))
        more.add_all(findings)
        return Report(self.chains, more.in_order(), more.counts, self.tally)

    @property
    def first_bad(self) -> Finding | None:
        """The error of the lowest version; one without a commit only if there is no other."""
        return next((finding for finding in self.findings if finding.problem.is_error), None)


@dataclass(slots=True)
class _Attempt:
    """One half of an attempt's two writes, while the other has not been seen."""

    writes: Writes
    name: CommitName
    ranges: Mapping[PartitionKey, OffsetRange]
    follows: Writes | None = None
    again_in: int | None = None
    """The version in which another attempt wrote rows from the same offset on."""


class Auditor:
    """Reads the commits of one log, oldest first, and returns a report."""

    def __init__(
        self,
        scope: Scope | None = None,
        kept: StoredState | None = None,
        look_at_source: Callable[[CloneSource], Mapping[OffsetTxn, int] | None] = lambda _: None,
    ) -> None:
        """Audit ``scope``; ``look_at_source`` returns the offsets of a clone's source, None if unreadable."""
        self._look_at_source = look_at_source
        self._scope = scope or Scope()
        self._kept = kept
        self._chains: dict[str, Chain] = {}
        self._batch_ids: dict[str, int] = {}
        self._written: dict[str, int] = {}
        """The version of each transaction identifier, from the commits so far and the checkpoint before them."""
        self._halves: dict[str, _Attempt] = {}
        self._undone: dict[str, tuple[Writes, int]] = {}
        """Half-written attempts that a restore undid, with the restore's version."""
        self._rows_from: dict[tuple[str | None, PartitionKey, int], str] = {}
        """The attempt among `_halves` that last wrote rows of a partition from this offset on."""
        self._whole_attempts: set[str] = set()
        self._rows = LastRows()
        self.files = ActiveFiles()
        """What the commits so far have left in the table."""
        self._first_version = 0
        """The oldest kept commit."""
        self._with_offsets: set[str] = set()
        self._names, self._findings, self._tally = Names(), Findings(), Tally()

    def add(self, commit: LogCommit) -> None:
        """Check the next commit against the earlier ones."""
        if self._kept is not None and commit.version > self._kept.version:
            self._join_checkpoint(self._kept)
            self._kept = None
        if self._tally.commits == 0:
            self._first_version = commit.version
        self._tally.commits += 1
        if commit.entry.batch is None:
            self._names.pass_over(commit)
        elif self._scope.has_app(commit.entry.batch.record.app_id):
            self._names.add(commit, self._written, is_known=self._kept is None)
        self._check(commit, CommitName.of(commit))
        self._written.update(commit.transactions)

    def _check(self, commit: LogCommit, name: CommitName) -> None:
        if commit.damage is not None:
            message = f"{commit.damage}: the rows that it added are gone, unless a later checkpoint has them; readers "
            message += "see no error. Restore the file from a copy of the log"
            self._findings.add(Problem.DAMAGED, message, name)
        self._findings.add_all(self.files.follow(commit, name))
        batch, change = commit.entry.batch, commit.entry.change
        if batch is not None and commit.removed_files:
            self._findings.add_all(self._rows.removed(commit.removed_files, name))
        if commit.entry.own is not None:
            self._tally.own[commit.entry.own] += 1
        if change is not None:
            self._add_change(commit, change, name)
            return
        if batch is None:
            self._add_foreign(commit, name)
            return
        if not self._scope.has_app(batch.record.app_id):
            self._tally.other_apps[batch.record.app_id] += 1
            return
        self._tally.ours += 1
        self._check_attempt(batch, name)
        self._check_transactions(commit, batch, name)
        if Writes.ROWS in batch.writes:
            self._rows.note(batch.record.app_id, commit.version)
        if Writes.OFFSETS in batch.writes:
            self._with_offsets.add(batch.record.app_id)
            self._check_batch_id(batch.record, name)
            for key, extent in sorted(batch.record.stored.items()):
                self._extend(batch.record.app_id, key, extent, name)

    def finish(self, look_up: Callable[[Iterable[str]], Mapping[str, int]]) -> Report:
        """Compare the ends of the chains with the stored offsets, and return the report.

        ``look_up`` returns the stored versions of some transaction identifiers, as a reader of the table sees them.
        More commits may be added afterwards, and the audit finished again; a report shows the chains as they are now.
        """
        if self._kept is not None:
            self._join_checkpoint(self._kept)
            self._kept = None
        found = Findings(list(self._findings.kept), Counter(self._findings.counts))
        self._check_stored(look_up(self._chains), look_up(self._batch_ids), found)
        self._note_epochs()
        self._judge_halves(found)
        chains = tuple(sorted(self._chains.values(), key=lambda chain: chain.order))
        found.add_all(self.files.removed_twice)
        found.add_all(self._names.judge(chains, self._written))
        return Report(chains, found.in_order(), found.counts, self._tally)

    # One commit

    def _check_attempt(self, batch: CommittedBatch, name: CommitName) -> None:
        attempt_id, known = batch.record.attempt_id, self._halves.get(batch.record.attempt_id)
        undone = self._undone.pop(attempt_id, None)
        if Writes.ROWS in batch.writes:
            self._note_rows_again(batch)
        again = attempt_id in self._whole_attempts or (known is not None and bool(known.writes & batch.writes))
        if again:
            self._findings.add(
                Problem.ATTEMPT_TWICE,
                f"attempt {attempt_id} was committed before: its {_words(batch.writes)} are in the table twice",
                name,
            )
        elif undone is not None and undone[0] != batch.writes:
            self._whole_attempts.add(attempt_id)
            self._add_after_undone(batch.writes, undone[1], name)
        elif batch.writes == BOTH:
            self._whole_attempts.add(attempt_id)
            self._tally.guarantees[batch.record.app_id, Guarantee.EXACTLY_ONCE] += 1
        elif known is None:
            self._halves[attempt_id] = _Attempt(batch.writes, name, batch.record.moved, batch.follows)
            if batch.writes == Writes.ROWS:
                self._rows_from |= dict.fromkeys(_starts(name.app_id, batch.record.moved), attempt_id)
        else:
            del self._halves[attempt_id]
            for start in _starts(known.name.app_id, known.ranges):
                if self._rows_from.get(start) == attempt_id:
                    del self._rows_from[start]
            self._whole_attempts.add(attempt_id)
            order = Guarantee.AT_LEAST_ONCE if known.writes == Writes.ROWS else Guarantee.AT_MOST_ONCE
            self._tally.guarantees[batch.record.app_id, order] += 1
            if known.ranges != batch.record.moved:
                self._findings.add(
                    Problem.HALVES_DIFFER,
                    f"its {_words(batch.writes)} cover other offsets than its {_words(known.writes)}, which are in "
                    f"version {known.name.version}",
                    name,
                )

    def _note_rows_again(self, batch: CommittedBatch) -> None:
        """Mark attempts without stored offsets that began where this batch begins."""
        for start in _starts(batch.record.app_id, batch.record.moved):
            earlier = self._halves.get(self._rows_from.get(start, ""))
            if earlier is not None and earlier.name.attempt_id != batch.record.attempt_id:
                earlier.again_in = batch.version

    def _undo_halves(self, target: int | None, by: CommitName, *, with_offsets: bool) -> None:
        """Forget rows that a restore to a version (None: unknown) removed, and with ``with_offsets`` their offsets."""
        kept_to = -1 if target is None else target
        for attempt_id, half in list(self._halves.items()):
            if half.again_in is not None and half.again_in > kept_to:
                half.again_in = None
            if half.name.version > kept_to and (with_offsets or half.writes == Writes.ROWS):
                self._undone[attempt_id] = half.writes, by.version
                del self._halves[attempt_id]
        self._rows_from = {start: each for start, each in self._rows_from.items() if each in self._halves}

    def _add_after_undone(self, writes: Writes, restored_in: int, name: CommitName) -> None:
        """Report the second commit of an attempt whose first commit was undone by a restore."""
        if writes == Writes.ROWS:
            message = (
                f"its offsets were committed before, and version {restored_in} reverted them: its rows are in the "
                "table without offsets, and the next query that begins at the stored offsets writes them again"
            )
            self._findings.add(Problem.OFFSETS_TAKEN_BACK, message, name)
            return
        message = (
            f"its rows were committed before, and version {restored_in} removed them: these records are in the stored "
            "offsets and not in the table, and no query reads them again"
        )
        self._findings.add(Problem.ROWS_TAKEN_OUT, message, name)

    def _check_transactions(self, commit: LogCommit, batch: CommittedBatch, name: CommitName) -> None:
        """Compare the ``txn`` actions of a commit with its record."""
        whole: Commit[object] = Commit(batch.record, batch.writes)
        left = (txn_id for txn_id in named_txn_ids(whole).values() if commit.transactions.get(txn_id) == MOVED_TO_ID)
        wanted = transactions_of(whole) | dict.fromkeys(left, MOVED_TO_ID)
        for txn_id in sorted({*wanted, *commit.transactions}):
            expected, stored = wanted.get(txn_id), commit.transactions.get(txn_id)
            if expected == stored or not self._in_scope(txn_id):
                continue
            what = describe(txn_id, batch.record)
            if stored is None:
                message = f"{what}: the commit stores nothing, and its range ends at {expected}"
            elif expected is None:
                message = f"{what}: the commit stores {stored}, which its record does not have"
                self._move_manually(txn_id, stored, name)
            else:
                message = f"{what}: the commit stores {stored}, and its range ends at {expected}"
            self._findings.add(Problem.TXN_MISMATCH, message, name, self._chains.get(txn_id))

    def _check_batch_id(self, record: BatchRecord, name: CommitName) -> None:
        txn_id = query_txn_id(record.app_id, record.query_id)
        last = self._batch_ids.get(txn_id)
        if last is not None and record.batch_id <= last:
            what = "was used before" if record.batch_id == last else f"comes after batch {last}"
            self._findings.add(Problem.BATCH_ID, f"batch id {record.batch_id} of query {record.query_id} {what}", name)
        self._batch_ids[txn_id] = record.batch_id

    def _extend(self, app_id: str, key: PartitionKey, extent: OffsetRange, name: CommitName) -> None:
        source, tp = key
        if not self._scope.has_key(app_id, source):
            return
        txn_id = offset_txn_id(app_id, source, tp)
        chain = self._chains.get(txn_id) or self._chains.pop(offset_txn_id(app_id, source, tp.by_name), None)
        if chain is None:
            chain = Chain(app_id, source, tp.topic, tp.topic_id, tp.partition)
        self._chains[txn_id] = chain
        chain.topic, chain.topic_id = tp.topic, tp.topic_id
        if self._follows_cut(app_id, key, extent, chain.end):
            message = f"{chain}: records [{extent.start}, {extent.cut_from}) of {tp} that were written to the table "
            message += "had been replaced in the log; their rows stay, and the query continued with the new ones"
            self._findings.add(Problem.LOG_REPLACED, message, name, chain)
            chain.cut(extent.start, f"a truncated log, read on in version {name.version},")
        if chain.end is not None and extent.start > chain.end:
            message = f"gap [{chain.end}, {extent.start}): {chain.before} ended at {chain.end}, this begins at "
            self._findings.add(Problem.GAP, f"{chain}: {message}{extent.start}", name, chain)
        elif chain.end is not None and extent.start < chain.end:
            twice = f"[{extent.start}, {min(chain.end, extent.end)})"
            message = f"overlap {twice}: {chain.before} ended at {chain.end}, this begins at {extent.start}"
            self._findings.add(Problem.OVERLAP, f"{chain}: {message}", name, chain)
        chain.extend(extent, name.version)
        chain.remember(name.version)

    def _follows_cut(self, app_id: str, key: PartitionKey, extent: OffsetRange, end: int | None) -> bool:
        """Whether a range is of a log that was truncated, and the offset stored before it of the log as it was."""
        if extent.cut_from is None or end not in (None, extent.cut_from):
            return False
        stored = self._written.get(epoch_txn_id(app_id, *key), UNKNOWN_EPOCH)
        if stored == UNKNOWN_EPOCH:
            return True
        return stored != extent.epoch if extent.cut_epoch is None else stored == extent.cut_epoch

    # Commits that are not of batches

    def _add_change(self, commit: LogCommit, change: ManualChange, name: CommitName) -> None:
        """Apply a recorded manual change; it must have moved exactly what its record says."""
        self._tally.changes += 1
        if change.kind is ChangeKind.RESTORE:
            self._undo_halves(change.to_version, name, with_offsets=True)
            self.files.restored(name.version, change.to_version)
            agreeing = change.app_ids | _unmoved_since(change.to_version, self._chains.values())
            self._findings.add_all(self._rows.restored(change.to_version, agreeing, name))
        wanted = change.transactions()
        for move in sorted(change.moves):
            txn_id = offset_txn_id(move.key.app_id, move.key.source, move.key.partition)
            if not self._in_scope(txn_id):
                continue
            chain = self._chains.setdefault(txn_id, _chain_of(move.key))
            before = "nothing" if move.before is None else str(move.before)
            message = f"{chain}: sparkonce moved the stored offset from {before} to {move.after} ({change.kind.value}"
            message += f" to version {change.to_version})" if change.to_version is not None else ")"
            self._findings.add(Problem.MOVED_ON_PURPOSE, message, name, chain)
            if change.kind is ChangeKind.RESTORE:
                chain.undo(move.after)
            chain.jump(move.after, f"version {name.version}")
            chain.remember(name.version)
        for txn_id, to in sorted(commit.transactions.items()):
            if not self._in_scope(txn_id) or wanted.get(txn_id, self._known(txn_id)) in (None, to):
                continue
            recorded = wanted.get(txn_id, "nothing of it")
            message = f"{describe(txn_id)}: the commit stores {to}, and its record has {recorded}"
            self._findings.add(Problem.TXN_MISMATCH, message, name, self._chains.get(txn_id))
        for txn_id in sorted(wanted.keys() - commit.transactions.keys()):
            if self._in_scope(txn_id):
                message = f"{describe(txn_id)}: the commit stores nothing, and its record has {wanted[txn_id]}"
                self._findings.add(Problem.TXN_MISMATCH, message, name, self._chains.get(txn_id))
        for txn_id, to in commit.transactions.items():
            if self._in_scope(txn_id):
                self._move_manually(txn_id, to, name)

    def _add_foreign(self, commit: LogCommit, name: CommitName) -> None:
        for parsed in map(parse_txn_id, commit.transactions):
            if commit.entry.own is OwnCommit.NUMBERED_WRITE and isinstance(parsed, MergeTxn):
                self._rows.note(parsed.app_id, commit.version)
        if commit.entry.own is None:
            self._tally.foreign[commit.entry.operation or "unnamed"] += 1
        if commit.unreadable is not None:
            message = f"its record of a batch cannot be read: {commit.unreadable!r:.200}"
            self._findings.add(Problem.UNREADABLE, message, name)
        for txn_id, to in sorted(commit.transactions.items()):
            if not self._in_scope(txn_id):
                continue
            before = self._known(txn_id)
            if before == to:  # rewritten, so that concurrent writers conflict
                continue
            was = "nothing that is known" if before is None else str(before)
            at = self._chains.get(txn_id)
            message = f"{describe(txn_id, None, at)} was moved by hand from {was} to {to}"
            if commit.unreadable is None:
                self._findings.add(Problem.MOVED_BY_HAND, message, name, at)
            self._move_manually(txn_id, to, name)
        if commit.entry.operation == "RESTORE":
            self._note_restore(commit.entry.restored_to, name)
            self.files.restored(commit.version, commit.entry.restored_to)
        elif commit.entry.own in (None, OwnCommit.BATCH_WRITE) and commit.removed_files:
            self._findings.add_all(self._rows.removed(commit.removed_files, name))
        if commit.entry.clone is not None:
            self._note_clone(commit.entry.clone, name)

    def _note_restore(self, target: int | None, name: CommitName) -> None:
        """Report which applications' rows a RESTORE removed or restored: it leaves ``txn`` actions unchanged."""
        self._undo_halves(target, name, with_offsets=False)
        for chain in self._chains.values():
            # A RESTORE by time does not record the version: then it may be the one with the most rows.
            end = chain.furthest_end if target is None else chain.end_at(target)
            if end is not None and chain.end is not None and end > chain.end:
                returned = f"the rows of [{chain.end}, {end})"
                restored = (
                    f"by time may have restored {returned}"
                    if target is None
                    else f"to version {target} restored {returned}"
                )
                message = f"{chain}: RESTORE {restored}, and left the stored offset at {chain.end}: the query "
                message += "reads these records again, and writes them twice"
                self._findings.add(Problem.ROWS_RETURNED, message, name, chain)
        if target is not None and target < self._first_version:
            message = f"RESTORE to version {target} removed the rows of commits that are no longer kept; the "
            message += "stored offsets are unchanged, so these records are not read again"
            self._findings.add(Problem.ROWS_RESTORED, message, name)
        self._findings.add_all(self._rows.reverted(target, name))

    def _note_clone(self, source: CloneSource, name: CommitName) -> None:
        """Continue from the offsets of the source of a CLONE, which copied its rows but not its offsets."""
        stored = self._look_at_source(source)
        if stored is None:
            message = f"its rows are those of {source}, which cannot be read: whether they have offsets is unknown"
            self._findings.add(Problem.ROWS_OF_UNKNOWN_ORIGIN, message, name)
            return
        for parsed, offset in sorted(stored.items()):
            txn_id = offset_txn_id(parsed.app_id, parsed.source, parsed.partition)
            if not self._in_scope(txn_id):
                continue
            chain = self._chains[txn_id] = self._chains.get(txn_id) or _chain_of(parsed)
            chain.jump(offset, f"the source of the clone ({source})")
            chain.cloned = str(source)
            message = f"{chain}: rows up to offset {offset} were cloned from {source}: audit that table for them"
            self._findings.add(Problem.CLONED, message, name, chain)

    def _known(self, txn_id: str) -> int | None:
        """Return the expected version of an identifier; None if no kept commit has it."""
        chain = self._chains.get(txn_id)
        return self._batch_ids.get(txn_id, chain.end if chain else None)

    def _move_manually(self, txn_id: str, to: int, name: CommitName) -> None:
        """Continue from a value that no batch wrote, so that only the commit that set it is reported."""
        parsed = parse_txn_id(txn_id)
        if isinstance(parsed, QueryTxn):
            self._batch_ids[txn_id] = to
        elif isinstance(parsed, OffsetTxn):
            chain = self._chains.get(txn_id) or _chain_of(parsed)
            chain.jump(to, f"version {name.version}")
            chain.remember(name.version)
            self._chains[txn_id] = chain

    # Checkpoint, end

    def _join_checkpoint(self, kept: StoredState) -> None:
        where = f"the checkpoint of version {kept.version}"
        self._written.update(kept.transactions)
        for txn_id, stored in sorted(kept.transactions.items()):
            parsed = parse_txn_id(txn_id)
            if parsed is None or not self._in_scope(txn_id) or _is_left(parsed, stored):
                continue
            chain = self._chains.get(txn_id)
            known = self._known(txn_id)
            if known is not None and known != stored:
                self._findings.add(
                    Problem.STORED_MISMATCH,
                    f"{describe(txn_id, None, chain)}: {where} holds {stored}, and the commits up to it end at {known}",
                    CommitName(kept.version),
                    chain,
                )
            elif known is None and isinstance(parsed, QueryTxn):
                self._batch_ids[txn_id] = stored
            elif known is None and isinstance(parsed, OffsetTxn):
                chain = self._chains[txn_id] = _chain_of(parsed)
                chain.jump(stored, where)

    def _check_stored(self, offsets: Mapping[str, int], batch_ids: Mapping[str, int], found: Findings) -> None:
        for txn_id, chain in sorted(self._chains.items()):
            chain.stored = offsets.get(txn_id)
            if chain.stored is None and chain.cloned:
                message = f"{chain}: rows up to offset {chain.end} were cloned from {chain.cloned}, without their "
                message += "offsets: a query would start from scratch. Copy them: sparkonce offsets copy"
                found.add(Problem.OFFSETS_NOT_COPIED, message, None, chain)
            elif chain.stored != chain.end:
                stored = "nothing is" if chain.stored is None else f"{chain.stored} is"
                message = f"{chain}: {stored} stored, and the chain ends at {chain.end}"
                found.add(Problem.STORED_MISMATCH, message, None, chain)
        for txn_id, last in sorted(self._batch_ids.items()):
            if batch_ids.get(txn_id) != last:
                message = f"{describe(txn_id)}: {batch_ids.get(txn_id)} is stored, and the last commit has {last}"
                found.add(Problem.STORED_MISMATCH, message, None)

    def _note_epochs(self) -> None:
        for chain in self._chains.values():
            # An epoch that is not that of the last range was left by a version of sparkonce without epochs.
            known = self._written.get(epoch_txn_id(chain.app_id, chain.source, chain.topic_partition))
            is_left_behind = chain.commits > 0 and chain.epoch != known
            chain.epoch = None if is_left_behind or known == UNKNOWN_EPOCH else known

    def _judge_halves(self, found: Findings) -> None:
        """Report writes without their other half; they are correct if the other half is stored elsewhere."""
        for half in self._halves.values():
            app_id = half.name.app_id or ""
            rows_first = self._tally.guarantees[app_id, Guarantee.AT_LEAST_ONCE] > 0
            if half.writes == Writes.ROWS and app_id in self._with_offsets:
                message = "its rows were committed and its offsets were not: with at-least-once, a crash between "
                message += (
                    "the two leaves this, and the rows are written again; an attempt that still runs looks the same"
                    if half.again_in is None
                    else f"the two leaves this. Version {half.again_in} wrote the same records again: duplicates"
                )
                found.add(Problem.ROWS_WITHOUT_OFFSETS, message, half.name)
            elif half.writes == Writes.OFFSETS and app_id in self._rows.versions and (half.follows or not rows_first):
                message = (
                    "its offsets were committed and its rows were not: with at-most-once, a crash between the two "
                    "leaves this, and the rows are lost; a batch without rows, and one that still runs, look the same"
                )
                found.add(Problem.OFFSETS_WITHOUT_ROWS, message, half.name)

    def _in_scope(self, txn_id: str) -> bool:
        parsed = parse_txn_id(txn_id)
        if isinstance(parsed, OffsetTxn):
            return self._scope.has_key(parsed.app_id, parsed.source)
        return isinstance(parsed, QueryTxn) and self._scope.has_app(parsed.app_id)


def describe(txn_id: str, record: BatchRecord | None = None, chain: Chain | None = None) -> str:
    """Describe a transaction identifier, with the topic's name where it is known."""
    parsed = parse_txn_id(txn_id)
    if isinstance(parsed, QueryTxn):
        return f"the last batch of query {parsed.query_id} (appId {parsed.app_id})"
    if not isinstance(parsed, OffsetTxn):
        return txn_id
    if chain is not None:
        return str(chain)
    names = {tp.topic_id: tp.topic for _, tp in record.ranges} if record else {}
    tp = parsed.partition
    named = TopicPartition(names.get(tp.topic_id, tp.topic), tp.topic_id, tp.partition)
    return str(_chain_of(OffsetTxn(parsed.app_id, parsed.source, named)))


def _chain_of(parsed: OffsetTxn) -> Chain:
    tp = parsed.partition
    return Chain(parsed.app_id, parsed.source, tp.topic, tp.topic_id, tp.partition)


def _unmoved_since(version: int | None, chains: Collection[Chain]) -> set[str]:
    """Return the applications with chains of which no batch after a version (None: before all) moved one."""
    since = -1 if version is None else version
    moved = {chain.app_id for chain in chains if chain.last_version is not None and chain.last_version > since}
    return {chain.app_id for chain in chains} - moved


def _is_left(parsed: object, stored: int) -> bool:
    """Whether this is the name of a topic whose offsets have moved to its id."""
    return isinstance(parsed, OffsetTxn) and stored == MOVED_TO_ID


def _starts(
    app_id: str | None, ranges: Mapping[PartitionKey, OffsetRange]
) -> list[tuple[str | None, PartitionKey, int]]:
    """Return where each partition of a batch begins; a retry after an attempt without offsets begins there too."""
    return [(app_id, key, extent.start) for key, extent in ranges.items()]


def _words(writes: Writes) -> str:
    return " and ".join(part.name.lower() for part in Writes if part in writes and part.name)
