"""An HTTP proxy in front of a store that makes requests fail by rules; a separate process.

Theory of operation. A client uses the proxy's address as its endpoint. Requests are forwarded byte by byte, with
the client's own ``Host``, which its signature covers. Rules are tried in order; the first that matches and is not
used up applies. Requests of the parent: ``rules`` replaces all rules, ``fired`` returns how many requests each has hit,
``deliver`` forwards requests held back as `Fault.LATE`; each is answered with an event.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lab.child_process import ChildProcess, event_writer
from lab.store.faults import Fault, Rule

HOLD_LIMIT_S = 120.0
"""The maximal time that a request without a response is held."""
UPSTREAM_LIMIT_S = 60.0
ANSWER_LIMIT_S = 30.0
_ERRORS = {
    Fault.SLOW_DOWN: (503, "SlowDown", "Please reduce your request rate."),
    Fault.UNAVAILABLE: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.CONFLICT: (409, "ConditionalRequestConflict", "A conflicting conditional operation is in progress."),
    Fault.EXPIRED: (403, "ExpiredToken", "The provided token has expired."),
    Fault.DENIED: (403, "AccessDenied", "Access Denied"),
}
_OF_ONE_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})


class FaultProxy(ChildProcess):
    """The proxy's controller: a context manager with an address.

    Args:
        to: the store's address.
        folder: of its log.
        page_keys: the maximal number of keys in a listing's page, 0 for the store's own limit; only for a store that
            does not check signatures.
    """

    def __init__(self, to: str, folder: Path, page_keys: int = 0) -> None:
        argument = {"to": to, "page_keys": page_keys}
        super().__init__("lab.store.fault_proxy", argument, folder / "fault-proxy.log")
        ready = self.first_event(ANSWER_LIMIT_S)
        assert ready is not None, f"the proxy did not start; its log ends with:\n{self.log_tail()}"
        self.address = str(ready["ready"])

    def use(self, *rules: Rule) -> None:
        """Replace all rules by these, and reset their counters."""
        self.send({"rules": [asdict(rule) for rule in rules]})
        self._answer()

    def fired(self) -> list[int]:
        """Return how many requests each rule has hit, in the rules' order."""
        self.send({"fired": True})
        found: list[int] = self._answer()["fired"]
        return found

    def deliver_late(self) -> list[int]:
        """Forward the requests that are held back; return the store's status for each."""
        self.send({"deliver": True})
        found: list[int] = self._answer()["delivered"]
        return found

    def _answer(self) -> dict[str, Any]:
        event = self.receive(ANSWER_LIMIT_S)
        assert event is not None, "the proxy does not answer"
        return event


class Request(NamedTuple):
    """A client's request."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def conditional(self) -> bool:
        """Whether it is a conditional write."""
        return self.method == "PUT" and any(name.lower() == "if-none-match" for name, _ in self.headers)


class Answer(NamedTuple):
    """The store's response."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class _Rules:
    """The current rules and how many requests each has hit; used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._seen: list[int] = []
        self._hit: list[int] = []
        self._late: list[Request] = []

    def replace(self, rules: Sequence[Rule]) -> None:
        with self._lock:
            self._rules = list(rules)
            self._seen, self._hit = [0] * len(rules), [0] * len(rules)

    def fired(self) -> list[int]:
        with self._lock:
            return list(self._hit)

    def fault_of(self, request: Request) -> Fault | None:
        with self._lock:
            for number, rule in enumerate(self._rules):
                if not rule.matches(request.method, request.path, request.conditional):
                    continue
                self._seen[number] += 1
                if self._seen[number] > rule.skip and (not rule.times or self._hit[number] < rule.times):
                    self._hit[number] += 1
                    return Fault[rule.fault]
        return None

    def hold(self, request: Request) -> None:
        with self._lock:
            self._late.append(request)

    def take_late(self) -> list[Request]:
        with self._lock:
            late, self._late = self._late, []
        return late


def forward(to: str, request: Request) -> Answer:
    """Forward a request, and return the whole response."""
    connection = http.client.HTTPConnection(urlsplit(to).netloc, timeout=UPSTREAM_LIMIT_S)
    try:
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers:
            if name.lower() not in _OF_ONE_CONNECTION:
                connection.putheader(name, value)
        connection.putheader("Connection", "close")
        connection.endheaders(request.body or None)
        response = connection.getresponse()
        kept = [(name, value) for name, value in response.getheaders() if name.lower() not in _OF_ONE_CONNECTION]
        return Answer(response.status, kept, response.read())
    finally:
        connection.close()


def handler(to: str, rules: _Rules, page_keys: int) -> type[BaseHTTPRequestHandler]:
    """Return the class that serves one connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes: else clients acknowledge late

        def handle_one_request(self) -> None:
            with contextlib.suppress(OSError):  # the client has disconnected
                super().handle_one_request()
                return
            self.close_connection = True

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path
            if page_keys and "list-type=2" in path:
                path += f"&max-keys={page_keys}"
            request = Request(self.command, path, self.headers.items(), body)
            fault = rules.fault_of(request)
            if fault in (Fault.NO_ANSWER, Fault.LATE):
                if fault is Fault.LATE:
                    rules.hold(request)
                select.select([self.connection], [], [], HOLD_LIMIT_S)
                self.close_connection = True
                return
            if fault is not None and fault in _ERRORS:
                self._reply(_error(fault))
                return
            answer = forward(to, request)
            if fault is Fault.LOST_ANSWER:
                self.close_connection = True
                return
            self._reply(answer, cut=fault is Fault.CUT)

        def _reply(self, answer: Answer, *, cut: bool = False) -> None:
            self.send_response_only(answer.status)
            sized = False
            for name, value in answer.headers:
                sized = sized or name.lower() == "content-length"
                self.send_header(name, value)
            if not sized:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
            self.close_connection = self.close_connection or cut

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Do not log."""

    return Handler


def _error(fault: Fault) -> Answer:
    status, code, message = _ERRORS[fault]
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Answer(status, [("Content-Type", "application/xml")], text.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _command(request: dict[str, Any], rules: _Rules, to: str, tell: Callable[..., None]) -> None:
    if "rules" in request:
        rules.replace([Rule(**each) for each in request["rules"]])
        tell(done=True)
    elif "fired" in request:
        tell(fired=rules.fired())
    else:
        tell(delivered=[forward(to, each).status for each in rules.take_late()])


def main() -> None:
    """Serve on a free port of the loopback address until the standard input ends."""
    tell = event_writer()
    argument = json.loads(sys.argv[1])
    rules = _Rules()
    server = _Server(("127.0.0.1", 0), handler(argument["to"], rules, argument["page_keys"]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell(ready=f"http://127.0.0.1:{server.server_port}")
    for line in sys.stdin:
        _command(json.loads(line), rules, argument["to"], tell)
    server.shutdown()


if __name__ == "__main__":
    main()
