"""The content of a batch as one number: distinguishes a replayed batch from another one of the same id.

Spark counts batches within a checkpoint. A checkpoint that was restored from a copy counts on from there, so a number
alone does not identify a batch. The fingerprint covers Spark's own log entry of the batch, in two parts:

- the *inputs*: batch id, and where each source begins and ends;
- the *clock*: watermark and time of the batch, on which the rows of a query with state depend, and nothing else's.

Offset stores keep the fingerprints of the last `RING` batches of each query: at least as many as Spark keeps entries
of (``spark.sql.streaming.minBatchesToRetain``, 100), so every batch that Spark can run again is known.

The hash must not change: with another hash the last batch of every table would not be recognized.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

RING = 128
"""How many fingerprints are kept for a query: a new one replaces the one this many batches before."""
_INPUT_BITS, _CLOCK_BITS = 36, 27


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Two hashes, of 36 and 27 bits: together a number from 0 to 2**63 - 1, as a Delta ``txn`` version can be."""

    inputs: int
    clock: int

    @classmethod
    def of(cls, inputs: Any, clock: Any) -> Fingerprint:
        """Hash two JSON documents."""
        return cls(_hashed(inputs, _INPUT_BITS), _hashed(clock, _CLOCK_BITS))

    @classmethod
    def from_int(cls, number: int) -> Fingerprint:
        """Parse the result of `to_int`."""
        return cls(number >> _CLOCK_BITS, number & ((1 << _CLOCK_BITS) - 1))

    def to_int(self) -> int:
        """Return both parts as one number."""
        return self.inputs << _CLOCK_BITS | self.clock

    def matches(self, other: Fingerprint, *, stateful: bool) -> bool:
        """Whether two batches are the same: a query without state may replay one with another clock."""
        return self == other if stateful else self.inputs == other.inputs

    def has_clock(self, clock: Any) -> bool:
        """Whether the batch had this watermark and time: a newly planned one has another time."""
        return self.clock == _hashed(clock, _CLOCK_BITS)


def _hashed(document: Any, bits: int) -> int:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - bits)
