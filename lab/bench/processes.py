"""CPU time and memory of processes, of one or of all its descendants."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

_WORKER = "daemon"
"""A word in the command of Spark's Python workers: see `connectors.runtime.memory.DAEMONS`."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a process and its descendants, including ended ones."""
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


def peak_worker_mb(pid: int) -> float:
    """Return the largest peak of resident memory of the Python workers below a Spark driver; 0 without any."""
    return max((peak_rss_mb(worker) for worker in memory_mb(pid, _WORKER)), default=0.0)


def peak_rss_mb(pid: int) -> float:
    """Return a process's peak resident memory since its start if the system has it, else the current one.

    For a process that has just ended it is 0.
    """
    try:
        status = Path(f"/proc/{pid}/status")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(peak[1]) * 1024 / 1e6 if peak else float(psutil.Process(pid).memory_info().rss / 1e6)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return 0.0
