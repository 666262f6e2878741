"""docs/lag.md lists the metrics that are served, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from sparkonce import LagListener, PartitionLag, SourceLag
from sparkonce.connectors.lag.state import KEEP_ENDED_S, MAX_PARTITIONS, MAX_QUERIES, Batch, LagState
from sparkonce.offset_store.record import BatchCounts

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "lag.md").read_text()


def served() -> set[str]:
    state = LagState()
    source = SourceLag(0, "kafka", "d", 1, (PartitionLag("t", 0, 1, 2),), 1, 1, 1, 1)
    state.progressed(Batch("q", "r", "q", 0, 1, 1, (source,), BatchCounts(read_bytes=1)), 0)
    listener = LagListener(SimpleNamespace(streams=None), state, lambda: 0.0)  # type: ignore[arg-type]
    names = re.findall(r"^(sparkonce_\w+)(?:\{| )", listener.metrics_text(), re.MULTILINE)
    return {name for name in names if not name.endswith("_created")}


def listed() -> set[str]:
    found = set()
    for row in re.findall(r"^\| (`sparkonce_.*?`) \|", PAGE, re.MULTILINE):
        first, *others = re.findall(r"`(\S+?)`", row)
        found.add(first)
        for other in others:
            # `…_sum` stands for the first name with its last part, or its middle, exchanged.
            part = other.strip("…").strip("_")
            middle = first.replace("_min_", f"_{part}_")
            found.add(
                other if "…" not in other else middle if middle != first else first.rpartition("_")[0] + f"_{part}"
            )
    return found


def test_every_metric_is_listed_and_no_other() -> None:
    assert listed() == served()


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"{MAX_QUERIES} queries and {MAX_PARTITIONS:,} partitions have series" in PAGE
    assert KEEP_ENDED_S == 300
    assert "stays for five minutes" in PAGE
