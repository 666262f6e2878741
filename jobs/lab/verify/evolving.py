"""Records whose values are Avro of four versions of one schema, and the registry that has them.

The bytes are written by a few lines of their own, and rows become those bytes again to be judged: what they owe to our
decoder is only what is judged. The registry has its own broker, and is killed whenever a wave's sessions are.
"""

from __future__ import annotations

import json
import struct
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.registry_lite.embedded import EmbeddedRegistry

NUMBER, NOTE, MORE, LAST = "number", "note", "more", "last"
_FIELDS: tuple[dict[str, Any], ...] = (
    {"name": NUMBER, "type": "long"},
    {"name": NOTE, "type": "string", "default": "none"},
    {"name": MORE, "type": ["null", "long"], "default": None},
    {"name": LAST, "type": "double", "default": 0.5},
)
VERSIONS = len(_FIELDS)
BEFORE = 2
"""How many versions the subject has when a pipeline is started first: records of a third come while it runs."""
_EVERY = 5
"""Records of a version, before the next one is used."""
_EVERYTHING = "everything"
"""The subject under which all versions are registered first, so that their ids are 1 and up."""


def schema(version: int) -> str:
    """Return a version of the schema, the first of which is 1."""
    return json.dumps({"type": "record", "name": "Evolving", "fields": _FIELDS[:version]})


def version_of(number: int) -> int:
    """Return the version with which the record of a number is written."""
    return min(number // _EVERY + 1, VERSIONS)


def value(number: int) -> bytes:
    """Return the value of a record, in Confluent's wire format."""
    version, text = version_of(number), f"n{number}".encode()
    parts = [_long(number), _long(len(text)) + text, _long(1) + _long(number), struct.pack("<d", number / 2)]
    return struct.pack(">bI", 0, version) + b"".join(parts[:version])


def _long(number: int) -> bytes:
    bits, made = number << 1, bytearray()
    while bits > 0x7F:
        made.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*made, bits])


def value_of_row(row: Mapping[str, Any] | None) -> bytes:
    """Return the value that a row was decoded from; what no record could have become is shown as it is.

    A field that a record's version lacks has its default, or null where the reader's schema had no such field yet.
    """
    number = (row or {}).get(NUMBER)
    if row is None or number is None:
        return repr(row).encode()
    version = version_of(number)
    written = {NUMBER: number, NOTE: f"n{number}", MORE: number, LAST: number / 2}
    for at, field in enumerate(_FIELDS):
        name = field["name"]
        allowed = (written[name],) if at < version else (field.get("default"), None)
        not_read = at >= BEFORE and row.get(name) is None  # the first run reads with an older schema
        if row.get(name) not in allowed and not not_read:
            return repr(row).encode()
    return value(number)


class Registry:
    """A registry with all versions, from construction to `close`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._broker = self._stack.enter_context(EmbeddedBroker())
        self._made = EmbeddedRegistry(self._broker.bootstrap_servers)
        self.url = self._made.url
        for version in range(1, VERSIONS + 1):
            self.register(_EVERYTHING, version)

    def register(self, subject: str, version: int) -> None:
        """Register a version of the schema under a subject."""
        body = json.dumps({"schema": schema(version)}).encode()
        request = urllib.request.Request(  # noqa: S310 - of our own registry
            f"{self.url}/subjects/{subject}/versions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            number = json.load(answer)["id"]
        assert number == version, f"version {version} has the id {number}"

    def begin(self, topic: str) -> None:
        """Register what the subject of a topic has when its pipeline is started first."""
        for version in range(1, BEFORE + 1):
            self.register(f"{topic}-value", version)

    def evolve(self, topic: str) -> None:
        """Register the other versions."""
        for version in range(BEFORE + 1, VERSIONS + 1):
            self.register(f"{topic}-value", version)

    def restart(self) -> None:
        """End it in the midst of whatever it does, and start it again at the same address."""
        port = int(self.url.rpartition(":")[2])
        self._made.close()
        self._made = EmbeddedRegistry(self._broker.bootstrap_servers, port=port)

    def close(self) -> None:
        """End it for good."""
        self._made.close()
        self._stack.close()
