"""Our verdict on whether a commit may follow others, beside that of delta-spark's conflict checker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.chance import examples, new_seed
from tests.commit_pairs import TABLES, WINNERS, Pair, conflict_of, pairs, recorded
from tests.lab.log.conflict_checker import ConflictChecker

PAIRS = 2100

_AGAIN = "the commit is decided again, from the table as it is now"
STRICTER = {
    ("TableChanged", "same-protocol"): f"a protocol action that changes nothing, which few write: {_AGAIN}",
    ("TableChanged", "same-metadata"): f"a metadata action that changes nothing, which few write: {_AGAIN}",
    ("TableChanged", "isolation"): "as same-metadata, in a table that has the property",
    ("TableChanged", "append-only"): "as same-metadata, in a table that has the property",
    ("TableChanged", "support-checkpoints"): f"a feature was added; whether we know it is checked first: {_AGAIN}",
    ("TableChanged", "support-vacuum-check"): "as support-checkpoints",
    ("TableChanged", "support-row-tracking"): "as support-checkpoints; new files then need row ids",
    ("TableChanged", "enable-row-tracking"): f"a property that delta-spark takes over: {_AGAIN}",
    ("TableChanged", "enable-vectors"): "as enable-row-tracking",
    ("TableChanged", "enable-mapping"): "as enable-row-tracking; delta-spark takes over the columns' ids",
    ("TableRestored", "restore"): "rows that the decision was based on may be gone",
    ("TableRestored", "restore-of-nothing"): "as restore: what it took out is not looked at",
    ("DomainChanged", "cluster-by"): "our files need statistics of the new columns",
    **{
        ("FilesChanged", name): "WriteSerializable lets a replace pass by rows that it does not replace; ours is last"
        for name in ("append", "append-our-id", "append-read-id", "append-other-id", "append-untimed")
    },
    ("FilesChanged", "backfill"): "files get row ids, which delta-spark copies into the removes: we read them again",
    ("FilesChanged", "unbackfill"): "as backfill",
}
"""Where ours refuses and delta-spark does not: the conflict, which commit has it, and why it stays."""


@pytest.fixture(scope="module")
def checker(delta_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ConflictChecker:
    return ConflictChecker(delta_spark, tmp_path_factory.mktemp("tables"))


@pytest.mark.timeout(900)
def test_ours_is_never_laxer(checker: ConflictChecker) -> None:
    """A pair that fails can be judged again by `checker.answer(Pair.parse(…))`."""
    found = Counter[str]()
    laxer, unlisted = [], []
    for pair in pairs(new_seed(), examples(PAIRS)):
        theirs, ours = checker.answer(pair), conflict_of(pair)
        if ours is None:
            found["laxer" if theirs else "both follow"] += 1
            laxer += [f"{pair}: {theirs}"] if theirs else []
        else:
            found["both refuse" if theirs else "stricter"] += 1
            if theirs is None and (type(ours).__name__, pair.winners[ours.version - 1]) not in STRICTER:
                unlisted.append(f"{pair}: {ours}")
    print("RESULT", *(f"{name.replace(' ', '_')}={number}" for name, number in sorted(found.items())))
    assert not laxer
    assert not unlisted
    assert min(found["both follow"], found["both refuse"]) > examples(PAIRS) // 10


def test_every_kind_of_commit_is_generated() -> None:
    drawn = pairs(1, PAIRS)
    assert {pair.table for pair in drawn} == TABLES.keys()
    assert {name for pair in drawn for name in pair.winners} == WINNERS.keys()


def test_the_recorded_answers_are_delta_sparks(checker: ConflictChecker) -> None:
    """`make test` has these instead of a JVM."""
    wrong = [f"{pair}: {theirs}" for pair, theirs, _ in recorded() if checker.answer(pair) != theirs]
    assert not wrong


def test_whole_commits_give_the_same_answers(checker: ConflictChecker, tmp_path: Path) -> None:
    chosen = [Pair.parse(text) for text in _WHOLE]
    for number, pair in enumerate(chosen):
        assert checker.whole_commit(pair, tmp_path / str(number)) == checker.answer(pair), str(pair)


_WHOLE = (
    "plain\tappend\tupdate append",
    "partitioned\tappend-reads\tdelete append-read-id",
    "row-tracking\tappend\tappend append-unmarked",
    "row-tracking\treplace\tbackfill",
    "timed\tappend\tappend",
    "write-serializable\treplace\tappend",
    "serializable\treplace\tappend",
    "plain\treplace\tdelete",
    "supported\tappend\tenable-row-tracking",
    "supported\tdomain\tour-domain",
    "plain\tadd-columns\tadd-columns",
    "plain\tappend-with-columns\tappend",
    "plain\tids\trestore",
    "all\tappend\toptimize support-checkpoints",
)
