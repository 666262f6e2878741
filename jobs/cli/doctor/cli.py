"""The command `sparkonce doctor`: one line for each thing checked, with the remedy where one is needed.

The modules that check brokers, stores and Spark are imported once their packages have been found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from sparkonce.jobs.cli.doctor import machine
from sparkonce.jobs.cli.doctor.findings import Finding, State, warning
from sparkonce.jobs.shared.arguments import add_kafka, add_storage
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.verdicts import coloured
from sparkonce.options import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = "exit status: 0 nothing is wrong, 1 something is (a line says WRONG, and what to do), 2 usage"
    add_kafka(parser, "check these brokers too")
    parser.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="check this topic; repeatable")
    parser.add_argument(
        "--table", metavar="TABLE", help="check this Delta table, or the place where it will be created"
    )
    parser.add_argument("--checkpoint", metavar="PLACE", help="check this checkpoint, or the place for it")
    add_storage(parser)
    parser.add_argument(
        "--master", metavar="URL", default="local[2]", help="start Spark there, and check its executors too (local[2])"
    )
    parser.add_argument("--without-spark", action="store_true", help="start no Spark, which takes some seconds")


def run(options: argparse.Namespace) -> int:
    """Run the checks, and print each finding as it is made."""
    wrong = 0
    try:
        for finding in _examine(options):
            text = str(finding)
            print(coloured(text, good=False) if finding.state is State.WRONG else text, flush=True)
            wrong += finding.state is State.WRONG
    except (OptionError, ValueError) as error:
        print(f"sparkonce doctor: {error}", file=sys.stderr)
        return USAGE
    print(coloured(f"{wrong} wrong" if wrong else "nothing is wrong", good=not wrong))
    return FAILED if wrong else GOOD


def _examine(options: argparse.Namespace) -> Iterator[Finding]:
    of_machine = list(machine.examine())
    yield from of_machine
    wrong = [each.what for each in of_machine if each.state is State.WRONG]
    if "packages" in wrong or "PySpark" in wrong:
        yield warning("the rest", "not checked", f"Put the {' and '.join(wrong)} right first")
        return
    yield from _brokers(options)
    yield from _stores(options)
    if options.without_spark:
        return
    if wrong:
        yield warning("Spark", "not started", f"Put the {' and '.join(wrong)} right first")
        return
    if options.master.startswith("sc://"):
        raise OptionError(
            f"--master {options.master} is a Spark Connect server, whose executors are seen from its own machine "
            "only: run the doctor there, with the server's own master"
        )

    from sparkonce.jobs.cli.doctor import spark
    from sparkonce.jobs.cli.doctor.worker_checks import Endpoints
    from sparkonce.jobs.shared.kafka_options import settings_from

    places = Endpoints(settings_from(options), options.topic, options.table, options.checkpoint, dict(options.storage))
    yield from spark.examine(options.master, places)


def _brokers(options: argparse.Namespace) -> Iterator[Finding]:
    from sparkonce.jobs.cli.doctor import kafka
    from sparkonce.jobs.shared.kafka_options import settings_from

    settings = settings_from(options)
    if settings:
        yield from kafka.examine(settings, options.topic)
    elif options.topic:
        raise OptionError("--topic needs --bootstrap-servers")


def _stores(options: argparse.Namespace) -> Iterator[Finding]:
    from sparkonce.jobs.cli.doctor import stores
    from sparkonce.offset_store.locations import Location

    storage = dict(options.storage)
    if options.table is not None:
        yield from stores.table(Location.parse(options.table.removeprefix("delta:")), storage)
    if options.checkpoint is not None:
        yield from stores.checkpoint(Location.parse(options.checkpoint), storage)
