"""Addresses of clients in the spelling of Java's `InetAddress.getHostAddress`, which access control lists go by.

Kafka compares the host of a rule with that text and with nothing else (StandardAuthorizerData): a client that comes
over IPv4 to an IPv6 socket is at `127.0.0.1`, and IPv6 is written out, as `0:0:0:0:0:0:0:1`. A rule with an address in
another spelling is about nobody.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

_MAPPED: Final = bytes(10) + b"\xff\xff"
"""What an IPv6 address begins with that stands for an IPv4 address (RFC 4291)."""
_GROUPS: Final = struct.Struct(">8H")


def host_address(address: str, scope_id: int = 0) -> str:
    """Return an address as Java writes it; what is no address comes back as it is.

    Args:
        address: in any spelling.
        scope_id: of a link-local IPv6 address, 0 if it has none.
    """
    if ":" not in address:
        return address
    packed = packed_address(address)
    if packed is None:
        return address
    host = host_of(packed)
    return f"{host}%{scope_id}" if scope_id and ":" in host else host


def host_of(packed: bytes) -> str:
    """Return an address of 4 or 16 bytes as Java writes it.

    Raises:
        ValueError: if it has another size.
    """
    if len(packed) == _GROUPS.size and packed.startswith(_MAPPED):
        packed = packed[len(_MAPPED) :]
    if len(packed) == _GROUPS.size:
        return ":".join(f"{group:x}" for group in _GROUPS.unpack(packed))
    return socket.inet_ntop(socket.AF_INET, packed)


def packed_address(host: str) -> bytes | None:
    """Return the bytes of an address without its scope; None if it is no address."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    except (OSError, ValueError):
        return None


def right_spelling(host: str) -> str | None:
    """Return how a rule must name this host to be about it, if it is an address that is spelled otherwise."""
    packed = packed_address(host)
    right = None if packed is None else host_of(packed)
    return None if right == host.partition("%")[0] else right
