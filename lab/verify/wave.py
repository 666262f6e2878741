"""Runs some cells side by side: run into the crash, kill the victim, recover, and gather the evidence.

Theory of operation. Every cell has its own topic, table, checkpoint and ``appId``, so its crash plan
affects only itself. Cells that share a victim (a session or broker to kill) form one wave: each runs into its point
and waits there; when all wait or have ended, the victim is killed once. A cell that shares no victim waits for nobody:
it recovers as soon as its first run has ended, and is returned as soon as it has recovered.

Points without a batch number are armed late: the pipeline is first held at the end of batch 0 (the anchor), then the
plan is armed and the pipeline released. So the fault happens in batch 1, with a batch before it and one after it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from lab.crash_plans import arm, disarm, fired, release
from lab.spark_process import SessionError, SparkProcess
from lab.verify import evolving, fates
from lab.verify.brokers import Broker, CrashableBroker
from lab.verify.cells import Cell, Fate, Kind, Moment
from lab.verify.evidence import Evidence, gather
from lab.verify.evolving import Registry
from lab.verify.fates import remove
from lab.verify.features import copy_to, read
from lab.verify.matrix import BROKER_POINTS, crashes_while_producing
from lab.verify.pipelines import Pipeline
from lab.verify.records import TOPIC_NUMBERS, Sending, create_topic, topic_index
from lab.verify.transactions import open_transactions
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import CrashAction, CrashPlan
from sparkonce.exactly_once.crash_points import SinkPoint

RECORDS_PER_BATCH = 8
BEFORE_THE_CRASH = 16
"""Two batches, of which the second is hit."""
AFTER_THE_CRASH = 4
"""Records produced before the restart: the pipeline must also process new data."""
CRASHED_BATCH = 1
RUNS = 2
"""The runs of each pipeline: into the crash, and after it."""
RUN_LIMIT_S = 300.0
"""The time limit for queries to end or to reach their point."""
POLL_S = 0.02
TRANSACTION_TIMEOUT_MS = 10_000
"""`transaction.timeout.ms` where it must expire: enough for a batch, and short enough to wait for."""
TRANSACTION_POLL_S = 0.25
AT_ONCE = 4
"""Pipelines that run side by side, without waiting ones: enough to keep two cores busy, and few
enough for each Python process to start within the ten seconds that Spark allows."""

ACTIONS = {
    Kind.EXCEPTION: CrashAction.RAISE,
    Kind.LOST_ACKNOWLEDGEMENT: CrashAction.RAISE,
    Kind.DISK_FULL: CrashAction.DISK_FULL,
    Kind.WORKER_KILLED: CrashAction.KILL,
    Kind.DRIVER_KILLED: CrashAction.HOLD,
    Kind.BROKER_KILLED: CrashAction.HOLD,
    Kind.TASK_RETRIED: CrashAction.KILL,
    Kind.TRANSACTION_TIMED_OUT: CrashAction.HOLD,
}
WITHOUT_BATCH = frozenset({SourcePoint.PLANNED, SourcePoint.SPLIT, SourcePoint.FINISHED})
"""Points of the planner, which knows offsets and no batches."""
ANCHOR = SinkPoint.AFTER_COMMIT


class Surroundings(Protocol):
    """The interface of a wave's engine."""

    @property
    def crash_folder(self) -> Path:
        """The folder of crash plans for the session's processes."""

    def session(self) -> SparkProcess:
        """Return the running session; start one if there is none."""


@dataclass(slots=True)
class Running:
    """A cell that is running."""

    cell: Cell
    folder: Path
    topic: str
    broker: Broker
    crash_folder: Path
    """The folder of this cell's crash plan: the session's, or that of the cell's own broker."""
    own_broker: CrashableBroker | None = None
    registry: Registry | None = None
    """The schema registry of its values, if it decodes Avro."""
    stored_in: str = ""
    """See `Locations`."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    template: Path | None = None
    """The table with features that is copied to its place."""
    began_s: float = 0.0
    began_wall_s: float = 0.0
    moments: list[Moment] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    acknowledged: list[tuple[bytes, bytes]] = field(default_factory=list)
    produced: int = 0
    """How many records each of its topics was sent."""
    removed: frozenset[tuple[bytes, bytes]] = frozenset()
    """Acknowledged records whose rows were deleted, and must not come back."""
    evidence: Evidence = field(default_factory=Evidence)
    trouble: list[str] = field(default_factory=list)
    """The error of the cell itself."""
    anchor: CrashPlan | None = None
    plan: CrashPlan | None = None
    seen_firing: bool = False
    transactions_seen_s: float = 0.0
    """When its open transactions were last listed."""
    released: bool = False
    """Whether it is released: its victim was killed, or its transactions were aborted."""
    runs: int = 0
    run_began_s: float = 0.0
    over: bool = True
    """Whether no query of it runs."""
    finished: bool = False
    """Whether the broker has returned all evidence."""

    @property
    def app_id(self) -> str:
        """The name of its pipeline; Kafka remembers names, so they are unique over all runs."""
        return f"{self.cell.name}_{self.topic}"

    @property
    def hit_app_id(self) -> str:
        """The appId of the table that is hit."""
        return self.pipeline().tables[0 if self.cell.shared is None else self.cell.shared.hit][1]

    @property
    def shares_a_victim(self) -> bool:
        """Whether the victim at its point is killed once for the whole wave."""
        lets_go_by_itself = self.kills_its_own_broker or self.cell.kind is Kind.TRANSACTION_TIMED_OUT
        return ACTIONS[self.cell.kind] is CrashAction.HOLD and not lets_go_by_itself

    @property
    def holds(self) -> bool:
        """Whether it waits at its point until it is released."""
        return self.shares_a_victim and self.seen_firing and not (self.released or self.over)

    @property
    def waits_for_kafka(self) -> bool:
        """Whether it waits at its point until Kafka has aborted its transactions."""
        return self.cell.kind is Kind.TRANSACTION_TIMED_OUT and self.seen_firing and not self.released

    @property
    def kills_its_own_broker(self) -> bool:
        """Whether no other cell shares its victim, so that it need not wait for others: clients time out."""
        return self.own_broker is not None and self.cell.kind is Kind.BROKER_KILLED

    @property
    def query(self) -> str:
        """The name of its current run."""
        return f"{self.folder.name}#{self.runs}"

    @property
    def anchor_name(self) -> str:
        """The name of its anchor's plan, in the folder of the session's plans."""
        return f"{self.folder.name}.anchor"

    def note(self, lane: str, what: str) -> None:
        """Add an event to the timeline."""
        self.moments.append(Moment(time.monotonic() - self.began_s, lane, what))

    def pipeline(self) -> Pipeline:
        """Return its query."""
        cell = self.cell
        return Pipeline(
            self.app_id, self.broker.bootstrap_servers, self.topic, str(self.folder), cell.guarantee.value,
            cell.result.value, RECORDS_PER_BATCH,
            TRANSACTION_TIMEOUT_MS if cell.kind is Kind.TRANSACTION_TIMED_OUT else None,
            stored_in=self.stored_in, storage_options=self.storage_options, path=cell.path.value,
            features="" if cell.features is None else cell.features.value,
            registry="" if self.registry is None else self.registry.url,
            topics=1 if cell.shared is None else cell.shared.tables, is_ingested=cell.fate is not None,
        )  # fmt: skip


class Wave:
    """The cells of one wave, from their topics to their evidence."""

    def __init__(self, cells: Sequence[Running], around: Surroundings) -> None:
        self._cells = cells
        self._around = around
        self._session = around.session()

    def run(self) -> Iterator[Running]:
        """Run all steps, and yield each cell when it can be judged; errors of a cell are recorded in it."""
        yield from self._run((one, self._prepare) for one in self._cells)
        self._hurt()
        hurt = [one for one in self._cells if one.shares_a_victim]
        yield from self._run((one, self._between) for one in hurt if not one.trouble)
        for one in hurt:
            if not one.finished:
                yield self._finished(one)

    def _guarded(self, one: Running, step: Callable[[Running], None]) -> None:
        try:
            step(one)
        except SessionError:
            raise  # no cell can run
        except Exception as error:  # an error of one cell does not affect the others
            one.trouble.append(f"{type(error).__name__}: {error}")

    # Before the first run.

    def _prepare(self, one: Running) -> None:
        self._make(one)
        if one.cell.fate is not None:
            self._befall(one, one.cell.fate)
        elif not crashes_while_producing(one.cell):
            self._arm_or_anchor(one)

    def _make(self, one: Running) -> None:
        one.began_s, one.began_wall_s = time.monotonic(), time.time()
        if one.registry is not None:
            one.registry.evolve(one.topic, evolving.FIRST)
        if one.template is not None:
            copy_to(one.pipeline(), one.template)
        pipeline = one.pipeline()
        output = pipeline.output_topic
        for topic in (*pipeline.subscribed, *([] if output is None else [output])):
            create_topic(one.broker.bootstrap_servers, topic)
        if one.cell.fate in fates.AWAY:
            fates.make_refusing(pipeline, fates.struck(one.cell))
        if crashes_while_producing(one.cell):
            self._arm(one)
        self._produce(one, BEFORE_THE_CRASH)

    def _befall(self, one: Running, fate: Fate) -> None:
        """Have an ingestion run once, change one of its tables, and arm the crash for its next run."""
        index = fates.struck(one.cell)
        fates.run_first(self._around.session(), one.pipeline(), one.query, fate)
        fates.befall(one.pipeline(), fate, index)
        one.note("commit", f"a table is {fate.value}")
        if fate is Fate.EMPTIED:
            one.removed = frozenset(each for each in one.acknowledged if topic_index(each[0]) == index)
        self._produce(one, BEFORE_THE_CRASH)
        self._arm(one)

    def _arm_or_anchor(self, one: Running) -> None:
        if one.cell.point in WITHOUT_BATCH | BROKER_POINTS or one.registry is not None:
            where = f"{one.app_id}:{ANCHOR.value}@{CRASHED_BATCH - 1}={CrashAction.HOLD.value}"
            one.anchor = arm(self._around.crash_folder, one.anchor_name, where)
        else:
            self._arm(one)

    def _arm(self, one: Running) -> None:
        cell = one.cell
        app = "" if cell.point in BROKER_POINTS else f"{one.hit_app_id}:"
        any_batch = cell.fate is not None or cell.point in WITHOUT_BATCH | BROKER_POINTS
        batch = "" if any_batch else f"@{CRASHED_BATCH}"
        one.plan = arm(one.crash_folder, one.folder.name, f"{app}{cell.point.value}{batch}={ACTIONS[cell.kind].value}")

    def _produce(self, one: Running, count: int) -> None:
        """Send so many records to each topic."""
        pipeline, numbers = one.pipeline(), range(one.produced, one.produced + count)
        one.produced += count
        for index, topic in enumerate(pipeline.subscribed):
            records = pipeline.records([index * TOPIC_NUMBERS + number for number in numbers])
            sending = Sending.begin(one.broker.bootstrap_servers, topic, records)
            one.acknowledged += sending.finish(lambda: self._look_at_producing(one))

    def _look_at_producing(self, one: Running) -> None:
        if crashes_while_producing(one.cell) and self._notice_firing(one) and one.kills_its_own_broker:
            self._restart(one.broker, [one])

    # Runs.

    def _run(self, cells: Iterable[tuple[Running, Callable[[Running], None]]]) -> Iterator[Running]:
        """Run the cells' pipelines until they wait or have ended, a few at a time; recover those that share no victim.

        Each cell comes with what is done right before its run. Yields the cells that need no further run; those with
        trouble that share a victim are left.
        """
        waiting, active = deque(cells), list[Running]()
        while waiting or active:
            while waiting and sum(not one.waits_for_kafka for one in active) < AT_ONCE:
                one, before = waiting.popleft()
                self._guarded(one, before)
                if not one.trouble:
                    self._guarded(one, self._start)
                active.append(one)
            left = self._follow(active)
            settled = [one for one in active if all(one is not other for other in left)]
            active = left
            for one in settled:
                if one.runs == RUNS or (one.trouble and not one.shares_a_victim):
                    yield self._finished(one)
                elif not one.shares_a_victim:
                    waiting.appendleft((one, self._between))

    def _start(self, one: Running) -> None:
        self._session = self._around.session()
        one.runs += 1
        one.over = False
        one.run_began_s = time.monotonic()
        one.note("pipeline", "starts" if one.runs == 1 else "is started again")
        self._session.start(one.query, one.pipeline())

    def _follow(self, active: Sequence[Running]) -> list[Running]:
        """Check running pipelines, and return those that have neither ended nor reached their point."""
        for one in active:
            self._look(one)
        left = [one for one in active if not (one.over or one.holds or one.trouble)]
        hung = [one for one in left if time.monotonic() - one.run_began_s > RUN_LIMIT_S]
        if hung:
            self._give_up(hung)
            return []
        if left:
            time.sleep(POLL_S)
        return left

    def _look(self, one: Running) -> None:
        if one.over:
            return
        if one.anchor is not None and fired(one.anchor) is not None:
            self._go_on(one, one.anchor)
            one.anchor = None
        if self._notice_firing(one) and one.kills_its_own_broker:
            self._restart(one.broker, [one])
        if one.waits_for_kafka:
            self._release_when_timed_out(one)
        over, error = self._session.ended(one.query)
        if over:
            self._ended(one, error)

    def _go_on(self, one: Running, anchor: CrashPlan) -> None:
        """Let a pipeline continue to the batch that is hit; the registry is then down or was just restarted."""
        if one.registry is not None:
            one.registry.evolve(one.topic, evolving.RUNNING)
        self._arm(one)
        release(anchor)
        if one.registry is not None and one.cell.kind is Kind.EXCEPTION:
            one.note("broker", "the registry is killed")
            one.registry.restart()
            one.note("broker", "the registry serves again")

    def _release_when_timed_out(self, one: Running) -> None:
        """Release the driver as soon as Kafka has aborted the transactions that were open at the point."""
        now_s = time.monotonic()
        if now_s - one.transactions_seen_s < TRANSACTION_POLL_S:
            return
        one.transactions_seen_s = now_s
        if not open_transactions(one.broker.bootstrap_servers, one.hit_app_id):
            one.note("broker", "has aborted what was open for too long")
            self._release(one)

    def _release(self, one: Running) -> None:
        assert one.plan is not None
        one.released = True
        release(one.plan)

    def _ended(self, one: Running, error: str | None) -> None:
        one.over = True
        self._notice_firing(one)
        one.note("pipeline", "ends" if error is None else "ends with an error")
        if error is not None:
            one.errors.append(error)

    def _notice_firing(self, one: Running) -> bool:
        """Note whether the plan has fired since the last check."""
        if one.seen_firing or one.plan is None or fired(one.plan) is None:
            return False
        one.seen_firing = True
        one.note("fault", f"{one.cell.kind.value} at {one.cell.point.value}")
        if one.registry is not None:
            one.registry.evolve(one.topic, evolving.HIT)
        return True

    def _give_up(self, hung: Sequence[Running]) -> None:
        self._session.kill()
        for one in self._cells:
            if one in hung:
                one.trouble.append(f"run {one.runs} neither ended nor reached its point within {RUN_LIMIT_S:g} s")
            if not one.over:
                one.over = True
                one.note("pipeline", "is killed")

    # The crash.

    def _hurt(self) -> None:
        holding = [one for one in self._cells if one.holds]
        if not holding:
            return
        if holding[0].cell.kind is Kind.DRIVER_KILLED:
            fenced = [one for one in holding if one.cell.fate is Fate.FENCED]
            for one in fenced:
                self._guarded(one, self._overtake)
            self._settle(fenced)
            holding = [one for one in holding if one not in fenced]
            self._session.kill()
            for registry in {id(one.registry): one.registry for one in holding}.values():
                if registry is not None:
                    registry.restart()
            for one in holding:
                one.over = True
                one.note("pipeline", "is killed")
                self._release(one)  # a waiting broker continues
            return
        for broker in {id(one.broker): one.broker for one in holding}.values():
            self._restart(broker, [one for one in holding if one.broker is broker])
        self._settle(holding)

    def _settle(self, going_on: Sequence[Running]) -> None:
        while going_on:
            going_on = self._follow(going_on)

    def _overtake(self, one: Running) -> None:
        """Have another driver write everything, and let the one that waits go on."""
        other = replace(one.pipeline(), is_ingested=False, checkpoint_name="other")
        if error := self._session.run(f"{one.query}-other", other):
            raise RuntimeError(f"the other driver ended so: {error}")
        one.note("commit", "another driver has written everything")
        self._release(one)

    def _restart(self, broker: Broker, hurt: Sequence[Running]) -> None:
        broker.kill()
        for one in hurt:
            one.note("broker", "is killed")
        broker.restart()
        for one in hurt:
            one.note("broker", "serves again")
            self._release(one)

    # After it.

    def _between(self, one: Running) -> None:
        disarm(one.crash_folder, one.folder.name)  # a plan that has not fired by now must not fire later
        one.released = True
        if one.cell.delete_checkpoint:
            remove(one.pipeline().checkpoint, one.storage_options)
            one.note("checkpoint", "is deleted")
        if one.registry is not None:
            for version in (evolving.HIT, evolving.RESTARTED):
                one.registry.evolve(one.topic, version)
        if one.cell.fate is Fate.BESIDE_AWAY:
            fates.mend(one.pipeline(), fates.struck(one.cell))
        self._produce(one, AFTER_THE_CRASH)

    def _finished(self, one: Running) -> Running:
        one.finished = True
        self._guarded(one, self._finish)
        return one

    def _finish(self, one: Running) -> None:
        with contextlib.ExitStack() as stack:
            if one.own_broker is not None:
                stack.callback(one.own_broker.close)
            one.evidence = gather(one.pipeline()).without(one.removed)
            one.acknowledged = [each for each in one.acknowledged if each not in one.removed]
            if one.template is not None:
                read(self._around.session(), one.pipeline())
