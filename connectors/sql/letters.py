"""Lower and upper case as in Spark's ICU: Python's, and the letters that Unicode has added since.

The engine's own functions map a character to one character: no 'SS' for 'ß', no final sigma.
"""

from __future__ import annotations

import unicodedata

import pyarrow as pa

_PAIRS = {
    **{upper: upper + 0x20 for upper in range(0x10D50, 0x10D66)},
    **{upper: upper + 0x1B for upper in range(0x16EA0, 0x16EB9)},
    0x1C89: 0x1C8A, 0xA7CB: 0x0264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB,
    0xA7DC: 0x019B,
}  # fmt: skip
"""Lower by upper case, of the letters of Unicode 15 to 17 (Python 3.11 has 14)."""
_UPPER = {lower: upper for upper, lower in _PAIRS.items()}
_SIGMA = "Σ"
"""Letters whose lower case depends on the letters around them."""


def lower_of(texts: pa.Array) -> pa.Array:
    """Return texts in lower case; null for one that Python cannot map: a sigma beside characters it does not know."""
    return pa.array([None if text is None else _lower(text) for text in texts.to_pylist()], pa.string())


def upper_of(texts: pa.Array) -> pa.Array:
    """Return texts in upper case."""
    return pa.array(
        [None if text is None else text.translate(_UPPER).upper() for text in texts.to_pylist()], pa.string()
    )


def _lower(text: str) -> str | None:
    if _SIGMA in text and any(unicodedata.category(char) == "Cn" for char in text):
        return None
    return text.translate(_PAIRS).lower()
