"""What answers in place of a registry: errors, junk, tokens; and certificates for a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes] | None
"""A status and a body; None to close the connection."""
Script = Callable[["Request"], Answer]


def document(status: int, content: Any) -> Answer:
    return status, json.dumps(content).encode()


class Request(BaseHTTPRequestHandler):
    """One request, as a script sees it."""

    server: Double
    protocol_version = "HTTP/1.1"
    content: bytes

    def do_GET(self) -> None:
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {self.path}")
        answer = self.server.script(self)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer[0])
        self.send_header("Content-Length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None: ...


class Double(ThreadingHTTPServer):
    """Answers as a script says; `asked` has the requests."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.script = script
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def double(script: Script) -> Iterator[Double]:
    """Run one."""
    made = Double(script)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
