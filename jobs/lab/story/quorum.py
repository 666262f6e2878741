"""Majority quorums beside in-sync replicas: what each outlives, and what an acknowledgement costs. All of it computed.

Theory of operation: in-sync replicas are played with the real cores on a `Stage`. The quorum is a small model of
Raft's rules: the leader acknowledges what a majority has, itself among them; who may lead must have a log not shorter
than those of a majority of all voters, and only those that are alive vote. Both are tried with every choice of brokers
that die, and the worst counts. Brokers that die do not come back, and the set of voters
or replicas stays as it is.

A follower's time is how long the leader waits for its next fetch or answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.jobs.lab.story.stage import LAG_TIME_MAX_MS, Stage
from sparkonce.jobs.lab.story.view import Table, Telling

FOLLOWERS_MS = (1, 2, 3, 40)
"""How long each follower takes; of fewer followers the slowest one, and the quickest of the others."""
_SIZES = (3, 5)


_Cluster = TypeVar("_Cluster", "Majority", "InSync")


@dataclass
class Majority:
    """Replicas that acknowledge what a majority has; as they fail, for good."""

    replicas: int
    logs: dict[int, list[str]] = field(init=False)
    alive: set[int] = field(init=False)
    leader: int = 1

    def __post_init__(self) -> None:
        self.logs = {each: [] for each in range(1, self.replicas + 1)}
        self.alive = set(self.logs)

    @property
    def needed(self) -> int:
        """How many are a majority of all voters, dead or alive."""
        return self.replicas // 2 + 1

    def write(self, label: str, copies: int | None = None) -> bool:
        """Write to `copies` replicas, the leader among them, or to all alive; returns whether it is acknowledged."""
        if self.leader not in self.alive:
            return False
        others = sorted(self.alive - {self.leader})
        reached = [self.leader, *(others if copies is None else others[: copies - 1])]
        for each in reached:
            self.logs[each] = [*self.logs[self.leader], label] if each != self.leader else [*self.logs[each], label]
        return len(reached) >= self.needed

    def fail(self, dead: Iterable[int]) -> None:
        """Let replicas die; if the leader is one of them, the worst candidate that can win is elected."""
        self.alive -= set(dead)
        if self.leader in self.alive:
            return
        winners = [
            each
            for each in self.alive
            if sum(len(self.logs[voter]) <= len(self.logs[each]) for voter in self.alive) >= self.needed
        ]
        self.leader = min(winners, key=lambda each: len(self.logs[each]), default=NO_LEADER)

    def serves(self, label: str) -> bool:
        """Whether a leader can be sure of the record: it has it, and a majority to confirm it."""
        return self.leader in self.alive and label in self.logs[self.leader] and len(self.alive) >= self.needed


class InSync:
    """Replicas that acknowledge what all in sync have, played with the real cores."""

    def __init__(self, replicas: int, least: int) -> None:
        self.stage = Stage(replicas, least=least)
        self.stage.produce("m0")
        self._follow()

    @property
    def alive(self) -> list[int]:
        """Who has not died."""
        return [each for each, node in self.stage.nodes.items() if node.alive]

    def write(self, label: str) -> bool:
        """Write with acks=all, and let all fetch that are alive; returns whether it is acknowledged."""
        if self.stage.produce(label) is not ErrorCode.NONE:
            return False
        self._follow()
        return label in self.stage.acknowledged

    def shrink_to(self, count: int) -> None:
        """Let all but so many cease to fetch until they are out of sync; then write m1."""
        self.stage.produce("m", acks=1)
        quick = self.alive[1:count]
        self.stage.catch_up(*quick)
        self.stage.pass_lag_time()
        self.stage.alter_in_sync()
        self.stage.produce("m1")
        self.stage.catch_up(*quick)

    def fail(self, dead: Iterable[int]) -> None:
        """Let replicas die, at once."""
        gone = tuple(dead)
        self.stage.crash(*gone)
        self.stage.end_leases(*gone)

    def serves(self, label: str) -> bool:
        """Whether there is a leader, and it has the record."""
        leader = self.stage.state.leader
        return leader != NO_LEADER and label in {cell.label for cell in self.stage.cells(self.stage.nodes[leader])}

    def _follow(self) -> None:
        self.stage.catch_up(*[each for each in self.alive if each != self.stage.state.leader])


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of one arrangement; counts of brokers, milliseconds."""

    name: str
    replicas: int
    copies: int
    """In how many replicas a record is at least when it is acknowledged."""
    writes_after: int
    """How many may die, one after the other, so that writes are still acknowledged."""
    keeps_after: int
    """How many may die, one after the other, so that what was acknowledged before is still served."""
    outlives: int
    """How many may die at once, in the worst case, so that what was acknowledged is still served."""
    acknowledged_ms: int
    hang_ms: int
    """How long an acknowledgement takes if the slowest follower hangs."""


def quorum() -> Telling:
    """Compare the two on three and five replicas."""
    rows = [row for replicas in _SIZES for row in _rows(replicas)]
    table = Table(
        "Crashes for good, and milliseconds with followers that take "
        + "; ".join(f"{', '.join(map(str, _times(size)))} ms ({size} replicas)" for size in _SIZES),
        (
            "acknowledges",
            "replicas",
            "copies, at least",
            "crashes, writes go on",
            "crashes, records kept",
            "crashes at once, worst case",
            "ack ms",
            "ack ms, slowest hangs",
        ),
        tuple(
            (
                row.name,
                str(row.replicas),
                str(row.copies),
                str(row.writes_after),
                str(row.keeps_after),
                str(row.outlives),
                str(row.acknowledged_ms),
                str(row.hang_ms),
            )
            for row in rows
        ),
    )
    majority, in_sync = rows[0], rows[2]
    figures = {
        f"{name}_{figure}": getattr(row, figure)
        for name, row in (("majority", majority), ("isr", in_sync))
        for figure in ("copies", "writes_after", "keeps_after", "outlives", "acknowledged_ms", "hang_ms")
    }
    return Telling("both", (), figures, (table,))


def _rows(replicas: int) -> list[Row]:
    return [_majority(replicas), *(_in_sync(replicas, least) for least in range(1, replicas // 2 + 2))]


def _majority(replicas: int) -> Row:
    fewest = next(copies for copies in range(1, replicas + 1) if Majority(replicas).write("m1", copies))

    def written() -> Majority:
        cluster = Majority(replicas)
        cluster.write("m1", fewest)
        return cluster

    times = _times(replicas)
    return Row(
        "a majority has it",
        replicas,
        fewest,
        _one_after_the_other(written, lambda cluster: cluster.write("m2"), lambda cluster: cluster.leader),
        _one_after_the_other(written, lambda cluster: cluster.serves("m1"), lambda cluster: cluster.leader),
        _at_once(replicas, written, lambda cluster: cluster.serves("m1")),
        times[fewest - 2],
        times[fewest - 2],
    )


def _in_sync(replicas: int, least: int) -> Row:
    def all_in_sync() -> InSync:
        cluster = InSync(replicas, least)
        cluster.write("m1")
        return cluster

    def fewest_in_sync() -> InSync:
        cluster = InSync(replicas, least)
        cluster.shrink_to(least)
        return cluster

    shrunk = fewest_in_sync()
    return Row(
        f"all in sync have it, min.insync.replicas {least}",
        replicas,
        len(shrunk.stage.state.in_sync_replicas),
        _one_after_the_other(all_in_sync, lambda cluster: cluster.write("m2"), lambda each: each.stage.state.leader),
        _one_after_the_other(all_in_sync, lambda cluster: cluster.serves("m1"), lambda each: each.stage.state.leader),
        _at_once(replicas, fewest_in_sync, lambda cluster: cluster.serves("m1")),
        _times(replicas)[-1],
        _hanging_ms(replicas, least),
    )


def _one_after_the_other(
    begin: Callable[[], _Cluster], holds: Callable[[_Cluster], bool], leader: Callable[[_Cluster], int]
) -> int:
    """Let the leader die, and the next, until it does not hold any more; returns how many could die."""
    cluster = begin()
    died = 0
    while len(cluster.alive) > 1:
        cluster.fail([leader(cluster)])
        if not holds(cluster):
            break
        died += 1
    return died


def _at_once(replicas: int, begin: Callable[[], _Cluster], holds: Callable[[_Cluster], bool]) -> int:
    """Try every choice of brokers that die at once; returns how many may, whichever they are."""
    for count in range(1, replicas + 1):
        for dead in combinations(range(1, replicas + 1), count):
            cluster = begin()
            cluster.fail(dead)
            if not holds(cluster):
                return count - 1
    return replicas


def _times(replicas: int) -> Sequence[int]:
    return (*FOLLOWERS_MS[: replicas - 2], FOLLOWERS_MS[-1])


def _hanging_ms(replicas: int, least: int) -> int:
    """Measure how long the real leader waits for one in sync that is alive and has ceased to fetch."""
    stage = InSync(replicas, least).stage
    began_ms = stage.now_ms
    stage.produce("m1")
    stage.catch_up(*range(2, replicas))
    while "m1" not in stage.acknowledged and stage.now_ms - began_ms < 10 * LAG_TIME_MAX_MS:
        stage.pass_time(LAG_TIME_MAX_MS // 2)
        stage.alter_in_sync()
    return stage.now_ms - began_ms
