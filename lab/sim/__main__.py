"""The command `python -m lab.sim`: simulate clusters from seeds, check invariants: docs/internals/simulator.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from lab.sim.campaign import BUGS, Tally, ablate, keep_steps, run_one, run_seeds, search, shrunk
from lab.sim.former import FormerVersionError, former_version
from lab.sim.marks import Mark
from lab.sim.plan import Coordination, SeedPlan, plan_of
from lab.sim.planted.shell import PLANTED
from lab.sim.workers import PROCESS_ENDS, Run, tallies
from sparkonce.jobs.shared.arguments import positive, whole_number
from sparkonce.jobs.shared.command_line import run_module
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, INTERRUPTED, USAGE

_BAR = 30
_LINE_EVERY_S = 30.0
"""How often progress is printed if the output is not a terminal."""
_SHRUNK_AT_MOST = 3
"""Of the seeds that failed, so many are made smaller; of the others the number is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "exit status: 0 nothing violated, and every planted bug found; 1 an invariant was violated, or "
        "a planted bug was not found; 2 usage; 130 ended by Ctrl-C"
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--seed", type=whole_number, metavar="N", help="run one seed and print its trace, and the trace's hash"
    )
    which.add_argument("--seeds", type=positive, metavar="N", help="run so many seeds, and print what was seen")
    parser.add_argument(
        "--coordination",
        choices=[each.value for each in Coordination],
        help="what all clusters rest on (default: what the seed says, a ZooKeeper for a third of them)",
    )
    parser.add_argument(
        "--beside",
        metavar="DIR",
        help="a checkout of another version: some brokers are of that one, and upgraded one after the other",
    )
    parser.add_argument("--first", type=whole_number, metavar="N", help="the first of --seeds (default: 0)")
    parser.add_argument("--jobs", type=positive, metavar="N", help="processes for --seeds (default: 1)")
    parser.add_argument(
        "--planted", action="store_true", help="with --seeds: after that, plant each known bug, and search for it"
    )
    parser.add_argument(
        "--ablations",
        action="store_true",
        help="with --seeds: plant each known bug in turn, and count the seeds that find it",
    )
    parser.add_argument(
        "--enough", type=positive, metavar="N", help="with --ablations: go on with the next bug after so many seeds"
    )
    parser.add_argument(
        "--plant",
        choices=BUGS,
        metavar="BUG",
        help=f"with --seed: plant a bug; with --seeds: only search for it in these, in one process ({', '.join(BUGS)})",
    )
    parser.add_argument(
        "--keep", type=_indexes, metavar="I,I,...", help="with --seed: only these of its steps, counted from 0"
    )


class _Seeds(NamedTuple):
    """Which seeds to run, what their clusters rest on (None: each seed decides), and a former version, if any."""

    first: int
    amount: int
    coordination: Coordination | None
    beside: str | None

    @property
    def numbers(self) -> range:
        """The seeds."""
        return range(self.first, self.first + self.amount)

    @property
    def option(self) -> str:
        """The options to add to a command that replays one of them."""
        coordination = "" if self.coordination is None else f" --coordination {self.coordination.value}"
        return coordination if self.beside is None else f"{coordination} --beside {self.beside}"

    def plan_of(self, seed: int) -> SeedPlan:
        """Return the plan of a seed."""
        return plan_of(seed, self.coordination, self.beside)


def _indexes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(",") if each)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: numbers with commas between them are needed, as 0,3,7") from None


def run(options: argparse.Namespace) -> int:
    """Simulate; 1 if an invariant was violated, or a planted bug was not found."""
    wrong = _misused(options)
    if wrong is not None:
        print(f"lab.sim: {wrong}", file=sys.stderr)
        return USAGE
    coordination = None if options.coordination is None else Coordination(options.coordination)
    if options.seed is not None:
        return _one(plan_of(options.seed, coordination, options.beside), options.plant, options.keep)
    seeds = _Seeds(options.first or 0, options.seeds, coordination, options.beside)
    if options.plant is not None:
        return _search_one(options.plant, seeds)
    if options.ablations:
        return _ablate(seeds, options.jobs or 1, options.enough)
    return _many(seeds, options.jobs or 1, options.planted)


def _misused(options: argparse.Namespace) -> str | None:
    """Return what is wrong with options that exclude each other, or with steps that do not exist."""
    if options.enough is not None and not options.ablations:
        return "--enough goes with --ablations"
    if options.ablations and (options.planted or options.plant is not None):
        return "--ablations goes with neither --planted nor --plant: it plants every bug"
    if options.beside is not None:
        if options.planted or options.ablations or (options.seed is None and options.plant is not None):
            return "--beside goes with none of --planted, --ablations and --seeds with --plant"
        try:
            former_version(options.beside)
        except FormerVersionError as error:
            return str(error)
    if options.seed is None:
        if options.keep is not None:
            return "--keep goes with --seed: steps are those of one seed"
        if options.plant is not None and (options.planted or options.jobs is not None):
            return "--plant goes with neither --planted, which searches for every bug, nor --jobs"
        return None
    for name in ("planted", "jobs", "first", "ablations"):
        if getattr(options, name):
            return f"--{name} goes with --seeds; --seed runs one" + (", also with --plant BUG" * (name == "planted"))
    coordination = options.coordination and Coordination(options.coordination)
    steps = len(plan_of(options.seed, coordination, options.beside).steps)
    absent = [each for each in options.keep or () if not 0 <= each < steps]
    if absent:
        return f"--keep: seed {options.seed} has steps 0 to {steps - 1}, and no {', '.join(map(str, absent))}"
    return None


def _one(plan: SeedPlan, bug: str | None, keep: Sequence[int] | None) -> int:
    print(f"seed {plan.seed}: {plan.brokers} brokers, durability {plan.durability.value}")
    for topic in plan.topics:
        print(f"  {topic}")
    print(f"  {plan.settings}")
    if plan.zookeeper is not None:
        print(f"  {plan.zookeeper}")
    if plan.former is not None:
        print(f"  {plan.former}")
    chosen = plan if keep is None else keep_steps(plan, set(keep))
    print(f"steps ({len(chosen.steps)} of {len(plan.steps)}):")
    for index, step in enumerate(plan.steps):
        if keep is None or index in keep:
            print(f"  [{index}] {step}")
    outcome = run_one(chosen, bug)
    for line in outcome.trace:
        print(line)
    violation = outcome.violation or ("none" if bug is None else f"none: this seed does not notice {bug}")
    print(f"violation: {violation}")
    print(f"TRACE seed={plan.seed} lines={len(outcome.trace)} hash={outcome.digest}")
    return GOOD if bug is None and outcome.violation is None else FAILED


def _many(seeds: _Seeds, jobs: int, with_planted: bool) -> int:
    progress = _Progress(seeds.amount)
    tally = Tally()
    try:
        for part in _parts(seeds, jobs, partial(run_seeds, coordination=seeds.coordination, beside=seeds.beside)):
            tally.join(part)
            progress.show(tally.seeds)
            for seed, violation in part.violations:
                progress.tell(f"seed {seed}: {violation}")
    except KeyboardInterrupt:
        progress.tell(f"interrupted after {tally.seeds} of {seeds.amount} seeds")
        _show_marks(tally)
        return INTERRUPTED
    seconds = progress.seconds
    _show_marks(tally)
    for seed, violation in sorted(tally.violations)[:_SHRUNK_AT_MOST]:
        _show_failure(seed, seeds, None, violation)
    left = sorted(seed for seed, _ in tally.violations)[_SHRUNK_AT_MOST:]
    if left:
        print(f"violated in these seeds as well: {', '.join(map(str, left))}")
    found = _search_all(seeds) if with_planted else None
    rate = tally.simulated_ms / 1000 / seconds
    shown = "not-searched" if found is None else f"{found}/{len(PLANTED)}"
    print(
        f"RESULT seeds={tally.seeds} violations={len(tally.violations)} planted_found={shown} "
        f"simulated_s_per_s={rate:.0f}"
    )
    return FAILED if tally.violations or (found is not None and found < len(PLANTED)) else GOOD


def _parts(seeds: _Seeds, jobs: int, run: Run) -> Generator[Tally]:
    """Run the seeds; with several processes, results come in any order."""
    if jobs > 1:
        return tallies(seeds.numbers, jobs, run)
    return (run([seed]) for seed in seeds.numbers)


def _search_one(bug: str, seeds: _Seeds) -> int:
    """Search for one planted bug; shrink the seed that finds it."""
    outcome, tried = search(bug, seeds.numbers, seeds.coordination)
    if outcome is not None:
        _show_failure(outcome.seed, seeds, bug, str(outcome.violation))
    print(f"RESULT seeds={tried} planted_found={int(outcome is not None)}/1")
    return GOOD if outcome is not None else FAILED


def _search_all(seeds: _Seeds) -> int:
    found = 0
    print(f"{'planted bug':30} {'found by':>10} {'after':>11}  invariant, source")
    for each in PLANTED:
        outcome, tried = search(each.name, seeds.numbers, seeds.coordination)
        if outcome is None:
            print(f"{each.name:30} {'-':>10} {tried:5} seeds  NOT FOUND, {each.source}")
            continue
        found += 1
        print(f"{each.name:30} {f'seed {outcome.seed}':>10} {tried:5} seeds  {outcome.invariant}, {each.source}")
    return found


def _ablate(seeds: _Seeds, jobs: int, enough: int | None) -> int:
    """Plant each bug in turn, and count the seeds that find it."""
    print(f"{'what is wrong':30} {'found in':>13} {'first by':>11}  invariants; what it is")
    never = 0
    for each in PLANTED:
        tally = _ablated(each.name, seeds, jobs, enough)
        invariants = Counter(violation.split(":")[0] for _, violation in tally.violations)
        seen = ", ".join(f"{name} {times}" for name, times in invariants.most_common()) or "NEVER"
        by = f"seed {min(tally.violations)[0]}" if tally.violations else "-"
        found = f"{len(tally.violations)} of {tally.seeds}"
        print(f"{each.name:30} {found:>13} {by:>11}  {seen}; {each.source}", flush=True)
        never += not tally.violations
    print(f"RESULT seeds={seeds.amount} ablations={len(PLANTED)} never_found={never}")
    return FAILED if never else GOOD


def _ablated(bug: str, seeds: _Seeds, jobs: int, enough: int | None) -> Tally:
    """Plant a bug and run seeds until `enough` have found it, or all of them if that is None."""
    tally = Tally()
    with closing(_parts(seeds, jobs, partial(ablate, bug, coordination=seeds.coordination))) as parts:
        for part in parts:
            tally.join(part)
            if enough is not None and len(tally.violations) >= enough:
                break
    return tally


def _show_marks(tally: Tally) -> None:
    print(f"{'times':>8} {'seeds':>7}  seen")
    for mark in sorted(Mark, key=lambda each: -tally.marks[each]):
        print(f"{tally.marks[mark]:8} {tally.seeds_of_mark[mark]:7}  {mark.value}")


def _show_failure(seed: int, seeds: _Seeds, bug: str | None, violation: str) -> None:
    """Print a failing seed, shrunk, with the command that replays it."""
    print(f"seed {seed}: {violation}")
    if violation.startswith(PROCESS_ENDS):
        return  # running it here would end this process as well
    plan = seeds.plan_of(seed)
    kept = shrunk(plan, bug, violation.split(":")[0])
    outcome = run_one(keep_steps(plan, set(kept)), bug)
    print(f"  with {len(kept)} of {len(plan.steps)} steps: {outcome.violation}")
    planted = "" if bug is None else f" --plant {bug}"
    print(f"  again: python -m lab.sim --seed {seed}{seeds.option}{planted} --keep {','.join(map(str, kept))}")


class _Progress:
    """Progress on stderr: a bar on a terminal, otherwise a line from time to time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._began_s = self._told_s = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began_s

    def show(self, done: int) -> None:
        """Show the progress."""
        seconds, count = self.seconds, self._count
        rate = done / seconds
        text = f"{done}/{count} seeds, {rate:.1f}/s, {_duration(round((count - done) / rate))} left" if done else ""
        if sys.stderr.isatty():
            filled = _BAR * done // count
            end = "\n" if done == count else ""
            bar = f"\r[{'#' * filled}{' ' * (_BAR - filled)}] {text:<50}"
            print(bar, end=end, file=sys.stderr, flush=True)
        elif time.perf_counter() - self._told_s >= _LINE_EVERY_S:
            self._told_s = time.perf_counter()
            print(f"lab.sim: {text}", file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        """Print a message at once, on its own line."""
        start = "\n" if sys.stderr.isatty() else ""
        print(f"{start}lab.sim: {text}", file=sys.stderr, flush=True)


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return run_module("lab.sim", add_arguments, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
