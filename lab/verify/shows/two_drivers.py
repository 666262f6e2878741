"""Two drivers with one ``appId`` read one topic into one table or topic; each is paused and resumed in turn.

Theory of operation. Records come to the sink of one driver through Spark; the other's sink reads them itself. Each
begins at the stored offsets, so their batches cover the same records: of two that began at the same offsets, one may
commit. While one driver is paused, the other one commits `LEAST_COMMITS` batches at least: the second was planned after
the pause began, so it moves all partitions that the paused one's batch does. Then this batch is outdated in any case:
the driver resumes as a zombie. Two of three pauses are at a crash point armed beforehand, so that this is certain: at
`CERTAIN` points the driver has compared its batch with the target and not yet committed it, and only the comparison in
the commit itself can stop it. The other pauses are at moments drawn from a seed. A query that fails is followed by the
next one, with a new checkpoint: the remedy that the error names.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.crash_plans import arm, fired, release
from lab.spark_process import SESSION_ENDED, Login, SessionError, SparkProcess
from lab.verify.cells import RecordPath
from lab.verify.evidence import verdict
from lab.verify.records import Sending
from lab.verify.shows.copies import Copy
from lab.verify.shows.stage import ShowError, Stage, wait
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import CrashAction, CrashPlan, CrashPoint
from sparkonce.exactly_once.crash_points import SinkPoint

RECORDS_PER_BATCH = 4_000
"""Few enough that the end of the topic is reached soon, however long a driver was paused."""
FEED_RECORDS, FEED_EVERY_S = 8, 0.1
"""The number of records sent at once, and the interval."""
SESSION = {"spark.master": "local[2]", "spark.driver.memory": "1g"}
FINISHED_BATCH = SinkPoint.BEFORE_COMMIT
CERTAIN = (FINISHED_BATCH, SinkPoint.BEGUN, SinkPoint.WRITING, SinkPoint.FILE_WRITTEN)
"""Points after a batch was compared with the target and before its commit: a driver paused there must be fenced."""
OTHER_POINTS = (*CERTAIN[1:], SourcePoint.PLANNED, SinkPoint.ROWS_LANDED, SinkPoint.AFTER_COMMIT)
LONGEST_WAIT_S = 1.0
PATIENCE_S = 5.0
"""How long a driver has to reach its point while the other one runs; then the other one waits until it does."""
LEAST_COMMITS, MOST_COMMITS = 2, 4
"""How many commits the other one makes at least during a pause."""
_WINNER = re.compile(r"version (\d+) of (.+?) holds batch \d+ of query ([\w-]+)")


class Driver:
    """A Spark session that runs the query, again after each failure, until it is killed."""

    def __init__(self, name: str, copy: Copy, stage: Stage) -> None:
        self.name = name
        self.stops: list[str] = []
        """The errors with which its queries have ended."""
        self.plans = stage.folder / name
        self.plans.mkdir()
        self.process = SparkProcess({**stage.engine.conf, **SESSION}, self.plans, Login(self.plans))
        self.copy = copy
        self._checkpoints: list[Path] = []
        self._begin()

    @property
    def commits(self) -> int:
        """The number of its committed batches, by Spark's log."""
        logs = ([int(path.name) for path in each.glob("commits/[0-9]*")] for each in self._checkpoints)
        return sum(max(numbers, default=-1) + 1 for numbers in logs)

    def has_run(self, query_id: str) -> bool:
        """Whether a query of Spark's with this id is one of its own."""
        found = (each / "metadata" for each in self._checkpoints)
        return any(json.loads(path.read_text())["id"] == query_id for path in found if path.exists())

    def look(self) -> None:
        """Start the next query if the last one has ended.

        Raises:
            SessionError: if the session has ended.
        """
        over, error = self.process.ended(self.copy.checkpoint_name)
        if error == SESSION_ENDED:
            raise SessionError(f"driver {self.name}: {error}; its log ends with:\n{self.process.log_tail()}")
        if over:
            self.stops.append(error or "the query ended without an error")
            self._begin()

    def _begin(self) -> None:
        self.copy = replace(self.copy, checkpoint_name=f"{self.name}/checkpoint-{len(self._checkpoints)}")
        self._checkpoints.append(Path(self.copy.checkpoint))
        self.process.start(self.copy.checkpoint_name, self.copy)


@dataclass(slots=True)
class Match:
    """Pauses ``drivers`` in turn, while records are sent."""

    drivers: tuple[Driver, Driver]
    sending: Sending
    chance: random.Random
    tell: Callable[[str], None]
    unfenced: list[int] = field(default_factory=list)
    """The pauses after which an outdated batch was not fenced."""
    sent_s: float = 0.0
    """When records were last sent."""

    def until(self, happened: Callable[[], bool], what: str, *limit_s: float) -> None:
        """Wait for a condition, as `wait`."""
        wait(lambda: self._go_on() or happened(), what, *limit_s)

    def pause(self, number: int) -> None:
        """Pause a driver, let the other one go on, and resume the first.

        Raises:
            ShowError: if nothing happens.
        """
        turn = number - 1
        driver, other = self.drivers[turn % 2], self.drivers[1 - turn % 2]
        # Both are paused at the same point, one after the other, and every third time at a finished batch.
        where = (FINISHED_BATCH, None, self.chance.choice(OTHER_POINTS))[turn // 2 % 3]
        plan = self._bring_to(driver, other, where, number)
        driver.process.pause()
        before = other.commits
        wanted = before + self.chance.randint(LEAST_COMMITS, MOST_COMMITS)
        self.until(lambda: other.commits >= wanted, f"{wanted - before} commits of {other.name}")
        meanwhile = other.commits - before
        if plan is not None:
            release(plan)
        stops, commits = len(driver.stops), driver.commits
        driver.process.resume()
        self.until(lambda: len(driver.stops) > stops or driver.commits > commits, f"the return of {driver.name}")
        stop = driver.stops[stops] if len(driver.stops) > stops else None
        if where in CERTAIN and "FencedError" not in (stop or ""):
            self.unfenced.append(number)
        at = "at no particular point" if where is None else f"holding at {where.value}"
        self.tell(f"pause {number}: {driver.name} {at}; {meanwhile} commits of the other; {self._told(stop)}")

    def winner(self, error: str) -> str | None:
        """Return whose commit an error names, and its version."""
        found = _WINNER.search(error)
        if found is None:
            return None
        name = next((each.name for each in self.drivers if each.has_run(found[3])), "nobody of the two")
        return f"{name}'s commit, version {found[1]} of {found[2]}"

    def _go_on(self) -> bool:
        """Start queries that have ended, send records, and return False."""
        for driver in self.drivers:
            driver.look()
        if (now_s := time.monotonic()) >= self.sent_s + FEED_EVERY_S:
            first, self.sent_s = self.sending.sent, now_s
            self.sending.send(self.drivers[0].copy.records(range(first, first + FEED_RECORDS)))
        return False

    def _bring_to(self, driver: Driver, other: Driver, where: CrashPoint | None, number: int) -> CrashPlan | None:
        if where is None:
            moment = time.monotonic() + self.chance.uniform(0, LONGEST_WAIT_S)
            self.until(lambda: time.monotonic() >= moment, "a moment")
            return None
        plan = arm(driver.plans, f"pause-{number:04d}", f"{where.value}={CrashAction.HOLD.value}")
        try:
            self.until(lambda: fired(plan) is not None, where.value, PATIENCE_S)
        except ShowError:
            # A new query plans from offsets that a faster rival has moved before they are compared.
            other.process.pause()
            self.until(lambda: fired(plan) is not None, f"{where.value} of {driver.name}")
            other.process.resume()
        return plan

    def _told(self, stop: str | None) -> str:
        if stop is None:
            return "came back, went on and committed"
        winner = self.winner(stop)
        lost = f" (lost against {winner})" if winner else ""
        return f"came back and stopped: {stop.partition(':')[0].rpartition('.')[2]}{lost}"


def course(stage: Stage, pauses: int, seed: int) -> None:
    """Let two drivers compete.

    Raises:
        ShowError, LoadError, SessionError: if they could not.
    """
    stage.engine.tell(f"{stage.cell.name}: {pauses} pauses; the same moments come with --seed {seed}")
    stage.copy = replace(stage.copy, is_endless=True, records_per_batch=RECORDS_PER_BATCH)
    stage.is_cut_off = True
    with ExitStack() as stack:
        drivers = []
        for name, path in zip("AB", RecordPath, strict=True):
            drivers.append(Driver(name, replace(stage.copy, path=path.value), stage))
            stack.callback(drivers[-1].process.kill)
        sending = Sending.begin(stage.copy.bootstrap_servers, stage.copy.topic, [])
        chance = random.Random(seed)  # noqa: S311
        match = Match((drivers[0], drivers[1]), sending, chance, stage.engine.tell)
        match.until(lambda: all(driver.commits or driver.stops for driver in drivers), "the first batches")
        stage.note("fault", "the first pause")
        for number in range(1, pauses + 1):
            match.pause(number)
        match.sent_s = float("inf")
        stage.acknowledged = sending.finish()
        # What else is wrong with the rows is judged later.
        match.until(lambda: not verdict(stage.copy, stage.acknowledged, stage.evidence()).lost, "the last record's row")
    _conclude(stage, match, pauses)


def _conclude(stage: Stage, match: Match, pauses: int) -> None:
    """Say how often drivers were fenced, by whom, and what is wrong with that."""
    stops = [stop for driver in match.drivers for stop in driver.stops]
    fenced = [stop for stop in stops if "FencedError" in stop]
    refused = [stop for stop in stops if "OffsetMismatchError" in stop]
    stage.errors += sorted({*stops} - {*fenced, *refused})
    commits = ", ".join(f"{driver.name} committed {driver.commits} batches" for driver in match.drivers)
    stage.remark = f"{commits}; pauses={pauses} fenced={len(fenced)} refused={len(refused)}"
    named = [stop for stop in fenced if match.winner(stop)]
    if named:
        stage.engine.tell(f"the loser's message:\n  {named[-1]}\nthe winner: {match.winner(named[-1])}")
    if match.unfenced:
        stage.trouble = f"came back with an outdated batch and was not fenced: pauses {match.unfenced}"
    elif not fenced or not all(driver.commits for driver in match.drivers):
        stage.trouble = f"nobody was fenced, or one committed nothing: {stage.remark}"
