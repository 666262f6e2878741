"""The figures of the benchmarks: ratios, targets, lines for machines, and what Kafka's tools print."""

from __future__ import annotations

import json

import pytest

from lab.bench.results import Bound, BrokerUse, Comparison, Missing, Results
from lab.bench.tools import Latency, ToolError, consumed_per_second, latency, produced_per_second

PRODUCED = """\
100 records sent, 20.0 records/sec (0.00 MB/sec), 5.2 ms avg latency, 231.0 ms max latency.
3000000 records sent, 465116.3 records/sec (44.36 MB/sec), 12.30 ms avg latency, 240.00 ms max latency, 4 ms 50th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-01-01 00:00:00:000, 2026-01-01 00:00:02:000, 286.1, 143.0, 3000000, 1500000.0, 400, 1600, 178.8, 1875000.0
"""


def faster(ours: tuple[float, ...], peer: tuple[float, ...], target: float | None = 1.0) -> Comparison:
    return Comparison("source-noop", "rows/s", ours, peer, "Spark's JVM", target)


def test_the_ratio_is_of_medians_so_one_slow_round_does_not_count() -> None:
    assert faster((30.0, 20.0, 1.0), (10.0, 9.0, 500.0)).ratio == 2.0


@pytest.mark.parametrize(("ours", "reached"), [(9.9, False), (10.0, True), (10.1, True)])
def test_a_throughput_reaches_its_target_from_above(ours: float, reached: bool) -> None:
    assert faster((ours,), (10.0,)).reached is reached


@pytest.mark.parametrize(("ours", "reached"), [(0.29, True), (0.3, True), (0.31, False)])
def test_a_time_reaches_its_target_from_below(ours: float, reached: bool) -> None:
    assert Comparison("micro", "s", (ours,), (1.0,), "peer", 0.3, less_is_better=True).reached is reached


def test_the_line_for_machines_names_ratio_and_bound() -> None:
    assert faster((15.0,), (10.0,)).line() == "RATIO source-noop=1.500 target>=1"
    micro = Comparison("micro-batch-400", "s", (0.5,), (2.0,), "peer", 0.3, less_is_better=True)
    assert micro.line() == "RATIO micro-batch-400=0.250 target<=0.3"
    assert faster((15.0,), (10.0,), target=None).line() == "RATIO source-noop=1.500"


def test_without_a_peer_there_is_no_ratio_and_the_reason_is_said() -> None:
    results = Results({"rows": 10})
    results.comparisons.append(faster((15.0,), ()))
    results.missing.append(Missing("spark", "no jars", "set SPARK_KAFKA_JARS"))
    text = results.text()
    assert "RATIO" not in text
    assert "MISSING peer=spark because no jars; set SPARK_KAFKA_JARS" in text
    assert "15" in text


def test_a_missed_target_is_marked_in_the_table() -> None:
    results = Results({})
    results.comparisons.append(faster((5.0,), (10.0,)))
    assert "MISSED" in results.text()


def test_the_markdown_is_a_table_of_all_lines() -> None:
    results = Results({})
    results.comparisons.append(faster((15.0, 16.0), (10.0,)))
    results.bounds.append(Bound("planning-memory-growth-mb", "MB", (0.5,), (), "", 10.0))
    table = results.markdown().splitlines()
    assert len({line.count("|") for line in table}) == 1
    assert table[2].startswith("| `source-noop` | rows/s | 15.5 (15 to 16) | 10 (10 to 10) |")
    assert table[3].startswith("| `planning-memory-growth-mb` | MB | 0.5 (0.5 to 0.5) | - |")


def test_the_json_holds_every_sample() -> None:
    results = Results({"rows": 10})
    results.comparisons.append(faster((15.0, 16.0), (10.0,)))
    results.broker_uses.append(BrokerUse("broker-produce-100B", "sparkonce", 3.0, 1.5, 40.0))
    document = json.loads(results.as_json())
    assert document["settings"] == {"rows": 10}
    assert document["comparisons"][0]["ours"] == [15.0, 16.0]
    assert document["comparisons"][0]["ratio"] == 1.55
    assert document["broker_uses"][0]["cpu_s_per_gb"] == 2.0


def test_of_the_producers_lines_the_last_is_the_summary() -> None:
    assert produced_per_second(PRODUCED) == 465116.3


def test_a_producer_without_figures_is_an_error_that_quotes_it() -> None:
    with pytest.raises(ToolError, match="TimeoutException"):
        produced_per_second("TimeoutException: topic not present")


def test_the_consumers_figure_leaves_the_join_of_the_group_out() -> None:
    assert consumed_per_second(CONSUMED, 3000000) == 1875000.0


def test_a_consumer_that_did_not_get_all_is_an_error() -> None:
    with pytest.raises(ToolError, match="3000000 of 3000001"):
        consumed_per_second(CONSUMED, 3000001)


@pytest.mark.parametrize("said", ["", CONSUMED.splitlines()[0], "WARNING: exiting before consuming"])
def test_a_consumer_without_figures_is_an_error(said: str) -> None:
    with pytest.raises(ToolError, match="printed no figures"):
        consumed_per_second(said, 1)


MEASURED_LATENCY = """\
0	403.786944
1000	12.5
Avg latency: 84.5419 ms
Percentiles: 50th = 18, 99th = 1014, 99.9th = 1229
"""


def test_the_latency_tool_tells_average_and_the_upper_end_of_the_millisecond_of_p99() -> None:
    assert latency(MEASURED_LATENCY) == Latency(84.5419, 1015.0)
    assert latency("Avg latency: 0.4 ms\nPercentiles: 50th = 0, 99th = 0, 99.9th = 3") == Latency(0.4, 1.0)


def test_a_latency_tool_without_figures_is_an_error_that_quotes_it() -> None:
    with pytest.raises(ToolError, match="TimeoutException"):
        latency("TimeoutException: nothing came")


@pytest.mark.parametrize(("ours", "verdict", "line"), [((30.0, 50.0, 40.0), "ok", "40"), ((41.0,), "MISSED", "41")])
def test_a_limit_holds_our_figure_and_the_peers_stands_beside(ours: tuple[float, ...], verdict: str, line: str) -> None:
    results = Results({})
    results.bounds.append(Bound("broker-ready-idle-rss-mb", "MB", ours, (400.0,), "Apache Kafka", 40.0))
    text = results.text()
    assert verdict in text
    assert "<=40 MB" in text
    assert "400 (400..400)" in text
    assert f"RATIO broker-ready-idle-rss-mb={line}.000 target<=40" in text.splitlines()
    assert json.loads(results.as_json())["bounds"][0]["reached"] is (verdict == "ok")
