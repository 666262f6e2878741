"""A page in a browser changes nothing in a registry, by whatever name it calls it; ordinary clients are answered."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.types import Receive, Scope, Send

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.registry_lite.guard import Guard
from tests.unit.registry.rest import MemoryRegistry, ask

READING, CHANGING = ("GET", "HEAD", "OPTIONS"), ("POST", "PUT", "DELETE", "PATCH", "TRACE")
OURS = (
    "localhost",
    "localhost:8081",
    "LocalHost:1",
    "127.0.0.1:8081",
    "127.0.0.2",
    "[::1]:8081",
    "registry.example:8081",
)
OTHERS = (
    "evil.example", "evil.example:8081", "localhost.evil.example", "localhost@evil.example", "127.0.0.1.evil.example",
    "xlocalhost", "10.0.0.1:8081", "[::2]:8081", "", ":8081", "localhost:x", "[", "registry.example.evil.example",
)  # fmt: skip
JSON_TYPES = (
    None, "application/json", "application/json; charset=utf-8", "Application/JSON", "application/octet-stream",
    "application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json;charset=UTF-8",
)  # fmt: skip
OTHER_TYPES = (
    "text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
    "", ";application/json", "text/plain; application/json", "application/jsonp", "text/json",
)  # fmt: skip
ELSEWHERE = (
    "null", "", "http://evil.example", "http://evil.example:8081", "http://localhost", "https://localhost:3000", "[",
    "http://localhost:8081.evil.example", "http://evil.example/localhost:8081", "file://", "http://127.0.0.1:8082",
)  # fmt: skip
"""Of pages elsewhere; those on another port of this machine included."""
HERE = "here"
"""Stands for the Origin that a page of the name in Host has."""


def expected(any_host: bool, method: str, kind: str | None, origin: str | None, host: str | None) -> int:
    """Return the status of a refusal; 200 for what is answered."""
    if host in OTHERS and not any_host:
        return 400
    if method in READING:
        return 200
    if origin is not None and (origin != HERE or host not in OURS):
        return 403
    return 415 if kind in OTHER_TYPES else 200


def test_all_methods_types_origins_and_hosts() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guards = {any_host: Guard(application, ["Registry.Example"], any_host=any_host) for any_host in (False, True)}

    async def status(any_host: bool, method: str, **headers: str | None) -> int:
        given = [(name.replace("_", "-").encode(), each.encode()) for name, each in headers.items() if each is not None]
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await guards[any_host]({"type": "http", "method": method, "headers": given}, None, send)  # type: ignore[arg-type]
        return int(sent[0]["status"])

    async def run() -> list[str]:
        wrong = []
        cases = itertools.product(
            guards,
            (*READING, *CHANGING),
            (*JSON_TYPES, *OTHER_TYPES),
            (None, HERE, *ELSEWHERE),
            (None, *OURS, *OTHERS),
        )
        for any_host, method, kind, origin, host in cases:
            if origin == f"http://{host}":
                continue  # it is the page itself
            sent = f"http://{host}" if origin == HERE else origin
            found = await status(any_host, method, content_type=kind, origin=sent, host=host)
            if found != expected(any_host, method, kind, origin, host):
                wrong.append(f"{found} for {(any_host, method, kind, origin, host)}")
        return wrong

    assert asyncio.run(run()) == []


PAGES: list[dict[str, str]] = [
    {"Host": "localhost:8081", "Origin": "http://evil.example", "Content-Type": "text/plain"},
    {"Host": "localhost:8081", "Origin": "http://evil.example", "Content-Type": "application/json"},
    {"Host": "localhost:8081", "Origin": "null"},
    {"Host": "localhost:8081", "Content-Type": "text/plain"},
    {"Host": "evil.example:8081", "Origin": "http://evil.example:8081", "Content-Type": "application/json"},
]
REQUESTS: list[tuple[str, Any]] = [
    ("POST /subjects/s/versions", {"schema": '"int"'}),
    ("PUT /config", {"compatibility": "NONE"}),
    ("PUT /mode", {"mode": "READONLY"}),
    ("DELETE /subjects/t", None),
    ("DELETE /subjects/t/versions/1", None),
    ("DELETE /config/t", None),
]


@pytest.mark.parametrize("headers", PAGES)
def test_a_page_elsewhere_changes_nothing(headers: dict[str, str]) -> None:
    registry = MemoryRegistry()
    registry.ask("POST /subjects/t/versions", {"schema": '"int"'})
    registry.ask("PUT /config/t", {"compatibility": "FULL"})
    before = list(registry.records)
    for request, body in REQUESTS:
        found = registry.ask(request, body, headers=headers)
        assert found.status in (400, 403, 415)
        assert found.body["error_code"] == found.status
    assert registry.records == before


def _status(address: str, host: str, method: str = "GET", path: str = "/subjects", **headers: str) -> int:
    place = urlsplit(address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    body = json.dumps({"schema": '"int"'}) if method == "POST" else None
    connection.request(method, path, body, {"Host": host, **headers})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def test_names_on_loopback_and_elsewhere(broker: EmbeddedBroker) -> None:
    """On loopback by the names of loopback and those given; elsewhere by any."""
    servers = broker.bootstrap_servers
    with EmbeddedRegistry(servers, topic="_names", names=["proxy.example"]) as registry:
        for host, status in (("localhost", 200), ("proxy.example:80", 200), ("evil.example", 400)):
            assert _status(registry.url, host) == status
        assert _status(registry.url, socket.gethostname()) == 200
        rebound = {"Origin": "http://evil.example", "Content-Type": "application/json"}
        assert _status(registry.url, "evil.example", "POST", "/subjects/s/versions", **rebound) == 400
        assert ask(registry.url, "GET /subjects").body == []
    with EmbeddedRegistry(servers, topic="_names", host="0.0.0.0") as registry:
        address = registry.url.replace("0.0.0.0", "127.0.0.1")
        assert _status(address, "registry.svc.cluster.local:8081") == 200
        assert _status(address, "evil.example", "POST", "/subjects/s/versions", **rebound) == 403
        here = {"Host": "registry.svc:8081", "Origin": "http://registry.svc:8081", "Content-Type": "application/json"}
        told = ask(address, "DELETE /subjects/s", headers=here).body["message"]
        assert told.endswith(
            "may not change anything here. If registry.svc is a name of this registry, start it with "
            "--name registry.svc"
        )
        elsewhere = {**here, "Origin": "http://evil.example"}
        assert "--name" not in ask(address, "DELETE /subjects/s", headers=elsewhere).body["message"]
    with EmbeddedRegistry(servers, topic="_names", host="0.0.0.0", names=["registry.svc"]) as registry:
        address = registry.url.replace("0.0.0.0", "127.0.0.1")
        assert ask(address, "DELETE /subjects/s", headers=here).status == 404
        plain = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        assert _status(address, "registry.svc.cluster.local", "POST", "/subjects/s/versions", **plain) == 200
