"""The same seed is the same run: in another process, with other hashes of strings, after other seeds."""

from __future__ import annotations

import os
import subprocess
import sys

from lab.sim.campaign import run_one, run_seeds
from lab.sim.plan import plan_of

SEEDS = (3, 12, 60, 147)
PROGRAM = """
from lab.sim.campaign import run_one
from lab.sim.plan import plan_of
print(*(run_one(plan_of(seed), None).digest for seed in {seeds}))
"""


def digests_of_another_process(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    program = PROGRAM.format(seeds=SEEDS)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    run_seeds(range(5))
    ours = [run_one(plan_of(seed), None).digest for seed in SEEDS]
    assert len(set(ours)) == len(SEEDS)
    assert digests_of_another_process("1") == ours
    assert digests_of_another_process("2") == ours
