"""A log that grows, is cut and put back at random, under a query that is planned, crashes and starts again.

The broker is a model: a log of records, each with the epoch that it was written in. The query is the real planner, and
the real decisions about each batch over a store in memory. What must hold: no batch is refused, no record is written
twice, and each record that the log has at the end is written, except where a warning leaves it open.
"""

from __future__ import annotations

import json
import logging
import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from typing import Any, TypeVar, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sparkonce.connectors.kafka_source import ahead
from sparkonce.connectors.kafka_source.decode import RecordDecoder
from sparkonce.connectors.kafka_source.fetch import LogReplacedError, RangeFetcher
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.ranges import FetchRange, KafkaInputPartition
from sparkonce.connectors.kafka_source.reading import _without_replaced
from sparkonce.connectors.kafka_source.source import KafkaOnceStreamReader
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.decision import Fresh
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.kafka.client.client import EARLIEST, LATEST, Client
from sparkonce.kafka.client.metadata import EpochEnd, Leader, TopicMetadata
from sparkonce.offset_store.memory import MemoryOffsetStore
from sparkonce.offset_store.offsets import SourceOffset, batch_ranges
from sparkonce.offset_store.record import BatchRecord

COURSES, STEPS = 150, 40
CALM = 60
"""How many times out of this and five more nothing happens between two questions, or two reads."""
DOUBT = "may have been replaced too"
_Answer = TypeVar("_Answer")


@dataclass
class ModelLog:
    """One partition, as a leader has it; records are numbers that never come again."""

    chance: random.Random
    epoch: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    """Epoch and number of each."""
    copies: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    def append(self) -> None:
        self.records += [(self.epoch, next(self.numbers)) for _ in range(self.chance.randint(1, 6))]

    def restart(self) -> None:
        self.epoch += self.chance.randint(1, 1_000_000)

    def cut(self) -> None:
        """Lose the newest records in an unclean election: the new leader's epoch is higher than any before."""
        del self.records[self.chance.randint(0, len(self.records)) :]
        self.restart()

    def copy(self) -> None:
        self.copies.append((self.epoch, list(self.records)))

    def put_back(self) -> None:
        """Only copies of what this log still is: one from before a cut would bring records back that were read."""
        past = [(epoch, kept) for epoch, kept in self.copies if kept == self.records[: len(kept)]]
        if past:
            self.epoch, records = self.chance.choice(past)
            self.records = list(records)
            self.restart()

    def end_of(self, epoch: int) -> EpochEnd:
        """As Kafka's LeaderEpochFileCache.endOffsetFor; the leader's own epoch begins at the log's end."""
        epochs = [each for each, _ in self.records]
        if epoch == self.epoch:
            return EpochEnd(epoch, len(epochs))
        if epoch > self.epoch:
            return EpochEnd(-1, -1)
        end = bisect_left(epochs, epoch + 1)
        return EpochEnd(epochs[end - 1] if end else epoch, end)


class ModelClient:
    """Stands in for `Client`."""

    def __init__(self, log: ModelLog) -> None:
        self.log = log
        self.questions = 0
        self.happens: Callable[[], None] = lambda: None
        """Called after each answer: the log may become another before the next question."""
        self._behind: tuple[Mapping[tuple[str, int], int], dict[str, TopicMetadata]] | None = None
        self._early: dict[tuple[str, int], int] = {}

    def send_behind(self, wanted: Mapping[tuple[str, int], int], known: Mapping[str, TopicMetadata]) -> None:
        self._behind = wanted, dict(known)

    def existing_topics(self, _names: object, _: set[str] | None = None) -> dict[str, TopicMetadata]:
        topics = self._answered(self._topics())
        self._early, behind, self._behind = {}, self._behind, None
        if behind is not None and behind[1] == topics == self._topics():
            self._early = self._answered(self._offsets(behind[0]))
        return topics

    def topics_now(self, _names: object) -> dict[str, TopicMetadata]:
        return self._answered(self._topics())

    def _topics(self) -> dict[str, TopicMetadata]:
        return {"t": TopicMetadata("t", "id", {0: Leader("h", 1, self.log.epoch)})}

    def offsets(
        self, wanted: Mapping[tuple[str, int], int], known: dict[str, TopicMetadata], **_: bool
    ) -> dict[tuple[str, int], int]:
        early, self._early = self._early, {}
        if early.keys() == wanted.keys() and set(wanted.values()) == {LATEST}:
            return early
        known |= self._topics()  # a leader of another epoch than is known refuses to answer
        return self._answered(self._offsets(wanted))

    def _offsets(self, wanted: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return {key: 0 if what == EARLIEST else len(self.log.records) for key, what in wanted.items()}

    def epoch_ends(
        self, wanted: Mapping[tuple[str, int], int], known: dict[str, TopicMetadata]
    ) -> dict[tuple[str, int], EpochEnd]:
        self.questions += 1
        known |= self._topics()
        return self._answered({key: self.log.end_of(epoch) for key, epoch in wanted.items()})

    def _answered(self, answer: _Answer) -> _Answer:
        self.happens()
        return answer


class Query:
    """One query: Spark's lines, and what it has written."""

    def __init__(self, log: ModelLog, *, available_now: bool = False) -> None:
        self.log, self.store = log, MemoryOffsetStore("app")
        self.available_now = available_now
        self.delivery = Delivery(self.store, ORDERS[Guarantee.EXACTLY_ONCE])
        self.lines: list[dict[str, Any]] = []
        self.written: list[int] = []
        self.client = ModelClient(log)
        self.start()

    def start(self) -> None:
        given = {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "t",
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
            "fetchOffset.retryIntervalMs": "0",
        }
        self.reader = KafkaOnceStreamReader(SourceOptions.read(given))
        self.reader._plan()._client = self.client  # type: ignore[assignment]
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    def run_little(self) -> bool:
        return self.run(3)

    def run(self, most: int | None = None) -> bool:
        """Do one batch."""
        start = self.lines[-1] if self.lines else self.reader.initialOffset()
        end = self.reader.latestOffset(start, ReadAllAvailable() if most is None else ReadMaxRows(most))
        if end == start:
            return False
        assert json.dumps(end) != json.dumps(start)
        first = SourceOffset.from_document(self.lines[-1]) if self.lines else None
        self.lines.append(json.loads(json.dumps(end)))
        last = SourceOffset.from_document(end)
        ranges = {("kafka", tp): extent for tp, extent in batch_ranges(first, last).items()}
        batch = Batch(BatchRecord("app", "q", len(self.lines), f"attempt {len(self.lines)}", ranges), stateful=False)
        tasks = cast("list[KafkaInputPartition]", self.reader.partitions(start, end))
        if self.reader._ahead is not None:
            self.reader._ahead.wait()  # before anything else becomes of the log: each seed is one course
        plan = self.delivery.begin(batch)
        assert isinstance(plan.decision, Fresh)
        for task in tasks:
            for wanted in task.wanted:
                self.read(wanted)
        self.delivery.finish(batch, plan, [])
        return True

    def read(self, wanted: FetchRange) -> None:
        """Read a range as `read_range` does: little by little, and from the leader that has it."""
        position = wanted.start
        fetcher = self._fetcher(wanted)
        while position < wanted.end:
            self.client.happens()
            try:
                while fetcher._leader is None or fetcher._leader.epoch != self.log.epoch:
                    fetcher._leader = fetcher._find_leader()
            except LogReplacedError as error:
                wanted = _without_replaced(self.reader._options, wanted, error)
                fetcher = self._fetcher(wanted)
                continue
            records = self.log.records[position : min(wanted.end, position + 3)]
            assert records, "a task would wait for records that are gone"
            self.written += [number for _, number in records]
            position += len(records)

    def _fetcher(self, wanted: FetchRange) -> RangeFetcher:
        return RangeFetcher(cast("Client", self.client), RecordDecoder("t", 0), replace(wanted), 0)


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize(
    ("seed", "courses"),
    [
        (1, COURSES),
        pytest.param(None, 100 * COURSES, id="soak", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_nothing_is_lost_or_doubled_whatever_becomes_of_the_log(
    seed: int | None,
    courses: int,
    available_now: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = random.SystemRandom().randrange(10**9) if seed is None else seed
    print(f"seed {seed}")
    monkeypatch.setattr(ahead, "PAUSE_S", 0)
    cuts = 0
    for course in range(courses):
        caplog.clear()
        chance = random.Random(f"{seed}-{course}")
        log = ModelLog(chance)
        query = Query(log, available_now=available_now)
        events = [log.append, log.restart, log.cut, log.copy, log.put_back, *[lambda: None] * CALM]
        query.client.happens = lambda chance=chance, events=events: chance.choice(events)()  # type: ignore[misc]
        with caplog.at_level(logging.WARNING):
            for _ in range(chance.randint(1, STEPS)):
                actions: list[Callable[[], object]]
                actions = [log.append, log.append, log.append, query.run, query.run_little, query.run, query.start]
                chance.choice([*actions, log.restart, log.cut, log.copy, log.put_back])()
            query.client.happens = lambda: None
            for _ in range(2):
                while query.run():
                    pass
                query.start()
        missing = {number for _, number in log.records} - set(query.written)
        doubled = len(query.written) - len(set(query.written))
        assert doubled == 0, f"seed {seed}, course {course}"
        assert not missing or DOUBT in caplog.text, f"seed {seed}, course {course}: {missing}"
        cuts += sum("cutFrom" in line["topics"]["t"]["partitions"]["0"] for line in query.lines)
    assert cuts > courses // 10, "the courses find what they are for"


def test_a_plan_that_goes_back_and_is_discarded_does_not_hide_that_the_log_was_cut() -> None:
    log = ModelLog(random.Random(7))
    while len(log.records) < 9:
        log.append()
    query = Query(log, available_now=True)
    query.run_little()
    del log.records[4:]
    log.restart()
    query.run_little()  # planned before the cut; the batch behind it, planned ahead, goes back to offset 4
    while len(log.records) < 12:
        log.append()
    while query.run():  # asked for with another limit, so that plan is discarded
        pass
    query.start()
    while query.run():
        pass
    assert {number for _, number in log.records} <= set(query.written)
    assert len(set(query.written)) == len(query.written)


def _put_back_and_filled(log: ModelLog, put_back_at: int, filled_at: int) -> Callable[[], None]:
    """Return what is to be called at each moment: it puts an older state back, with lower epochs, and appends to it."""
    moments = count()

    def happens() -> None:
        moment = next(moments)
        if moment == put_back_at:
            log.records, log.epoch = [], 1
        if moment == filled_at:
            log.records, log.epoch = [(1, next(log.numbers)) for _ in range(6)], 2

    return happens


@pytest.mark.parametrize("available_now", [False, True])
def test_nothing_is_lost_or_doubled_whenever_a_log_is_put_back_and_filled_again(
    available_now: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "PAUSE_S", 0)
    for put_back_at, filled_at in combinations(range(16), 2):
        caplog.clear()
        log = ModelLog(random.Random(7))
        log.epoch = 7
        log.records = [(7, next(log.numbers)) for _ in range(6)]
        query = Query(log, available_now=available_now)
        query.run(2)
        query.client.happens = _put_back_and_filled(log, put_back_at, filled_at)
        for _ in range(5):
            query.run(2)
        query.client.happens = lambda: None
        query.start()
        while query.run():
            pass
        missing = {number for _, number in log.records} - set(query.written)
        assert len(set(query.written)) == len(query.written), (put_back_at, filled_at)
        assert not missing or DOUBT in caplog.text, (put_back_at, filled_at, missing)


def test_epochs_are_asked_for_only_at_the_start_and_when_the_leader_changes() -> None:
    log = ModelLog(random.Random(7))
    query = Query(log)
    asked = []
    for step in range(12):
        log.append()
        if step == 6:
            log.restart()
        before = query.client.questions
        query.run()
        asked.append(query.client.questions - before)
    assert asked == [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]
