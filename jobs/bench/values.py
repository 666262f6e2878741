"""What the records of the benchmarks hold: bytes that do not compress, words that do, documents with typed fields.

So many values are made once and dealt over and over, alike in each run, that making them costs the producer nothing and
a Parquet writer does not take them for a handful that repeat.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

DISTINCT = 10_007
"""A prime: every partition gets all of them."""
SCHEMA = (
    "id BIGINT, device STRING, site STRING, at TIMESTAMP, day DATE, temperature DOUBLE, humidity DOUBLE, "
    "count INT, valid BOOLEAN, note STRING"
)
"""Of `documents`: ten columns of seven types."""
_WORDS = ("arrival", "departure", "delayed", "gate", "runway", "boarding", "carrier", "origin", "distance", "cancelled")
_BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)


def random_bytes(size: int) -> Sequence[bytes]:
    """Return values of ``size`` bytes that do not compress."""
    dealer = random.Random(1)  # noqa: S311 - alike in each run
    return [dealer.randbytes(size) for _ in range(DISTINCT)]


def words(size: int) -> Sequence[bytes]:
    """Return values of ``size`` bytes of text, which compress to about a third."""
    dealer = random.Random(2)  # noqa: S311 - alike in each run
    made = (f"{dealer.randrange(10**9):09d} {' '.join(dealer.choices(_WORDS, k=size // 4))}" for _ in range(DISTINCT))
    return [text.encode()[:size] for text in made]


def documents() -> Sequence[bytes]:
    """Return JSON objects with every field of `SCHEMA`, about 230 bytes each."""
    dealer = random.Random(3)  # noqa: S311 - alike in each run
    return [json.dumps(_document(dealer), separators=(",", ":")).encode() for _ in range(DISTINCT)]


def _document(dealer: random.Random) -> dict[str, object]:
    at = _BEGINNING + timedelta(milliseconds=dealer.randrange(10**10))
    return {
        "id": dealer.randrange(10**12),
        "device": f"device-{dealer.randrange(10**6):06d}",
        "site": dealer.choice(_WORDS),
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "day": at.date().isoformat(),
        "temperature": round(dealer.uniform(-20, 40), 2),
        "humidity": round(dealer.uniform(0, 100), 1),
        "count": dealer.randrange(10**4),
        "valid": dealer.random() < 0.9,
        "note": " ".join(dealer.choices(_WORDS, k=4)),
    }
