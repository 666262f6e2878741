"""A log's folder in memory, and the turns that its writers take.

Theory of operation: each writer is a greenlet, and every operation of its storage is a point at which another may go
on, or the writer may crash or pause. The seed decides; nothing else does (no clock, no thread, no hash of a string).
What lands is judged at once (`lab.log.judge`); the first violation ends the run.

A store has these faults: an answer is lost after a put landed, or its client repeats it and finds its own file; a put
lands late, after others, or never; a listing lacks new files until someone has read them; any request fails.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import BinaryIO

from greenlet import GreenletExit, greenlet

from lab.log.judge import Judge
from sparkonce.offset_store.log.storage import Tag

EPOCH_MS = 1_700_000_000_000
DAY_MS = 86_400_000
MOST_TURNS = 20_000
"""Of a run: more are a livelock."""


class Crashed(BaseException):
    """The writer's process is gone: what it had in memory is lost. No handler of errors sees it."""


@dataclass(frozen=True, slots=True)
class File:
    """A file in the folder."""

    data: bytes
    number: int
    """Of the put: no two files have the same."""
    modified_ms: int
    listed_at: int
    """From which turn on listings show it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is at an operation."""

    failed: float = 0.0
    put: float = 0.0
    """Any of those of puts."""
    crash: float = 0.0
    pause: float = 0.0
    lag: int = 0
    """For how many turns at most a listing lacks a new file."""


@dataclass(slots=True)
class Task:
    """A writer, or another program."""

    name: str
    let: greenlet
    skew_ms: int = 0
    asleep_until: int = 0
    crashes_left: int = 0
    is_busy: bool = False
    """Whether it decides from what it has read of the table, and may put a file: nobody drops the table meanwhile,
    since no put can be made conditional on that."""


@dataclass(slots=True)
class World:
    """One run."""

    rng: Random
    faults: Faults
    is_local: bool
    """Of a local disk: listings and reads are exact, puts land at once or never."""
    judge: Judge = field(default_factory=Judge)
    files: dict[str, File] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    late: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Puts under way: when they land, and what."""
    turns: int = 0
    now_ms: int = EPOCH_MS
    puts: int = 0
    names_given: int = 0
    _now: Task | None = None

    def start(self, name: str, body: Callable[[], None], *, crashes: int = 0) -> None:
        """Add a task, which runs from `run` on."""
        skew = self.rng.choice((0, 0, -5_000, 5_000))
        self.tasks.append(Task(name, greenlet(body), skew, crashes_left=crashes))

    def run(self) -> None:
        """Let the tasks take turns until all have ended, or something was violated."""
        while not self.judge.violations:
            alive = [task for task in self.tasks if not task.let.dead]
            if not alive:
                break
            self.turns += 1
            awake = [task for task in alive if task.asleep_until <= self.turns]
            if not awake:
                self.turns = min(task.asleep_until for task in alive)
                continue
            if self.turns > MOST_TURNS:
                self.judge.fail("livelock", f"{[task.name for task in alive]} still run after {MOST_TURNS} turns")
                break
            self._now = self.rng.choice(awake)
            self._now.let.switch()
        for task in self.tasks:
            if not task.let.dead:
                self._now = task
                task.let.throw(GreenletExit)
        self.tasks.clear()

    @property
    def task(self) -> Task:
        """The task whose turn it is."""
        assert self._now is not None
        return self._now

    def turn(self) -> float:
        """Let others go on; the caller may crash here, or pause. Return the number that was drawn. Raises Crashed."""
        task, faults, drawn = self.task, self.faults, self.rng.random()
        self.turns += 1
        self.now_ms += int(drawn * 64) % 8
        while self.late and self.late[0][0] <= self.turns:
            self.land(*self.late.pop(0)[1:])
        if drawn < 0.3 or self.judge.violations:
            self._switch()
        elif drawn < 0.3 + faults.pause:
            self.sleep(self.rng.choice((20, 100, 1_000)))
        elif drawn > 1 - faults.crash and task.crashes_left:
            task.crashes_left -= 1
            task.is_busy = False
            self.judge.note("crash", task.name)
            raise Crashed
        return drawn

    def sleep(self, turns: int) -> None:
        """Let others have so many turns, if there are others."""
        self.task.asleep_until = self.turns + turns
        self._switch()

    def _switch(self) -> None:
        assert self._now is not None
        self._now.let.parent.switch()

    def clock(self) -> int:
        """Return the time as the task's machine has it."""
        return self.now_ms + self.task.skew_ms

    def new_name(self) -> str:
        """Return a name that nothing else has, in place of a random UUID."""
        self.names_given += 1
        return f"00000000-0000-0000-0000-{self.names_given:012d}"

    def land(self, name: str, data: bytes, *, over: bool = False) -> bool:
        """Put a file, if it is absent unless it may be put ``over`` one; return whether it was put."""
        if name in self.files and not over:
            return False
        self.puts += 1
        lag = self.rng.randrange(self.faults.lag + 1) if self.faults.lag and self.judge.table.version >= 0 else 0
        is_new = name not in self.files
        self.files[name] = File(data, self.puts, self.now_ms, self.turns + lag if lag else 0)
        self.judge.put(name, data, self.now_ms, is_new=is_new)
        return True

    def drop(self) -> None:
        """Delete the table, and all puts under way with it."""
        self.files.clear()
        self.late.clear()
        self.judge.drop()

    def settle(self) -> None:
        """Let every put under way land, and end all faults."""
        for _, name, data in self.late:
            self.land(name, data)
        self.late.clear()
        self.files = {name: replace(file, listed_at=0) for name, file in self.files.items()}
        self.faults = Faults()

    def pass_days(self, days: int) -> None:
        """Move all clocks on; no request is under way for that long."""
        if days:
            self.late.clear()
            self.now_ms += days * DAY_MS


@dataclass(frozen=True, slots=True)
class SimulatedStorage:
    """A `LogStorage` of a world."""

    world: World

    @property
    def is_local(self) -> bool:
        """See `LogStorage`."""
        return self.world.is_local

    def prepare(self) -> None:
        """See `LogStorage.prepare`: there are no folders."""

    def names(self, after: str = "") -> list[str]:
        """See `LogStorage.names`."""
        self._begin()
        exact, now = self.world.is_local, self.world.turns
        files = self.world.files.items()
        return sorted(name for name, file in files if name > after and (exact or file.listed_at <= now))

    def modified(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """See `LogStorage.modified`."""
        for name in self.names() if not folder else ():
            if name in self.world.files:
                yield name, self.world.files[name].modified_ms

    def read(self, name: str) -> bytes:
        """See `LogStorage.read`."""
        self._begin()
        return self._found(name).data

    def open(self, name: str) -> BinaryIO:
        """See `LogStorage.open`."""
        return io.BytesIO(self.read(name))

    def tag(self, name: str) -> Tag | None:
        """See `LogStorage.tag`."""
        self._begin()
        return (self._found(name).number,) if name in self.world.files else None

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `LogStorage.put_if_absent`."""
        return self._put(name, data)

    def put(self, name: str, data: bytes) -> None:
        """See `LogStorage.put`."""
        self._begin()
        self.world.land(name, data, over=True)

    def delete(self, name: str) -> None:
        """See `LogStorage.delete`."""
        if name.endswith(".crc"):  # of Hadoop, which does not write here
            return
        self._begin()
        if self.world.files.pop(name, None) is not None:
            self.world.judge.delete(name, self.world.files.keys())

    def _put(self, name: str, data: bytes, *, over: bool = False) -> bool:
        self._begin()
        world = self.world
        fault = ""
        if world.rng.random() < world.faults.put:
            fault = world.rng.choice(("lost", "never") if world.is_local else ("lost", "repeated", "late", "never"))
            world.judge.note(fault, name)
        if fault == "never":
            raise OSError("the request timed out, and did not arrive")
        if fault == "late":
            world.late.append((world.turns + world.rng.choice((1, 5, 50, 200)), name, data))
            world.late.sort(key=lambda each: each[0])
            raise OSError("the request timed out, and is still under way")
        landed = world.land(name, data, over=over)
        if fault == "lost":
            raise OSError("the answer was lost")
        return landed and fault != "repeated"

    def _begin(self) -> None:
        if 0.5 < self.world.turn() < 0.5 + self.world.faults.failed:
            raise OSError("the store does not answer")

    def _found(self, name: str) -> File:
        file = self.world.files.get(name)
        if file is None:
            raise FileNotFoundError(name)
        if file.listed_at:
            file = self.world.files[name] = replace(file, listed_at=0)
        return file
