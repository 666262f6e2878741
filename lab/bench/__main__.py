"""The command line of the benchmarks: ``python -m lab.bench --help``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from lab.bench import brokers, chart, cluster, commits, direct, guarantees, kafka_sink, many, pages, pipelines, values
from lab.bench.load import LoadError
from lab.bench.pages import PagesError
from lab.bench.results import Results
from lab.bench.sessions import SideError
from lab.bench.settings import ALL_BENCHMARKS, FULL, QUICK, SINK_BROKERS, Settings
from lab.bench.tools import ToolError
from sparkonce.jobs.shared.arguments import positive

_EPILOG = f"""\
benchmarks: {", ".join(ALL_BENCHMARKS)}

A name may be cut short: "broker" stands for all that begin so.
The peers' jars come from KAFKA_LIBS (a folder: Apache Kafka's) and SPARK_KAFKA_JARS (a comma list: Spark's JVM Kafka
connector) or else from Maven. A peer that is not to be had is said, and ours is measured alone where it can be.
The table and the lines "RATIO name=value target>=value" (<= where less is better) go to the standard output, progress
to the standard error. Docs: docs/benchmarks.md
"""


def parse(arguments: list[str]) -> tuple[Settings, argparse.Namespace]:
    """Read the command line; return the settings, and where to write. Exits with a message if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench",
        description="Measure sparkonce beside Apache Kafka, Spark's JVM Kafka connector and Delta's JVM sink.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument("--rows", type=positive, help=f"records of 100 bytes (default: {FULL.rows:,})")
    parser.add_argument("--rounds", type=positive, help=f"measured rounds a side (default: {FULL.rounds})")
    parser.add_argument(
        "--micro-batches", type=positive, help="measured of each variant; of kafka-sink-micro-batch, in each round"
    )
    parser.add_argument(
        "--broker", dest="brokers", action="append", choices=SINK_BROKERS, help="of kafka-sink (default: both)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, rounds and micro-batches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there too")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw sizes, growth and pipelines there (an SVG)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table there too (Markdown)")
    given = parser.parse_args(arguments)
    if given.chart is not None and find_spec("matplotlib") is None:  # said now, not after an hour of measuring
        parser.error("--chart needs the package matplotlib, which is not installed: pip install 'sparkonce[bench]'")
    chosen: list[str] = []
    for name in given.names:
        meant = [one for one in ALL_BENCHMARKS if one.startswith(name)]
        if not meant:
            parser.error(f"no benchmark {name!r}; there are {', '.join(ALL_BENCHMARKS)}")
        chosen.extend(meant)
    size = QUICK if given.quick else FULL
    settings = replace(
        size,
        names=tuple(chosen) or ALL_BENCHMARKS,
        rows=given.rows or size.rows,
        rounds=given.rounds or size.rounds,
        json_rows=given.rows or size.json_rows,
        micro_batches=given.micro_batches or size.micro_batches,
        planning_batches=given.micro_batches or size.planning_batches,
        guarantee_rows=given.rows or size.guarantee_rows,
        guarantee_rounds=given.rounds or size.guarantee_rounds,
        sink_rows=given.rows or size.sink_rows,
        sink_rounds=given.rounds or size.sink_rounds,
        sink_micro_batches=given.micro_batches or size.sink_micro_batches,
        sink_brokers=tuple(given.brokers or SINK_BROKERS),
        cluster_deaths=given.rounds or size.cluster_deaths,
        direct_rows=given.rows or size.direct_rows,
        direct_rounds=given.rounds or size.direct_rounds,
        direct_json_rows=given.rows or size.direct_json_rows,
        values_rows=given.rows or size.values_rows,
        direct_kafka_rows=given.rows or size.direct_kafka_rows,
        growth_rows=given.rows or size.growth_rows,
        growth_rounds=given.rounds or size.growth_rounds,
    )
    return settings, given


def main(arguments: list[str]) -> int:
    """Run the benchmarks and print the results; 0 if all ran, with or without their peers, 1 if one failed."""
    settings, given = parse(arguments)
    results = Results({"names": settings.names, "rows": settings.rows, "rounds": settings.rounds,
                       "micro_batches": settings.micro_batches})  # fmt: skip
    failures = []
    for group in (brokers, pipelines, direct, values, guarantees, kafka_sink, cluster, pages, commits, many):
        try:
            group.run(settings, results)
        except (ToolError, LoadError, SideError, PagesError) as error:
            failures.append(str(error))
    print(results.text())
    if given.json is not None:
        given.json.write_text(results.as_json() + "\n")
    if given.table is not None:
        given.table.write_text(results.markdown())
    drawn = chart.svg(results.comparisons)
    if given.chart is not None and drawn is not None:
        given.chart.write_text(drawn)
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
