"""What a commit costs: CPU by the age of its table, and how many one process makes in a second.

A batch looks at the log twice, and commits one file. Tables of few and of many versions (`long_log`), each version with
a file, get the same batches of one application, in a process of their own; new tables in a local folder and in a real
store with S3's interface get as many as fit into a second, beside delta-rs's commits of the same file, which look at
the log once and, in a folder, are not synced to the disk. All include what is due after some commits, a
checkpoint and clean-up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from lab.bench import long_log
from lab.bench.results import Bound, Comparison, Missing, Results, say
from lab.bench.settings import COMMIT_AGE, COMMIT_RATE, COMMIT_VERSIONS, LIMITS, TARGETS, Settings
from lab.store.stores import open_store
from sparkonce.jobs.shared.jars import PeerMissingError
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
STORES = ("local", "s3")
OURS, DELTA_RS = "sparkonce", "delta-rs"


def run(settings: Settings, results: Results) -> None:
    """Measure the CPU of begin and commit at each age, and the rate of commits."""
    if COMMIT_AGE in settings.names:
        _compare_ages(settings, results)
    if COMMIT_RATE in settings.names:
        for kind in STORES:
            try:
                _compare_rates(kind, settings, results)
            except PeerMissingError as error:
                results.missing.append(Missing("versitygw", str(error), "install Go, or name it in VERSITYGW"))


def _compare_ages(settings: Settings, results: Results) -> None:
    means: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        for versions in COMMIT_VERSIONS:
            table = Path(work, f"t{versions}")
            long_log.make(table, versions)
            measured = _measured(OURS, str(table), settings.commits, {})
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


def _compare_rates(kind: str, settings: Settings, results: Results) -> None:
    rates: dict[str, list[float]] = {OURS: [], DELTA_RS: []}
    with tempfile.TemporaryDirectory(prefix="bench-") as work, open_store(kind) as store:
        options = dict(store.storage_options)
        for number in range(settings.rounds):
            for side, found in rates.items():
                folder = Path(work, f"{side}-{number}")
                table = store.location(folder) or str(folder)
                DeltaTable.create(table, long_log.SCHEMA, storage_options=options)
                found.append(_measured(side, table, settings.commits, options)["commits_per_s"])
                say(f"{COMMIT_RATE}-{kind}: round {number + 1}/{settings.rounds}, {side} {found[-1]:,.0f} commits/s")
    ours, theirs = tuple(rates[OURS]), tuple(rates[DELTA_RS])
    results.comparisons.append(Comparison(f"{COMMIT_RATE}-{kind}", "commits/s", ours, theirs, DELTA_RS))


def _measured(side: str, table: str, commits: int, storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Return what a side's process tells of its commits."""
    command = [sys.executable, "-m", "lab.bench.commits", side, table, str(commits)]
    options = json.dumps(storage_options)  # not among its arguments, which others see
    found: dict[str, Any] = json.loads(
        subprocess.run(command, input=options, stdout=subprocess.PIPE, check=True, text=True).stdout
    )
    return found


def measure(table: str, commits: int, storage_options: Mapping[str, str]) -> dict[str, object]:
    """Make these commits; return their rate, the CPU milliseconds of each, and what the first look cost."""
    store = DeltaOffsetStore(Location.parse(table), "bench", storage_options)
    keys = [("s", TopicPartition("t", "AAAAAAAAAAAAAAAAAAAAAA", index)) for index in range(PARTITIONS)]
    began_s = time.perf_counter()
    store.snapshot()
    load_s = time.perf_counter() - began_s
    _batch(store, keys, 0, keys)  # the one that stores the offsets of all
    cpu_ms = []
    began_s = time.perf_counter()
    for number in range(1, commits + 1):
        began = time.process_time()
        _batch(store, keys, number, keys[:MOVED])
        cpu_ms.append(1000 * (time.process_time() - began))
    rate = commits / (time.perf_counter() - began_s)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"commits_per_s": rate, "cpu_ms": cpu_ms, "load_s": load_s, "rss_mb": int(peak.split()[1]) / 1024}


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


def measure_delta_rs(table: str, commits: int, storage_options: Mapping[str, str]) -> dict[str, object]:
    """Make as many commits with delta-rs, from one handle; return their rate."""
    handle = DeltaTable(table, storage_options=dict(storage_options))
    schema = handle.schema()
    began_s = time.perf_counter()
    for number in range(commits):
        handle.update_incremental()
        file = AddAction(f"part-{uuid.uuid4()}.parquet", 700, {}, 0, True, '{"numRecords":10}')
        transactions = [Transaction(f"bench/{index}", number) for index in range(MOVED + 1)]
        properties = CommitProperties(app_transactions=transactions)
        handle.create_write_transaction([file], "append", schema, commit_properties=properties)
    return {"commits_per_s": commits / (time.perf_counter() - began_s)}


SIDES: Mapping[str, Callable[[str, int, Mapping[str, str]], dict[str, object]]] = {
    OURS: measure,
    DELTA_RS: measure_delta_rs,
}

if __name__ == "__main__":
    print(json.dumps(SIDES[sys.argv[1]](sys.argv[2], int(sys.argv[3]), json.load(sys.stdin))))
