"""`sparkonce audit TABLE`: proof from a table's log that every offset was written once.

Exit status: 0 proven, 1 something is wrong, could not be examined, or there was nothing to examine, 2 the command line
cannot be used. The audit is `exactly_once.audit_table`, what it reads from elsewhere `audit_readers`.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from sparkonce.broker_lite.config import ConfigError
from sparkonce.jobs.shared.arguments import UsageError, add_kafka, add_table
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.kafka_options import settings_from
from sparkonce.jobs.shared.verdicts import coloured
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.options import OptionError

if TYPE_CHECKING:
    from sparkonce.exactly_once.audit_counting import Coordinates
    from sparkonce.exactly_once.audit_report import Examined


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_table(parser)
    parser.add_argument("--app-id", help="only this application; all, if left out")
    parser.add_argument("--source", help="only this source of it; all, if left out")
    add_kafka(parser, "compare with the logs of these brokers, and show the lag")
    parser.add_argument(
        "--coordinates",
        metavar="PARTITION,OFFSET[,TOPIC]",
        type=_coordinates,
        help="the columns with each row's partition, offset and topic: count rows for lost and duplicated ones",
    )
    parser.add_argument(
        "--expect-all-rows",
        action="store_true",
        help="with --coordinates: a missing row is an error (the query drops none, the topic has no transactions)",
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as wrong too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON; the AUDIT line goes to stderr")


def run(options: argparse.Namespace) -> int:
    """Examine a table; returns the exit status."""
    from sparkonce.exactly_once.audit_counting import CoordinatesError
    from sparkonce.exactly_once.audit_report import Verdict, as_json, as_text
    from sparkonce.exactly_once.audit_table import AuditError

    try:
        examined = examine(options)
    except (UsageError, OptionError, ConfigError, CoordinatesError) as error:
        print(f"sparkonce audit: {error}", file=sys.stderr)
        return USAGE
    except (AuditError, OffsetStoreError) as error:
        print(f"sparkonce audit: {error}", file=sys.stderr)
        return FAILED
    if options.json:
        print(json.dumps(as_json(examined), indent=2))
        print(examined.summary, file=sys.stderr)
    else:
        *lines, last = as_text(examined)
        print("\n".join([*lines, coloured(last, good=examined.proven)]))
    return GOOD if examined.verdict is Verdict.PROVEN else FAILED


def examine(options: argparse.Namespace) -> Examined:
    """Examine all that was requested.

    Raises:
        AuditError, OffsetStoreError: if something cannot be checked.
        UsageError, OptionError, ConfigError, CoordinatesError: if the command line cannot be used.
    """
    from sparkonce.exactly_once.audit import Scope
    from sparkonce.jobs.cli.audit_readers import examine_table

    if options.expect_all_rows and options.coordinates is None:
        raise UsageError("--expect-all-rows says how rows are judged, so --coordinates must say how they are counted")
    return examine_table(
        options.table,
        Scope(options.app_id, options.source),
        settings_from(options),
        options.coordinates,
        dict(options.storage),
        expect_all_rows=options.expect_all_rows,
        strict=options.strict,
    )


def _coordinates(text: str) -> Coordinates:
    from sparkonce.exactly_once.audit_counting import Coordinates

    try:
        return Coordinates.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
