"""`python -m lab.hosts.clocks CLOCK MONOTONIC_S MODULE …`: run a module of Python with clocks apart from the machine's.

The monotonic clock is ahead by so many seconds, in a time namespace. The time of day, which no namespace has, is ahead
by what the file CLOCK says at the moment (`WallClock`): `time.time` and `time.time_ns` are replaced. The times of
files stay the machine's, and so does what compiled code such as `datetime.now` reads.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import Final

from lab.hosts.network import CLONE_NEWTIME, leave, move_to

_SECONDS: Final = struct.Struct("d")


class WallClock:
    """The time of day of one host, in a file that its processes read."""

    def __init__(self, file: Path, ahead_s: float) -> None:
        self.file = file
        self.set(ahead_s)

    def set(self, ahead_s: float) -> None:
        """Set it to so many seconds ahead of the machine's clock, or behind."""
        self.ahead_s = ahead_s
        with open(self.file, "r+b" if self.file.exists() else "wb") as file:
            file.write(_SECONDS.pack(ahead_s))


def _set_monotonic(ahead_s: int) -> None:
    leave(CLONE_NEWTIME)
    with open("/proc/self/timens_offsets", "w") as offsets:
        offsets.write(f"monotonic {ahead_s} 0\nboottime {ahead_s} 0\n")
    namespace = os.open("/proc/self/ns/time_for_children", os.O_RDONLY)
    move_to(namespace, CLONE_NEWTIME)
    os.close(namespace)


def _set_time_of_day(path: str) -> None:
    time_of_day, time_of_day_ns = time.time, time.time_ns
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)

    def ahead_s() -> float:
        return float(_SECONDS.unpack_from(content)[0])

    time.time = lambda: time_of_day() + ahead_s()
    time.time_ns = lambda: time_of_day_ns() + int(ahead_s() * 1e9)


def _main() -> None:
    clock, monotonic_s, module, *arguments = sys.argv[1:]
    _set_monotonic(int(monotonic_s))
    _set_time_of_day(clock)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
