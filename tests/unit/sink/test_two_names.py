"""Two names for one table: what an application finds that has nothing there yet."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.table import ResultTable
from sparkonce.connectors.delta_sink.target import DeltaTarget
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import FencedError, OffsetMismatchError, StatefulRestartError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.administration import CommitEntry
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, PartitionKey, Writes
from sparkonce.offset_store.txn_ids import FIRST_TXN_ID
from sparkonce.options import OptionError
from tests.unit.sink.query_by_hand import SCHEMA, TP, Query
from tests.unit.sink.two_names import COVERED, LATE, WRITTEN, cases, deliver, outcome

SAMPLE = 180
"""Of all cases, always the same ones; the rest are in `make lab`."""


def test_what_a_first_batch_finds(tmp_path: Path) -> None:
    chosen = Random(41).sample(list(cases()), SAMPLE)
    found = {case: outcome(case, tmp_path / str(number)) for number, case in enumerate(chosen)}
    assert {case: what for case, what in found.items() if what != case.expected} == {}
    assert {COVERED, LATE, WRITTEN} <= set(found.values())


@pytest.mark.lab
def test_what_every_first_batch_finds(tmp_path: Path) -> None:
    found = {case: outcome(case, tmp_path / str(number)) for number, case in enumerate(cases())}
    assert {case: what for case, what in found.items() if what != case.expected} == {}


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_of_two_names_that_begin_at_once_one_is_refused(tmp_path: Path, guarantee: Guarantee) -> None:
    """Both find an empty table. Only with at-most-once is the first of the two commits before the tasks."""
    one, two = (Query(tmp_path, name, guarantee.value, appId=name) for name in ("one", "two"))
    one.log(0, 10)
    two.log(0, 10)
    begun = one.tasks()

    def write_both() -> None:
        theirs = two.tasks()
        one.commit(0, begun)
        two.commit(0, theirs)

    with pytest.raises(OffsetMismatchError, match="another appId, 'one', up to offset 10"):
        write_both()
    assert DeltaTable(one.table).transaction_version("sparkonce/two/query/two") is None


def _batch(app_id: str, query_id: str, batch_id: int, start: int, end: int, *, stateful: bool = False) -> Batch:
    extent, number = OffsetRange(start, end), f"{query_id} {batch_id}"
    record = BatchRecord(app_id, query_id, batch_id, number, {("kafka", TP): extent}, Fingerprint.of([start, end], 0))
    read_before = {("kafka", TP): 0} if batch_id and start else {}
    return Batch(record, stateful, is_one_of_all=True, read_before=read_before)


def _write(table: Path, batch: Batch, *advised: str) -> None:
    """Write a batch into a table, with the options that a message gives, such as ``coveredTwice=true``."""
    options = {"path": str(table), "appId": batch.record.app_id, "checkpointLocation": "/nowhere"}
    target = DeltaTarget(SinkOptions.read(options | dict(each.split("=") for each in advised)), SCHEMA)
    target.finish(batch, target.begin(batch), [])


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("batch_id", [0, 3])
def test_another_name_works_with_the_options_that_the_error_gives(
    tmp_path: Path, batch_id: int, *, stateful: bool
) -> None:
    """From batch 0 the one, and past it the other, too, whether the checkpoint has read before what is there or not."""
    _write(tmp_path, _batch("old", "q", 0, 0, 30))
    with pytest.raises((OffsetMismatchError, StatefulRestartError)) as found:
        _write(tmp_path, _batch("old", "q2", batch_id, 20, 45, stateful=stateful))
    (advised,) = re.findall(r"appId and (\w+=true(?: and \w+=true)*) on the sink", str(found.value))
    assert ("beginsLate=true" in advised) is (batch_id > 0)
    _write(tmp_path, _batch("new", "q2", batch_id, 20, 45, stateful=stateful), *advised.split(" and "))
    assert DeltaTable(tmp_path).transaction_version("sparkonce/new/query/q2") == batch_id


def test_where_each_table_is_of_one_name_a_second_one_does_not_begin(tmp_path: Path) -> None:
    """Not even where the first one ends, which without that is a hand-over; one of somebody else's does not count."""
    apart = "notBeside=app[.].*"
    _write(tmp_path, _batch("app.a", "q", 0, 0, 30), apart)
    _write(tmp_path, _batch("else", "q2", 0, 30, 35))
    with pytest.raises(OffsetMismatchError, match=r"which has rows of appId 'app.a': those of another topic or entry"):
        _write(tmp_path, _batch("app.b", "q3", 0, 35, 40), apart)
    _write(tmp_path, _batch("app.b", "q3", 0, 35, 40), apart, "coveredTwice=true")
    first = _batch("app.c", "q4", 0, 0, 5)
    other = {(source, tp._replace(topic_id="another")): at for (source, tp), at in first.record.ranges.items()}
    with pytest.raises(OffsetMismatchError, match="those of another topic or entry"):
        _write(tmp_path, replace(first, record=replace(first.record, ranges=other)), apart, "coveredTwice=true")
    for app_id, query in (("app.a", "q"), ("app.b", "q3")):
        _write(tmp_path, _batch(app_id, query, 1, 30 if query == "q" else 40, 50), apart)  # both are there already


def test_a_source_that_is_new_to_a_query_that_has_written_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """As when Spark's own source was replaced under the same checkpoint: its offsets are not in the table."""
    record = BatchRecord("app", "q", 0, "0", {}, Fingerprint.of([0], 0))
    options = {"path": str(tmp_path), "appId": "app", "checkpointLocation": "/nowhere"}
    target = DeltaTarget(SinkOptions.read(options), SCHEMA)
    foreign = Batch(record, False, foreign=True, is_one_of_all=True)
    target.finish(foreign, target.begin(foreign), [])
    _write(tmp_path, _batch("app", "q", 1, 4, 9))
    assert DeltaTable(tmp_path).transaction_version("sparkonce/app/query/q") == 1


def test_names_to_be_apart_from_are_a_regular_expression(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"notBeside.*it is no regular expression of Python"):
        _write(tmp_path, _batch("app.a", "q", 0, 0, 30), "notBeside=(")


def test_rows_that_another_name_may_have_are_not_said_to_be_missing(tmp_path: Path) -> None:
    _write(tmp_path, _batch("old", "q", 0, 0, 30))
    with pytest.raises(OffsetMismatchError, match=r"\[0, 20\) .* and nothing shows that their rows are there"):
        _write(tmp_path, _batch("new", "q2", 3, 20, 45), "coveredTwice=true")


def test_two_drivers_are_given_the_options_of_a_second_name(tmp_path: Path) -> None:
    one = _batch("app", "q", 0, 0, 20)
    target = DeltaTarget(
        SinkOptions.read({"path": str(tmp_path), "appId": "app", "checkpointLocation": "/nowhere"}), SCHEMA
    )
    plan = target.begin(one)
    _write(tmp_path, _batch("app", "q2", 0, 0, 30))
    with pytest.raises(FencedError, match=r"give each its own appId and coveredTwice=true on the sink$"):
        target.finish(one, plan, [])


def test_two_first_commits_conflict(tmp_path: Path) -> None:
    """Whatever they read: the second of them has not seen the first."""
    snapshots = []
    for name in ("one", "two"):
        given = {"path": str(tmp_path / "t"), "appId": name, "checkpointLocation": "/nowhere"}
        snapshots.append(ResultTable(SinkOptions.read(given), SCHEMA, meant=frozenset()).snapshot())
    for name, snapshot in zip(("one", "two"), snapshots, strict=True):
        record = BatchRecord(name, name, 0, name, {("kafka", TP): OffsetRange(0, 10)})
        commit: Commit[object] = Commit(record, Writes.ROWS | Writes.OFFSETS, is_first=True)
        if name == "one":
            snapshot.commit(commit)
        else:
            with pytest.raises(CommitConflictError):
                snapshot.commit(commit)


def place(topic: str, partition: int = 0, source: str = "kafka") -> PartitionKey:
    return source, TopicPartition(topic, topic, partition)


def application(
    folder: Path, app_id: str, guarantee: Guarantee = Guarantee.EXACTLY_ONCE, *, covered_twice: bool = False
) -> SinkOptions:
    return SinkOptions(
        table=Location.parse(str(folder / "t")),
        app_id=app_id,
        checkpoint="/nowhere",
        guarantee=guarantee,
        covered_twice=covered_twice,
    )


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_of_two_names_that_add_a_topic_at_once_one_is_refused(tmp_path: Path, guarantee: Guarantee) -> None:
    """Both are in the table, and neither has the topic."""
    one, two = (application(tmp_path, name, guarantee) for name in ("one", "two"))
    deliver(one, "one", 0, {place("of one"): (0, 3)})
    deliver(two, "two", 0, {place("of two"): (0, 3)})
    added = {place("added"): (0, 5)}
    with pytest.raises(OffsetMismatchError, match=r"another appId, '(one|two)', up to offset 5"):
        deliver(one, "one", 1, added, between=lambda: deliver(two, "two", 1, added))


def test_queries_that_divide_a_topic_go_on_with_new_partitions_of_it(tmp_path: Path) -> None:
    """The option may be left out once it was said; whoever comes first writes the partition that was added."""
    one, two = application(tmp_path, "one"), application(tmp_path, "two")
    meant = application(tmp_path, "two", covered_twice=True)
    deliver(one, "one", 0, {place("topic"): (0, 5)})
    deliver(meant, "two", 0, {place("topic"): (0, 5)})
    deliver(one, "one", 1, {place("topic", 1): (0, 5)})
    deliver(two, "two", 1, {place("topic", 1): (0, 5), place("topic", 2): (0, 5)})
    deliver(one, "one", 2, {place("topic", 2): (0, 5)})
    deliver(application(tmp_path, "three"), "three", 0, {place("other"): (0, 5)})
    with pytest.raises(OffsetMismatchError, match="another appId, 'three', up to offset 5"):
        deliver(two, "two", 2, {place("other"): (0, 5)})
    with pytest.raises(OffsetMismatchError, match="another appId, 'two', up to offset 5"):
        deliver(application(tmp_path, "three"), "three", 1, {place("topic"): (0, 5)})


def test_a_source_under_a_new_name_is_refused_and_a_second_one_of_the_query_is_not(tmp_path: Path) -> None:
    one = application(tmp_path, "one")
    deliver(one, "q", 0, {place("topic"): (0, 5)})
    with pytest.raises(OffsetMismatchError, match=r"another source of this appId, 'kafka', .*source=kafka, with off"):
        deliver(one, "again", 0, {place("topic", source="renamed"): (0, 5)})
    deliver(one, "q", 1, {place("topic"): (5, 5), place("topic", source="second"): (0, 5)})


def test_the_first_commit_of_an_added_partition_conflicts_with_other_first_ones(tmp_path: Path) -> None:
    one, written = application(tmp_path, "one"), []
    for batch_id, spans in enumerate([{place("a"): (0, 5)}, {place("a"): (5, 9)}, {place("b"): (0, 5)}]):
        deliver(one, "q", batch_id, spans)
        written.append(DeltaTable(tmp_path / "t").transaction_version(FIRST_TXN_ID))
    assert written[0] == written[1] != written[2]


def test_a_restore_is_said_once_and_only_if_it_removed_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(tmp_path)
    for batch_id in range(3):
        query.write(batch_id, [{"v": batch_id}])
    DeltaTable(query.table).optimize.compact()
    DeltaTable(query.table).restore(3)
    query.write(3, [{"v": 3}])
    assert "RESTORE" not in caplog.text
    DeltaTable(query.table).restore(2)
    caplog.set_level(logging.WARNING)
    for batch_id in (4, 5):
        query.write(batch_id, [{"v": batch_id}])
    assert caplog.text.count("is a RESTORE to version 2, after the last commit of appId app (version 6)") == 1
    assert f"sparkonce offsets rewind {query.table} --to-version 2 --restore" in caplog.text


def test_a_log_that_cannot_be_searched_for_a_restore_stops_no_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, and the next batch looks again; once that was done, no batch reads the commits a second time."""
    query, entries, asked = Query(tmp_path), ResultTable.entries, list[int]()
    for batch_id in range(2):
        query.write(batch_id, [{"v": batch_id}])
    DeltaTable(query.table).restore(1)
    caplog.set_level(logging.WARNING)

    def fails_once(table: ResultTable, version: int) -> Iterator[CommitEntry]:
        asked.append(version)
        if len(asked) == 1:
            raise OffsetStoreError("the store is away")
        return entries(table, version)

    monkeypatch.setattr(ResultTable, "entries", fails_once)
    query.log(2, 30)
    begun = query.tasks()
    assert "is unknown: the store is away" in caplog.text
    assert "is a RESTORE" not in caplog.text
    begun = query.tasks()  # as Spark does it again after a failure
    assert caplog.text.count("is a RESTORE to version 1") == 1
    query.commit(2, begun)
    for batch_id in (3, 4):
        query.write(batch_id, [{"v": batch_id}])
    assert len(asked) == 2
    assert caplog.text.count("is a RESTORE") == 1
