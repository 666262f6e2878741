"""The command `sparkonce ingest`: topics into tables, configured by a file in TOML (docs/ingest.md)."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.options import OptionError
from sparkonce.words import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkonce.connectors.ingest.configuration import Configuration
    from sparkonce.connectors.ingest.ingestion import Ingestion
    from sparkonce.connectors.ingest.routing import Flow

LOG_LEVEL = "spark.log.level"
_DEFAULTS = {"spark.scheduler.mode": "FAIR"}
"""Default settings of Spark: each table has a pool, and its share of the workers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "exit status: 0 stopped by SIGTERM or SIGINT, or all read that there was; 1 a query failed, and the others "
        "were stopped; 2 the configuration cannot be used. conf/ingest.toml is an example with comments"
    )
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the configuration, a file in TOML")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only check the configuration and ask the brokers for the topics; say what would be started",
    )
    parser.add_argument(
        "--available-now", action="store_true", help="read what is there now, and stop; whatever the trigger is"
    )
    parser.add_argument("--debug", action="store_true", help="if it fails, show the traces and Spark's own log too")


def run(options: argparse.Namespace) -> int:
    """Check, or start and wait; return the exit status."""
    from sparkonce.connectors.ingest.configuration import read_configuration
    from sparkonce.connectors.ingest.settings import AVAILABLE_NOW

    try:
        configuration = read_configuration(options.config, os.environ)
    except OptionError as error:
        print(f"sparkonce ingest: {error}", file=sys.stderr)
        return USAGE
    if options.available_now:
        settings = replace(configuration.settings, trigger=AVAILABLE_NOW)
        configuration = replace(configuration, settings=settings)
    try:
        return _check(configuration, options.config) if options.check else _run(configuration, debug=options.debug)
    except OptionError as error:
        print(f"sparkonce ingest: {options.config}: {configuration.without_secrets(str(error))}", file=sys.stderr)
        return USAGE
    except Exception as error:
        from sparkonce.connectors.ingest.ingestion import IngestError
        from sparkonce.connectors.runtime.failures import explain

        if options.debug:
            print(configuration.without_secrets(traceback.format_exc()), file=sys.stderr)
        hint = "" if options.debug else " (--debug shows the traces)"
        said = str(error) if isinstance(error, IngestError) else explain(error)
        print(f"sparkonce ingest: {configuration.without_secrets(said)}{hint}", file=sys.stderr)
        return FAILED


def _check(configuration: Configuration, path: Path) -> int:
    """Print what would start. Raises OptionError, OSError, KafkaError or MissingTopicError if that is invalid."""
    from sparkonce.connectors.ingest.routing import check_flow, flows, routes
    from sparkonce.connectors.ingest.topics import check_topics, existing_topics

    settings = configuration.settings
    made = routes(settings)
    existing = existing_topics(settings, made)
    found = flows(made, existing)
    lines = [f"{path}: {counted(len(found), 'table')}, trigger {settings.trigger}"]
    for flow in found:
        check_flow(flow)  # of a topic that was not known before, and so its schema
        lines += ["", flow.name, *_described(flow, check_topics(flow))]
    for route in made:
        if route.finds_topics and route.pattern is not None:
            none = "" if any(map(route.pattern.finds, existing)) else f"No topic has {route.pattern.text} yet. "
            lines += ["", f"{none}Topics with {route.pattern.text} that are created later get tables of their own."]
    lines += ["", "Nothing was started: this was a check"]
    print(configuration.without_secrets("\n".join(lines)))
    return GOOD


def _described(flow: Flow, partitions: int) -> Iterator[str]:
    yield f"  topics      {flow.topics} ({counted(partitions, 'partition')})"
    yield f"  table       {flow.place}" + ("" if flow.table is None else " (looked up, or created, when it starts)")
    yield f"  appId       {flow.app_id}"
    of_all = "" if flow.shared_by is None else " (of the query of all these tables)"
    yield f"  checkpoint  {flow.checkpoint}{of_all}"
    yield f"  guarantee   {flow.sink.get('deliveryGuarantee', 'exactly-once')}"
    yield f"  records     {'direct' if flow.direct else 'through Spark'}: {flow.why}"
    if flow.compact_every:
        yield f"  compaction  every {counted(flow.compact_every, 'batch')}"


def _log_handler(hidden: Callable[[str], str]) -> logging.Handler:
    """Return a handler for the log of ingestions, whose lines have a time and, by ``hidden``, no secrets."""

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return hidden(super().format(record))

    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(message)s"))
    return handler


def _run(configuration: Configuration, *, debug: bool) -> int:
    """Run until it ends or is stopped. Raises OptionError, IngestError or OSError if it is invalid, or fails."""
    from sparkonce.connectors.ingest.ingest import start_ingestion
    from sparkonce.connectors.ingest.routing import routes
    from sparkonce.connectors.session import spark_session

    settings = configuration.settings
    routes(settings)  # before Spark is started, which takes seconds
    log = logging.getLogger("sparkonce")
    log.addHandler(_log_handler(configuration.without_secrets))
    log.setLevel(logging.INFO)
    spark = spark_session(settings.app_id, **{**_DEFAULTS, **configuration.spark})
    if not debug and LOG_LEVEL not in configuration.spark:
        spark.sparkContext.setLogLevel("OFF")  # Spark would log a query's failure with a stack trace
    try:
        ingestion = start_ingestion(spark, settings)
        if ingestion.lag is not None and settings.metrics_port is not None:
            log.info("metrics at %s", ingestion.lag.url)
        with _stopped_by_signals(ingestion):
            ingestion.awaitTermination()
        log.info("stopped" if settings.goes_on else "all is read that was there at the start")
    finally:
        _stop(spark)
    return GOOD


def _stop(spark: SparkSession) -> None:
    """Stop Spark. Raises IngestError if Spark's Java process is gone."""
    from py4j.protocol import Py4JNetworkError

    from sparkonce.connectors.ingest.ingestion import IngestError

    try:
        spark.stop()
    except (ConnectionError, Py4JNetworkError) as error:
        raise IngestError(
            "Spark's Java process ended first: it was killed, or got the signal too. Signal only the Python process "
            "(systemd: KillMode=mixed; timeout: --foreground). The next start continues where the tables end"
        ) from error


@contextmanager
def _stopped_by_signals(ingestion: Ingestion) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop it after the running batches; a second one ends the process."""

    def stop(number: int, _frame: object) -> None:
        logging.getLogger("sparkonce").info("%s: stopping after the batches that run", signal.Signals(number).name)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        ingestion.request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
