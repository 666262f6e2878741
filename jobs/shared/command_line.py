"""How a command ends: quietly for a closed pipe, with one line for Ctrl-C and for a missing package."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from sparkonce.jobs.shared.exit_status import INTERRUPTED, USAGE
from sparkonce.jobs.shared.extras import missing_extra


def run_command(name: str, work: Callable[[], int], subcommand: str | None = None) -> int:
    """Run a command; return its exit status."""
    try:
        try:
            return work()
        finally:
            sys.stdout.flush()  # also before exits by argparse, such as --help
    except ModuleNotFoundError as error:
        remedy = missing_extra(error, subcommand)
        if remedy is None:
            raise
        print(f"{name}: this command {remedy}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`). What Python flushes at exit would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print(f"{name}{f' {subcommand}' if subcommand else ''}: interrupted", file=sys.stderr)
        return INTERRUPTED


def run_module(
    name: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a command that is a separate module, as ``python -m NAME``; return its exit status."""

    def work() -> int:
        parser = argparse.ArgumentParser(prog=f"python -m {name}")
        add_arguments(parser)
        return run(parser.parse_args(arguments))

    return run_command(name, work)
