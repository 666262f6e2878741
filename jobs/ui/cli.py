"""The command `sparkonce ui`: live pages about brokers, topics, queries and tables, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sparkonce.broker_lite.config import ConfigError
from sparkonce.jobs.cli.peek.clients import SERVERS, add_registry, kafka_and_registry, open_registry
from sparkonce.jobs.shared.arguments import UsageError, add_kafka, add_storage, positive
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.options import OptionError
from sparkonce.ready_file import ReadyFileError, ready_file

DEFAULT_PORT = 8090
LOOK_S = 0.5
"""The maximal delay of a signal that the system has delivered to another thread."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "It listens on loopback and only reads, unless told otherwise. Any other --host needs a token: one is made, "
        "and is in the address that is printed."
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="where tables and checkpoints are looked for")
    add_kafka(parser, "brokers to show")
    parser.add_argument(
        "--with-brokers",
        metavar="N",
        type=positive,
        help="start this many brokers of its own to show, in place of --bootstrap-servers; they end with it",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where their data lives (default: removed at the end)")
    parser.add_argument("--allow-faults", action="store_true", help="let pages kill and disturb these brokers")
    parser.add_argument(
        "--allow-changes", action="store_true", help="let pages move offsets, create topics and send messages"
    )
    add_registry(parser)
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
    parser.add_argument(
        "--ready-file", metavar="FILE", help="where to write its address when it answers; a start removes a former one"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; return the exit status."""
    stopping = threading.Event()
    # Not a blocked signal with sigwait: brokers started by pages would inherit the blocking.
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        # First of all, as in `sparkonce broker`. Private, since the address may contain a token.
        with ready_file(options.ready_file, private=True) as write_ready:
            return _run(options, write_ready, stopping)
    except ReadyFileError as error:
        print(f"sparkonce ui: {error}", file=sys.stderr)
        return FAILED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(options: argparse.Namespace, write_ready: Callable[[str], None], stopping: threading.Event) -> int:
    from sparkonce.broker_lite.embedded import BrokerStartError
    from sparkonce.jobs.ui.server import UiStartError

    try:
        _check(options)
        token = _token(options.token_file)
        with ExitStack() as stack:
            address, own_servers = _start(options, token, stack)
            write_ready(address)
            print(address, flush=True)
            if own_servers is not None:  # how clients find brokers on ephemeral ports
                print(f"brokers: {own_servers}", flush=True)
            while not stopping.wait(LOOK_S):
                pass
    except (UsageError, OptionError, ConfigError) as error:
        print(f"sparkonce ui: {error}", file=sys.stderr)
        return USAGE
    except (BrokerStartError, UiStartError, OSError) as error:
        print(f"sparkonce ui: {error}", file=sys.stderr)
        return FAILED
    return GOOD


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together."""
    if options.folder is not None and not Path(options.folder).is_dir():
        raise UsageError(f"{options.folder} is not a folder")
    for option, places in (("--table", options.table), ("--checkpoint", options.checkpoint)):
        for place in places:
            shown = without_secrets(place, dict(options.storage))
            if shown != place:
                raise UsageError(
                    f"{option} {shown}: pages show this address, so keep secrets out of it: in --storage, or better "
                    "in the environment"
                )
    if options.with_brokers is None:
        for name, given in (("--allow-faults", options.allow_faults), ("--data-dir", options.data_dir)):
            if given:
                raise UsageError(f"{name} is for brokers that it starts itself: give --with-brokers, too")
    elif options.bootstrap_servers is not None:
        raise UsageError("--with-brokers and --bootstrap-servers both say which brokers to show: leave one out")


def _start(options: argparse.Namespace, token: str | None, stack: ExitStack) -> tuple[str, str | None]:
    """Start everything that runs until the end; return the address to open, and those of brokers started here."""
    from sparkonce.jobs.ui.own_brokers import OwnBrokers, started
    from sparkonce.jobs.ui.server import UiServer
    from sparkonce.jobs.ui.site import Given, Site

    kafka, registry = kafka_and_registry(options)
    if registry:
        open_registry("ui", registry, kafka)  # reports invalid options now
    own: OwnBrokers | None = None
    servers: str | None = None
    if options.with_brokers is not None:
        servers, brokers = started(options.with_brokers, options.data_dir, stack)
        kafka[SERVERS] = servers
        own = OwnBrokers(brokers) if options.allow_faults else None
    given = Given(
        kafka=kafka,
        tables=tuple(options.table),
        checkpoints=tuple(options.checkpoint),
        folder=None if options.folder is None else Path(options.folder),
        registry=registry,
        storage=dict(options.storage),
        allow_changes=options.allow_changes,
    )
    if not (given.kafka or given.tables or given.checkpoints or given.folder):
        raise UsageError("name what to show: --bootstrap-servers, --table, --checkpoint, or a folder")
    site = Site(given, own)
    stack.callback(site.close)
    server = stack.enter_context(UiServer(site, host=options.host, port=options.port, names=options.name, token=token))
    return server.entrance, servers


def _token(path: str | None) -> str | None:
    """Read a token. Raises UsageError if the file is empty."""
    if path is None:
        return None
    token = Path(path).read_text().strip()
    if not token:
        raise UsageError(f"--token-file {path} is empty: write a token into it, of 20 random characters or more")
    return token
