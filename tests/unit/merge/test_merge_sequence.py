"""MERGEs with sequence numbers under faults: drivers crash at every step, race, come back, and lose their logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.connectors.delta_spark.crash_points import IntentPoint
from sparkonce.connectors.delta_spark.sequence import Intent, Landed, NumberedTable, ResultState
from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.errors import DeliveryError, FencedError, OffsetMismatchError, UnknownOutcomeError
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.offset_store.administration import CommitEntry
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, CommittedBatch, PartitionKey, Writes
from tests.cases import each_case
from tests.chance import examples

KEY: PartitionKey = ("s", TopicPartition("t", "id", 0))
Step = Callable[[str], None]


def no_step(name: str) -> None:
    """Let an operation happen at once."""


@dataclass
class FakeResult:
    """The result's log: one entry for each MERGE that landed."""

    log: list[Intent] = field(default_factory=list)
    remembers: bool = True
    step: Step = no_step

    def look(self) -> ResultState:
        self.step("look at the result")
        return ResultState(len(self.log), self.log[-1].sequence if self.log else 0)

    def write(self, rows: object, intent: Intent) -> None:
        self.step("begin a write")
        read_at = len(self.log)
        if self.log and self.log[-1].sequence >= intent.sequence:
            return
        self.step("commit a write")
        if any(later.sequence >= intent.sequence for later in self.log[read_at:]):
            raise CommitConflictError("ConcurrentTransactionException")
        self.log.append(intent)
        self.step("after a write")

    def find(self, sequence: int, since_version: int | None = None) -> Landed | None:
        self.step("find a write")
        if not self.remembers:
            return None
        found = [(at, intent) for at, intent in enumerate(self.log) if intent.sequence == sequence]
        return Landed(found[0][1], found[0][0] + 1) if found else None

    def entries(self) -> Iterator[CommitEntry]:
        for at, intent in reversed(list(enumerate(self.log, 1))):
            yield CommitEntry(at, 0, "MERGE", CommittedBatch(at, 0, Writes.ROWS, intent.record))

    def __str__(self) -> str:
        return "the result"

    def covered(self) -> list[tuple[int, int]]:
        return [(extent.start, extent.end) for each in self.log for extent in each.record.moved.values()]


@dataclass(frozen=True)
class Confirmed:
    landed: Landed
    moves: bool


@dataclass
class FakeIntents:
    """The table of offsets: commits in a list, and every commit conflicts with every other."""

    commits: list[Intent | Confirmed] = field(default_factory=list)
    remembers: bool = True
    step: Step = no_step

    def snapshot(self) -> FakeIntentSnapshot:
        self.step("look at the offsets")
        return FakeIntentSnapshot(self, len(self.commits))

    def __str__(self) -> str:
        return "the table of offsets"


@dataclass(frozen=True)
class FakeIntentSnapshot:
    owner: FakeIntents
    version: int

    @property
    def confirmations(self) -> list[Confirmed]:
        return [each for each in self.owner.commits[: self.version] if isinstance(each, Confirmed)]

    @property
    def confirmed(self) -> int:
        return self.confirmations[-1].landed.intent.sequence if self.confirmations else 0

    def last_batch(self, query_id: str) -> int | None:
        ids = [
            each.landed.intent.record.batch_id
            for each in self.confirmations
            if each.moves and each.landed.intent.record.query_id == query_id
        ]
        return ids[-1] if ids else None

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        for each in reversed(self.confirmations):
            record = each.landed.intent.record
            if each.moves and (record.query_id, record.batch_id) == (query_id, batch_id):
                return record.fingerprint
        return None

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        stored: dict[PartitionKey, int] = {}
        for each in self.confirmations:
            if each.moves:
                stored.update({key: extent.end for key, extent in each.landed.intent.record.moved.items()})
        return {key: stored[key] for key in keys if key in stored}

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        moved = {key: at.epoch for each in self.confirmations for key, at in each.landed.intent.record.moved.items()}
        return {key: epoch for key in keys if (epoch := moved.get(key)) is not None}

    def intents(self, sequence: int) -> list[Intent]:
        if not self.owner.remembers:
            return []
        kept = [each for each in self.owner.commits[: self.version] if isinstance(each, Intent)]
        return [each for each in reversed(kept) if each.sequence == sequence]

    def record(self, intent: Intent) -> None:
        self._write(intent, "an intent")

    def confirm(self, landed: Landed, move_offsets: bool) -> None:
        self._write(Confirmed(landed, move_offsets), "a confirmation")

    def _write(self, entry: Intent | Confirmed, what: str) -> None:
        self.owner.step(f"write {what}")
        if len(self.owner.commits) != self.version:
            raise CommitConflictError("somebody was quicker")
        self.owner.commits.append(entry)
        self.owner.step(f"after {what}")

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        both = Writes.ROWS | Writes.OFFSETS
        versions = range(self.version)
        newest = list(zip(versions, self.owner.commits, strict=False))[::-1][:limit]
        return [
            CommittedBatch(each.landed.version or version, 0, both, each.landed.intent.record)
            for version, each in newest
            if isinstance(each, Confirmed) and each.moves
        ]


class Crash(BaseException):
    """The end of a driver."""


def batch(batch_id: int, start: int, end: int, attempt: str, query: str = "q") -> Batch:
    fingerprint = Fingerprint.of([batch_id, start, end], [])
    return Batch(
        BatchRecord("app", query, batch_id, attempt, {KEY: OffsetRange(start, end)}, fingerprint), stateful=False
    )


def deliver(table: NumberedTable, incoming: Batch) -> bool:
    delivery = Delivery(table, ORDERS[Guarantee.EXACTLY_ONCE])
    return delivery.finish(incoming, delivery.begin(incoming), ["rows"])


def tables(result: FakeResult | None = None, intents: FakeIntents | None = None) -> NumberedTable:
    return NumberedTable(result or FakeResult(), intents or FakeIntents())


def test_numbers_follow_each_other() -> None:
    result, intents = FakeResult(), FakeIntents()
    for number in range(3):
        assert deliver(NumberedTable(result, intents), batch(number, number, number + 1, f"a{number}"))
    assert [each.sequence for each in result.log] == [1, 2, 3]
    assert intents.snapshot().next_offsets([KEY]) == {KEY: 3}
    assert not deliver(NumberedTable(result, intents), batch(2, 2, 3, "again"))
    assert len(result.log) == 3


CRASHING_STEPS = (
    "write an intent",
    "after an intent",
    "begin a write",
    "commit a write",
    "after a write",
    "find a write",
    "write a confirmation",
    "after a confirmation",
)


@each_case("at", CRASHING_STEPS)
def test_a_crash_at_every_step(at: str) -> None:
    armed = True

    def step(name: str) -> None:
        if armed and name == at:
            raise Crash

    result, intents = FakeResult(step=step), FakeIntents(step=step)
    with pytest.raises(Crash):
        deliver(NumberedTable(result, intents), batch(0, 0, 5, "first"))
    armed = False
    deliver(NumberedTable(result, intents), batch(0, 0, 5, "second"))
    deliver(NumberedTable(result, intents), batch(1, 5, 9, "third"))
    assert result.covered() == [(0, 5), (5, 9)]
    assert [each.sequence for each in result.log] == [1, 2]


@each_case("at", CRASHING_STEPS)
def test_an_exception_at_every_step_after_which_the_store_is_well(at: str) -> None:
    failures = 1

    def step(name: str) -> None:
        nonlocal failures
        if failures and name == at:
            failures -= 1
            raise OSError("the answer was lost")

    result, intents = FakeResult(step=step), FakeIntents(step=step)
    try:
        deliver(NumberedTable(result, intents), batch(0, 0, 5, "first"))
    except OSError:
        assert result.covered() == []
        deliver(NumberedTable(result, intents), batch(0, 0, 5, "second"))
    assert result.covered() == [(0, 5)]
    assert intents.snapshot().next_offsets([KEY]) == {KEY: 5}


def test_a_driver_that_lost_the_number_names_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    result, intents = FakeResult(), FakeIntents()

    def rival(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
        if point is IntentPoint.RECORDED:
            monkeypatch.undo()
            deliver(NumberedTable(result, intents), batch(0, 0, 5, "winner", "other"))

    monkeypatch.setattr("sparkonce.connectors.delta_spark.sequence.reach", rival)
    with pytest.raises(FencedError, match=r"batch 0 of query other \(attempt winner\)"):
        deliver(NumberedTable(result, intents), batch(0, 0, 7, "loser"))
    assert result.covered() == [(0, 5)]


def crashed_after_the_merge() -> tuple[FakeResult, FakeIntents]:
    def step(name: str) -> None:
        if name == "after a write":
            raise Crash

    result, intents = FakeResult(step=step), FakeIntents()
    with pytest.raises(Crash):
        deliver(NumberedTable(result, intents), batch(0, 0, 5, "first"))
    result.step = no_step
    return result, intents


def test_the_intent_tells_what_landed_when_the_log_of_the_result_is_gone() -> None:
    result, intents = crashed_after_the_merge()
    result.remembers = False
    assert NumberedTable(result, intents).snapshot().next_offsets([KEY]) == {KEY: 5}


def test_the_log_of_the_result_tells_what_landed_when_the_offsets_are_gone() -> None:
    result, intents = FakeResult(), FakeIntents()
    for number in range(3):
        deliver(NumberedTable(result, intents), batch(number, number, number + 1, f"a{number}"))
    assert NumberedTable(result, FakeIntents()).snapshot().next_offsets([KEY]) == {KEY: 3}


def test_two_intents_of_one_number_without_a_log_stop() -> None:
    result, intents = crashed_after_the_merge()
    intents.commits.append(Intent(1, batch(0, 0, 7, "other", "other").record))
    assert NumberedTable(result, intents).snapshot().next_offsets([KEY]) == {KEY: 5}
    del intents.commits[-1]
    result.remembers = False
    with pytest.raises(DeliveryError, match="names 2 different batches for it"):
        NumberedTable(result, intents).snapshot()


def test_nothing_known_of_a_number_stops() -> None:
    result, intents = crashed_after_the_merge()
    result.remembers = intents.remembers = False
    with pytest.raises(DeliveryError, match="names no batch for it"):
        NumberedTable(result, intents).snapshot()


def test_a_result_that_is_behind_stops() -> None:
    result, intents = FakeResult(), FakeIntents()
    deliver(NumberedTable(result, intents), batch(0, 0, 1, "a"))
    with pytest.raises(OffsetMismatchError, match="deleted, replaced"):
        NumberedTable(FakeResult(), intents).snapshot()


def test_a_result_whose_log_never_tells_stops() -> None:
    result, intents = FakeResult(remembers=False), FakeIntents(remembers=False)
    with pytest.raises(UnknownOutcomeError):
        deliver(NumberedTable(result, intents), batch(0, 0, 1, "a"))


def test_offsets_that_were_moved_by_hand_stay_where_they_are() -> None:
    result, intents = FakeResult(), FakeIntents()
    deliver(NumberedTable(result, intents), batch(0, 0, 5, "a"))
    armed = True

    def step(name: str) -> None:
        if armed and name == "after a write":
            raise Crash

    result.step = step
    with pytest.raises(Crash):
        deliver(NumberedTable(result, intents), batch(1, 5, 9, "b"))
    armed = False
    by_hand = Landed(Intent(1, replace(batch(0, 0, 2, "hand").record)), None)
    intents.commits.append(Confirmed(by_hand, moves=True))
    assert NumberedTable(result, intents).snapshot().next_offsets([KEY]) == {KEY: 2}


class Scheduler:
    """Runs drivers as threads, one at a time: each stands before its next operation until it is its turn."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._running: str | None = None
        self._doomed: set[str] = set()
        self._alive: set[str] = set()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        def body() -> None:
            try:
                self.step(name)
                work()
            except Crash:
                pass
            except BaseException as error:
                self.errors.append(error)
            finally:
                with self._turn:
                    self._alive.discard(name)
                    self._running = None
                    self._turn.notify_all()

        with self._turn:
            self._alive.add(name)
            self._running = name
            self._threads.append(threading.Thread(target=body, name=name, daemon=True))
            self._threads[-1].start()
            assert self._turn.wait_for(lambda: self._running is None, 20)

    def step(self, name: str) -> None:
        with self._turn:
            if self._running == name:
                self._running = None
                self._turn.notify_all()
            assert self._turn.wait_for(lambda: self._running == name, 20)
            if name in self._doomed:
                self._doomed.discard(name)
                raise Crash

    def let(self, name: str, crash: bool = False) -> None:
        """Let a driver do one operation, or end it there."""
        with self._turn:
            if crash:
                self._doomed.add(name)
            self._running = name
            self._turn.notify_all()
            assert self._turn.wait_for(lambda: self._running is None, 20)

    def is_alive(self, name: str) -> bool:
        return name in self._alive

    def join(self) -> None:
        for thread in self._threads:
            thread.join(20)


@dataclass
class Driver:
    """A driver of one pipeline: its checkpoint logs each batch before it runs, and outlives crashes."""

    name: str
    result: FakeResult
    intents: FakeIntents
    checkpoint: int = 0
    """Which checkpoint this is: a new one is a new query id."""
    logged: list[tuple[int, int]] = field(default_factory=list)
    done: int = 0
    attempts: int = 0
    refusals: list[str] = field(default_factory=list)

    def run(self, size: int, until: int) -> None:
        """Go on from the checkpoint, or from the stored offsets if there is none, until a batch is refused."""
        table = NumberedTable(self.result, self.intents)
        stored = table.snapshot().next_offsets([KEY]).get(KEY, 0)
        while True:
            if self.done == len(self.logged):
                start = self.logged[-1][1] if self.logged else stored
                if start >= until:
                    return
                self.logged.append((start, min(until, start + size)))
            self.attempts += 1
            attempt = f"{self.name}-{self.checkpoint}-{self.attempts}"
            try:
                deliver(table, batch(self.done, *self.logged[self.done], attempt, f"{self.name}-{self.checkpoint}"))
            except DeliveryError as error:
                self.refusals.append(str(error))
                return
            self.done += 1

    def lose_checkpoint(self) -> None:
        self.checkpoint += 1
        self.logged, self.done = [], 0


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from("AB"),
        st.integers(1, 16),
        st.sampled_from(["", "", "", "crash", "lose the checkpoint"]),
        st.integers(1, 4),
    ),
    min_size=4,
    max_size=24,
)
"""Which driver goes on, for how many operations, how that ends, and the size of batches of a new checkpoint."""
UNTIL = 20


@settings(max_examples=examples(150), deadline=None)
@given(ACTIONS)
def test_two_drivers_in_any_order_with_any_crash(actions: list[tuple[str, int, str, int]]) -> None:
    result, intents, scheduler = FakeResult(), FakeIntents(), Scheduler()

    def step(_: str) -> None:
        scheduler.step(threading.current_thread().name)

    result.step = intents.step = step
    drivers = {name: Driver(name, result, intents) for name in "AB"}
    sizes = {"A": 2, "B": 3}

    def revive(name: str) -> None:
        if not scheduler.is_alive(name):
            driver = drivers[name]
            scheduler.start(name, lambda: driver.run(sizes[name], UNTIL))

    for name, operations, end, size in actions:
        for _ in range(operations):
            revive(name)
            scheduler.let(name)
        if end and scheduler.is_alive(name):
            scheduler.let(name, crash=True)
        if end == "lose the checkpoint" and not scheduler.is_alive(name):
            drivers[name].lose_checkpoint()
            sizes[name] = size
    for name in drivers:
        while scheduler.is_alive(name):
            scheduler.let(name, crash=True)
    scheduler.join()
    assert scheduler.errors == []
    assert not [each for driver in drivers.values() for each in driver.refusals if "deleted" in each]

    result.step = intents.step = no_step
    last = Driver("C", result, intents)
    last.run(5, UNTIL)
    covered = result.covered()
    assert [start for start, _ in covered] == [0, *[end for _, end in covered[:-1]]]
    assert covered[-1][1] == UNTIL
    assert [each.sequence for each in result.log] == list(range(1, len(covered) + 1))
    assert intents.snapshot().next_offsets([KEY]) == {KEY: UNTIL}
