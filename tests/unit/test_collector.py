"""Which calls of a worker begin with a freeze, and that a collection afterwards passes over what there was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkonce.connectors.runtime.memory import DAEMONS, FREEZE_AT, is_due

PROJECT = Path(__file__).resolve().parents[2]
WORKER = """
import gc, sys
from sparkonce.connectors.runtime import memory
memory._main_module = lambda: sys.argv[1]
counts = []
for _ in range(11):
    memory.begin_call()
    counts.append(gc.get_freeze_count())
print(*counts)
"""


@pytest.mark.parametrize("main_module", DAEMONS)
def test_the_second_call_and_a_later_one_freeze(main_module: str) -> None:
    assert tuple(call for call in range(1, 50) if is_due(call, main_module)) == FREEZE_AT


@pytest.mark.parametrize("main_module", ["pytest", "__main__", None])
def test_other_processes_are_left_alone(main_module: str | None) -> None:
    assert not any(is_due(call, main_module) for call in range(1, 50))


@pytest.mark.parametrize(("main_module", "freezes"), [("pyspark.daemon", True), ("another", False)])
def test_what_is_there_leaves_the_collector(main_module: str, freezes: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WORKER, main_module], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    counts = [int(count) for count in ended.stdout.split()]
    assert counts[0] == 0
    if freezes:
        assert counts[1] > 1000
        assert counts[1] == counts[8]
        assert counts[9] >= counts[1]
    else:
        assert counts == [0] * 11
