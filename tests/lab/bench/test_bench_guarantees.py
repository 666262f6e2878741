"""The benchmark of the guarantees, with a Spark session that only pretends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.bench import guarantees
from lab.bench.__main__ import parse
from lab.bench.guarantees import order_of
from lab.bench.results import Results
from lab.bench.sessions import WARM_UP_BATCHES, SideError
from lab.bench.settings import MICRO_BATCH_ROWS
from lab.bench.spark_side import Batch, Outcome, Query
from sparkonce.exactly_once.guarantee import Guarantee

EXACTLY, AT_LEAST = Guarantee.EXACTLY_ONCE.value, Guarantee.AT_LEAST_ONCE.value


class FakeSide:
    """Every batch takes 1 s, and 1.25 s where two commits are made; warm-up batches 100 s. The first round is slow."""

    def __init__(self) -> None:
        self.queries: list[Query] = []
        self.rows: int | None = None

    def __enter__(self) -> FakeSide:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, query: Query) -> Outcome:
        self.queries.append(query)
        each = 1.25 if query.sink_options["deliveryGuarantee"] == AT_LEAST else 1.0
        assert query.rows_per_batch is not None
        rows = 1000 if query.rows_per_batch > MICRO_BATCH_ROWS else (WARM_UP_BATCHES + 2) * MICRO_BATCH_ROWS
        wall_s = 1000.0 if len(self.queries) <= 2 else each * 10
        batches = (Batch(100.0, 0.0),) * WARM_UP_BATCHES + (Batch(each, 0.0),) * 2
        return Outcome(wall_s, self.rows or rows, batches)


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> FakeSide:
    side = FakeSide()
    monkeypatch.setattr(guarantees, "SparkSide", lambda *_: side)
    return side


def measure(*names: str) -> Results:
    settings = replace(parse([*names, "--rows", "1000", "--rounds", "2"])[0], guarantee_micro_batches=2)
    results = Results({})
    guarantees.run(settings, results)
    return results


def test_the_ratio_is_of_times_without_warm_up(side: FakeSide) -> None:
    results = measure("guarantee")
    assert [one.line() for one in results.comparisons] == [
        "RATIO guarantee-throughput=0.800 target<=1",
        "RATIO guarantee-micro-batch=0.800 target<=1",
    ]
    assert [len(one.ours) for one in results.comparisons] == [2, 4]
    assert all(one.reached for one in results.comparisons)


def test_the_two_guarantees_take_turns_in_going_first(side: FakeSide) -> None:
    measure("guarantee-throughput")
    ran = [query.sink_options["deliveryGuarantee"] for query in side.queries]
    assert ran == [EXACTLY, AT_LEAST, AT_LEAST, EXACTLY, EXACTLY, AT_LEAST]
    assert {order_of(number)[0] for number in range(2)} == {Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE}


def test_records_that_did_not_arrive_fail_the_run(side: FakeSide) -> None:
    side.rows = 999
    with pytest.raises(SideError, match="read 999 of 1000 rows"):
        measure("guarantee-throughput")


def test_nothing_is_started_when_neither_was_asked_for(side: FakeSide) -> None:
    assert measure("broker").comparisons == []
    assert side.queries == []
