"""Have Apache Kafka's own tool judge segment files and their indexes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lab.peers import run_tool

DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = ("mismatch", "isvalid: false", "exception", "out of order", "invalid", "corrupt", "found timestamp")


def partitions_below(folder: Path) -> list[Path]:
    """Return the directories of partitions with records, of all brokers whose data lie in a folder."""
    found = {path.parent for path in folder.glob("*/*/*.log") if path.stat().st_size}
    return sorted(path for path in found if (path / "partition.metadata").exists())


def assert_kafka_finds_nothing_wrong(partitions: Iterable[Path], *, compacted: bool = False) -> None:
    """Read every segment record by record, and every index entry, of closed partitions' directories.

    Offsets may be missing only if the partitions were `compacted`.
    """
    partitions = list(partitions)
    logs = sorted(path for partition in partitions for path in partition.glob("*.log"))
    indexes = sorted(path for partition in partitions for path in partition.glob("*index"))
    assert logs
    assert indexes
    checks = ("--deep-iteration", "--index-sanity-check", "--files")  # the first for logs, the second for indexes
    result = run_tool(DUMP, *checks, ",".join(map(str, [*logs, *indexes])))
    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    # The tool starts each file at -1, so it says this of every segment that does not begin at 0, Kafka's own too.
    for log in logs:
        start = f"-1 is followed by {int(log.stem)}"
        said = re.sub(rf"Non-consecutive offsets in {re.escape(str(log))}\n\s+{start}\n", "", said)
    assert compacted or "Non-consecutive" not in said, said
    for complaint in COMPLAINTS:
        assert complaint not in said.replace("isvalid: true", "").lower(), said
