"""Which requests are answered: a page in a browser must not register schemas in a registry of its user's machine.

1. The name in a request's `Host` must be one of ours where we listen on loopback: a page whose name is made to resolve
   to this machine (DNS rebinding) is refused. Elsewhere clients call a registry by names that it does not know.
2. What may change something has no `Origin`, which browsers send, or one of our names.
3. Its body is of a type that Confluent's registry accepts. Browsers send none of them to another origin without asking
   it first, and we do not answer such questions. A body without a type is accepted, as there; rule 2 is for those.
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
    """Passes on the requests that may be answered."""

    def __init__(self, app: ASGIApp, names: Collection[str], *, any_host: bool) -> None:
        """``names`` are those by which it may be called, besides loopback's; any other one, too, with ``any_host``."""
        self._app = app
        self._names = frozenset(map(str.lower, (*LOOPBACK, *names)))
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; as ASGI has it."""
        refusal = self._refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, why = refusal
        await JSONResponse({"error_code": status, "message": why}, status, media_type=MEDIA_TYPE)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal; None for a request that is answered."""
        host = headers.get("host")
        if host is not None and not self._any_host and not self._is_ours(host):
            hint = f"call it by {', '.join(sorted(self._names))}, or start it with --name"
            return 400, f"This registry is not {shown(host)}: {hint}"
        if method in READING:
            return None
        origin = headers.get("origin")
        if origin is not None and not (host is not None and _place(origin) == host.lower() and self._is_ours(host)):
            name = name_in(host or "")
            # Not because it is of the same origin alone: so is a page elsewhere whose name was made to resolve to us.
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
    """Return the host and port of an origin, "" for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
