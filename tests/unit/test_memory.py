"""Memory that is freed stays with the process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from sparkonce.connectors.runtime.memory import keep_freed_memory

FAULTS = """
import ctypes, resource, sys
import numpy as np
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: pages of one size, or what is counted differs every time
from sparkonce.connectors.runtime.memory import keep_freed_memory
if "keep" in sys.argv:
    assert keep_freed_memory()
def fill():
    batch = [np.ones(12 << 20, np.uint8) for _ in range(5)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
fill(); before = fill()
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*words: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, *words], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt")
def test_buffers_of_megabytes_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert faults("keep") * 4 < faults()


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert not keep_freed_memory()
