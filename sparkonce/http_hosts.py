"""The name in a request's `Host`, by which servers on loopback reject DNS rebinding.

To the browser, a foreign page whose name resolves to this machine has the same origin; only the name in the `Host`
reveals it.
"""

from __future__ import annotations

import contextlib
import ipaddress
from urllib.parse import urlsplit

_NOT_IN_HOSTS = frozenset("/?#@\\")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def name_in(host: str) -> str:
    """Return the name in a `Host`, "" if it is invalid."""
    if not _NOT_IN_HOSTS.isdisjoint(host):
        return ""
    try:
        found = urlsplit(f"//{host}")
        _ = found.port  # raises ValueError here if it is invalid
        return (found.hostname or "").lower()
    except ValueError:
        return ""


def shown(host: str) -> str:
    """Return a `Host` for messages."""
    return "".join(each for each in host if each.isprintable())[:100] or "a name"
