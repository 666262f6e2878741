"""The name in a request's `Host`, by which servers on loopback refuse DNS rebinding.

A page elsewhere whose name is made to resolve to this machine is of the same origin for its browser; only the name that
it is called by shows that.
"""

from __future__ import annotations

import contextlib
import ipaddress
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def name_in(host: str) -> str:
    """Return the name in a `Host`, "" for what is none."""
    try:
        found = urlsplit(f"//{host}")
        _ = found.port  # it is read here only
        return (found.hostname or "").lower()
    except ValueError:
        return ""


def shown(host: str) -> str:
    """Return a `Host` as messages can have it."""
    return "".join(each for each in host if each.isprintable())[:100] or "a name"
