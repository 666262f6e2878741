"""`python -m sparkonce.broker_lite`: a broker in its own process.

It stops cleanly on SIGTERM or SIGINT, and when the socket `--parent` is closed, that is when its parent has ended.
While it can be reached, `host:port` of its first listener is in `--ready-file`; that of each of its listeners is
written to standard output, one per line.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.config import BrokerConfig, ConfigError, file_settings, line_of
from sparkonce.ready_file import ReadyFileError, ready_file

if TYPE_CHECKING:
    import asyncio

    from sparkonce.broker_lite.faults.backends import ControlServer
    from sparkonce.broker_lite.server.server import Server

DEFAULT_DATA_DIR = "broker-data"

logger = logging.getLogger(__name__)


class _HelpSettings(argparse.Action):
    """Prints every setting; like --help, it needs nothing else on the command line."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from sparkonce.broker_lite.settings_page import plain

        print(plain())
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, shared with `sparkonce broker`."""
    parser.epilog = (
        "exit status: 0 stopped by SIGTERM, SIGINT or SIGHUP; 1 a wrong setting, or it cannot start; 2 usage"
    )
    parser.add_argument("--config", metavar="FILE", help="a properties file with Kafka's setting names")
    parser.add_argument("--data-dir", metavar="DIR", help=f"where the data lives (log.dirs; else ./{DEFAULT_DATA_DIR})")
    parser.add_argument("--port", type=int, help="the port to listen on (port; default 0: any free one)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="one setting, beats the file; repeatable"
    )
    parser.add_argument("--help-settings", action=_HelpSettings, help="list every setting, and exit")
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        help="where to write host:port when clients are answered; a start removes a former one",
    )
    parser.add_argument("--settings-from-stdin", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, metavar="FD", help=argparse.SUPPRESS)
    # The parent made --data-dir for this broker alone, which removes it if the parent is gone.
    parser.add_argument("--temporary", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; return the exit status."""
    try:
        # First of all: until the file of a former start is removed, who waits for it takes this one for ready.
        with ready_file(options.ready_file) as write_ready:
            return _run(options, write_ready)
    except ReadyFileError as error:
        print(f"sparkonce broker: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, write_ready: Callable[[str], None]) -> int:
    gc.disable()  # until all modules are loaded there is nothing to collect
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    from sparkonce.kafka.protocol.light_start import keep_asyncio_light, keep_crc32c_light, keep_kafka_light

    keep_kafka_light()
    keep_crc32c_light()
    keep_asyncio_light()
    import asyncio

    _allow_many_files()
    from sparkonce.broker_lite.log.directories import LogDirectoryError
    from sparkonce.broker_lite.server.log_rate import LogRate
    from sparkonce.broker_lite.server.server import ServerError

    rate = LogRate(time.monotonic)
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(rate)
    try:
        config = _config(options)
        data_dir = os.path.abspath(config.log_dirs or DEFAULT_DATA_DIR)
        is_orphan = asyncio.run(_serve(config, data_dir, write_ready, options.parent))
    except (ConfigError, LogDirectoryError, ServerError) as error:
        print(f"sparkonce broker: {error}", file=sys.stderr)
        return 1
    finally:  # the process may be a caller's, which has its own log
        gc.enable()
        for handler in handlers:
            handler.removeFilter(rate)
    if is_orphan and options.temporary:
        import shutil

        shutil.rmtree(data_dir, ignore_errors=True)
    return 0


def _allow_many_files() -> None:
    """Raise the limit of open files to its maximum: partitions and connections take one each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems report infinity, but do not grant it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _config(options: argparse.Namespace) -> BrokerConfig:
    of_file: dict[str, str] = {}
    if options.config is not None:
        of_file, ignored = file_settings(options.config)
        for each in ignored:
            logger.warning("%s: %s", options.config, each)
    settings: dict[str, object] = {}
    if options.settings_from_stdin:
        settings.update(json.load(sys.stdin))
    for assignment in options.set:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: expected NAME=VALUE")
        settings[name] = value
    if options.data_dir == "":
        raise ConfigError(f"--data-dir is empty: give a directory, or leave it out for ./{DEFAULT_DATA_DIR}")
    if options.data_dir is not None:
        settings["log.dirs"] = options.data_dir
    if options.port is not None:
        settings["port"] = options.port
    of_file = {name: value for name, value in of_file.items() if name not in settings}
    try:
        return BrokerConfig.of({**of_file, **settings})
    except ConfigError as error:
        if _what_is_wrong(of_file) == str(error):
            raise ConfigError(f"{options.config}{_line(options.config, of_file, str(error))}: {error}") from None
        raise


def _line(path: str, of_file: Mapping[str, str], wrong: str) -> str:
    """Return the line of a file that an error is about; empty if it is about no single line."""
    names = [name for name, value in of_file.items() if _what_is_wrong({name: value}) == wrong]
    return f", line {line_of(path, names[0])}" if names else ""


def _what_is_wrong(settings: Mapping[str, object]) -> str | None:
    try:
        BrokerConfig.of(settings)
    except ConfigError as error:
        return str(error)
    return None


async def _serve(config: BrokerConfig, data_dir: str, write_ready: Callable[[str], None], parent: int | None) -> bool:
    """Serve until stopped; return whether that is because the parent has ended."""
    import asyncio

    from sparkonce.broker_lite.server.server import Server

    gc.freeze()  # exclude loaded modules from garbage collection
    gc.enable()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # ignored by nohup
            loop.add_signal_handler(number, stopping.set)
    server = Server(config, data_dir)
    if not await _start(server, stopping):
        return False
    parent_link = _Parent(loop, server, parent, stopping) if parent is not None else None
    addresses = list(server.addresses.values())
    try:
        write_ready(addresses[0])
    except ReadyFileError:
        await server.stop()
        raise
    print("\n".join(addresses), flush=True)
    await stopping.wait()
    if parent_link is not None:
        parent_link.close()
    await server.stop()
    return parent_link is not None and parent_link.has_ended


async def _start(server: Server, stopping: asyncio.Event) -> bool:
    """Start, unless a signal comes first: a start may wait long for other brokers. Return whether it started."""
    import asyncio

    starting, signalled = asyncio.ensure_future(server.start()), asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, signalled), return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    logger.info("stopped before it had started")
    return False


class _Parent:
    """The socket to the process that started this one: its end means stop, and its messages are about faults."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: Server, descriptor: int, stopping: asyncio.Event
    ) -> None:
        self._loop = loop
        self._server = server
        self._descriptor = descriptor
        self._stopping = stopping
        self.has_ended = False
        self._control: ControlServer | None = None
        loop.add_reader(descriptor, self._on_readable)

    def close(self) -> None:
        """Disable all faults, so that the broker can stop."""
        self._loop.remove_reader(self._descriptor)
        if self._control is not None:
            self._control.close()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.has_ended = True
            self._stopping.set()
            self._loop.remove_reader(self._descriptor)
            return
        if self._control is None:
            from sparkonce.broker_lite.faults.backends import ControlServer  # slow to import, and few brokers need it

            assert self._server.broker is not None
            self._control = ControlServer(self._server.broker, self._server.write_gate, self._loop, self._descriptor)
        self._control.feed(data)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    # With a fixed width argparse does not import shutil, and with it compression modules that a start does not need.
    narrow = partial(argparse.HelpFormatter, width=80)
    description = "Run a broker until SIGTERM."
    parser = argparse.ArgumentParser("python -m sparkonce.broker_lite", None, description, formatter_class=narrow)
    add_arguments(parser)
    parser.formatter_class = argparse.HelpFormatter
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
