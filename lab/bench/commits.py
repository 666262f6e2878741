"""What a commit costs by the age of its table: CPU of looking at the log, and of a commit with one file.

Tables of few and of many versions (`long_log`), each version with a file, get the same batches of one application, in a
process of their own. Both include what is due after some commits, a checkpoint and clean-up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from statistics import mean

from lab.bench import long_log
from lab.bench.results import Bound, Comparison, Results, say
from lab.bench.settings import COMMIT_AGE, COMMIT_VERSIONS, LIMITS, TARGETS, Settings
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import AddFile
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, PartitionKey, Writes

PARTITIONS = 1000
"""With stored offsets."""
MOVED = 4
"""In a batch."""


def run(settings: Settings, results: Results) -> None:
    """Measure the CPU of begin and commit at each age."""
    if COMMIT_AGE not in settings.names:
        return
    means: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        for versions in COMMIT_VERSIONS:
            table = Path(work, f"t{versions}")
            long_log.make(table, versions)
            command = [sys.executable, "-m", "lab.bench.commits", str(table), str(settings.commits)]
            measured = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
            means[versions] = measured["cpu_ms"]
            say(
                f"{COMMIT_AGE}: {versions:,} versions, {mean(means[versions]):.2f} ms of CPU, first look "
                f"{measured['load_s']:.2f} s, {measured['rss_mb']:.0f} MB"
            )
    youngest, oldest = means[min(means)], means[max(means)]
    line = f"{COMMIT_AGE}-ms"
    results.bounds.append(Bound(line, "ms", (mean(oldest),), (mean(youngest),), "a new table", LIMITS[line]))
    ours, new = (mean(oldest),), (mean(youngest),)
    name = f"{COMMIT_AGE}-{max(means)}-versions"
    results.comparisons.append(Comparison(name, "ms", ours, new, "new", TARGETS[COMMIT_AGE], less_is_better=True))


def measure(table: str, commits: int) -> dict[str, object]:
    """Make these commits; return the CPU milliseconds of each, and what the first look cost."""
    store = DeltaOffsetStore(Location.parse(table), "bench")
    keys = [("s", TopicPartition("t", "AAAAAAAAAAAAAAAAAAAAAA", index)) for index in range(PARTITIONS)]
    began_s = time.perf_counter()
    store.snapshot()
    load_s = time.perf_counter() - began_s
    _batch(store, keys, 0, keys)  # the one that stores the offsets of all
    cpu_ms = []
    for number in range(1, commits + 1):
        began = time.process_time()
        _batch(store, keys, number, keys[:MOVED])
        cpu_ms.append(1000 * (time.process_time() - began))
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"cpu_ms": cpu_ms, "load_s": load_s, "rss_mb": int(peak.split()[1]) / 1024}


def _batch(store: DeltaOffsetStore, keys: list[PartitionKey], number: int, moved: list[PartitionKey]) -> None:
    for _ in range(2):  # in `Delivery.begin`, and again before the commit
        snapshot = store.snapshot()
        snapshot.last_batch("q")
        snapshot.next_offsets(keys)
    extent = OffsetRange(number, number + 1, 3, epoch_before=3 if number else None)
    record = BatchRecord("bench", "q", number, str(uuid.uuid4()), dict.fromkeys(moved, extent))
    record = replace(record, fingerprint=Fingerprint.of([number], [number]))
    file = AddFile(f"part-{uuid.uuid4()}.parquet", 700, {}, 0, '{"numRecords":10}', 10)
    snapshot.commit(Commit(record, Writes.ROWS | Writes.OFFSETS, [file]))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
