"""Topic name patterns of KIP-848 subscriptions, matched by RE2; Kafka uses its Java port.

Theory of operation: Kafka matches whole names. RE2 takes time linear in the name, so a client cannot block the
broker with a pattern. It is imported with the first pattern: most brokers never get one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

MAX_PATTERN_CHARACTERS = 10_000
PATTERNS_KEPT = 256


class PatternError(ValueError):
    """RE2 rejects a pattern; the message says why."""


def check_pattern(pattern: str) -> None:
    """Check whether a pattern is valid. Raises PatternError if it is invalid."""
    _compiled(pattern)


def matching(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics whose whole name matches. Raises PatternError if the pattern is invalid."""
    compiled = _compiled(pattern)
    return frozenset(topic for topic in topics if compiled.fullmatch(topic) is not None)


@lru_cache(maxsize=PATTERNS_KEPT)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARACTERS} are taken")
    try:
        import re2
    except ModuleNotFoundError:
        raise PatternError("patterns of topics need google-re2: pip install 'sparkonce[broker]'") from None

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"{pattern!r} is not a regular expression of RE2: {text}") from None
