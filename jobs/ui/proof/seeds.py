"""A seed of the simulator, event by event: which brokers are up, who leads, how far each log is.

The trace is what `sparkonce sim --seed N` prints, run in a process of its own, as a planted bug changes the code of the
process that it is in. The picture is drawn from the lines that it knows; it leaves out what no line tells, and a trace
without such lines has none. What was appended and is not yet safe is what is in flight.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

TIME_LIMIT_S = 60.0
KEPT = 16
"""Seeds that are kept after they ran."""
MAX_RUNNING = 2
"""Seeds that run at once: each keeps a core busy."""
places = threading.BoundedSemaphore(MAX_RUNNING)
_LINE = re.compile(r"\s*(\d+) (.+)")
_END = re.compile(r"TRACE seed=\d+ lines=\d+ hash=(\w+)")
_VIOLATION = "violation: "


class SeedError(RuntimeError):
    """A seed that could not be run; the message says why."""


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One event."""

    at_ms: int
    """Simulated."""
    text: str

    @property
    def is_fault(self) -> bool:
        """Whether it is something that goes wrong on purpose."""
        return self.text.startswith("step: ") or bool(re.fullmatch(r"broker \d+ dies.*", self.text))


@dataclass(frozen=True, slots=True)
class SeedRun:
    """A seed that was run."""

    seed: int
    bug: str
    """"" for none."""
    head: tuple[str, ...]
    """The plan in words: brokers, topics, settings, steps."""
    lines: tuple[TraceLine, ...]
    violation: str | None
    digest: str

    @property
    def command(self) -> str:
        """How to run it again."""
        return " ".join(["sparkonce", "sim", *_options(self.seed, self.bug)])


def bugs() -> tuple[str, ...]:
    """Return the names of the bugs that can be planted."""
    from sparkonce.broker_lite.sim.campaign import BUGS

    return BUGS


def _options(seed: int, bug: str) -> list[str]:
    return ["--seed", str(seed), *(["--plant", bug] if bug else [])]


@lru_cache(KEPT)
def run_seed(seed: int, bug: str = "") -> SeedRun:
    """Run a seed.

    Raises:
        SeedError: if it cannot be run.
    """
    command = [sys.executable, "-m", "sparkonce", "sim", *_options(seed, bug)]
    if not places.acquire(blocking=False):  # who waited would keep a thread from the other pages
        raise SeedError(f"{MAX_RUNNING} seeds are running: try again when one has ended")
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SeedError(f"seed {seed} took more than {TIME_LIMIT_S:g} s: run {' '.join(command[2:])} by hand") from None
    finally:
        places.release()
    run = read_output(seed, bug, ended.stdout.splitlines())
    if run is None:
        why = ended.stderr.strip().rpartition("\n")[2] or "it printed no trace"
        raise SeedError(f"seed {seed} could not be run: {why}")
    return run


def read_output(seed: int, bug: str, output: Sequence[str]) -> SeedRun | None:
    """Read what the command printed; None if it is not a whole run."""
    end = _END.fullmatch(output[-1]) if output else None
    violations = [line.removeprefix(_VIOLATION) for line in output if line.startswith(_VIOLATION)]
    if end is None or not violations:
        return None
    # Topics and steps are indented too, and steps begin with a number in brackets: the trace comes after them.
    begin = next((at for at, line in enumerate(output) if _LINE.fullmatch(line)), len(output))
    found = [match for line in output[begin:] if (match := _LINE.fullmatch(line))]
    lines = tuple(TraceLine(int(each[1]), each[2]) for each in found)
    violation = None if violations[-1] == "none" else violations[-1]
    return SeedRun(seed, bug, tuple(output[:begin]), lines, violation, end[1])


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One partition on one broker, as far as lines told."""

    end: int = 0
    safe: int = 0
    """The high watermark."""


@dataclass(frozen=True, slots=True)
class ClusterPicture:
    """The cluster after some events."""

    brokers: Mapping[int, str] = field(default_factory=dict)
    """``up`` or ``down``."""
    controller: int | None = None
    leaders: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By partition: leader and epoch; -1 for none."""
    in_sync: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    """Names by ids."""
    logs: Mapping[tuple[int, str], ReplicaLog] = field(default_factory=dict)
    """By broker and partition."""

    @property
    def partitions(self) -> list[str]:
        """All partitions that a line named."""
        return sorted({*self.leaders, *(name for _, name in self.logs)})

    @property
    def longest(self) -> int:
        """For the scale of the logs."""
        return max([1, *(log.end for log in self.logs.values())])


_Change = Callable[[ClusterPicture, "re.Match[str]"], ClusterPicture]


def _is(state: str) -> _Change:
    def change(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
        return replace(before, brokers={**before.brokers, int(found[1]): state})

    return change


def _controls(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
    return replace(before, controller=int(found[1]))


def _leads(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
    leaders = {**before.leaders, found[2]: (int(found[1]), int(found[3]))}
    return replace(before, leaders=leaders)


def _named(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
    return replace(before, topics={**before.topics, found[2]: found[1]})


def _changed(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
    name = f"{before.topics.get(found[1], found[1])}-{found[2]}"
    in_sync = tuple(int(each) for each in found[3].split(",") if each.strip())
    leaders = {**before.leaders, name: (int(found[4]), int(found[5]))}
    return replace(before, leaders=leaders, in_sync={**before.in_sync, name: in_sync})


def _appends(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
    return _log(before, found, lambda log: replace(log, end=int(found[4]) + 1))


def _cuts(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
    at = int(found[3])
    return _log(before, found, lambda log: ReplicaLog(at, min(log.safe, at)))


def _safe(before: ClusterPicture, found: re.Match[str]) -> ClusterPicture:
    at = int(found[3])
    return _log(before, found, lambda log: ReplicaLog(max(log.end, at), at))


def _log(before: ClusterPicture, found: re.Match[str], change: Callable[[ReplicaLog], ReplicaLog]) -> ClusterPicture:
    key = int(found[1]), found[2]
    return replace(before, logs={**before.logs, key: change(before.logs.get(key, ReplicaLog()))})


_NAME = r"(\S+-\d+)"
_CHANGE = (
    r"log \d+: PartitionChanged\(topic_id=UUID\('([^']+)'\), partition=(\d+), "
    r"state=PartitionState\(.*in_sync_replicas=\(([\d, ]*)\), leader=(-?\d+), leader_epoch=(\d+),.*"
)
_KNOWN: tuple[tuple[re.Pattern[str], _Change], ...] = (
    (re.compile(r"broker (\d+) starts.*"), _is("up")),
    (re.compile(r"broker (\d+) (?:dies|has stopped|does not start).*"), _is("down")),
    (re.compile(r"log \d+: ControllerElected\(controller_id=(\d+),.*"), _controls),
    (re.compile(r"log \d+: TopicCreated\(name='([^']+)', topic_id=UUID\('([^']+)'\).*"), _named),
    (re.compile(_CHANGE), _changed),
    (re.compile(rf"broker (\d+) leads {_NAME} in epoch (\d+)"), _leads),
    (re.compile(rf"broker (\d+) appends {_NAME} (\d+) to (\d+)"), _appends),
    (re.compile(rf"broker (\d+) cuts {_NAME} at (\d+)"), _cuts),
    (re.compile(rf"broker (\d+): {_NAME} is safe below (\d+)"), _safe),
)


def picture_after(lines: Sequence[TraceLine]) -> ClusterPicture:
    """Return the cluster after these events."""
    picture = ClusterPicture()
    for line in lines:
        for pattern, change in _KNOWN:
            found = pattern.fullmatch(line.text)
            if found is not None:
                picture = change(picture, found)
                break
    return picture
