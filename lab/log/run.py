"""One seed: who writes, what fails, and what the judge says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from types import SimpleNamespace
from typing import Any

from lab.log.others import Others
from lab.log.store import Faults, SimulatedStorage, World
from lab.log.writers import Driver, SparkCheckpoint, change_by_hand, claim, compare_state, keep_up
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store import delta, restoring
from sparkonce.offset_store.log import reader, table_log

G = Guarantee


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed showed."""

    seed: int
    violations: Sequence[str]
    trace_hash: str
    seen: Counter[str]
    events: Sequence[str]


class _Inline:
    """In place of a pool of threads: calls are made at once."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def submit(self, call: Callable[..., Any], *args: Any) -> _Done:
        try:
            return _Done(call(*args))
        except Exception as error:
            return _Done(error=error)


@dataclass(frozen=True, slots=True)
class _Done:
    """A call's outcome, as a future has it."""

    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


_whole_parse = reader._parse_actions


@lru_cache(maxsize=2_000)
def _parsed_once(data: bytes, kinds: frozenset[str], where: str) -> dict[str, list[Any]]:
    return _whole_parse(data, set(kinds), where)


def _parsed(data: bytes, kinds: set[str], where: str) -> dict[str, list[Any]]:
    """Parse a file once, since writers read the same ones: a third of the time of a seed."""
    return _parsed_once(data, frozenset(kinds), where)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put something in another's place for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Let the product see this world's store, clock and names, and use no thread."""
    with ExitStack() as stack:
        put = partial(lambda owner, name, value: stack.enter_context(replaced(owner, name, value)))
        put(reader, "log_storage", lambda *_: SimulatedStorage(world))
        put(reader, "ThreadPoolExecutor", _Inline)
        put(reader, "_parse_actions", _parsed)
        put(restoring, "gone_files", lambda *_: [])  # no file of rows exists
        put(table_log, "now_ms", world.clock)
        put(table_log, "uuid", SimpleNamespace(uuid4=world.new_name))
        delta._accounted.clear()
        yield


def run_seed(seed: int, wants: Set[str] = frozenset()) -> Outcome:
    """Run one seed; ``wants`` names what it must have, which else few seeds have."""
    rng = Random(seed)  # noqa: S311
    world = _world(rng)
    with simulated(world):
        apps = _start(world, lambda what, likely: rng.random() < likely or what in wants)
        world.run()
        if not world.judge.violations:
            world.settle()
            for app_id, guarantee, replaces in apps:
                last = Driver(world, f"last-{app_id}", app_id, guarantee, SparkCheckpoint(f"last-{app_id}"), replaces)
                last.is_last = True
                world.start(last.name, last.run)
            world.run()
            world.start("reader", partial(compare_state, world))
            world.run()
    return Outcome(seed, tuple(world.judge.violations), world.judge.trace_hash, world.judge.seen, world.judge.events)


def _world(rng: Random) -> World:
    faults = Faults(
        failed=rng.choice((0, 0, 0.01, 0.05)),
        put=rng.choice((0, 0.1, 0.4)),
        crash=rng.choice((0, 0.01, 0.05)),
        pause=rng.choice((0, 0.01, 0.03)),
        lag=rng.choice((0, 0, 20, 200)),
    )
    return World(rng, faults, is_local=rng.random() < 0.3)


def _start(world: World, has: Callable[[str, float], bool]) -> list[tuple[str, Guarantee, bool]]:
    """Make the table, and start those who work on it; return the applications."""
    rng = world.rng
    properties = {}
    if rng.random() < 0.4:
        properties["delta.enableInCommitTimestamps"] = "true"
    features = ["inCommitTimestamp"] if properties else []
    if rng.random() < 0.5:
        features += ["rowTracking", "domainMetadata"]
    if has("checkpoints", 0.02):
        properties["delta.checkpointInterval"] = str(rng.choice((3, 6)))
        properties["delta.logRetentionDuration"] = "interval 1 day"
        world.start("upkeep", partial(keep_up, world), crashes=1)
    others = Others(world, features, properties)
    others.create()
    guarantee = rng.choice((G.EXACTLY_ONCE, G.EXACTLY_ONCE, G.EXACTLY_ONCE, G.AT_LEAST_ONCE, G.AT_MOST_ONCE))
    guarantee = G.AT_LEAST_ONCE if has("at-least-once", 0) else guarantee
    world.judge.guarantee = guarantee.value
    apps = [("a", guarantee, rng.random() < 0.15)]
    if rng.random() < 0.25:
        apps.append(("b", guarantee, False))
    for app_id, _, replaces in apps:
        checkpoint = SparkCheckpoint(f"query-{app_id}")
        for number in range(rng.choice((1, 2, 2))):
            kind = rng.randrange(3) if number else 0
            mine = (checkpoint, SparkCheckpoint(checkpoint.query_id), SparkCheckpoint(f"query-{app_id}-{number}"))[kind]
            driver = Driver(world, f"{app_id}{number}", app_id, guarantee, mine, replaces)
            world.start(driver.name, driver.run, crashes=2)
    for number in range(rng.choice((0, 0, 0, 2))):
        world.start(f"claim-{number}", partial(claim, world), crashes=1)
    if has("by-hand", 0.3):
        world.start("by-hand", partial(_by_hand, world), crashes=1)
    if has("others", 0.6):
        world.start("others", partial(_others, world, others))
    if has("drop", 0.1):
        world.start("drop", partial(_drop, world, others))
    return apps


def _by_hand(world: World) -> None:
    world.sleep(world.rng.randrange(100))
    change_by_hand(world, "a")


def _others(world: World, others: Others) -> None:
    for _ in range(world.rng.randrange(1, 5)):
        world.sleep(world.rng.randrange(60))
        others.act()


def _drop(world: World, others: Others) -> None:
    for _ in range(50):
        world.sleep(world.rng.randrange(20, 60))
        if not any(task.is_busy for task in world.tasks if not task.let.dead):
            return others.drop_and_create(world.rng.choice((0, world.judge.table.version)))
    return None
