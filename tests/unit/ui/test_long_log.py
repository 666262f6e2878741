"""A log of very many versions: no page reads all of it for one answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.bench.long_log import RECORDS, TOPIC, make
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.ui.delta.tables import PAGE, SHORT_LOG, TableWatches
from sparkonce.jobs.ui.delta.tracing import trace_record
from sparkonce.offset_store.log.reader import DeltaLog

VERSIONS = 300


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions whose files were read."""
    seen: list[int] = []
    real = DeltaLog.actions

    def actions(log: DeltaLog, version: int, kinds: object) -> object:
        seen.append(version)
        return real(log, version, kinds)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaLog, "actions", actions)
    return seen


def test_a_page_reads_its_own_versions_and_what_is_new(tmp_path: Path, reads: list[int]) -> None:
    make(tmp_path / "table", VERSIONS)
    watch = TableWatches({}).at(str(tmp_path / "table"))
    watch.followed.budget_s = 0.0
    watch.look()
    watch.versions()
    assert len(reads) == 1 + PAGE
    watch.look()
    watch.versions()
    assert len(reads) == 2 + PAGE
    reads.clear()
    while watch.look().verdict is None:
        continue
    assert reads[: VERSIONS - 2] == list(range(2, VERSIONS))
    reads.clear()
    assert watch.look().verdict is Verdict.PROVEN
    watch.versions(newest=200)
    trace = trace_record(watch, TOPIC, 3, 155 * RECORDS)
    assert [each.version for each in trace.files] == [156]
    assert len(reads) <= 2 * PAGE + 2


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_table_of_100_000_versions(tmp_path: Path, reads: list[int]) -> None:
    """Prints how long each look takes; what it asserts is that none reads the whole log."""
    make(tmp_path / "table", 100_000)
    watch = TableWatches({}).at(str(tmp_path / "table"))
    took_s, most = [], 0
    while True:
        reads.clear()
        began_s = time.perf_counter()
        state = watch.look()
        watch.versions()
        watch.files()
        took_s.append(time.perf_counter() - began_s)
        most = max(most, len(reads))
        if state.verdict is not None:
            break
    began_s = time.perf_counter()
    watch.look()
    print(f"first {took_s[0]:.2f} s, {len(took_s)} looks, at most {max(took_s[1:]):.2f} s and {most} commits; ", end="")
    print(f"then {1000 * (time.perf_counter() - began_s):.1f} ms")
    assert state.verdict is Verdict.PROVEN
    assert watch.unnamed() is None
    assert most < 100_000 - SHORT_LOG
