"""Lines of the log about batches: not more of them than a reader can follow, and no batch left out."""

from __future__ import annotations

from dataclasses import replace

from sparkonce.connectors.lag.lines import EVERY_S, BatchLines
from sparkonce.connectors.lag.state import Batch, LagState, PartitionLag, QueryLag, SourceLag
from sparkonce.offset_store.record import BatchCounts

COUNTS = BatchCounts(records=400, read_bytes=40_000, rows=390, dead_letters=10, files=2, written_bytes=500)


def progressed(state: LagState, batch_id: int, counts: BatchCounts | None = COUNTS) -> QueryLag:
    lags = (PartitionLag("t", 0, 1, 1201),)
    source = SourceLag(0, "kafka", "d", 400, lags, 1200, 1200, 1200, 1, hands_over_ranges=True)
    return state.progressed(Batch("id", "run", "flights", batch_id, 200, 400, (source,), counts), 0)


def test_a_batch_and_then_those_since() -> None:
    state, lines = LagState(), BatchLines()
    assert lines.heard(progressed(state, 7), 100) == (
        "flights: batch 7: 400 records (39.1 KiB) read in 0.2 s (2,000 records/s), 390 rows and 10 dead letters in 2 "
        "files (500 B) written; 1,200 behind"
    )
    for batch_id in range(8, 18):
        last = progressed(state, batch_id)
        assert lines.heard(last, 100 + EVERY_S - 0.1) is None
    assert lines.heard(last, 100 + EVERY_S) == (
        "flights: batches 8 to 17: 4,000 records (390.6 KiB) read in 2.0 s (2,000 records/s), 3,900 rows and 100 dead "
        "letters in 20 files (4.9 KiB) written; 1,200 behind"
    )
    assert lines.heard(last, 100 + 9 * EVERY_S) is None, "nothing new: the query is idle"


def test_the_end_sums_up() -> None:
    state, lines = LagState(), BatchLines()
    assert lines.ended(QueryLag("id", "run", "flights", 0)) is None
    for batch_id in range(3):
        last = progressed(state, batch_id, BatchCounts(rows=1, written_bytes=3 << 20))
    lines.heard(last, 0)
    assert lines.ended(replace(last, failed=True)) == (
        "flights: failed after 3 batches: 1,200 records read in 0.6 s (2,000 records/s), 3 rows (9.0 MiB) written; "
        "1,200 behind"
    )


def test_what_is_not_known_of_each_batch_is_left_out() -> None:
    state, lines = LagState(), BatchLines()
    progressed(state, 0)
    last = progressed(state, 1, None)
    assert lines.heard(last, 0) == (
        "flights: batches 0 to 1: 800 records read in 0.4 s (2,000 records/s); 1,200 behind"
    )
