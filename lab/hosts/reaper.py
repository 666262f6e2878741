"""`python -m lab.hosts.reaper DESCRIPTOR …`: kill what runs on the hosts of a process that has ended.

The descriptors are those of their network namespaces; standard input ends with the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path


def _killed(namespaces: set[str], spared: int) -> bool:
    """Kill every process that is in one of the namespaces; return whether there was one."""
    found = False
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != spared:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if os.readlink(process / "ns" / "net") in namespaces:
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
    return found


def _main() -> None:
    maker = os.getppid()
    namespaces = {os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in sys.argv[1:]}
    sys.stdin.buffer.read()
    while _killed(namespaces, maker):
        time.sleep(0.01)


if __name__ == "__main__":
    _main()
