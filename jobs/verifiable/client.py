"""Shared by the verifiable producer and consumer: an event stream, settings in Kafka's names, an orderly stop."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from sparkonce.broker_lite.config import ConfigError, read_properties
from sparkonce.jobs.shared.arguments import whole_number
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.kafka.client.settings import read_servers

WAIT_S = 0.1
"""The maximal delay of handling a signal."""
_CONNECT_S = 5.0
"""How long a broker may take to accept a connection, before it counts as one that does not answer."""
_BOOTSTRAP_S = 30.0
"""How long one attempt to get the cluster's metadata may take."""

_OTHER_NAMES = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
"""Settings whose name in kafka-python is not Kafka's with underscores."""
_DEFAULTS = {**KafkaProducer.DEFAULT_CONFIG, **KafkaConsumer.DEFAULT_CONFIG}

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


class BrokerWatch(logging.Handler):
    """Notes that kafka-python complains, looks whether any broker accepts connections, and reports each outage once."""

    def __init__(self, servers: str) -> None:
        super().__init__(logging.WARNING)
        self._servers = servers
        self._doubtful = False
        self._reason = ""

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Note that kafka-python logs a problem; it goes on by retrying."""
        self._doubtful = True

    def look(self) -> None:
        """Look whether any broker is there, if there is reason to doubt it."""
        if self._doubtful and not self.is_down:
            self._doubtful = False
            self.reaches_any()

    def reaches_any(self) -> bool:
        """Return whether any broker accepts a connection."""
        reason = ""
        for address in read_servers(self._servers):
            try:
                socket.create_connection(address, _CONNECT_S).close()
            except OSError as error:
                reason = str(error)
            else:
                return True
        told, self._reason = self.is_down, reason
        if not told:
            print(f"waiting: {self.state}", file=sys.stderr, flush=True)
        return False

    def answered(self) -> None:
        """Note a broker's response: the outage is over, and a new one is reported again."""
        self._reason = ""

    @property
    def is_down(self) -> bool:
        """Whether no broker could be reached, and none has answered since."""
        return bool(self._reason)

    @property
    def state(self) -> str:
        """Describe the current problem; "" if none is known."""
        return f"no broker answers at {self._servers}: {self._reason}" if self._reason else ""

    def explain(self, message: str) -> str:
        """Add the current problem to a message."""
        return f"{message}; {self.state}" if self.state and self.state not in message else message


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


def client_settings(
    options: argparse.Namespace, kind: str, given: Mapping[str, str | None], known: Collection[str]
) -> dict[str, Any]:
    """Return kafka-python's settings: of the file, then of the command line (`given`; None means the file's).

    One file may serve both clients, so what only the other one knows is ignored.

    Args:
        options: the command line, as `add_common_arguments` declares it.
        kind: the default name of the client.
        given: further settings from options of the command line.
        known: all settings that this client has.

    Raises:
        VerifiableError: for a file or setting that cannot be read, a setting of Java only, or if no broker is named.
    """
    try:
        texts = read_properties(options.command_config) if options.command_config else {}
    except ConfigError as error:
        raise VerifiableError(str(error)) from error
    chosen = {"bootstrap.servers": options.bootstrap_servers, "client.id": options.client_id, **given}
    texts.update({name: value for name, value in chosen.items() if value is not None})
    if not texts.get("bootstrap.servers"):
        raise VerifiableError("no broker is named: give --bootstrap-servers, or bootstrap.servers in --command-config")
    texts.setdefault("client.id", f"{kind}-{os.getpid()}")
    texts.setdefault("reconnect.backoff.max.ms", "1000")  # as in Java; kafka-python's is 30 s
    settings = dict(_setting(name, text) for name, text in texts.items())
    try:
        read_servers(settings["bootstrap_servers"])
    except ValueError as error:
        raise VerifiableError(f"bootstrap.servers: {error}") from error
    return {name: value for name, value in settings.items() if name in known}


def _setting(name: str, text: str) -> tuple[str, Any]:
    """Return kafka-python's name of a setting, and its value, whose type is that of its default.

    No message shows the value: it may be a secret.
    """
    if name in _USE_INSTEAD:
        raise VerifiableError(f"{name} is a setting of Java's clients only; use {_USE_INSTEAD[name]}")
    key = _OTHER_NAMES.get(name, name.replace(".", "_"))
    default = _DEFAULTS.get(key, ())
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise VerifiableError(f"{name} is true or false")
        return key, text == "true"
    if isinstance(default, int | float) or key.endswith("_bytes"):
        try:
            return key, text if text == "all" else int(text)
        except ValueError as error:
            raise VerifiableError(f"{name} is a whole number") from error
    if default is None or isinstance(default, str):
        return key, None if text == "none" and default is None else text
    raise VerifiableError(f"{name} is no setting that kafka-python reads from text")


class VerifiableClient(ABC):
    """One run of a client."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, Any], events: EventWriter, stop: Stop) -> None:
        self._options = options
        self._settings = settings
        self._events = events
        self._stop = stop
        self._described: dict[str, Any] = {}
        """What is said of it when it starts."""
        self.watch = BrokerWatch(settings["bootstrap_servers"])
        self._deadline = math.inf if options.timeout is None else time.monotonic() + options.timeout

    def run(self) -> bool:
        """Run to the end; return whether it succeeded.

        Raises:
            VerifiableError, KafkaError: if it cannot continue.
        """
        self._events.write("startup_complete", **self._described)
        try:
            self._work()
        finally:
            self._close()
            self._events.write("shutdown_complete")
        return True

    @abstractmethod
    def _work(self) -> None:
        """Send, or read, until the end."""

    @abstractmethod
    def _close(self) -> None:
        """End what is under way."""

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _connect(self, make: Callable[..., Any], until: float) -> Any:
        """Return a client of kafka-python, which needs a broker to begin; None if none answers, or a signal comes."""
        while not self._stop.requested and (left_s := until - time.monotonic()) > 0:
            if self.watch.reaches_any():
                try:
                    client = make(**self._settings, bootstrap_timeout_ms=max(1, int(1000 * min(left_s, _BOOTSTRAP_S))))
                except KafkaTimeoutError:
                    continue
                self.watch.answered()
                return client
            time.sleep(min(left_s, WAIT_S))
        return None


@dataclass(frozen=True, slots=True)
class Program:
    """A program that runs as a command of `sparkonce` and by itself."""

    name: str
    client: type[VerifiableClient]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    settings_of: Callable[[argparse.Namespace], dict[str, Any]]

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run by the command line; return the exit status."""
        parser = argparse.ArgumentParser(prog=f"python -m sparkonce.jobs.verifiable.{self.name}")
        self.add_arguments(parser)
        return self.run(parser.parse_args(arguments))

    def run(self, options: argparse.Namespace) -> int:
        """Run to the end; return the exit status. An error is printed as an event, and on standard error."""
        try:
            settings = self.settings_of(options)
        except VerifiableError as error:
            print(f"error: {error}", file=sys.stderr)
            return USAGE
        events, stop = EventWriter(settings["client_id"]), Stop()
        stop.listen()
        client = self.client(options, settings, events, stop)
        logging.getLogger("kafka").addHandler(client.watch)
        try:
            return GOOD if client.run() else FAILED
        except BrokenPipeError:
            # The reader has gone; the interpreter would fail again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (VerifiableError, KafkaError, ValueError) as error:
            message = client.watch.explain(str(error))
            events.write("client_error", message=message)
            print(f"error: {message}", file=sys.stderr)
            return FAILED
