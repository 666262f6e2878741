"""`python -m broker_lite`: a broker as a process of its own.

It ends cleanly on SIGTERM or SIGINT, and when `--parent-pipe` reaches its end, that is when its parent is gone. When
it can be reached it writes `host:port` into `--ready-file` (whole or not at all) and to standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from broker_lite.config import BrokerConfig, ConfigError, read_properties

DEFAULT_DATA_DIR = "broker-data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, shared with `sparkonce broker`."""
    parser.add_argument("--config", metavar="FILE", help="a properties file with Kafka's setting names")
    parser.add_argument("--data-dir", metavar="DIR", help=f"where the data lives (log.dirs; else ./{DEFAULT_DATA_DIR})")
    parser.add_argument("--port", type=int, help="the port to listen on (port; default 0: any free one)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="one setting, beats the file; repeatable"
    )
    parser.add_argument("--ready-file", metavar="FILE", help="where to write host:port when clients are answered")
    parser.add_argument("--parent-pipe", type=int, metavar="FD", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop; gives the exit status."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    from broker_lite.protocol.light_start import keep_kafka_light

    keep_kafka_light()
    from broker_lite.log.log_manager import LogDirectoryError
    from broker_lite.server.server import ServerError

    try:
        config = _config(options)
        data_dir = os.path.abspath(config.log_dirs or DEFAULT_DATA_DIR)
        asyncio.run(_serve(config, data_dir, options.ready_file, options.parent_pipe))
    except (ConfigError, LogDirectoryError, ServerError) as error:
        print(f"broker_lite: {error}", file=sys.stderr)
        return 1
    return 0


def _config(options: argparse.Namespace) -> BrokerConfig:
    settings: dict[str, object] = {}
    if options.config is not None:
        settings.update(read_properties(options.config))
    for assignment in options.set:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: expected NAME=VALUE")
        settings[name] = value
    if options.data_dir is not None:
        settings["log.dirs"] = options.data_dir
    if options.port is not None:
        settings["port"] = options.port
    return BrokerConfig.of(settings)


async def _serve(config: BrokerConfig, data_dir: str, ready_file: str | None, parent_pipe: int | None) -> None:
    from broker_lite.server.server import Server

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if parent_pipe is not None:
        loop.add_reader(parent_pipe, stopping.set)  # nobody writes to it: readable means closed
    server = Server(config, data_dir)
    await server.start()
    address = f"{config.host_name}:{server.port}"
    if ready_file is not None:
        try:
            with open(f"{ready_file}.tmp", "w", encoding="utf-8") as file:
                file.write(address)
            os.replace(f"{ready_file}.tmp", ready_file)
        except OSError as error:
            await server.stop()
            raise ConfigError(f"--ready-file {ready_file} cannot be written: {error}") from error
    print(address, flush=True)
    await stopping.wait()
    if parent_pipe is not None:
        loop.remove_reader(parent_pipe)
    await server.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m broker_lite", description="Run a broker until SIGTERM.")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
