"""Every bound of the protocol layer, in one place: what a peer may make us hold, loop over or inflate."""

from __future__ import annotations

from typing import Final

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""The largest request, without its four size bytes: Kafka's default of `socket.request.max.bytes`."""

MAX_UNAUTHENTICATED_FRAME_BYTES: Final = 512 * 1024
"""The largest request before authentication (KIP-498): TLS bytes on a plain port read as a frame of hundreds of MB."""

MAX_GENERIC_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""The largest body of a request that carries no records."""

MAX_ARRAY_ELEMENTS: Final = 100_000
"""The largest array that the hand-written codecs accept, and the most that all arrays of any other request have."""

MAX_STRING_BYTES: Final = 32_767
"""The largest string, compact or not, as in Kafka (a signed 16-bit length)."""

MAX_TAGGED_FIELDS: Final = 1_000
"""The most tagged fields of one structure."""

MAX_VARINT_BYTES: Final = 5
"""The most bytes of a number of variable length, which has 32 bits."""

MAX_INFLATED_BYTES: Final = 256 * 1024 * 1024
"""The most that one compressed record batch may inflate to."""

MAX_RECORD_HEADERS: Final = 100_000
"""The most headers of one record."""
