"""Brokers of `sparkonce ui` itself: faults, kills and restarts, which all work only if changes are allowed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

from sparkonce.broker_lite.embedded import BrokerStartError, EmbeddedBroker
from sparkonce.broker_lite.embedded_cluster import EmbeddedCluster
from sparkonce.broker_lite.faults.faults import FaultHandle, describe
from sparkonce.jobs.ui.errors import RefusedError
from sparkonce.kafka.protocol.apis import APIS
from sparkonce.kafka.protocol.errors import ErrorCode

MAX_FAULTS = 50
"""At once."""
APIS_NAMED = tuple(sorted(api.codec_name for api in APIS.values()))
ERRORS = tuple(sorted(each.name for each in ErrorCode if each is not ErrorCode.NONE))
KINDS = {
    "fail": "answer with an error",
    "delay": "answer later",
    "drop_before": "close the connection in place of serving the request",
    "drop_after": "serve the request, and close the connection in place of the answer",
    "throttle": "tell clients to wait (quota)",
    "pause": "hold requests",
    "disk_full": "let writes fail: the disk is full",
    "slow_disk": "let writes take longer",
    "restart": "restart the broker at the request",
}
"""Methods of `Faults`, with descriptions."""
TIMED = {"delay": "delay_ms", "slow_disk": "delay_ms", "throttle": "throttle_time_ms"}
"""Those with a duration, and its parameter."""
ON_DISK = ("disk_full", "slow_disk")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is active."""

    number: int
    broker_id: int
    words: str
    fired: int
    held: int


def started(number: int, data_dir: str | None, stack: ExitStack) -> tuple[str, Mapping[int, EmbeddedBroker]]:
    """Start processes of brokers, ended by ``stack``; return addresses, and each by its id. Raises BrokerStartError."""
    if number == 1:
        broker = stack.enter_context(EmbeddedBroker(data_dir, process=True))
        return broker.bootstrap_servers, {0: broker}
    cluster = stack.enter_context(EmbeddedCluster(number, data_dir, process=True))
    return cluster.bootstrap_servers, cluster.brokers


class OwnBrokers:
    """Brokers by their ids; safe to use from several threads."""

    def __init__(self, brokers: Mapping[int, EmbeddedBroker]) -> None:
        self._brokers = brokers
        self._handles: dict[int, tuple[int, FaultHandle]] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    @property
    def states(self) -> Mapping[int, bool]:
        """Whether each broker runs."""
        return {number: broker.pid is not None for number, broker in self._brokers.items()}

    def faults(self) -> list[Fault]:
        """Return all active faults."""
        with self._lock:
            handles = list(self._handles.items())
        return [
            Fault(number, broker_id, describe(handle.spec), handle.fired, handle.held)
            for number, (broker_id, handle) in handles
        ]

    def switch_on(self, broker_id: int, kind: str, form: Mapping[str, str]) -> str:
        """Inject a fault from the fields of a form; return its description. Raises RefusedError if it is impossible."""
        if kind not in KINDS:
            raise RefusedError(f"There is no fault {kind!r}: choose one of {', '.join(KINDS)}.")
        faults = self._broker(broker_id).faults
        try:
            handle: FaultHandle = getattr(faults, kind)(**_values(kind, form), must_fire=False)
        except (TypeError, ValueError) as error:
            raise RefusedError(f"The fault was not switched on: {error}.") from error
        with self._lock:
            if len(self._handles) < MAX_FAULTS:
                self._handles[next(self._numbers)] = broker_id, handle
                return f"Switched on at broker {broker_id}: {describe(handle.spec)}."
        handle.remove()
        raise RefusedError(f"{MAX_FAULTS} faults are switched on: switch some off.")

    def switch_off(self, number: int) -> str:
        """Remove a fault; return its description."""
        with self._lock:
            broker_id, handle = self._handles.pop(number, (0, None))
        if handle is None:
            raise RefusedError("That fault is switched off already.")
        handle.remove()
        return f"Switched off at broker {broker_id}: {describe(handle.spec)}, which happened {handle.fired} times."

    def kill(self, broker_id: int) -> str:
        """SIGKILL a broker."""
        broker = self._broker(broker_id)
        pid = broker.pid
        try:
            broker.kill()
        except RuntimeError as error:  # another user of these pages may have been faster
            raise RefusedError(f"Broker {broker_id} is down already.") from error
        return f"Broker {broker_id}, process {pid}, was ended by SIGKILL."

    def start(self, broker_id: int) -> str:
        """Start a broker that is stopped."""
        broker = self._broker(broker_id)
        if broker.pid is not None:
            raise RefusedError(f"Broker {broker_id} runs already.")
        try:
            broker.restart()
        except BrokerStartError as error:
            raise RefusedError(f"Broker {broker_id} does not start: {error}") from error
        return f"Broker {broker_id} runs again, as process {broker.pid}."

    def _broker(self, broker_id: int) -> EmbeddedBroker:
        if broker_id not in self._brokers:
            raise RefusedError(
                f"Broker {broker_id} was not started by these pages, so that they have no power over it."
            )
        return self._brokers[broker_id]


def _values(kind: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a method of `Faults`. Raises ValueError if a field is invalid."""
    given = {name: text.strip() for name, text in form.items() if text.strip()}
    found: dict[str, Any] = {}
    if kind == "fail":
        found["error"] = given.get("error", "")
    if kind in TIMED:
        found[TIMED[kind]] = _number("milliseconds", given.get("ms", ""))
    if "topic" in given:
        found["topic"] = given["topic"]
    if "api" in given and kind not in ON_DISK:
        found["api"] = given["api"]
    for name in ("partition", "times"):
        if name in given:
            found[name] = _number(name, given[name])
    return found


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{name}: expected a whole number, not {text!r}")
    return int(text)
