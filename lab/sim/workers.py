"""Seeds on several processes, any of which may die without ending the campaign.

Theory of operation: each worker is a process with a pipe. It receives a block of seeds, returns the result of each,
and receives the next; after some blocks a new process replaces it, so that nothing that a run leaves behind adds
up. If a worker is killed, its pipe ends, and its remaining seeds are known. They are run again, each
in its own process: a seed that ends its process once more is reported by its number; all others count as usual.
Workers end with the process that started them, however that ends, and leave Ctrl-C to it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from typing import Final

from lab.sim.campaign import Tally, run_seeds

SEEDS_AT_ONCE: Final = 20
BLOCKS_PER_PROCESS: Final = 20
"""After so many blocks a worker is replaced."""
PROCESS_ENDS: Final = "process-ends"
"""The invariant violated by a seed that ends its process."""

_HUGE_PAGES: Final = (
    {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if sys.platform == "linux" else {}
)
"""Environment of a worker: glibc asks for huge pages, which Python's own allocator does not. On a virtual machine,
where a TLB miss costs twice as much, a seed takes a third less CPU time."""

Run = Callable[[Iterable[int]], Tally]


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    block: range
    """Its seeds without a result yet."""
    blocks_left: int
    alone: bool
    """Whether it was started for one seed, as a worker with that seed has died before."""


def tallies(seeds: range, jobs: int, run: Run = run_seeds) -> Generator[Tally]:
    """Run seeds on several processes; results come in any order."""
    starts = range(seeds.start, seeds.stop, SEEDS_AT_ONCE)
    todo = deque(range(start, min(start + SEEDS_AT_ONCE, seeds.stop)) for start in starts)
    working: list[_Worker] = []
    try:
        while todo or working:
            while todo and len(working) < jobs:
                working.append(_begin(todo.popleft(), run))
            there = wait([each.pipe for each in working])
            for worker in [each for each in working if each.pipe in there]:
                tally = _answer(worker)
                if tally is None:
                    working.remove(worker)
                    tally = _died(worker, todo)
                elif worker.block:
                    pass  # it continues with its next seed
                elif not todo or not worker.blocks_left:
                    working.remove(worker)
                    _end(worker)
                else:
                    _give(worker, todo.popleft())
                yield tally
    finally:
        for worker in working:
            worker.process.kill()
            _end(worker)


def _begin(block: range, run: Run) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, run), daemon=True)
    resource_tracker.ensure_running()  # otherwise the first start begins it, which unblocks Ctrl-C
    # A worker inherits blocked signals: a terminal sends Ctrl-C to all processes, and only this one reports it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    added = {name: value for name, value in _HUGE_PAGES.items() if name not in os.environ}
    os.environ.update(added)
    try:
        process.start()
    finally:
        for name in added:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    # A single seed of a dead worker: its effect on the process must not affect other seeds.
    alone = len(block) == 1
    worker = _Worker(process, ours, block, 1 if alone else BLOCKS_PER_PROCESS, alone)
    _give(worker, block)
    return worker


def _give(worker: _Worker, block: range) -> None:
    worker.block = block
    worker.blocks_left -= 1
    with suppress(OSError):  # it has died: its pipe has ended, which is noticed when its result is read
        worker.pipe.send(block)


def _answer(worker: _Worker) -> Tally | None:
    """Return a worker's result of its next seed; None if it has died."""
    try:
        found = worker.pipe.recv()
    except (EOFError, OSError):
        return None
    assert isinstance(found, Tally)
    worker.block = worker.block[1:]
    return found


def _died(worker: _Worker, todo: deque[range]) -> Tally:
    """Run the seeds of a dead worker alone; if it had only one, report that."""
    _end(worker)
    block, code = worker.block, worker.process.exitcode
    if not worker.alone:
        text = f"a process ended with exit code {code}; its seeds {block[0]} to {block[-1]} are run again, each alone"
        print(f"lab.sim: {text}", file=sys.stderr)
        todo.extendleft(range(seed, seed + 1) for seed in reversed(block))
        return Tally()
    text = f"{PROCESS_ENDS}: the process that ran this seed alone ended with exit code {code}"
    return Tally(seeds=1, violations=[(block[0], text)])


def _end(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.join()


def _work(pipe: Connection, run: Run) -> None:
    """Process seeds until the parent has ended."""
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            block = pipe.recv()
        except EOFError:
            return
        for seed in block:
            pipe.send(run([seed]))


def _end_with_parent() -> None:
    """End this process when its parent has ended, even if that was killed, and in the middle of a seed."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
