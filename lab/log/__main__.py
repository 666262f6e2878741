"""The command `python -m lab.log`: simulate writers of a Delta log from seeds, and judge every file that lands."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence

from lab.log.campaign import Tally, quiet, search, tallies
from lab.log.planted import PLANTED
from lab.log.run import run_seed
from sparkonce.jobs.shared.arguments import positive, whole_number
from sparkonce.jobs.shared.command_line import run_module
from sparkonce.jobs.shared.exit_status import FAILED, GOOD

MOST_PLANTED = 2_000
"""Seeds in which a planted bug must be found."""
_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", type=positive, metavar="N", help="run so many seeds, then search each planted bug")
    which.add_argument("--seed", type=whole_number, metavar="N", help="run one seed and print what happened")
    parser.add_argument("--first", type=whole_number, metavar="N", default=0, help="the first of --seeds (default: 0)")
    parser.add_argument("--jobs", type=positive, metavar="N", default=1, help="processes for --seeds (default: 1)")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="search this bug alone; with --seed: plant it")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.plant)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.plant is not None:
        found = _searched([arguments.plant], seeds)
        print(f"RESULT seeds={len(seeds)} violations=0 planted_found={found}/1")
        return GOOD if found else FAILED
    total = _campaign(seeds, arguments.jobs)
    found = _searched(sorted(PLANTED), range(MOST_PLANTED))
    print(
        f"RESULT seeds={total.seeds} violations={len(total.failed)} planted_found={found}/{len(PLANTED)} "
        f"hash={total.hashes[:16]}"
    )
    return GOOD if not total.failed and found == len(PLANTED) else FAILED


def _campaign(seeds: range, jobs: int) -> Tally:
    began, total, whole = time.monotonic(), Tally(seeds.start), hashlib.sha256()
    for number, tally in enumerate(tallies(seeds, jobs), 1):
        total.seeds += tally.seeds
        total.seen += tally.seen
        total.failed += tally.failed
        whole.update(tally.hashes.encode())
        for seed, violation in tally.failed[:_SHOWN]:
            print(f"seed {seed}: {violation}\n  again: python -m lab.log --seed {seed}", flush=True)
        if number % 4 == 0:
            print(f"{total.seeds} seeds, {len(total.failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
    total.hashes = whole.hexdigest()
    print("seen: " + ", ".join(f"{what} {count}" for what, count in sorted(total.seen.items())))
    return total


def _searched(names: Sequence[str], seeds: range) -> int:
    found = 0
    for name in names:
        outcome = search(name, seeds)
        found += outcome is not None
        text = "not found" if outcome is None else f"seed {outcome.seed}: {outcome.violations[0]}"
        print(f"planted {name} ({PLANTED[name].what}): {text}", flush=True)
    return found


def _one(seed: int, plant: str | None) -> int:
    with quiet():
        outcome = run_seed(seed) if plant is None else search(plant, [seed]) or run_seed(seed)
    print("\n".join([*outcome.events, *outcome.violations]))
    print(f"RESULT seeds=1 violations={len(outcome.violations)} planted_found=0 hash={outcome.trace_hash}")
    return FAILED if outcome.violations else GOOD


if __name__ == "__main__":
    sys.exit(run_module("lab.log", add_arguments, run))
