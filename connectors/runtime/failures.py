"""The cause of an error in a Python process of Spark, extracted from the traces around it.

Spark wraps an error in Python into an exception of the JVM's, which comes back as another of Python's: hundreds of
lines around one.
"""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_MODULE = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?::|$))")


def is_behind(kind: type[BaseException], error: BaseException) -> bool:
    """Return whether an error is of a kind, or has been in the Python process of Spark whose traceback it has."""
    return isinstance(error, kind) or f"{kind.__module__}.{kind.__name__}: " in str(error)


def innermost(error: BaseException) -> str:
    """Return the line of an error with its cause: of tracebacks in its text, that of the last."""
    text = str(error).strip()
    if _TRACEBACK in text:
        tail = text.rpartition(_TRACEBACK)[2].splitlines()
        said = next((line for line in tail if line.strip() and not line[0].isspace()), "")
        if said:
            return _MODULE.sub("", said)
    first = text.partition("\n")[0].strip()
    return f"{type(error).__name__}{': ' if first else ''}{first}"
