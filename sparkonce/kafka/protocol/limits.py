"""Every limit of the protocol layer, in one place: what a peer's bytes may make us store, loop over or decompress."""

from __future__ import annotations

from typing import Final

MAX_GENERIC_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""The largest body of a request without records."""

MAX_ARRAY_ELEMENTS: Final = 100_000
"""The largest array of the hand-written codecs, and the most elements of all arrays of any other request."""

MAX_STRING_BYTES: Final = 32_767
"""The largest string, compact or not, as in Kafka (a signed 16-bit length)."""

MAX_TAGGED_FIELDS: Final = 1_000
"""The most tagged fields of one structure."""

MAX_VARINT_BYTES: Final = 5
"""The most bytes of a 32-bit varint."""

MAX_INFLATED_BYTES: Final = 256 * 1024 * 1024
"""The largest decompressed size of a record batch."""

MAX_RECORD_HEADERS: Final = 100_000
"""The most headers of one record."""
