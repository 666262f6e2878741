"""Access control of the pages, and restrictions on browsers.

- The name in a request's `Host` must be one of ours: a foreign page whose name is made to resolve to this machine
  (DNS rebinding) is rejected.
- With a token, a client sends it once: in the address (`?token=…`, from which it is removed at once) or as a bearer
  token; then a cookie replaces it, which contains a secret of this process and not the token.
- A form must come from one of our own pages (`Origin`).
- A foreign page may link to these pages, but load nothing from them (`Sec-Fetch-Site`): it could not read the
  response, but could keep this machine busy, or use up all follower slots.
- Browsers load nothing from elsewhere and run only our script (Content-Security-Policy).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparkonce.http_hosts import name_in, shown

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, our forms would have no Origin
    "X-Content-Type-Options": "nosniff",
}
COOKIE = "sparkonce-ui"
READING = ("GET", "HEAD")


class Guard:
    """Forwards allowed requests."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], token: str | None) -> None:
        """``hosts`` are the names by which it may be addressed."""
        self._app = app
        self._hosts = frozenset(map(str.lower, hosts))
        self._token = token
        self._session = secrets.token_urlsafe()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or reject it (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if name_in(host) not in self._hosts:
            return _refused(400, f"this is not {shown(host)}: call it by {', '.join(sorted(self._hosts))}")
        if _is_loaded_from_elsewhere(headers):
            return _refused(403, "a page elsewhere may lead here, and load nothing from here")
        if self._token is not None:
            may_enter, query = self._may_enter(headers), _query(scope)
            # A logged-in user may open the printed address again: links would contain the token.
            if not may_enter or (scope["method"] in READING and "token" in dict(query)):
                return self._entrance(scope, query, may_enter=may_enter)
        if scope["method"] not in READING and headers.get("origin") != f"{scope['scheme']}://{host}":
            return _refused(403, "a form is accepted from these pages only")
        return None

    def _may_enter(self, headers: Headers) -> bool:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return _equal(bearer, self._token or "") or _equal(_cookie(headers, self._cookie(headers)), self._session)

    def _entrance(self, scope: Scope, query: Sequence[tuple[str, str]], *, may_enter: bool) -> Response:
        """Redirect a request with the token in its address to the address without it."""
        has_token = any(name == "token" and _equal(value, self._token or "") for name, value in query)
        if not may_enter and (scope["method"] not in READING or not has_token):
            return _refused(401, "a token is needed: open the address that `sparkonce ui` has printed")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        # Only our own path: with two leading slashes it would be another machine's address.
        path = "/" + scope["raw_path"].decode("latin-1").lstrip("/\\")
        response = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        response.set_cookie(
            self._cookie(Headers(scope=scope)),
            self._session,
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )
        return response

    @staticmethod
    def _cookie(headers: Headers) -> str:
        """Return the cookie's name: cookies are shared by all ports of a machine."""
        return f"{COOKIE}-{urlsplit('//' + headers.get('host', '')).port or ''}"


def _query(scope: Scope) -> Sequence[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _is_loaded_from_elsewhere(headers: Headers) -> bool:
    """Whether a page of another origin sends the request, other than as a link; only browsers report that."""
    is_visit = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_visit


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"sparkonce ui: {why}\n", status)
