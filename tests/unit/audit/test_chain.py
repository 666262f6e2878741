"""The chain logic: a good log is proven, and one bad commit in it is the one that is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.exactly_once.audit import Auditor, Report, Scope
from sparkonce.exactly_once.audit_findings import KEPT_FINDINGS, Problem
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.offset_store.administration import BatchMove, ChangeKind, CommitEntry, ManualChange, Move
from sparkonce.offset_store.commit_log import LogCommit, StoredState
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import BatchRecord, CommittedBatch, PartitionKey, Writes
from sparkonce.offset_store.txn_ids import OffsetTxn, QueryTxn, epoch_txn_id
from tests.cases import each_case
from tests.chance import examples
from tests.unit.audit.logs import (
    APP,
    BOTH,
    QUERY,
    TOPIC,
    TOPIC_ID,
    audit,
    committed,
    foreign,
    key,
    offset_id,
    partition,
    query_id,
    record,
    state_of,
)

FOREIGN = ["OPTIMIZE", "WRITE", "VACUUM END", "RESTORE", ""]


@st.composite
def good_logs(draw: st.DrawFn) -> list[LogCommit]:
    """Batches of two applications in the orders of all guarantees, with commits of others in between."""
    commits: list[LogCommit] = []
    ends: dict[tuple[str, PartitionKey], int] = {}
    batch_ids: dict[str, int] = {}
    for step in range(draw(st.integers(1, 12))):
        if draw(st.integers(0, 5)) == 0:
            commits.append(foreign(len(commits), draw(st.sampled_from(FOREIGN))))
            continue
        app = draw(st.sampled_from([APP, "other/app"]))
        keys = draw(st.lists(st.sampled_from([key(0), key(1), key(0, "second")]), unique=True))
        if app != APP:  # of another topic: records that two applications cover are an error
            keys = [(source, partition(tp.partition, "B" * 22, "payments")) for source, tp in keys]
        ranges = {}
        for each in keys:
            # A first batch past number 1 must begin at 0: the sink would refuse it otherwise.
            start = ends.get((app, each), draw(st.integers(0, 50)) if app in batch_ids else 0)
            ends[app, each] = start + draw(st.integers(1, 20))
            ranges[each] = (start, ends[app, each])
        batch_ids[app] = batch_ids.get(app, -1) + draw(st.integers(1, 3))
        batch = record(batch_ids[app], ranges, app_id=app, query_id=f"query-{len(app)}", attempt_id=f"attempt {step}")
        order = ORDERS[draw(st.sampled_from(list(Guarantee)))]
        for writes in order.before_tasks + order.after_tasks:
            commits.append(committed(len(commits), batch, writes))
    return commits


def batch_of(commit: LogCommit) -> CommittedBatch:
    assert commit.entry.batch is not None
    return commit.entry.batch


def moves_on(commits: list[LogCommit]) -> list[tuple[int, PartitionKey]]:
    """Commits of offsets, each with a partition that an earlier one moved too."""
    seen: set[tuple[str, PartitionKey]] = set()
    found = []
    for commit in commits:
        batch = commit.entry.batch
        if batch is None or Writes.OFFSETS not in batch.writes:
            continue
        for each in sorted(batch.record.moved):
            if (batch.record.app_id, each) in seen:
                found.append((commit.version, each))
            seen.add((batch.record.app_id, each))
    return found


@settings(max_examples=examples(200), deadline=None)
@given(good_logs(), st.randoms(use_true_random=False))
def test_a_good_log_is_proven_and_whatever_spoils_it_is_named(commits: list[LogCommit], some: random.Random) -> None:
    """All of it about each log: to make one takes most of the time."""
    report = audit(commits)
    assert report.proven
    assert report.first_bad is None
    for chain in report.chains:
        assert chain.stored == chain.end
        assert [(extent.start, extent.end) for extent in chain.covered()] == [(chain.start, chain.end)]
    assert report.tally.commits == len(commits)
    good_from_a_checkpoint_on(commits, some)
    for spoil in SPOILS:
        spoil(commits, some)


def good_from_a_checkpoint_on(commits: list[LogCommit], some: random.Random) -> None:
    first = some.randint(1, len(commits))
    at = some.randint(first - 1, len(commits) - 1)
    kept = StoredState(at, state_of(commits[: at + 1]))
    report = audit(commits[first:], kept)
    assert report.proven, report.first_bad
    assert ends_of(report) == ends_of(audit(commits))


def move_a_range(commits: list[LogCommit], some: random.Random) -> bool:
    """Make a gap, or an overlap."""
    candidates = moves_on(commits)
    if not candidates:
        return False
    version, moved = some.choice(candidates)
    batch = batch_of(commits[version])
    extent = batch.record.ranges[moved]
    spoiled = False
    for problem, by in ((Problem.GAP, 1), (Problem.OVERLAP, -1)):
        if extent.start + by >= 0 and extent.end > extent.start + by:
            changed = {**batch.record.ranges, moved: OffsetRange(extent.start + by, extent.end)}
            report = audit(with_batch(commits, version, replace(batch.record, ranges=changed)))
            assert_named(report, version, problem)
            assert report.counts[problem] == 1
            spoiled = True
    return spoiled


def change_a_txn_action(commits: list[LogCommit], some: random.Random) -> bool:
    """Make it other than its record says."""
    candidates = [commit for commit in commits if commit.transactions]
    if not candidates:
        return False
    commit = some.choice(candidates)
    txn_id = some.choice(sorted(commit.transactions))
    for change in (None, -1, 1):
        transactions = dict(commit.transactions)
        if change is None:
            del transactions[txn_id]
        else:
            transactions[txn_id] += change
        changed = list(commits)
        changed[commit.version] = replace(commit, transactions=transactions)
        assert_named(audit(changed), commit.version, Problem.TXN_MISMATCH)
    return True


def use_a_batch_id_again(commits: list[LogCommit], some: random.Random) -> bool:
    by_query: dict[str, list[LogCommit]] = {}
    for commit in commits:
        if commit.transactions:
            by_query.setdefault(batch_of(commit).record.query_id, []).append(commit)
    pairs = [(query[at - 1], query[at]) for query in by_query.values() for at in range(1, len(query))]
    if not pairs:
        return False
    earlier, later = some.choice(pairs)
    back = some.randint(0, 2)
    wrong = replace(batch_of(later).record, batch_id=max(0, batch_of(earlier).record.batch_id - back))
    assert_named(audit(with_batch(commits, later.version, wrong)), later.version, Problem.BATCH_ID)
    return True


def land_twice(commits: list[LogCommit], some: random.Random) -> bool:
    landed = [commit for commit in commits if commit.entry.batch is not None and commit.entry.batch.writes == BOTH]
    if not landed:
        return False
    again = committed(len(commits), batch_of(some.choice(landed)).record)
    assert_named(audit([*commits, again]), again.version, Problem.ATTEMPT_TWICE)
    return True


def move_an_offset_without_a_record(commits: list[LogCommit], some: random.Random) -> bool:
    state = {txn_id: at for txn_id, at in state_of(commits).items() if "/offset/" in txn_id}
    if not state:
        return False
    txn_id = some.choice(sorted(state))
    to = some.choice([each for each in (0, some.randint(0, 1000), state[txn_id] + 1) if each != state[txn_id]])
    report = audit([*commits, foreign(len(commits), "WRITE", {txn_id: to})])
    assert_named(report, len(commits), Problem.MOVED_BY_HAND)
    assert report.counts[Problem.STORED_MISMATCH] == 0
    return True


Spoil = Callable[[list[LogCommit], random.Random], bool]
SPOILS: tuple[Spoil, ...] = (
    move_a_range,
    change_a_txn_action,
    use_a_batch_id_again,
    land_twice,
    move_an_offset_without_a_record,
)
"""Each checks that what it has spoiled is named; False for a log that it cannot spoil."""


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_log_can_be_spoiled_in_each_way(spoil: Spoil) -> None:
    ends = ((0, 10), (10, 20), (20, 30))
    assert spoil([committed(at, record(at, {key(0): extent})) for at, extent in enumerate(ends)], random.Random(1))


def ends_of(report: Report) -> dict[tuple[str, str, int], int | None]:
    return {(chain.app_id, chain.source, chain.partition): chain.end for chain in report.chains}


def with_batch(commits: list[LogCommit], version: int, wrong: BatchRecord) -> list[LogCommit]:
    """Put another record in the place of one, in every commit of its attempt."""
    attempt_id = batch_of(commits[version]).record.attempt_id
    return [
        committed(commit.version, wrong, commit.entry.batch.writes)
        if commit.entry.batch is not None and commit.entry.batch.record.attempt_id == attempt_id
        else commit
        for commit in commits
    ]


def assert_named(report: Report, version: int, problem: Problem) -> None:
    assert not report.proven
    assert report.first_bad is not None
    assert report.first_bad.commit is not None
    assert report.first_bad.commit.version == version
    at_version = {each.problem for each in report.findings if each.commit and each.commit.version == version}
    assert problem in at_version


# One thing at a time


def one_chain(*ranges: tuple[int, int]) -> list[LogCommit]:
    return [committed(at, record(at, {key(0): extent})) for at, extent in enumerate(ranges)]


def test_a_message_says_which_records_are_in_neither_commit() -> None:
    report = audit(one_chain((0, 10), (15, 20)))
    assert report.first_bad is not None
    assert report.first_bad.message == (
        f"{TOPIC}-0 (appId app, source default): gap [10, 15): version 0 ended at 10, this begins at 15"
    )
    assert report.counts[Problem.GAP] == 1
    assert report.chains[0].ranges == [OffsetRange(0, 10), OffsetRange(15, 20)]


def test_an_overlap_is_as_long_as_both_ranges_have_in_common() -> None:
    report = audit(one_chain((0, 10), (2, 5), (5, 30)))
    assert report.first_bad is not None
    assert "overlap [2, 5)" in report.first_bad.message
    assert report.counts[Problem.OVERLAP] == 1
    assert list(report.chains[0].covered()) == [OffsetRange(0, 30)]


@pytest.mark.parametrize("cut_epoch", [3, None])
@pytest.mark.parametrize("before", [3, 7])
def test_records_of_a_cut_log_that_another_query_wrote_are_an_overlap(before: int, cut_epoch: int | None) -> None:
    """The offset before a cut is as high as it must be; its epoch shows of which log it is."""
    extents = [OffsetRange(0, 30, before), OffsetRange(20, 30, 7, 30, cut_epoch=cut_epoch)]
    commits = []
    for number, extent in enumerate(extents):
        made = replace(record(number, {}), ranges={key(0): extent})
        epoch = {epoch_txn_id(APP, *key(0)): extent.epoch}
        commits.append(replace(commit := committed(number, made), transactions={**commit.transactions, **epoch}))
    found = [each.problem for each in audit(commits).findings]
    assert found == [Problem.LOG_REPLACED if before == 3 else Problem.OVERLAP]


def test_a_checkpoint_that_disagrees_with_the_commits_before_it_is_named() -> None:
    commits = one_chain((0, 10), (10, 20), (20, 30))
    kept = StoredState(1, {**state_of(commits[:2]), offset_id(0): 19})
    report = audit(commits[1:], kept)
    assert report.first_bad is not None
    assert report.first_bad.problem is Problem.STORED_MISMATCH
    assert "the checkpoint of version 1 holds 19, and the commits up to it end at 20" in report.first_bad.message


def test_the_first_range_after_a_checkpoint_must_join_what_it_holds() -> None:
    commits = one_chain((0, 10), (11, 20))
    report = audit(commits[1:], StoredState(0, state_of(commits[:1])))
    assert_named(report, 1, Problem.GAP)
    assert report.first_bad is not None
    assert "the checkpoint of version 0 ended at 10, this begins at 11" in report.first_bad.message


def test_a_partition_that_no_kept_commit_moved_is_known_by_its_checkpoint() -> None:
    report = audit([foreign(8, "WRITE")], StoredState(7, {offset_id(0): 12, query_id(): 3}))
    assert report.proven
    (chain,) = report.chains
    assert (chain.start, chain.end, chain.stored, chain.topic, chain.topic_id) == (None, 12, 12, "", TOPIC_ID)


def test_what_is_stored_in_the_end_is_compared_with_the_chain() -> None:
    commits = one_chain((0, 10))
    auditor = Auditor()
    auditor.add(commits[0])
    report = auditor.finish(lambda txn_ids: {each: 9 for each in txn_ids if "offset" in each})
    messages = [finding.message for finding in report.findings]
    assert messages == [
        f"{TOPIC}-0 (appId app, source default): 9 is stored, and the chain ends at 10",
        f"the last batch of query {QUERY} (appId app): None is stored, and the last commit has 0",
    ]
    assert report.first_bad is not None
    assert report.first_bad.commit is None


def test_rows_whose_offsets_did_not_land_are_a_warning_of_at_least_once() -> None:
    whole, lost = record(0, {key(0): (0, 5)}), record(1, {key(0): (5, 9)})
    again = record(1, {key(0): (5, 9)})
    commits = [
        committed(0, whole, Writes.ROWS),
        committed(1, whole, Writes.OFFSETS),
        committed(2, lost, Writes.ROWS),
        committed(3, again, Writes.ROWS),
        committed(4, again, Writes.OFFSETS),
        committed(5, record(2, {key(0): (9, 11)}), Writes.OFFSETS),
    ]
    report = audit(commits)
    assert report.proven
    (finding,) = report.findings
    assert finding.problem is Problem.ROWS_WITHOUT_OFFSETS
    assert finding.commit is not None
    assert finding.commit.version == 2
    assert "at-least-once" in finding.message
    assert "Version 3 wrote the same records again: duplicates" in finding.message
    assert report.tally.guarantees == {(APP, Guarantee.AT_LEAST_ONCE): 2}


def rows_then_offsets(version: int, batch: BatchRecord) -> list[LogCommit]:
    return [committed(version, batch, Writes.ROWS), committed(version + 1, batch, Writes.OFFSETS)]


def lost_halves(commits: list[LogCommit]) -> dict[int | None, str]:
    """The messages of rows whose offsets are lost, by version."""
    report = audit(commits)
    assert {each.problem for each in report.findings if each.problem.is_error} <= {Problem.COVERED_TWICE}
    found = (each for each in report.findings if each.problem is Problem.ROWS_WITHOUT_OFFSETS)
    return {each.commit.version if each.commit else None: each.message for each in found}


def test_rows_of_lost_offsets_are_there_as_often_as_attempts_wrote_them() -> None:
    """The second attempt is lost too; the third begins where they did but reads less, as after a new checkpoint."""
    commits = rows_then_offsets(0, record(0, {key(0): (0, 5), key(1): (0, 2)}))
    commits += [committed(at, record(1, {key(0): (5, 9), key(1): (2, 4)}), Writes.ROWS) for at in (2, 3)]
    commits += rows_then_offsets(4, record(0, {key(0): (5, 7)}, query_id="another"))
    commits += rows_then_offsets(6, record(1, {key(0): (7, 9)}, query_id="another"))
    messages = lost_halves(commits)
    assert "Version 3 wrote the same records again" in messages[2]
    assert "Version 4 wrote the same records again" in messages[3]
    assert len(messages) == 2


def test_rows_of_lost_offsets_that_did_not_come_again_are_not_said_to_be_there_twice() -> None:
    commits = rows_then_offsets(0, record(0, {key(0): (0, 5)}))
    commits.append(committed(2, record(1, {key(0): (5, 9)}), Writes.ROWS))
    theirs = record(0, {key(0): (5, 9)}, app_id="other", query_id="theirs")
    commits += rows_then_offsets(3, theirs)
    assert "duplicates" not in lost_halves(commits)[2]
    restore = LogCommit(CommitEntry(5, 5, "RESTORE", restored_to=1), {})
    commits += [restore, *rows_then_offsets(6, record(1, {key(0): (5, 9)}))]
    assert 2 not in lost_halves(commits), "the restore took them out"


def test_rows_that_came_again_and_were_restored_away_are_not_said_to_be_there_twice() -> None:
    commits = rows_then_offsets(0, record(0, {key(0): (0, 5)}))
    commits += [committed(at, record(1, {key(0): (5, 9)}), Writes.ROWS) for at in (2, 3)]
    assert "duplicates" in lost_halves(commits)[2]
    commits.append(LogCommit(CommitEntry(4, 4, "RESTORE", restored_to=2), {}))
    assert "duplicates" not in lost_halves(commits)[2]


def test_offsets_whose_rows_did_not_land_are_a_warning_of_at_most_once() -> None:
    whole, lost = record(0, {key(0): (0, 5)}), record(1, {key(0): (5, 9)})
    commits = [
        committed(0, whole, Writes.OFFSETS),
        committed(1, whole, Writes.ROWS),
        committed(2, lost, Writes.OFFSETS),
    ]
    report = audit(commits)
    assert report.proven
    (finding,) = report.findings
    assert finding.problem is Problem.OFFSETS_WITHOUT_ROWS
    assert finding.commit is not None
    assert finding.commit.version == 2
    assert "at-most-once" in finding.message


def test_offsets_alone_are_as_they_should_be_where_no_rows_are_kept() -> None:
    commits = [committed(at, record(at, {key(0): (at, at + 1)}), Writes.OFFSETS) for at in range(3)]
    report = audit(commits)
    assert report.proven
    assert not report.findings


def test_rows_alone_make_no_chain() -> None:
    report = audit([committed(0, record(0, {key(0): (0, 1)}), Writes.ROWS)])
    assert not report.chains
    assert not report.findings


def test_the_two_commits_of_an_attempt_must_cover_the_same_offsets() -> None:
    batch = record(0, {key(0): (0, 5)})
    other = replace(batch, ranges={key(0): OffsetRange(0, 6)})
    report = audit([committed(0, batch, Writes.ROWS), committed(1, other, Writes.OFFSETS)])
    assert_named(report, 1, Problem.HALVES_DIFFER)
    elsewhere = replace(batch, ranges={key(1): OffsetRange(7, 9)})
    restore = LogCommit(CommitEntry(2, 2, "RESTORE", restored_to=0), {})
    report = audit([committed(0, batch, Writes.ROWS), committed(1, elsewhere, Writes.OFFSETS), restore])
    assert_named(report, 1, Problem.HALVES_DIFFER)


def test_delta_restore_is_told_with_the_rows_that_it_took_back() -> None:
    restore = LogCommit(CommitEntry(2, 2, "RESTORE", restored_to=0), {})
    report = audit([*one_chain((0, 10), (10, 20)), restore])
    assert report.proven
    (finding,) = report.findings
    assert finding.problem is Problem.ROWS_RESTORED
    assert "RESTORE to version 0 removed the rows that appId app wrote after it (the last in version 1)" in (
        finding.message
    )


def test_a_restore_by_time_may_have_brought_back_rows_past_the_stored_offset() -> None:
    """Its commit does not name the version."""
    taken_back = change_to(2, ChangeKind.RESTORE, 20, 10)
    report = audit([*one_chain((0, 10), (10, 20)), taken_back, restored(3, "Delta by time", to=1)])
    assert_named(report, 3, Problem.ROWS_RETURNED)
    assert audit([*one_chain((0, 10), (10, 20)), restored(2, "Delta by time", to=1)]).proven


def test_restore_to_a_version_after_the_last_rows_is_passed_over() -> None:
    restore = LogCommit(CommitEntry(3, 3, "RESTORE", restored_to=1), {})
    report = audit([*one_chain((0, 10), (10, 20)), foreign(2, "WRITE"), restore])
    assert not report.findings
    assert report.tally.foreign == {"WRITE": 1, "RESTORE": 1}


def change_to(
    version: int, kind: ChangeKind, before: int, after: int, batches: tuple[BatchMove, ...] = ()
) -> LogCommit:
    moves = (Move(OffsetTxn(APP, "default", partition(0)), before, after),)
    change = ManualChange(kind, moves, batches, 0 if kind is not ChangeKind.SET else None)
    return LogCommit(CommitEntry(version, version, "WRITE", change=change), change.transactions())


def test_a_manual_change_on_record_is_told_and_the_chain_goes_on_from_it() -> None:
    commits = [
        *one_chain((0, 10), (10, 20)),
        change_to(2, ChangeKind.SET, 20, 30),
        committed(3, record(2, {key(0): (30, 40)})),
    ]
    report = audit(commits)
    assert report.proven
    (finding,) = report.findings
    assert finding.problem is Problem.MOVED_ON_PURPOSE
    assert "sparkonce moved the stored offset from 20 to 30 (set)" in finding.message
    assert report.tally.changes == 1


def test_a_restore_of_rows_and_offsets_undoes_what_was_covered() -> None:
    batches = (BatchMove(QueryTxn(APP, QUERY), 1, 0),)
    commits = [
        *one_chain((0, 10), (10, 20)),
        change_to(2, ChangeKind.RESTORE, 20, 10, batches),
        committed(3, record(1, {key(0): (10, 15)})),
    ]
    report = audit(commits)
    assert report.proven, report.first_bad
    assert list(report.chains[0].covered()) == [OffsetRange(0, 15)]


def test_a_manual_change_that_stores_something_else_than_it_says_is_named() -> None:
    good = change_to(1, ChangeKind.SET, 10, 30)
    wrong = replace(good, transactions={offset_id(0): 31})
    assert_named(audit([*one_chain((0, 10)), wrong]), 1, Problem.TXN_MISMATCH)
    assert_named(audit([*one_chain((0, 10)), replace(good, transactions={})]), 1, Problem.TXN_MISMATCH)


def test_a_record_that_cannot_be_read_is_named() -> None:
    strange = LogCommit(CommitEntry(1, 1, "WRITE"), {offset_id(0): 12}, unreadable={"format": 9})
    report = audit([*one_chain((0, 10)), strange])
    assert_named(report, 1, Problem.UNREADABLE)
    assert report.counts[Problem.MOVED_BY_HAND] == 0


@each_case(
    ("scope", "chains", "proven"),
    [
        (Scope(), 3, False),
        (Scope("good"), 1, True),
        (Scope("good", "left"), 0, True),
        (Scope("bad"), 2, False),
        (Scope("bad", "left"), 1, True),
        (Scope("bad", "right"), 1, False),
    ],
)
def test_only_what_was_asked_for_is_judged(scope: Scope, chains: int, proven: bool) -> None:
    commits = [
        committed(0, record(0, {key(0): (0, 5)}, app_id="good", query_id="a")),
        committed(1, record(0, {key(0, "left"): (0, 5), key(0, "right"): (0, 5)}, app_id="bad", query_id="b")),
        committed(2, record(1, {key(0, "left"): (5, 6), key(0, "right"): (7, 9)}, app_id="bad", query_id="b")),
    ]
    report = audit(commits, scope=scope)
    assert len(report.chains) == chains
    assert report.proven is proven


def test_a_thousand_problems_are_counted_and_the_first_few_told() -> None:
    report = audit(one_chain(*((at * 10, at * 10 + 5) for at in range(1000))))
    assert report.counts[Problem.GAP] == 999
    assert len(report.findings) == KEPT_FINDINGS
    assert report.first_bad is not None
    assert report.first_bad.commit is not None
    assert report.first_bad.commit.version == 1


@pytest.mark.parametrize("by", ["sparkonce", "Delta", "Delta, to a time"])
def test_offsets_stored_after_a_restore_took_their_rows_out_are_a_loss(by: str) -> None:
    batch = record(1, {key(0): (5, 9)})
    commits = rows_then_offsets(0, record(0, {key(0): (0, 5)}))
    commits += [committed(2, batch, Writes.ROWS), restored(3, by, to=1), committed(4, batch, Writes.OFFSETS)]
    assert_named(audit(commits), 4, Problem.ROWS_TAKEN_OUT)
    commits[3] = restored(3, by, to=2)
    assert audit(commits).proven is (by != "Delta, to a time"), "this one leaves the rows, or may"


def test_rows_committed_after_a_restore_took_their_offsets_back_are_there_twice() -> None:
    whole, batch, again = (
        record(*each) for each in ((0, {key(0): (0, 5)}), (1, {key(0): (5, 9)}), (1, {key(0): (5, 9)}))
    )
    commits = [
        committed(0, whole, Writes.OFFSETS),
        committed(1, whole, Writes.ROWS),
        committed(2, batch, Writes.OFFSETS),
    ]
    batches = (BatchMove(QueryTxn(APP, QUERY), 1, 0),)
    taken_back = [change_to(3, ChangeKind.RESTORE, 9, 5, batches), committed(4, batch, Writes.ROWS)]
    rest = [committed(5, again, Writes.OFFSETS), committed(6, again, Writes.ROWS)]
    assert_named(audit([*commits, *taken_back, *rest]), 4, Problem.OFFSETS_TAKEN_BACK)
    alone = audit([*commits, taken_back[0]])
    assert alone.proven
    assert not alone.counts[Problem.OFFSETS_WITHOUT_ROWS], "they are not in force"
    deltas = audit([*commits, restored(3, "Delta", to=1), committed(4, batch, Writes.ROWS)])
    assert deltas.proven, "it leaves the offsets in force"


def restored(version: int, by: str, to: int) -> LogCommit:
    if by != "sparkonce":
        return LogCommit(CommitEntry(version, version, "RESTORE", restored_to=to if by == "Delta" else None), {})
    change = ManualChange(ChangeKind.RESTORE, (), (), to)
    return LogCommit(CommitEntry(version, version, "RESTORE", change=change), {})
