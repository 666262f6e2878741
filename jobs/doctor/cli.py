"""The command `sparkonce doctor`: one line for each thing looked at, with the remedy where one is needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from sparkonce.broker_lite.config import ConfigError
from sparkonce.connectors.options import OptionError
from sparkonce.jobs.doctor import machine
from sparkonce.jobs.doctor.findings import Finding, State
from sparkonce.jobs.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.housekeeping.arguments import add_kafka, add_storage, table
from sparkonce.jobs.housekeeping.brokers import settings_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = "exit status: 0 nothing is wrong, 1 something is (a line says WRONG, and what to do), 2 usage"
    add_kafka(parser, "look at these brokers too")
    parser.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="look at this topic; repeatable")
    parser.add_argument("--table", metavar="TABLE", type=table, help="look at this Delta table, or where it will be")
    parser.add_argument(
        "--checkpoint", metavar="PLACE", type=table, help="look at this checkpoint, or where it will be"
    )
    add_storage(parser)
    parser.add_argument(
        "--master", metavar="URL", default="local[2]", help="start Spark there, and look at its workers (local[2])"
    )
    parser.add_argument("--without-spark", action="store_true", help="start no Spark, which takes some seconds")


def run(options: argparse.Namespace) -> int:
    """Examine, and print each finding as it is made."""
    try:
        kafka = settings_from(options)
    except (OptionError, ConfigError) as error:
        print(f"sparkonce doctor: {error}", file=sys.stderr)
        return USAGE
    if options.topic and not kafka:
        print("sparkonce doctor: --topic needs --bootstrap-servers", file=sys.stderr)
        return USAGE
    wrong = 0
    for finding in _examine(options, kafka):
        print(finding, flush=True)
        wrong += finding.state is State.WRONG
    print(f"{wrong} wrong" if wrong else "nothing is wrong")
    return FAILED if wrong else GOOD


def _examine(options: argparse.Namespace, kafka: dict[str, str]) -> Iterator[Finding]:
    """Look at one thing after the other; each is imported when it is its turn, since its packages may be missing."""
    fit = True
    for finding in machine.examine():
        fit = fit and finding.state is not State.WRONG
        yield finding
    storage = dict(options.storage)
    if kafka:
        from sparkonce.jobs.doctor import kafka as brokers

        yield from brokers.examine(kafka, options.topic)
    if options.table is not None or options.checkpoint is not None:
        from sparkonce.jobs.doctor import stores

        if options.table is not None:
            yield from stores.table(options.table, storage)
        if options.checkpoint is not None:
            yield from stores.checkpoint(options.checkpoint, storage)
    if not options.without_spark and fit:
        from sparkonce.jobs.doctor import spark

        yield from spark.examine(options.master)
