"""Which cells there are, and what they must show."""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path

import pytest

from lab.crash_plans import POINTS
from lab.verify.cells import Cell, Fate, Features, Kind, RecordPath, Result, Shared, Shows, table_words
from lab.verify.matrix import (
    BY_FUNCTION,
    SENDING,
    combinations,
    crashes_while_producing,
    ends_the_run,
    full,
    markdown,
    must_say,
    must_show,
    why_impossible,
)
from sparkonce.broker_lite.node.crash_points import BrokerPoint
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.guarantee import Guarantee

DOCS = Path(__file__).resolve().parents[3] / "docs"


def cell(
    point: CrashPoint,
    kind: Kind,
    guarantee: Guarantee,
    result: Result = Result.APPEND,
    delete_checkpoint: bool = False,
) -> Cell:
    return Cell(point, kind, guarantee, result, delete_checkpoint)


def test_exactly_once_never_shows_anything() -> None:
    assert {must_show(each) for each in full() if each.guarantee is Guarantee.EXACTLY_ONCE} == {Shows.NEITHER}


@pytest.mark.parametrize(
    ("guarantee", "shows"), [(Guarantee.AT_LEAST_ONCE, Shows.DUPLICATES), (Guarantee.AT_MOST_ONCE, Shows.LOSS)]
)
@pytest.mark.parametrize("result", Result)
def test_the_others_show_their_weakness_and_no_other(guarantee: Guarantee, shows: Shows, result: Result) -> None:
    shown = {must_show(each) for each in full() if (each.guarantee, each.result) == (guarantee, result)}
    assert shown == {Shows.NEITHER, shows}


@pytest.mark.parametrize("result", Result)
@pytest.mark.parametrize("delete_checkpoint", [False, True])
def test_a_crash_between_the_writes_is_seen(result: Result, delete_checkpoint: bool) -> None:
    between = SinkPoint.BETWEEN_WRITES
    for guarantee, shows in ((Guarantee.AT_LEAST_ONCE, Shows.DUPLICATES), (Guarantee.AT_MOST_ONCE, Shows.LOSS)):
        crash = cell(between, Kind.DRIVER_KILLED, guarantee, result, delete_checkpoint)
        assert why_impossible(crash) is None
        assert must_show(crash) is shows
    assert why_impossible(cell(between, Kind.DRIVER_KILLED, Guarantee.EXACTLY_ONCE, result)) is not None


def test_what_landed_is_found_again_and_what_died_is_not() -> None:
    landed = SinkPoint.ROWS_LANDED
    for kind, ends in ((Kind.LOST_ACKNOWLEDGEMENT, False), (Kind.WORKER_KILLED, True), (Kind.BROKER_KILLED, False)):
        crash = cell(landed, kind, Guarantee.AT_LEAST_ONCE)
        assert ends_the_run(crash) is ends
        assert must_show(crash) is (Shows.DUPLICATES if ends else Shows.NEITHER)


def test_at_most_once_loses_what_fails_in_its_tasks() -> None:
    for kind in (Kind.EXCEPTION, Kind.WORKER_KILLED, Kind.DRIVER_KILLED):
        assert must_show(cell(SourcePoint.READ, kind, Guarantee.AT_MOST_ONCE)) is Shows.LOSS
        assert must_show(cell(SinkPoint.BEGUN, kind, Guarantee.AT_MOST_ONCE)) is Shows.NEITHER


def test_rows_of_a_topic_are_there_as_soon_as_they_are_sent() -> None:
    for result, most in ((Result.TOPIC, Shows.NEITHER), (Result.DEAD_LETTERS, Shows.LOSS)):
        sent = SinkPoint.FILE_WRITTEN, Kind.EXCEPTION
        assert must_show(cell(*sent, Guarantee.AT_LEAST_ONCE, result)) is Shows.DUPLICATES
        assert must_show(cell(*sent, Guarantee.AT_MOST_ONCE, result)) is most
        assert must_show(cell(SinkPoint.WRITING, Kind.EXCEPTION, Guarantee.AT_MOST_ONCE, result)) is Shows.LOSS


def test_a_task_that_is_run_again_shows_what_a_batch_would_and_does_not_end_the_run() -> None:
    retried = SinkPoint.FILE_WRITTEN, Kind.TASK_RETRIED
    assert must_show(cell(*retried, Guarantee.AT_LEAST_ONCE, Result.TOPIC)) is Shows.DUPLICATES
    assert must_show(cell(*retried, Guarantee.AT_LEAST_ONCE, Result.APPEND)) is Shows.NEITHER
    assert must_show(cell(*retried, Guarantee.AT_MOST_ONCE, Result.TOPIC)) is Shows.NEITHER
    assert must_show(cell(*retried, Guarantee.AT_MOST_ONCE, Result.APPEND)) is Shows.LOSS
    assert not ends_the_run(cell(*retried, Guarantee.EXACTLY_ONCE, Result.TOPIC))
    assert why_impossible(cell(SinkPoint.BEGUN, Kind.TASK_RETRIED, Guarantee.EXACTLY_ONCE)) is not None
    merging = cell(SourcePoint.READ, Kind.TASK_RETRIED, Guarantee.EXACTLY_ONCE, Result.MERGE)
    assert why_impossible(merging) is not None


def test_a_transaction_that_times_out_is_told() -> None:
    timed_out = [each for each in full() if each.kind is Kind.TRANSACTION_TIMED_OUT]
    assert {each.result for each in timed_out} == SENDING
    assert {each.guarantee for each in timed_out} == {Guarantee.EXACTLY_ONCE}
    assert {ends_the_run(each) for each in timed_out} == {True}
    assert {must_say(each) for each in full() if each not in timed_out} == {None}
    assert {must_say(each) for each in timed_out} == {"transaction.timeout.ms"}


def test_the_broker_is_hit_where_the_sink_sends_if_it_does() -> None:
    for result in Result:
        append = cell(BrokerPoint.APPENDED, Kind.BROKER_KILLED, Guarantee.EXACTLY_ONCE, result)
        assert crashes_while_producing(append) is (result not in SENDING)
        killed = cell(BrokerPoint.APPENDED, Kind.DRIVER_KILLED, Guarantee.EXACTLY_ONCE, result)
        assert (why_impossible(killed) is None) is (result in SENDING)


def test_the_direct_path_shows_the_same_at_every_point() -> None:
    """Of one batch: rows are collected while they are read, and written when all are there."""
    direct = [each for each in full() if each.shared is None and each.path is RecordPath.DIRECT]
    twins = [dataclasses.replace(each, path=RecordPath.SPARK) for each in direct]
    assert set(twins) <= set(full())
    assert [must_show(each) for each in direct] == [must_show(each) for each in twins]
    assert {each.result for each in direct} == set(Result) - BY_FUNCTION
    through_spark = {(each.point, each.guarantee) for each in full() if each.result not in BY_FUNCTION}
    assert {(each.point, each.guarantee) for each in direct} == through_spark


def test_every_point_and_kind_occurs() -> None:
    assert {each.point for each in full()} == set(POINTS)
    assert {each.kind for each in full()} == set(Kind)
    for result in Result:
        assert {each.guarantee for each in full() if each.result is result} == set(Guarantee)


def test_a_combination_either_occurs_or_has_a_reason() -> None:
    plain = [each for each in full() if not table_words(each)]
    assert [each for each in combinations() if why_impossible(each) is None] == plain
    assert len(plain) < sum(1 for _ in combinations())


def test_a_table_with_features_meets_every_crash_of_the_sink() -> None:
    crashes = {each for each in _plain() if each.result is Result.APPEND and isinstance(each.point, SinkPoint)}
    for features in Features:
        featured = {each for each in full() if each.features is features}
        assert featured == {dataclasses.replace(each, features=features) for each in crashes}


@pytest.mark.parametrize("shared", Shared)
def test_each_of_several_tables_meets_every_crash_of_the_sink(shared: Shared) -> None:
    ours = [each for each in full() if each.shared is shared and each.fate is None]
    found = {dataclasses.replace(each, shared=None) for each in ours}
    exactly = Guarantee.EXACTLY_ONCE
    crashes = {
        each
        for each in _plain()
        if each.path is RecordPath.DIRECT and isinstance(each.point, SinkPoint)
        if each.result is Result.APPEND or (each.result is Result.DEAD_LETTERS and each.guarantee is exactly)
    }
    assert found >= crashes
    between = {each for each in found if each.point is SinkPoint.BETWEEN_TARGETS and each.result is Result.APPEND}
    assert found - crashes == between
    assert {each.guarantee for each in between} == (set() if shared is Shared.FIRST_OF_2 else set(Guarantee))


@pytest.mark.parametrize("fate", Fate)
def test_each_fate_of_a_table_meets_the_death_of_the_driver_at_every_point(fate: Fate) -> None:
    found = [each for each in full() if each.fate is fate]
    assert {(each.kind, each.guarantee) for each in found} == {(Kind.DRIVER_KILLED, Guarantee.EXACTLY_ONCE)}
    assert {must_show(each) for each in found} == {Shows.NEITHER}
    for shared, deleted in product(Shared, (False, True)):
        points = {each.point for each in found if each.shared is shared and each.delete_checkpoint is deleted}
        is_only_one = fate is Fate.BESIDE_AWAY and shared is Shared.LAST_OF_2
        has_turn = shared is not Shared.FIRST_OF_2 and not fate.is_apart and not is_only_one
        plain = {each.point for each in _plain() if each.result is Result.APPEND and isinstance(each.point, SinkPoint)}
        between = {SinkPoint.OFFSETS_LANDED, SinkPoint.BETWEEN_WRITES}
        if fate is Fate.FENCED and shared is Shared.LAST_OF_2:
            between |= {SinkPoint.ROWS_LANDED, SinkPoint.AFTER_COMMIT}
        assert points == plain - between | ({SinkPoint.BETWEEN_TARGETS} if has_turn else set())


def _shows(point: SinkPoint, guarantee: Guarantee, shared: Shared) -> Shows:
    cell = Cell(point, Kind.DRIVER_KILLED, guarantee, Result.APPEND, False, RecordPath.DIRECT, shared=shared)
    assert why_impossible(cell) is None
    return must_show(cell)


def test_what_several_tables_show_is_what_any_of_them_shows() -> None:
    """Offsets come first under at-most-once, so whoever is begun before the crash has lost its part."""
    first, last = Shared.FIRST_OF_2, Shared.LAST_OF_2
    most, least = Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE
    assert _shows(SinkPoint.BEGUN, most, first) is Shows.NEITHER
    assert _shows(SinkPoint.BEGUN, most, last) is Shows.LOSS
    assert _shows(SinkPoint.AFTER_COMMIT, most, first) is Shows.LOSS
    assert _shows(SinkPoint.AFTER_COMMIT, most, last) is Shows.NEITHER
    assert _shows(SinkPoint.BETWEEN_TARGETS, most, last) is Shows.LOSS
    assert _shows(SinkPoint.BETWEEN_TARGETS, least, last) is Shows.NEITHER
    assert _shows(SinkPoint.BETWEEN_WRITES, least, first) is Shows.DUPLICATES


def _plain() -> list[Cell]:
    return [each for each in full() if not table_words(each)]


def test_names_are_unique_and_fit_a_file_system() -> None:
    names = [each.name for each in full()]
    assert len(set(names)) == len(names)
    assert not [name for name in names if "/" in name or " " in name or len(name) > 120]


def test_the_page_says_what_the_matrix_says() -> None:
    page = (DOCS / "internals" / "crash_points.md").read_text()
    assert markdown() in page, (
        "run python -m lab.verify.matrix and put what it prints into docs/internals/crash_points.md"
    )


def test_the_page_describes_every_point() -> None:
    page = (DOCS / "internals" / "crash_points.md").read_text()
    assert [point.value for point in POINTS if f"- `{point.value}`:" not in page] == []
