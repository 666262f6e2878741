"""The command `sparkonce ui`: live pages about brokers, topics, queries and tables, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from sparkonce.broker_lite.config import ConfigError
from sparkonce.connectors.settings.options import OptionError
from sparkonce.jobs.shared.arguments import UsageError, add_kafka, add_storage
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE

DEFAULT_PORT = 8090


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "It listens on loopback and only reads, unless told otherwise. Any other --host needs a token: one is made, "
        "and is in the address that is printed."
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="where tables and checkpoints are looked for")
    add_kafka(parser, "brokers to show")
    parser.add_argument(
        "--table", metavar="TABLE", action="append", default=[], help="path or URI of a Delta table; repeatable"
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", action="append", default=[], help="the checkpoint of a query; repeatable"
    )
    add_storage(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: loopback only)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 for a free one (default: {DEFAULT_PORT})")
    parser.add_argument(
        "--name", metavar="NAME", action="append", default=[], help="another name by which browsers call it; repeatable"
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file with the token that browsers must bring")
    parser.add_argument("--ready-file", metavar="FILE", help="where to write its address when it answers")


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; return the exit status."""
    from sparkonce.jobs.cli.housekeeping.brokers import settings_from
    from sparkonce.jobs.ui.server import UiServer, UiStartError
    from sparkonce.jobs.ui.site import Given, Site

    try:
        token = _token(options.token_file)
        folder = None if options.folder is None else Path(options.folder)
        if folder is not None and not folder.is_dir():
            raise UsageError(f"{folder} is not a folder")
        given = Given(
            kafka=settings_from(options),
            tables=tuple(options.table),
            checkpoints=tuple(options.checkpoint),
            folder=folder,
            storage=dict(options.storage),
        )
        if not (given.kafka or given.tables or given.checkpoints or given.folder):
            raise UsageError("name what to show: --bootstrap-servers, --table, --checkpoint, or a folder")
        site = Site(given)
    except (UsageError, OptionError, ConfigError, OSError) as error:
        print(f"sparkonce ui: {error}", file=sys.stderr)
        return USAGE
    stopping = (signal.SIGTERM, signal.SIGINT)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stopping)  # also of the threads that are started now
    try:
        with UiServer(site, host=options.host, port=options.port, names=options.name, token=token) as server:
            if options.ready_file is not None:
                Path(f"{options.ready_file}.tmp").write_text(server.entrance)
                os.replace(f"{options.ready_file}.tmp", options.ready_file)
            print(server.entrance, flush=True)
            signal.sigwait(stopping)
    except (UiStartError, OSError) as error:
        site.close()
        print(f"sparkonce ui: {error}", file=sys.stderr)
        return FAILED
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return GOOD


def _token(path: str | None) -> str | None:
    """Read a token.

    Raises:
        UsageError: the file is empty.
    """
    if path is None:
        return None
    token = Path(path).read_text().strip()
    if not token:
        raise UsageError(f"--token-file {path} is empty: write a token into it, of 20 random characters or more")
    return token
