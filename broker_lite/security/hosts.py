"""Addresses of clients in the spelling of Java's `InetAddress.getHostAddress`, which access control lists go by.

Kafka compares the host of a rule with that text and with nothing else (StandardAuthorizerData): a client that comes
over IPv4 to an IPv6 socket is at `127.0.0.1`, and IPv6 is written out, as `0:0:0:0:0:0:0:1`. A rule with an address in
another spelling matches no client. `ipaddress` is imported lazily: most brokers do not need it.
"""

from __future__ import annotations


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
    from ipaddress import IPv4Address, ip_address

    found = ip_address(packed)
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))


def packed_address(host: str) -> bytes | None:
    """Return the bytes of an address without its scope; None if it is no address."""
    from ipaddress import ip_address

    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return None


def right_spelling(host: str) -> str | None:
    """Return how a rule must name this host to be about it, if it is an address that is spelled otherwise."""
    packed = packed_address(host)
    right = None if packed is None else host_of(packed)
    return None if right == host.partition("%")[0] else right
