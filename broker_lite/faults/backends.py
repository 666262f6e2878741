"""Carries rules to a broker: directly to one on a thread of this process, over a socket to a separate one.

Theory of operation: `LocalBackend` owns the rule book and the injector of one running server; the loop's state is
changed on the loop only. `ControlServer` is a `LocalBackend` behind lines of JSON, at the child's end of the socket
whose end tells the child that its parent has ended. `RemoteBackend` is the parent's end: its own thread reads answers
and reports of fired rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from sparkonce.broker_lite.faults.faults import Status
from sparkonce.broker_lite.faults.injector import Injector
from sparkonce.broker_lite.faults.rules import Effect, FaultSpec, Rule, RuleBook
from sparkonce.broker_lite.log.storage import WriteGate
from sparkonce.broker_lite.node.broker import Broker

ANSWER_S = 30.0
Note = Callable[[int, int, int], None]
"""Called with a rule's id, how many requests it has matched, and how often it has fired."""
Restart = Callable[[int], None]
"""Called with the id of a rule that restarts the broker."""


class LocalBackend:
    """Rules for a broker in this process. Its methods may be called from any thread but, while it runs, the loop's."""

    def __init__(
        self, broker: Broker, gate: WriteGate, loop: asyncio.AbstractEventLoop, note: Note, restart: Restart
    ) -> None:
        self._broker = broker
        self._gate = gate
        self._loop = loop
        self._removed: dict[int, Rule] = {}
        self._rules = RuleBook(lambda rule: note(rule.rule_id, rule.seen, rule.fired))
        self._injector = Injector(broker, self._rules, lambda rule: restart(rule.rule_id))

    def add(self, rule_id: int, spec: FaultSpec, seen: int, fired: int) -> None:
        """See `Backend`."""
        self._rules.add(Rule(rule_id, spec, seen, fired))
        self._arm()

    def remove(self, rule_id: int) -> None:
        """See `Backend`."""
        rule = self._rules.remove(rule_id)
        if rule is not None:
            self._removed[rule_id] = rule
            if rule.spec.effect is Effect.THROTTLE:
                self._injector.unmute()
        self._arm()
        self.release(rule_id)

    def release(self, rule_id: int) -> None:
        """See `Backend`."""
        with contextlib.suppress(RuntimeError):  # the loop has ended: nothing is held any more
            self._loop.call_soon_threadsafe(self._injector.release, rule_id)

    def status(self, rule_id: int) -> Status:
        """See `Backend`."""
        rule = self._rules.find(rule_id) or self._removed.get(rule_id)
        if rule is None:
            return Status(seen=0, fired=0, held=0)
        return Status(seen=rule.seen, fired=rule.fired, held=self._injector.held(rule_id))

    def close(self) -> None:
        """See `Backend`."""
        self._broker.faults = None
        self._gate.check = None

    def _arm(self) -> None:
        self._broker.faults = self._injector if self._rules.has_request_rules else None
        self._gate.check = self._injector.check_write if self._rules.has_disk_rules else None


class ControlServer(LocalBackend):
    """The child's end of the control channel; all of it runs on the loop."""

    def __init__(self, broker: Broker, gate: WriteGate, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        super().__init__(broker, gate, loop, self._on_fired, self._on_restart)
        self._descriptor = descriptor
        self._received = b""

    def feed(self, data: bytes) -> None:
        """Receive bytes from the parent and execute complete commands."""
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            self._send({"answer": command["id"], "status": self._carry_out(command)})

    def _carry_out(self, command: dict[str, Any]) -> Status:
        rule_id = command["rule"]
        if command["do"] == "add":
            self.add(rule_id, FaultSpec.from_json(command["spec"]), command["seen"], command["fired"])
        elif command["do"] == "remove":
            self.remove(rule_id)
        elif command["do"] == "release":
            self.release(rule_id)
        return self.status(rule_id)

    def _on_fired(self, rule_id: int, seen: int, fired: int) -> None:
        self._send({"rule": rule_id, "seen": seen, "fired": fired})

    def _on_restart(self, rule_id: int) -> None:
        self._send({"restart": rule_id})
        rule = self._rules.find(rule_id)
        if rule is not None and rule.spec.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(OSError):  # the parent has ended, and this process is about to
            while line:
                line = line[os.write(self._descriptor, line) :]


class RemoteBackend:
    """The parent's end of the control channel."""

    def __init__(self, channel: socket.socket, note: Note, restart: Restart) -> None:
        self._channel = channel
        self._note = note
        self._restart = restart
        self._answers: dict[int, Status] = {}
        self._answered = threading.Condition()
        self._closed = False
        self._next_id = 0
        threading.Thread(target=self._read, name="broker_lite-control", daemon=True).start()

    def add(self, rule_id: int, spec: FaultSpec, seen: int, fired: int) -> None:
        """See `Backend`."""
        self._ask({"do": "add", "rule": rule_id, "spec": spec.to_json(), "seen": seen, "fired": fired})

    def remove(self, rule_id: int) -> None:
        """See `Backend`; a broker that has ended has no rules."""
        with contextlib.suppress(OSError):
            self._ask({"do": "remove", "rule": rule_id})

    def release(self, rule_id: int) -> None:
        """See `Backend`; a broker that has ended holds nothing."""
        with contextlib.suppress(OSError):
            self._ask({"do": "release", "rule": rule_id})

    def status(self, rule_id: int) -> Status:
        """See `Backend`. Raises OSError if the broker has ended."""
        return self._ask({"do": "status", "rule": rule_id})

    def close(self) -> None:
        """See `Backend`: the broker's process does that when it is stopped."""

    def _ask(self, command: dict[str, Any]) -> Status:
        with self._answered:
            self._next_id += 1
            number = self._next_id
            if self._closed:
                raise ConnectionResetError("the broker's process is gone")
            self._channel.sendall(json.dumps({"id": number, **command}).encode() + b"\n")
            if not self._answered.wait_for(lambda: number in self._answers or self._closed, ANSWER_S):
                raise TimeoutError(f"the broker did not answer on its control channel within {ANSWER_S} s")
            if number not in self._answers:
                raise ConnectionResetError("the broker's process is gone")
            return self._answers.pop(number)

    def _read(self) -> None:
        received = b""
        while True:
            try:
                data = self._channel.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                self._on_message(json.loads(line))
        with self._answered:
            self._closed = True
            self._answered.notify_all()

    def _on_message(self, message: dict[str, Any]) -> None:
        if "answer" in message:
            with self._answered:
                self._answers[message["answer"]] = message["status"]
                self._answered.notify_all()
        elif "restart" in message:
            self._restart(message["restart"])
        else:
            self._note(message["rule"], message["seen"], message["fired"])
