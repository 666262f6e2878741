"""Screens of topics of which few offsets have a record, as compaction and transactions that were aborted leave them."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count
from typing import cast

import pytest

from sparkonce.jobs.cli.peek.decoding import Decoder
from sparkonce.jobs.cli.peek.reading import FetchedRecord, TopicReader
from sparkonce.jobs.ui.kafka.messages import BUDGET_S, Messages, Screen, Search

ANY = Search()
END = 1_000_000
OFFSETS = {0: [7, 500_000, 500_001, 999_990], 1: []}


class SparseReader:
    """Has these records, and counts the offsets that it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self, partition: int, start: int, end: int, _key: bytes | None = None) -> Generator[FetchedRecord]:
        self.asked += end - start
        for offset in OFFSETS[partition]:
            if start <= offset < end:
                yield FetchedRecord(partition, offset, offset, 0, b"k", b"v", ())


def offsets(screen: Screen) -> list[int]:
    return [each.record.offset for each in screen.records]


@pytest.mark.parametrize("forward", [True, False])
def test_all_is_found_where_there_is_time_and_nothing_is_read_twice(forward: bool) -> None:
    reader = SparseReader()
    reading = Messages(cast("TopicReader", reader), Decoder(None), lambda: 0.0)
    bounds = dict.fromkeys(OFFSETS, (0, END))
    screen = (reading.forward if forward else reading.backward)(bounds, 10, ANY)
    assert (offsets(screen), screen.is_whole, screen.looked_at) == (OFFSETS[0], True, 2 * END)
    assert reader.asked == 2 * END


@pytest.mark.parametrize("forward", [True, False])
def test_when_the_time_is_up_the_next_screen_goes_on(forward: bool) -> None:
    reader, ticks = SparseReader(), count()
    reading = Messages(cast("TopicReader", reader), Decoder(None), lambda: next(ticks) * BUDGET_S / 3)
    bounds, found = dict.fromkeys(OFFSETS, (0, END)), list[int]()
    for _ in range(50):
        before = reader.asked
        screen = (reading.forward if forward else reading.backward)(bounds, 10, ANY)
        assert (reader.asked - before < 500, screen.is_whole) == (True, False)
        found += offsets(screen)
        bounds = {each: (screen.after[each], END) if forward else (0, screen.before[each]) for each in bounds}
    assert found == [OFFSETS[0][0 if forward else -1]]
    assert all(OFFSETS[0][0] < (first if forward else END - end) < END / 2 for first, end in bounds.values())
