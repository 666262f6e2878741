"""`python -m sparkonce.registry_lite`: a schema registry in its own process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sparkonce.ready_file import ReadyFileError, ready_file

DEFAULT_PORT = 8081
STOPPING = (signal.SIGTERM, signal.SIGINT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, shared with `sparkonce registry`."""
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT", help="the brokers of its topic")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: loopback only)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 for a free one (default: {DEFAULT_PORT})")
    parser.add_argument(
        "--name", metavar="NAME", action="append", default=[], help="another name by which clients call it; repeatable"
    )
    parser.add_argument("--topic", default="_schemas", help="the topic of its schemas (default: _schemas)")
    parser.add_argument(
        "--user-info-file", metavar="FILE", help="a file with user:password; then clients must log in with it"
    )
    parser.add_argument("--certificate", metavar="FILE", help="its certificate (PEM), for https")
    parser.add_argument("--key", metavar="FILE", help="the key of that certificate (PEM)")
    parser.add_argument("--client-ca", metavar="FILE", help="who signs clients' certificates (PEM); then they need one")
    parser.add_argument(
        "--kafka-config", metavar="FILE", help="more settings of its Kafka client, librdkafka's names, NAME=VALUE lines"
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", help="where to write its address when it answers; a start removes a former one"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; return the exit status."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # also for the threads that are started now
    try:
        with ready_file(options.ready_file) as write_ready:  # first of all, as in `sparkonce broker`
            return _run(options, write_ready)
    except ReadyFileError as error:
        print(f"sparkonce registry: {error}", file=sys.stderr)
        return 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(options: argparse.Namespace, write_ready: Callable[[str], None]) -> int:
    from sparkonce.registry_lite.embedded import EmbeddedRegistry
    from sparkonce.registry_lite.topic import RegistryStartError

    try:
        with EmbeddedRegistry(
            options.bootstrap_servers,
            host=options.host,
            port=options.port,
            names=options.name,
            topic=options.topic,
            user_info=_text(options.user_info_file),
            certificate=options.certificate,
            key=options.key,
            client_ca=options.client_ca,
            kafka=_settings(options.kafka_config),
        ) as registry:
            write_ready(registry.url)
            print(registry.url, flush=True)
            signal.sigwait(STOPPING)
    except (RegistryStartError, OSError, ValueError) as error:
        print(f"sparkonce registry: {error}", file=sys.stderr)
        return 1
    return 0


def _text(path: str | None) -> str | None:
    return None if path is None else Path(path).read_text().strip()


def _settings(path: str | None) -> dict[str, str]:
    """Read lines ``name=value``, except empty ones and those with ``#``. Raises ValueError if a line is invalid."""
    found: dict[str, str] = {}
    for number, line in enumerate((_text(path) or "").splitlines(), start=1):
        name, equals, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith("#"):
            if not equals:
                raise ValueError(f"{path}, line {number}: expected NAME=VALUE")
            found[name.strip()] = value.strip()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    description = "Run a schema registry until SIGTERM."
    parser = argparse.ArgumentParser(prog="python -m sparkonce.registry_lite", description=description)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
