"""JSON by RFC 8259, so that all readers of the registry's topic and responses can parse it.

Python's module also accepts ``NaN``, converts 1e999 to infinity, and accepts half of a surrogate pair, which UTF-8
cannot encode.
"""

from __future__ import annotations

import json
import math
from typing import Any


def strict_json(text: str | bytes) -> Any:
    """Parse a text. Raises ValueError if it is not JSON, or cannot be written again."""
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
