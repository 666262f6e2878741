"""What commits cost: the tables hold what was measured, and all figures are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lab.bench import commits, long_log
from lab.bench.__main__ import parse
from lab.bench.results import Results
from sparkonce.jobs.shared.jars import PeerMissingError

COMMITS = 3


@pytest.mark.parametrize(("side", "before"), [(commits.OURS, 1), (commits.DELTA_RS, 0)])
def test_each_side_makes_its_commits(tmp_path: Path, side: str, before: int) -> None:
    """Ours makes one more, which stores the offsets of all partitions."""
    table = str(tmp_path)
    DeltaTable.create(table, long_log.SCHEMA)
    assert commits.SIDES[side](table, COMMITS, {})["commits_per_s"]
    assert DeltaTable(table).version() == before + COMMITS


def test_ages_are_held_to_a_limit_and_to_a_new_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "COMMIT_VERSIONS", (2, 60))
    settings, _ = parse(["commit-age", "--quick"])
    results = Results({})
    commits.run(replace(settings, commits=COMMITS), results)
    assert [one.name for one in results.bounds] == ["commit-age-ms"]
    assert [one.name for one in results.comparisons] == ["commit-age-60-versions"]


def test_rates_are_compared_where_a_store_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_store() -> str:
        raise PeerMissingError("no go found")

    monkeypatch.setattr("lab.store.s3.versitygw", no_store)
    settings, _ = parse(["commit-rate", "--quick", "--rounds", "1"])
    results = Results({})
    commits.run(replace(settings, commits=COMMITS), results)
    assert [(one.name, len(one.ours), len(one.peer)) for one in results.comparisons] == [("commit-rate-local", 1, 1)]
    assert [one.because for one in results.missing] == ["no go found"]
