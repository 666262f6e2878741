"""The command `sparkonce`.

Each subcommand is a row of `COMMANDS`: a name, a line of help, and the module whose `add_arguments(parser)` declares
its options and whose `run(options)` does the work and gives the exit status. A module is imported only when its
command is the one that runs, so that none pays for the others. A reader of the output that goes away ends any of them
quietly, wherever they write; what cannot be parsed is told with the usage of the subcommand that it was meant for.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

from sparkonce.jobs.shared.exit_status import INTERRUPTED, USAGE
from sparkonce.jobs.shared.extras import missing_extra


class Command(NamedTuple):
    """One subcommand."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("broker", "run a broker until SIGTERM", "broker_lite.__main__"),
    Command("registry", "run a schema registry until SIGTERM", "registry_lite.__main__"),
    Command("ingest", "write topics into tables, as a file in TOML says", "jobs.cli.ingest"),
    Command("peek", "show records of a topic, decoded", "jobs.cli.peek.cli"),
    Command("send", "send values, or lines of standard input, as records", "jobs.cli.send"),
    Command("ui", "show brokers, topics, queries and tables as live pages", "jobs.ui.cli"),
    Command("doctor", "check what a query needs: Java, workers, formats, brokers, table", "jobs.cli.doctor.cli"),
    Command("warm", "compile now what the first query would compile", "jobs.cli.warm"),
    Command("audit", "prove from a table's log that every offset was written once", "jobs.cli.audit"),
    Command(
        "offsets",
        "show the offsets stored in a table, set them, take them back, copy them",
        "jobs.cli.offsets",
    ),
    Command(
        "transactions",
        "show what the Kafka sink has open and why, finish it, abort it",
        "jobs.cli.transactions",
    ),
    Command("compact", "merge small files of a table, beside running queries", "jobs.cli.compact"),
    Command("clean", "remove files of a table that no commit names", "jobs.cli.clean"),
    Command("options", "look up an option of a source or sink", "jobs.cli.options"),
    Command("completion", "print what a shell needs to complete these commands", "jobs.cli.completion"),
    Command("verify", "crash a pipeline at every point, and judge what is in the table", "jobs.lab.verify.cli"),
    Command("duel", "let two drivers with one appId compete, each paused in turn", "jobs.lab.duel.__main__"),
    Command(
        "story",
        "tell step by step how replicated logs lose records, and what keeps them",
        "jobs.lab.story.__main__",
    ),
    Command("sim", "simulate clusters from seeds, with faults, and judge them by invariants", "jobs.lab.sim"),
    Command("cluster-check", "look whether the replicas of a stopped cluster agree", "jobs.cli.cluster_check"),
    Command("history", "look for anomalies in what clients saw", "jobs.lab.history.__main__"),
    Command("verifiable-producer", "send numbered records, and tell in JSON", "jobs.lab.verifiable_producer"),
    Command("verifiable-consumer", "read records, and tell in JSON", "jobs.lab.verifiable_consumer"),
)


_HELP = frozenset({"-h", "--help"})


class _Subparser(argparse.ArgumentParser):
    """Complains of what it does not know itself; argparse would leave that to the parser of the whole command."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            options = _parse(words)
            status: int = options.run(options)
        finally:
            sys.stdout.flush()  # also before exits by argparse, such as --help
    except ModuleNotFoundError as error:
        remedy = missing_extra(error, _chosen(words))
        if remedy is None:
            raise
        print(f"sparkonce: this command {remedy}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`). What Python flushes at exit would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print(f"sparkonce {_chosen(words)}: interrupted", file=sys.stderr)
        return INTERRUPTED
    return status


def _chosen(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    chosen = _chosen(words)
    return _parser(lambda command: command.name == chosen, sparing=not _HELP.isdisjoint(words)).parse_args(words)


def whole_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands, whose every module is loaded; of one that cannot be, the name alone."""
    return _parser(lambda _: True, sparing=True)


def _parser(wanted: Callable[[Command], bool], *, sparing: bool) -> argparse.ArgumentParser:
    description = "Kafka to Delta Lake, or to Kafka, with Spark, exactly once."
    parser = argparse.ArgumentParser(prog="sparkonce", description=description)
    parser.add_argument("--version", action="version", version=f"sparkonce {version('sparkonce')}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Subparser)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        if wanted(command):
            try:
                module = import_module(f"sparkonce.{command.module}")
            except ModuleNotFoundError as error:
                if not sparing:
                    raise
                subparser.epilog = f"this command {missing_extra(error, command.name) or error}"
                continue
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
