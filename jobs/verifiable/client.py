"""Shared by the verifiable producer and consumer: an event stream, settings in Kafka's names, an orderly stop."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from sparkonce.broker_lite.config import ConfigError, read_properties
from sparkonce.jobs.shared.arguments import whole_number
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE

WAIT_S = 0.1
"""The maximal delay of handling a signal."""

_LIBRDKAFKA_NAMES = {"fetch.max.wait.ms": "fetch.wait.max.ms"}
"""Settings of the Java clients with another name in librdkafka; most have the same name, or an alias."""

_USE_INSTEAD = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file",
    "ssl.keystore.password": "ssl.certificate.location, ssl.key.location and ssl.key.password, for PEM files",
    "key.serializer": "nothing: keys are text",
    "value.serializer": "nothing: values are text",
    "key.deserializer": "nothing: keys are shown as text",
    "value.deserializer": "nothing: values are shown as text",
}

_CONNECTION_SETTINGS = ("bootstrap.", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.", "enable.ssl.")


class VerifiableError(Exception):
    """The client cannot continue; the message says why, without secrets."""


class EventWriter:
    """Prints events, one JSON object per line, each at once: events before a kill are complete."""

    def __init__(self, client: str) -> None:
        self._client = client

    def write(self, name: str, **fields: Any) -> None:
        """Print one event, with the time in milliseconds since 1970."""
        event = {"timestamp": time.time_ns() // 1_000_000, "name": name, "client": self._client, **fields}
        sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
        sys.stdout.flush()


class Stop:
    """SIGTERM and SIGINT request an orderly end; the second one also gives up what is outstanding."""

    def __init__(self) -> None:
        self._signals = 0

    def listen(self) -> None:
        """Install the signal handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    @property
    def requested(self) -> bool:
        """Whether to start nothing new."""
        return self._signals > 0

    @property
    def at_once(self) -> bool:
        """Whether to give up what is outstanding."""
        return self._signals > 1

    def _note(self, *_: object) -> None:
        self._signals += 1


class BrokerWatch:
    """Receives librdkafka's connection errors, and reports each outage once.

    librdkafka logs every attempt to connect, some twenty per second. These arrive as errors too, so its log
    is limited to emergencies, unless the settings say otherwise.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._servers = settings["bootstrap.servers"]
        self._given = settings
        self._reason = ""
        self._down = False
        self._told: set[int] = set()

    @property
    def settings(self) -> dict[str, Any]:
        """Return the client's settings, with the error callback and log level."""
        return {"log_level": "2", **self._given, "error_cb": self.note}

    def note(self, error: KafkaError) -> None:
        """Handle a client-wide error; the client recovers by retrying."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down = True
        else:
            self._reason = _ATTEMPT.sub("", error.str())
        if error.code() not in _ATTEMPTS and error.code() not in self._told:
            self._told.add(error.code())
            print(f"waiting: {self.state}", file=sys.stderr, flush=True)

    def answered(self) -> None:
        """Note a broker's response: the outage is over, and a new one is reported again."""
        self._down = False
        self._reason = ""
        self._told.clear()

    @property
    def is_down(self) -> bool:
        """Whether no broker could be reached, and none has answered since."""
        return self._down

    @property
    def state(self) -> str:
        """Describe the current problem; "" if none is known."""
        if self._down:
            return f"no broker answers at {self._servers}" + (f": {self._reason}" if self._reason else "")
        return self._reason

    def explain(self, message: str) -> str:
        """Add the current problem to a message."""
        return f"{message}; {self.state}" if self.state and self.state not in message else message


_ATTEMPTS = frozenset({KafkaError._TRANSPORT, KafkaError._RESOLVE})
"""Errors of one connection, repeated with every attempt: the reasons when all brokers are down."""
_ATTEMPT = re.compile(r" \(after \d+ms in state [A-Z_]+[^)]*\)")


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of both clients."""
    parser.add_argument(
        "--bootstrap-servers", "--bootstrap-server", metavar="HOST:PORT,…", help="where to find the brokers"
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--max-messages",
        type=_max_messages,
        default=-1,
        metavar="N",
        help="stop after N records (default: -1, until a signal)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="fail if not done by then, whether or not a broker answers (default: never)",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="client settings, name=value, in Kafka's names; what the command line says goes before",
    )
    parser.add_argument("--client-id", help="client.id, and the name in the events (default: made from the process id)")


def _max_messages(text: str) -> int:
    if text == "-1":
        return -1
    try:
        return whole_number(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or -1 for no end") from error


def client_settings(options: argparse.Namespace, kind: str, given: Mapping[str, str | None]) -> dict[str, str]:
    """Return librdkafka's settings: of the file, then of the command line (`given`; None means the file's).

    Args:
        options: the command line, as `add_common_arguments` declares it.
        kind: the default name of the client.
        given: further settings from options of the command line.

    Raises:
        VerifiableError: for an unreadable file, a setting of Java only, or if no broker is named.
    """
    try:
        settings = read_properties(options.command_config) if options.command_config else {}
    except ConfigError as error:
        raise VerifiableError(str(error)) from error
    chosen = {"bootstrap.servers": options.bootstrap_servers, "client.id": options.client_id, **given}
    settings.update({name: value for name, value in chosen.items() if value is not None})
    if not settings.get("bootstrap.servers"):
        raise VerifiableError("no broker is named: give --bootstrap-servers, or bootstrap.servers in --command-config")
    for name in settings:
        if name in _USE_INSTEAD:
            raise VerifiableError(f"{name} is a setting of Java's clients only; use {_USE_INSTEAD[name]}")
    settings.setdefault("client.id", f"{kind}-{os.getpid()}")
    return {_LIBRDKAFKA_NAMES.get(name, name): value for name, value in settings.items()}


def connection_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for connections, for an admin client."""
    return {name: value for name, value in settings.items() if name.startswith(_CONNECTION_SETTINGS)}


class VerifiableClient(ABC):
    """One run of a client."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, str], events: EventWriter, stop: Stop) -> None:
        self._options = options
        self._settings = settings
        self._events = events
        self._stop = stop
        self.watch = BrokerWatch(settings)
        self._deadline = math.inf if options.timeout is None else time.monotonic() + options.timeout

    @abstractmethod
    def run(self) -> bool:
        """Run to the end; return whether it succeeded."""

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline


def run_client(
    make: type[VerifiableClient],
    settings_of: Callable[[argparse.Namespace], dict[str, str]],
    options: argparse.Namespace,
) -> int:
    """Run a client to its end; return the exit status. An error is printed as an event, and on standard error."""
    try:
        settings = settings_of(options)
    except VerifiableError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    events, stop = EventWriter(settings["client.id"]), Stop()
    stop.listen()
    client = make(options, settings, events, stop)
    try:
        return GOOD if client.run() else FAILED
    except BrokenPipeError:
        # The reader has gone; the interpreter would fail again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (VerifiableError, KafkaException) as error:
        message = client.watch.explain(error.args[0].str() if isinstance(error, KafkaException) else str(error))
        events.write("client_error", message=message)
        print(f"error: {message}", file=sys.stderr)
        return FAILED
