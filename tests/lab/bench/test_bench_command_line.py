"""The command line of the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab.bench.__main__ import parse
from lab.bench.brokers import ALONE, SHARED
from lab.bench.settings import (
    ALL_BENCHMARKS,
    BROKER_BENCHMARKS,
    FULL,
    GUARANTEE_BENCHMARKS,
    LIMITS,
    QUICK,
    TARGETS,
    WITHOUT_TARGET,
)


def test_all_benchmarks_run_at_full_size_by_default() -> None:
    settings, given = parse([])
    assert settings.names == ALL_BENCHMARKS
    assert (settings.rows, settings.rounds) == (FULL.rows, FULL.rounds)
    assert (given.json, given.chart) == (None, None)
    assert settings.broker == FULL.broker


def test_a_beginning_of_a_name_stands_for_all_that_begin_so() -> None:
    settings, _ = parse(["broker-consume-1KiB", "source-n"])
    assert settings.names == ("broker-consume-1KiB-default", "broker-consume-1KiB-64KiB", "source-noop")


def test_quick_is_smaller_and_what_is_given_wins() -> None:
    settings, given = parse(["--quick", "--rows", "5", "--json", "out.json", "--chart", "out.svg", "--table", "out.md"])
    assert (settings.rows, settings.rounds) == (5, QUICK.rounds)
    assert settings.broker == QUICK.broker
    assert (given.json, given.chart, given.table) == (Path("out.json"), Path("out.svg"), Path("out.md"))


def test_a_chart_without_the_library_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        parse(["--chart", "out.svg"])
    assert "pip install 'sparkonce[bench]'" in capsys.readouterr().err


def test_the_guarantees_have_sizes_of_their_own_and_what_is_given_wins() -> None:
    full, _ = parse(["guarantee"])
    assert full.names == GUARANTEE_BENCHMARKS
    assert (full.guarantee_rows, full.guarantee_rounds) == (FULL.guarantee_rows, FULL.guarantee_rounds)
    small, _ = parse(["--quick"])
    assert small.guarantee_micro_batches == QUICK.guarantee_micro_batches
    given, _ = parse(["guarantee-throughput", "--rows", "7", "--rounds", "4"])
    assert (given.names, given.guarantee_rows, given.guarantee_rounds) == (("guarantee-throughput",), 7, 4)


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["sink"])
    assert "source-noop" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_rows_that_are_no_number_above_zero_are_refused(number: str) -> None:
    with pytest.raises(SystemExit):
        parse(["--rows", number])


def test_larger_values_come_in_fewer_records_so_that_a_round_takes_as_long() -> None:
    settings, _ = parse(["--rows", "1000"])
    assert settings.rows_of(100) == 1000
    assert settings.rows_of(1024) == 200


def test_every_benchmark_has_a_bound_and_every_bound_a_benchmark() -> None:
    bounds = [*TARGETS, *LIMITS]
    held = [name for name in ALL_BENCHMARKS if name not in WITHOUT_TARGET]
    assert all(any(bound.startswith(name) for bound in bounds) for name in held)
    assert all(any(bound.startswith(name) for name in ALL_BENCHMARKS) for bound in bounds)


def test_what_is_advertised_is_what_runs() -> None:
    assert (*SHARED, *ALONE) == BROKER_BENCHMARKS


def test_the_short_rounds_of_consuming_are_twice_as_many() -> None:
    settings, _ = parse(["--rounds", "3"])
    assert (settings.rounds_of("produce"), settings.rounds_of("consume")) == (3, 6)
