"""What the processes of a measured side take: CPU time, and memory."""

from __future__ import annotations

import psutil


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, that a process and its descendants have taken, the ended ones too."""
    total = 0.0
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # the last two are of children that were waited for
        except psutil.NoSuchProcess:
            continue
    return total


def memory_mb(pid: int, word: str) -> dict[int, float]:
    """Return the resident memory of the descendants of a process whose command has ``word`` in it, by process id."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if any(word in part for part in process.cmdline()):
                found[process.pid] = process.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
    return found
