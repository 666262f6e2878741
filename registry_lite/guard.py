"""Rejects requests of browsers: a web page must not register schemas in a registry on its user's machine.

1. If we listen on loopback, the name in a request's `Host` must be one of ours: a page whose name resolves
   to this machine (DNS rebinding) is rejected. Elsewhere clients use names that a registry does not know.
2. A request that may change something has no `Origin`, which browsers send, or one of our names.
3. Its body is of a type that Confluent's registry accepts. Browsers send none of them to another origin without a
   preflight request, which we do not answer. A body without a type is accepted, as there; rule 2 covers those.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sparkonce.http_hosts import LOOPBACK, is_loopback, name_in, shown

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
ACCEPTED = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream")
READING = ("GET", "HEAD", "OPTIONS")


class Guard:
    """Passes on the requests that are allowed."""

    def __init__(self, app: ASGIApp, names: Collection[str], *, any_host: bool) -> None:
        """``names`` are its allowed names besides loopback's; with ``any_host`` any name is allowed."""
        self._app = app
        self._names = frozenset(map(str.lower, (*LOOPBACK, *names)))
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it (ASGI)."""
        refusal = self._refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, why = refusal
        await JSONResponse({"error_code": status, "message": why}, status, media_type=MEDIA_TYPE)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason of a rejection; None if the request is allowed."""
        host = headers.get("host")
        if host is not None and not self._any_host and not self._is_ours(host):
            hint = f"call it by {', '.join(sorted(self._names))}, or start it with --name"
            return 400, f"This registry is not {shown(host)}: {hint}"
        if method in READING:
            return None
        origin = headers.get("origin")
        if origin is not None and not (host is not None and _place(origin) == host.lower() and self._is_ours(host)):
            name = name_in(host or "")
            # The same origin alone is not enough: a foreign page whose name resolves to this machine has it, too.
            is_named = name and _place(origin) == (host or "").lower()
            hint = f". If {shown(name)} is a name of this registry, start it with --name {shown(name)}"
            return 403, f"A page of {shown(origin)} may not change anything here{hint if is_named else ''}"
        kind = headers.get("content-type")
        if kind is not None and kind.partition(";")[0].strip().lower() not in ACCEPTED:
            return 415, f"HTTP 415 Unsupported Media Type: {shown(kind)}; use {ACCEPTED[0]} or application/json"
        return None

    def _is_ours(self, host: str) -> bool:
        name = name_in(host)
        return name in self._names or is_loopback(name)


def _place(origin: str) -> str:
    """Return the host and port of an origin, "" if it is invalid."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
