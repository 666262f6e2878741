"""The command `sparkonce sim`: clusters simulated from seeds, judged by invariants. More: docs/simulator.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from broker_lite.sim.campaign import BUGS, Tally, run_one, run_seeds, search, shrunk
from broker_lite.sim.marks import Mark
from broker_lite.sim.plan import plan_of
from broker_lite.sim.planted import PLANTED
from broker_lite.sim.shrinking import keep_steps
from broker_lite.sim.world import Outcome
from jobs.exit_status import FAILED, GOOD, USAGE

_SEEDS_AT_ONCE = 20
_BAR = 40
_SHRUNK_AT_MOST = 3
"""Of the seeds that failed, so many are made smaller; of the others the number is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, metavar="N", help="run one seed and print its trace, and the trace's hash")
    which.add_argument("--seeds", type=_count, metavar="N", help="run so many seeds, and print what was seen")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of --seeds (default: 0)")
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="processes for --seeds (default: 1)")
    parser.add_argument("--planted", action="store_true", help="after that, plant each known bug, and search for it")
    parser.add_argument("--plant", choices=BUGS, metavar="BUG", help=f"with --seed: plant a bug ({', '.join(BUGS)})")
    parser.add_argument(
        "--keep", type=_indexes, metavar="I,I,...", help="with --seed: only these of its steps, counted from 0"
    )


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1 is needed")
    return value


def _indexes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(",") if each)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: numbers with commas between them are needed, as 0,3,7") from None


def run(options: argparse.Namespace) -> int:
    """Simulate; 1 if an invariant was violated, or a planted bug was not found."""
    if options.seed is not None:
        if options.planted:
            print("sparkonce sim: --planted goes with --seeds; --plant BUG with --seed", file=sys.stderr)
            return USAGE
        return _one(options.seed, options.plant, options.keep)
    if options.plant is not None or options.keep is not None:
        print("sparkonce sim: --plant and --keep go with --seed", file=sys.stderr)
        return USAGE
    return _many(options.first, options.seeds, options.jobs, options.planted)


def _one(seed: int, bug: str | None, keep: Sequence[int] | None) -> int:
    plan = plan_of(seed)
    print(f"seed {seed}: {plan.brokers} brokers, durability {plan.durability.value}")
    for topic in plan.topics:
        print(f"  {topic}")
    print(f"  {plan.settings}")
    chosen = plan if keep is None else keep_steps(plan, set(keep))
    print(f"steps ({len(chosen.steps)} of {len(plan.steps)}):")
    for index, step in enumerate(plan.steps):
        if keep is None or index in keep:
            print(f"  [{index}] {step}")
    outcome = run_one(chosen, bug)
    for line in outcome.trace:
        print(line)
    print(f"violation: {outcome.violation or 'none'}")
    print(f"TRACE seed={seed} lines={len(outcome.trace)} hash={outcome.digest}")
    return GOOD if outcome.violation is None else FAILED


def _many(first: int, count: int, jobs: int, with_planted: bool) -> int:
    began = time.perf_counter()
    tally = Tally()
    for part in _parts(first, count, jobs):
        tally.join(part)
        _show_progress(tally.seeds, count)
    seconds = time.perf_counter() - began
    _show_marks(tally)
    for seed, violation in sorted(tally.violations)[:_SHRUNK_AT_MOST]:
        _show_failure(seed, None, violation)
    left = sorted(seed for seed, _ in tally.violations)[_SHRUNK_AT_MOST:]
    if left:
        print(f"violated in these seeds as well: {', '.join(map(str, left))}")
    found = _search_all(first, count) if with_planted else None
    rate = tally.simulated_ms / 1000 / seconds
    shown = "not-searched" if found is None else f"{found}/{len(PLANTED)}"
    print(
        f"RESULT seeds={tally.seeds} violations={len(tally.violations)} planted_found={shown} "
        f"simulated_s_per_s={rate:.0f}"
    )
    return FAILED if tally.violations or (found is not None and found < len(PLANTED)) else GOOD


def _parts(first: int, count: int, jobs: int) -> Iterator[Tally]:
    """Run the seeds, some at a time; the parts come in any order if there are several processes."""
    end = first + count
    ranges = [range(start, min(start + _SEEDS_AT_ONCE, end)) for start in range(first, end, _SEEDS_AT_ONCE)]
    if jobs == 1:
        yield from map(run_seeds, ranges)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures: list[Future[Tally]] = [pool.submit(run_seeds, each) for each in ranges]
        for future in as_completed(futures):
            yield future.result()


def _search_all(first: int, count: int) -> int:
    found = 0
    print(f"{'planted bug':30} {'found by':>10} {'after':>11}  invariant, source")
    for each in PLANTED:
        outcome, tried = search(each.name, range(first, first + count))
        if outcome is None:
            print(f"{each.name:30} {'-':>10} {tried:5} seeds  NOT FOUND, {each.source}")
            continue
        found += 1
        print(f"{each.name:30} {f'seed {outcome.seed}':>10} {tried:5} seeds  {outcome.invariant}, {each.source}")
    return found


def _show_marks(tally: Tally) -> None:
    print(f"{'times':>8} {'seeds':>7}  seen")
    for mark in sorted(Mark, key=lambda each: -tally.marks[each]):
        print(f"{tally.marks[mark]:8} {tally.seeds_of_mark[mark]:7}  {mark.value}")


def _show_failure(seed: int, bug: str | None, violation: str) -> None:
    """Print a failing seed, made small, with the command that replays it."""
    print(f"seed {seed}: {violation}")
    kept = shrunk(seed, bug, violation.split(":")[0])
    outcome: Outcome = run_one(keep_steps(plan_of(seed), set(kept)), bug)
    print(f"  with {len(kept)} of {len(plan_of(seed).steps)} steps: {outcome.violation}")
    print(f"  again: sparkonce sim --seed {seed} --keep {','.join(map(str, kept))}")


def _show_progress(done: int, count: int) -> None:
    if sys.stderr.isatty():
        filled = _BAR * done // count
        end = "\n" if done == count else ""
        print(f"\r[{'#' * filled}{' ' * (_BAR - filled)}] {done}/{count} seeds", end=end, file=sys.stderr, flush=True)
