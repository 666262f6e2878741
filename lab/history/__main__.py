"""The command line of the checker: ``python -m lab.history FILE...``."""

from __future__ import annotations

import argparse
import gc
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from lab.history.anomalies import Anomaly
from lab.history.checker import Verdict, judge
from lab.history.events import HistoryError
from lab.history.reading import read_history
from sparkonce.jobs.shared.command_line import run_module

CLEAN, ANOMALIES, NOT_JUDGED = 0, 1, 2
EVENTS_SHOWN = 12
"""Events shown of one finding; the rest is counted."""
_DESCRIPTION = """\
Look for anomalies in a history: files of JSON lines, as sparkonce verifiable-producer and verifiable-consumer
(--verbose) print them, or Apache Kafka's own VerifiableProducer and VerifiableConsumer. Give the files of all clients.
"""
_EPILOG = """\
exit status: 0 no anomaly, 1 anomalies, 2 the history cannot be read or judged. The last line of the output is
HISTORY events=N anomalies=N. Not looked for: write cycles between transactions, and reads before a commit, which need
an order across clients. Docs: docs/internals/histories.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="events, one JSON object a line")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="findings shown of each kind; all are counted (default: 20)"
    )


def run(options: argparse.Namespace) -> int:
    """Check the files and print the findings; return the exit status."""
    try:
        events = read_history(options.files)
        if not events:
            raise HistoryError(f"no event in {', '.join(map(str, options.files))}: there is nothing to judge")
        verdict = judge(events)
        if not verdict.sent and not verdict.read:
            raise HistoryError(f"{verdict.events} events, and nothing was sent or read: there is nothing to judge")
    except HistoryError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_JUDGED
    _show(verdict, options.limit)
    return ANOMALIES if verdict.anomalies else CLEAN


def _show(verdict: Verdict, limit: int) -> None:
    kinds: dict[str, list[Anomaly]] = defaultdict(list)
    for anomaly in verdict.anomalies:
        kinds[anomaly.name].append(anomaly)
    for name, anomalies in kinds.items():
        print(f"{name} ({len(anomalies)})")
        for anomaly in anomalies[:limit]:
            print(f"  {anomaly.explanation}")
            for event in anomaly.events[:EVENTS_SHOWN]:
                print(f"    {event.where}  {event.name} ({event.client})")
            if len(anomaly.events) > EVENTS_SHOWN:
                print(f"    and {len(anomaly.events) - EVENTS_SHOWN} more events")
        if len(anomalies) > limit:
            print(f"  and {len(anomalies) - limit} more")
    print(f"sent {verdict.sent}, must be read {verdict.acknowledged}, values read {verdict.read}")
    unseen = verdict.unknown - verdict.unknown_read
    print(f"of unknown outcome {verdict.unknown}, of which read {verdict.unknown_read}: at most {unseen} more are lost")
    print(f"HISTORY events={verdict.events} anomalies={len(verdict.anomalies)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return run_module("lab.history", add_arguments, run, arguments)


if __name__ == "__main__":
    # All objects live until the end: the garbage collector would take a third of the time.
    gc.disable()
    sys.exit(main())
