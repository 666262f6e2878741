"""The command `sparkonce`.

Each subcommand is a row of `COMMANDS`: a name, a line of help, and the module whose `add_arguments(parser)` declares
its options and whose `run(options)` does the work and returns the exit status. A module is imported only when its
command runs, so that commands do not slow each other down, and imports what an extra brings only in `run`, so that its
help needs none. A closed output pipe ends any of them
quietly, wherever they write; a usage error is printed with the usage of its subcommand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from sparkonce.jobs.shared.command_line import run_command


class Command(NamedTuple):
    """One subcommand."""

    name: str
    help: str
    module: str


COMMANDS = (
    # daily use
    Command("ingest", "write topics into tables, as a file in TOML says", "jobs.cli.ingest"),
    Command("peek", "show records of a topic, decoded", "jobs.cli.peek.cli"),
    Command("send", "send values, or lines of standard input, as records", "jobs.cli.send"),
    Command("audit", "prove from a table's log that every offset was written once", "jobs.cli.audit"),
    Command("offsets", "show the offsets stored in a table, set them, take them back, copy them", "jobs.cli.offsets"),
    Command("doctor", "check what a query needs: Java, workers, formats, brokers, table", "jobs.cli.doctor.cli"),
    Command("warm", "compile now what the first query would compile", "jobs.cli.warm"),
    Command("ui", "show brokers, topics, queries and tables as live pages", "jobs.ui.cli"),
    Command("broker", "run a broker until SIGTERM", "broker_lite.__main__"),
    Command("registry", "run a schema registry until SIGTERM", "registry_lite.__main__"),
    # repair and cleanup
    Command("transactions", "show what the Kafka sink has open and why, finish it, abort it", "jobs.cli.transactions"),
    Command("compact", "merge small files of a table, beside running queries", "jobs.cli.compact"),
    Command("clean", "remove files of a table that no commit names", "jobs.cli.clean"),
    Command("cluster-check", "look whether the replicas of a stopped cluster agree", "jobs.cli.cluster_check"),
    # others
    Command("options", "look up an option of a source or sink", "jobs.cli.options"),
    Command("completion", "print what a shell needs to complete these commands", "jobs.cli.completion"),
    Command("verifiable-producer", "send numbered records, and tell in JSON", "jobs.verifiable.producer"),
    Command("verifiable-consumer", "read records, and tell in JSON", "jobs.verifiable.consumer"),
)


class _Version(argparse.Action):
    """Prints the version; looking it up takes too long to do it for every command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"sparkonce {version('sparkonce')}")
        parser.exit()


class _Subparser(argparse.ArgumentParser):
    """Reports unknown arguments itself; argparse would leave that to the parser of the whole command."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            from sparkonce.options import nearest

            options = [option for action in self._actions for option in action.option_strings]
            near = nearest(unknown[0].partition("=")[0], options) if unknown[0].startswith("--") else None
            self.error(f"unrecognized arguments: {' '.join(unknown)}{f' (did you mean {near}?)' if near else ''}")
        return found, unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def work() -> int:
        options = _parse(words)
        status: int = options.run(options)
        return status

    return run_command("sparkonce", work, _chosen(words))


def _chosen(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    chosen = _chosen(words)
    parser = _parser(lambda command: command.name == chosen)
    names = [command.name for command in COMMANDS]
    if chosen is not None and chosen not in names:
        import difflib

        near = difflib.get_close_matches(chosen, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`sparkonce --help` lists them"
        parser.error(f"there is no command {chosen!r}: {hint}")
    return parser.parse_args(words)


def whole_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands, whose every module is loaded."""
    return _parser(lambda _: True)


def _parser(wanted: Callable[[Command], bool]) -> argparse.ArgumentParser:
    description = "Kafka to Delta Lake, or to Kafka, with Spark, exactly once."
    parser = argparse.ArgumentParser(prog="sparkonce", description=description)
    parser.add_argument("--version", action=_Version, help="show program's version number and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Subparser)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        if wanted(command):
            module = import_module(f"sparkonce.{command.module}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
