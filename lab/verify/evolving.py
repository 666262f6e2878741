"""Records with Avro values of four versions of one schema, and the registry that has them.

A pipeline is started with the first version. The second is registered between its first two batches, the third
during the batch that is hit, the fourth before the restart: three times while it runs and during its
restart, and each before the first batch with a value of it.

The bytes are encoded here, and rows become those bytes again to be judged, with all fields of a value:
our decoder is only judged, not used. The registry has its own broker. It is killed whenever
a wave's sessions are, and in some cells while the pipeline continues to the batch that is hit.
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
    {"name": NOTE, "type": "string"},
    {"name": MORE, "type": ["null", "long"], "default": None},
    {"name": LAST, "type": "double", "default": 0.5},
)
_FIELDS_OF_VERSION = (2, 3, 3, 4)
"""The number of fields of each version; the third and the fourth also have a default for the note."""
FIRST, RUNNING, HIT, RESTARTED = 1, 2, 3, 4
"""The versions, by the time of their registration."""
_FROM = {FIRST: 0, RUNNING: 8, HIT: 16, RESTARTED: 18}
"""The first record with each version: the batch that is hit begins at the second."""
NO_DEFAULT = "none"
AMBIGUOUS = 11
"""In the batch that is hit, the record without a note in its value. Whether it is a dead letter depends on the version
with which it is read, so it is in one place only if the whole batch is read with one version, even if it is retried."""
_EVERYTHING = "everything"
"""The topic under whose subject all versions are registered first, so that their ids start with 1."""
_WITHOUT_NOTE = RESTARTED + 1
"""The schema id of that record, which belongs to another subject."""


def schema(version: int) -> str:
    """Return a version of the schema; the first is 1."""
    fields = [dict(each) for each in _FIELDS[: _FIELDS_OF_VERSION[version - 1]]]
    if version >= HIT:
        fields[1]["default"] = NO_DEFAULT
    return json.dumps({"type": "record", "name": "Evolving", "fields": fields})


def version_of(number: int) -> int:
    """Return the version with which a record is written."""
    return max(version for version, first in _FROM.items() if number >= first)


def value(number: int, *, ambiguous: bool = False) -> bytes:
    """Return a record's value, in Confluent's wire format; ``ambiguous`` allows the ambiguous record."""
    if ambiguous and number == AMBIGUOUS:
        return struct.pack(">bI", 0, _WITHOUT_NOTE) + _long(number)
    version, text = version_of(number), f"n{number}".encode()
    parts = [_long(number), _long(len(text)) + text, _long(1) + _long(number), struct.pack("<d", number / 2)]
    return struct.pack(">bI", 0, version) + b"".join(parts[: _FIELDS_OF_VERSION[version - 1]])


def is_ambiguous(value: bytes) -> bool:
    """Whether a value may be in a row or in a dead letter."""
    return value[:5] == struct.pack(">bI", 0, _WITHOUT_NOTE)


def _long(number: int) -> bytes:
    bits, made = number << 1, bytearray()
    while bits > 0x7F:
        made.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*made, bits])


def value_of_row(row: Mapping[str, Any] | None) -> bytes:
    """Return the value from which a row was decoded; an impossible row is returned as text.

    The row must have all fields of the value. A field that its version lacks has its default, or null if the
    reader's schema did not have the field yet.
    """
    number = (row or {}).get(NUMBER)
    if row is None or number is None:
        return repr(row).encode()
    is_short = number == AMBIGUOUS and row.get(NOTE) == NO_DEFAULT
    has = 1 if is_short else _FIELDS_OF_VERSION[version_of(number) - 1]
    written = {NUMBER: number, NOTE: f"n{number}", MORE: number, LAST: number / 2}
    for at, field in enumerate(_FIELDS):
        default = NO_DEFAULT if field["name"] == NOTE else field.get("default")
        allowed = (written[field["name"]],) if at < has else (default, None)
        if row.get(field["name"]) not in allowed:
            return repr(row).encode()
    return value(number, ambiguous=is_short)


class Registry:
    """A registry with all versions, from construction to `close`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._broker = self._stack.enter_context(EmbeddedBroker())
        self._made = EmbeddedRegistry(self._broker.bootstrap_servers)
        self.url = self._made.url
        for version in _FROM:
            self.evolve(_EVERYTHING, version)
        short = {"type": "record", "name": "Evolving", "fields": _FIELDS[:1]}
        self._register("something-else", json.dumps(short), _WITHOUT_NOTE)

    def evolve(self, topic: str, version: int) -> None:
        """Register a version under a topic's subject, unless it is registered."""
        self._register(f"{topic}-value", schema(version), version)

    def _register(self, subject: str, text: str, expected: int) -> None:
        body = json.dumps({"schema": text}).encode()
        request = urllib.request.Request(  # noqa: S310 - of our own registry
            f"{self.url}/subjects/{subject}/versions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            number = json.load(answer)["id"]
        assert number == expected, f"the schema has the id {number}, and not {expected}"

    def restart(self) -> None:
        """Kill it at any moment, and start it again at the same address."""
        port = int(self.url.rpartition(":")[2])
        self._made.close()
        self._made = EmbeddedRegistry(self._broker.bootstrap_servers, port=port)

    def close(self) -> None:
        """End it."""
        self._made.close()
        self._stack.close()
