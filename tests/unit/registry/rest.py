"""Plain requests to a registry: over HTTP, or to the application itself, whose records go into memory."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from sparkonce.registry_lite.app import make_app
from sparkonce.registry_lite.guard import MEDIA_TYPE
from sparkonce.registry_lite.service import Records, RegistryService
from sparkonce.registry_lite.state import State


class Answer(NamedTuple):
    status: int
    body: Any
    """What JSON says; the text, where it is none."""
    kind: str


def ask(url: str, request: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    """Send a request such as ``GET /subjects``."""
    method, _, path = request.partition(" ")
    content = None if body is None else json.dumps(body).encode()
    sent = urllib.request.Request(url + path, content, {"Content-Type": MEDIA_TYPE, **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(sent, timeout=60) as found:
            return Answer(found.status, _document(found.read()), found.headers["content-type"])
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _document(error.read()), error.headers["content-type"])


def _document(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()


class MemoryRegistry:
    """A registry whose records are kept in a list."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.state = State()
        self.service = RegistryService(self.state, self._write, threading.Condition())
        self._app = make_app(self.service)

    def _write(self, records: Records) -> None:
        for key, value in records:
            self.records.append((json.dumps(key).encode(), None if value is None else json.dumps(value).encode()))
            self.state.apply(*self.read(self.records[-1]))

    @staticmethod
    def read(record: tuple[bytes, bytes | None]) -> tuple[dict[str, Any], dict[str, Any] | None]:
        key, value = record
        return json.loads(key), None if value is None else json.loads(value)

    def ask(
        self, request: str, body: Any = None, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request; ``data`` in place of JSON."""
        method, _, target = request.partition(" ")
        path, _, query = target.partition("?")
        content = data if data is not None else b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http",
            "method": method,
            "raw_path": path.encode(),
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), each.encode()) for name, each in (headers or {}).items()],
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))  # type: ignore[arg-type]
        head, *rest = sent
        headers = {name.decode(): value.decode() for name, value in head["headers"]}
        body = b"".join(each.get("body", b"") for each in rest)
        return Answer(head["status"], _document(body), headers["content-type"])
