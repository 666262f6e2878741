"""What a listener remembers, and what it forgets."""

from __future__ import annotations

import threading

from sparkonce.connectors.lag.state import Batch, LagState, PartitionLag, SourceLag


def source(partitions: int, position: int = 0) -> SourceLag:
    lags = tuple(PartitionLag("t", number, 1, 3) for number in range(partitions))
    return SourceLag(position, "kafka", "d", 1, lags, 2, 2, 2 * partitions, partitions)


def batch(query: str, run: str = "r", batch_id: int = 0, partitions: int = 1, sources: int = 1) -> Batch:
    return Batch(query, run, query, batch_id, 250, 7, tuple(source(partitions, each) for each in range(sources)))


def test_batches_add_up_over_a_restart_from_the_checkpoint() -> None:
    state = LagState()
    state.started("q", "first", "orders", 0)
    state.progressed(batch("q", "first", 0), 1)
    state.ended("q", "first", True, 2)
    (query,) = state.queries(3)
    assert (query.name, query.failed, query.ended_at, query.batches) == ("orders", True, 2, 1)
    state.started("q", "second", "orders", 4)
    state.progressed(batch("q", "second", 1), 5)
    (query,) = state.queries(6)
    assert (query.duration_buckets[1], sum(query.duration_buckets)) == (2, 2), "a duration at a bound is below it"
    assert (query.failed, query.ended_at, query.batch_id) == (False, None, 1)
    assert (query.batches, query.rows, query.duration_sum_ms, query.batch_at) == (2, 14, 500, 5)


def test_the_end_of_an_older_run_told_late_is_not_the_newer_ones() -> None:
    state = LagState()
    state.started("q", "second", None, 0)
    state.ended("q", "first", True, 1)
    state.ended("another", "first", True, 1)
    (query,) = state.queries(2)
    assert (query.name, query.ended_at) == ("q", None)


def test_a_query_is_heard_of_while_it_is_idle() -> None:
    state = LagState()
    state.progressed(batch("q"), 1)
    state.idle("q", "r", 9)
    (query,) = state.queries(10)
    assert (query.heard_at, query.batch_at) == (9, 1)


def test_an_ended_query_is_forgotten_after_a_while() -> None:
    state = LagState(keep_ended_s=10)
    state.progressed(batch("q"), 0)
    state.progressed(batch("lives"), 0)
    state.ended("q", "r", False, 5)
    assert len(state.queries(15)) == 2
    assert [query.query_id for query in state.queries(15.1)] == ["lives"]


def test_ended_queries_make_room_first_then_those_that_were_silent() -> None:
    state = LagState(max_queries=3)
    for number, query in enumerate(("a", "b", "c")):
        state.progressed(batch(query), number)
    state.ended("c", "r", False, 4)
    state.progressed(batch("d"), 5)
    assert [query.query_id for query in state.queries(5)] == ["a", "b", "d"]
    state.progressed(batch("e"), 6)
    assert [query.query_id for query in state.queries(6)] == ["b", "d", "e"]


def test_thousands_of_queries_that_come_and_go_leave_a_bounded_trace() -> None:
    state = LagState(max_queries=10, max_partitions=50)
    for number in range(2_000):
        state.progressed(batch(f"q{number}", partitions=20), number)
        state.ended(f"q{number}", "r", False, number)
    held = state.queries(2_000)
    assert len(held) == 10
    assert sum(len(source.partitions) for query in held for source in query.sources) <= 50


def test_partitions_beyond_the_bound_are_in_the_sums_only() -> None:
    state = LagState(max_partitions=25)
    state.progressed(batch("a", partitions=10), 0)
    state.progressed(batch("b", partitions=10, sources=2), 1)
    first, second = state.queries(2)
    assert [len(source.partitions) for source in first.sources] == [10]
    assert [(len(source.partitions), source.partitions_left_out) for source in second.sources] == [(10, 0), (5, 5)]
    assert second.sources[1].metrics["avgOffsetsBehindLatest"] == 2
    state.progressed(batch("a", partitions=1), 3)
    state.progressed(batch("b", partitions=10, sources=2), 4)
    assert [source.partitions_left_out for source in state.queries(5)[1].sources] == [0, 0]


def test_many_threads_lose_no_batch() -> None:
    state = LagState()
    threads = [threading.Thread(target=lambda: [state.progressed(batch("q"), 0) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.queries(1)[0].batches == 800
