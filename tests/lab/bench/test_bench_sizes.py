"""Turns, lines made of rounds, and the chart of sizes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lab.bench import throughput
from lab.bench.chart import figure, panels, read, svg
from lab.bench.ready import Start, bounds
from lab.bench.results import Comparison, Results, figure_text
from lab.bench.settings import LIMITS
from lab.bench.sides import Side, in_turn
from lab.bench.throughput import Round

DOCS = Path(__file__).resolve().parents[3] / "docs"
SIDES = [Side(name, "", None) for name in ("ours", "peer")]  # type: ignore[arg-type]


def size(name: str, ours: float, peer: float) -> Comparison:
    return Comparison(name, "records/s", (ours,), (peer,), "Apache Kafka", 1.0)


def texts(drawn: str) -> list[str | None]:
    return [text.text for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]


def test_sides_take_turns_and_the_warm_up_is_dropped() -> None:
    order = []

    def once(side: Side, number: int) -> str:
        order.append(f"{side.name}{number}")
        return order[-1]

    assert in_turn("x", SIDES, 2, once, str) == [("ours1", "ours2"), ("peer1", "peer2")]
    assert order == ["ours0", "peer0", "ours1", "peer1", "ours2", "peer2"]
    assert in_turn("x", SIDES, 1, once, str, warm_up=False) == [("ours1",), ("peer1",)]
    assert order[6:] == ["ours1", "peer1"]


def test_a_tool_benchmark_gives_speed_and_cpu_time_for_a_gigabyte() -> None:
    results = Results({})
    ours, peer = [Round(150.0, 1.0), Round(130.0, 1.0)], [Round(100.0, 4.0)]
    throughput.report("broker-produce-1KiB-64KiB", ours, peer, 0.5, results)
    assert [one.line() for one in results.comparisons] == [
        "RATIO broker-produce-1KiB-64KiB=1.400 target>=1.2",
        "RATIO broker-produce-1KiB-64KiB-cpu=0.250 target<=0.6",
    ]
    assert results.comparisons[1].ours == (2.0, 2.0)


def test_the_starts_make_five_bounds_with_kafka_beside() -> None:
    empty = [Start(0.09, 38.0)], [Start(1.8, 400.0)]
    many = [Start(0.8, 100.0)], []
    made = bounds(empty, many, [20.0, 31.0])
    assert [one.name for one in made] == [name for name in LIMITS if name.startswith("broker")]
    assert [one.ours for one in made] == [(90.0,), (20.0, 31.0), (38.0,), (0.8,), (100.0,)]
    assert [one.peer for one in made] == [(1800.0,), (), (400.0,), (), ()]
    assert all(one.reached for one in made)


def test_sizes_are_rows_of_the_chart_by_number_and_nothing_else_is() -> None:
    found = panels(
        [
            size("broker-connections-64", 5, 4),
            size("broker-connections-8", 5, 4),
            size("broker-partitions-produce-1000", 5, 4),
            size("broker-transactions-500", 5, 4),
            size("broker-produce-1KiB-64KiB", 5, 4),
        ]
    )
    assert {panel.title: [label for label, _ in panel.lines] for panel in found} == {
        "connections, produce requests of 16 KiB: records/s": ["8", "64"],
        "partitions, ProducerPerformance: records/s": ["1,000"],
    }


def test_pipelines_are_drawn_by_their_unit_with_the_ratio() -> None:
    speed = Comparison("source-noop", "rows/s", (3e6,), (2e6,), "Spark's JVM", 1.15)
    cpu = Comparison("source-noop-cpu", "CPU s/M rows", (1.5,), (2.0,), "Spark's JVM", less_is_better=True)
    alone = Comparison("micro-batch-400", "s", (0.2,), (), "Spark's JVM", 0.2, less_is_better=True)
    assert [[label for label, _ in panel.lines] for panel in panels([cpu, alone, speed])] == [
        ["source-noop"],
        ["source-noop"],
        ["micro-batch-400"],
    ]
    drawn = svg([speed, cpu, alone])
    assert drawn is not None
    assert {"3,000,000 (1.50 times)", "2,000,000", "1.5 (0.75 times)", "0.2", "Spark's JVM"} <= set(texts(drawn))


def test_bars_of_a_row_share_a_scale() -> None:
    found = panels([size("broker-groups-1", 100.0, 50.0), size("broker-groups-8", 25.0, 1234.5)])
    (axis,) = figure(found).axes
    assert [[bar.get_width() for bar in side] for side in axis.containers] == [[100, 25], [50, 1234.5]]


@pytest.mark.parametrize("name", ["sizes", "pipelines", "direct"])
def test_a_chart_of_the_docs_is_drawn_from_its_data_which_are_those_of_the_page(name: str) -> None:
    data = read(DOCS / f"{name}.json")
    drawn = svg(data)
    assert drawn is not None
    assert texts(drawn) == texts((DOCS / f"{name}.svg").read_text()), f"python -m lab.bench.chart docs/{name}.json …"
    page = (DOCS / "internals" / "measurements.md").read_text().splitlines()
    for one in data:
        rows = [row for row in page if row.startswith(f"| `{one.name}` | {one.unit} |")]
        told = {figure_text(*one.ours), figure_text(*one.peer)}
        assert not rows or any(told <= {cell.partition(" (")[0].strip() for cell in row.split("|")} for row in rows), (
            one
        )


def test_without_sizes_and_pipelines_there_is_no_chart() -> None:
    assert svg([size("broker-latency", 1.0, 1.0)]) is None
