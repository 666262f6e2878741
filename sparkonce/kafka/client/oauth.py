"""Tokens for SASL/OAUTHBEARER (RFC 7628, KIP-768), by client credentials or from a file.

A token is kept in this process until it is about to expire, since each connection needs one. Its lifetime is the
server's ``expires_in``, or else, as with a file, ``exp`` in the token itself.
"""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from sparkonce.kafka.client.security import OAuth

MARGIN_S = 30
"""A token that expires sooner than this is replaced."""
MAX_ANSWER_BYTES = 1 << 20

_tokens: dict[OAuth, tuple[str, float]] = {}
"""By settings: a token, and when it is replaced, in seconds since 1970."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects: urllib would send the client's secret to any host, even without TLS."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


class TokenError(PermissionError):
    """There is no token; the message names its source, and no secret. Never retried."""


class TokenServerError(ConnectionError):
    """The token endpoint cannot be reached, or fails; this may be temporary."""


def token(oauth: OAuth) -> str:
    """Return a token, a new one if the last is about to expire.

    Raises:
        TokenError: if none can be obtained.
        TokenServerError: if none can be obtained now, but perhaps later.
    """
    known = _tokens.get(oauth)
    if known is not None and time.time() < known[1]:
        return known[0]
    if urlsplit(oauth.token_url).scheme == "file":
        found, lives_s = _from_file(oauth.token_url), None
    else:
        found, lives_s = _from_server(oauth)
    expires = _expiry(found) if lives_s is None else time.time() + lives_s
    _tokens[oauth] = found, expires - MARGIN_S
    return found


def forget(oauth: OAuth) -> None:
    """Drop the token: the broker has rejected it, for example after its keys were changed."""
    _tokens.pop(oauth, None)


def _from_file(url: str) -> str:
    path = urllib.request.url2pathname(urlsplit(url).path)
    try:
        with open(path, encoding="ascii") as file:
            found = file.read(MAX_ANSWER_BYTES).strip()
    except (OSError, ValueError) as error:
        raise TokenError(f"no token could be read from {path}: {type(error).__name__}") from None
    if not found:
        raise TokenError(f"no token could be read from {path}: the file is empty")
    return found


def _from_server(oauth: OAuth) -> tuple[str, float | None]:
    form = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked when the settings were read
        oauth.token_url, urlencode(form).encode(), {"Accept": "application/json", "Authorization": _basic(oauth)}
    )
    where = _shown(oauth.token_url)
    try:
        with _opener.open(request, timeout=oauth.timeout_ms / 1000) as answer:
            said = json.loads(answer.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code >= 500 or error.code == HTTPStatus.TOO_MANY_REQUESTS:
            raise TokenServerError(f"{where} returned no token: HTTP {error.code}") from None
        if 300 <= error.code < 400:
            raise TokenError(
                f"{where} returned no token, but redirects to {_shown(error.headers.get('Location', 'nowhere'))} (HTTP "
                f"{error.code}), where the secret is not sent: if that is right, let "
                "kafka.sasl.oauthbearer.token.endpoint.url say so"
            ) from None
        raise TokenError(
            f"{where} returned no token to client {oauth.client_id!r}: HTTP {error.code}; check "
            "kafka.sasl.oauthbearer.client.credentials.client.id and .client.secret"
        ) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise TokenServerError(f"{where} returned no token: {reason}") from None
    except ValueError:
        raise TokenError(f"{where} returned something other than JSON") from None
    found = said.get("access_token") if isinstance(said, Mapping) else None
    if not isinstance(found, str) or not found:
        raise TokenError(f"{where} returned no access_token")
    lives_s = said.get("expires_in")
    return found, float(lives_s) if isinstance(lives_s, int | float) else None


def _basic(oauth: OAuth) -> str:
    pair = (oauth.client_id or "", oauth.client_secret or "")
    joined = ":".join(map(quote_plus, pair) if oauth.url_encoded else pair)
    return "Basic " + base64.b64encode(joined.encode()).decode()


def _expiry(found: str) -> float:
    """Return when a JWT expires, in seconds since 1970; 0 for other tokens, which are not cached."""
    claims = found.split(".")[1] if found.count(".") >= 2 else ""
    try:
        said: Any = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return float(said["exp"])
    except (ValueError, TypeError, KeyError):
        return 0.0


def _shown(url: str) -> str:
    """Remove the parts of a URL that may contain a key."""
    return re.split("[?#]", url)[0]
