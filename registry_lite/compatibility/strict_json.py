"""JSON as RFC 8259 has it, so that whoever reads the registry's topic or its answers can read it.

Python's module also takes ``NaN``, makes infinity of 1e999, and lets half of a surrogate pair into a text, which UTF-8
cannot hold.
"""

from __future__ import annotations

import json
import math
from typing import Any


def strict_json(text: str | bytes) -> Any:
    """Return what a text says.

    Raises:
        ValueError: it is not JSON, or nobody could write it again.
    """
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if b"\\ud" in (text if isinstance(text, bytes) else text.encode()).lower():
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:20]} is too large for a number")
    return found
