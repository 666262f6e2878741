"""The duel: which driver is paused, when, until when, and its fate after it resumed.

Theory of operation. Both drivers read one topic into one target, each from its stored offsets, so their batches cover
the same records: of two that began at the same offsets, one may commit. While one driver is paused, the other continues
until it has moved every partition. Then the paused one's batch is outdated in any case: it resumes as
a zombie. Half of the pauses are at a crash point armed beforehand, so that this is certain: at `CERTAIN` points the
driver has compared its batch with the table and not yet committed it, and only the comparison in the commit itself
can stop it. The other pauses are at moments drawn from a seed.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab.crash_plans import fired, release
from lab.duel.arena import Arena
from lab.duel.rival import Rival, Stop
from lab.verify.records import PARTITIONS
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import CrashAction, CrashPlan, CrashPoint
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.offset_store.record import CommittedBatch

FINISHED_BATCH = SinkPoint.BEFORE_COMMIT
CERTAIN = frozenset({FINISHED_BATCH, SinkPoint.BEGUN, SinkPoint.WRITING, SinkPoint.FILE_WRITTEN})
"""Points after a batch was compared with the target and before its commit: a driver paused there must be fenced."""
OTHER_POINTS = (
    SourcePoint.PLANNED,
    SinkPoint.BEGUN,
    SinkPoint.WRITING,
    SinkPoint.FILE_WRITTEN,
    SinkPoint.ROWS_LANDED,
    SinkPoint.AFTER_COMMIT,
)
LONGEST_WAIT_S = 1.0
PATIENCE_S = 5.0
"""How long a driver has to reach its point while the other one runs; then the other one waits until it does."""
MOST_COMMITS = 3
"""How many commits the other one makes at least during a pause: one to this many."""
LOOK_EVERY_S = 0.1

_WINNER = re.compile(r"version (\d+) of (.+?) holds batch \d+ of query ([\w-]+)")


@dataclass(frozen=True, slots=True)
class Bout:
    """One pause of a driver."""

    number: int
    paused: str
    where: CrashPoint | None
    """None: at no particular point."""
    versions: tuple[int, ...]
    """The other one's commits meanwhile."""
    stop: Stop | None
    """How the paused one's query ended; None if it continued and committed, as one without an open batch may."""

    @property
    def is_wrong(self) -> bool:
        """Whether a zombie resumed with an outdated batch and was not fenced."""
        return self.where in CERTAIN and (self.stop is None or not self.stop.is_fenced)


@dataclass(slots=True)
class Match:
    """Pauses ``rivals`` in turn."""

    rivals: tuple[Rival, Rival]
    arena: Arena
    chance: random.Random
    tell: Callable[[str], None]
    bouts: list[Bout] = field(default_factory=list)

    def fight(self, pauses: int) -> None:
        """Pause and resume this many times.

        Raises:
            DuelError: if a driver dies or nothing happens.
        """
        for rival in self.rivals:
            rival.wait(lambda rival=rival: bool(rival.queries), f"a query of {rival.name}")  # type: ignore[misc]
        for number in range(1, pauses + 1):
            bout = self._bout(number)
            self.bouts.append(bout)
            self.tell(self._describe(bout))

    def committed(self) -> dict[str, int]:
        """Count the commits of each driver."""
        batches = self.arena.commits_after(-1)
        return {rival.name: len(self._of(rival, batches)) for rival in self.rivals}

    def winner(self, stop: Stop) -> str | None:
        """Return whose commit an error names, and its version."""
        found = _WINNER.search(stop.error)
        if found is None:
            return None
        name = next((rival.name for rival in self.rivals if found[3] in rival.queries), "nobody of the two")
        return f"{name}'s commit, version {found[1]} of {found[2]}"

    def _bout(self, number: int) -> Bout:
        turn = number - 1
        rival, other = self.rivals[turn % 2], self.rivals[1 - turn % 2]
        where = self._choose_point(turn // 2)
        plan = self._bring_to(rival, other, where, number)
        rival.pause()
        since = self.arena.version()
        wanted = self.chance.randint(1, MOST_COMMITS)
        other.wait(lambda: self._has_moved_on(other, since, wanted), f"{wanted} commits of {other.name}")
        if plan is not None:
            release(plan)
        versions = tuple(sorted(batch.version for batch in self._of(other, self.arena.commits_after(since))))
        stops, resumed_at = len(rival.stops), self.arena.version()
        rival.resume()
        rival.wait(
            lambda: len(rival.stops) > stops or bool(self._of(rival, self.arena.commits_after(resumed_at))),
            f"the return of {rival.name}",
        )
        stop = rival.stops[stops] if len(rival.stops) > stops else None
        return Bout(number, rival.name, where, versions, stop)

    def _choose_point(self, round_number: int) -> CrashPoint | None:
        """Return a point for two pauses of three rounds; in a round both drivers are paused at the same point."""
        return (FINISHED_BATCH, None, self.chance.choice(OTHER_POINTS))[round_number % 3]

    def _bring_to(self, rival: Rival, other: Rival, where: CrashPoint | None, number: int) -> CrashPlan | None:
        if where is None:
            time.sleep(self.chance.uniform(0, LONGEST_WAIT_S))
            return None
        plan = rival.arm(f"pause-{number:04d}", f"{where.value}={CrashAction.HOLD.value}")
        if not rival.happens(lambda: fired(plan) is not None, PATIENCE_S):
            # A new query plans from offsets that a faster rival has moved before they are compared.
            other.pause()
            rival.wait(lambda: fired(plan) is not None, f"{where.value} of {rival.name}")
            other.resume()
        return plan

    def _has_moved_on(self, other: Rival, since: int, wanted: int) -> bool:
        """Whether a driver has made enough commits since a version, and moved every partition by them."""
        time.sleep(LOOK_EVERY_S)
        batches = self._of(other, self.arena.commits_after(since))
        moved = {key for batch in batches for key in batch.record.moved}
        return len(batches) >= wanted and len(moved) == PARTITIONS

    def _of(self, rival: Rival, batches: Sequence[CommittedBatch]) -> list[CommittedBatch]:
        queries = set(rival.queries)
        return [batch for batch in batches if batch.record.query_id in queries]

    def _describe(self, bout: Bout) -> str:
        where = "at no particular point" if bout.where is None else f"holding at {bout.where.value}"
        if bout.stop is None:
            end = "went on and committed" + (": NOT FENCED" if bout.is_wrong else "")
        else:
            end = f"stopped: {bout.stop.error.rpartition('errors.')[2].partition(':')[0]}"
            winner = self.winner(bout.stop)
            end += f" (lost against {winner})" if winner else ""
        meanwhile = f"{len(bout.versions)} commits of the other, to version {max(bout.versions)}"
        return f"pause {bout.number}: {bout.paused} {where}; {meanwhile}; came back and {end}"
