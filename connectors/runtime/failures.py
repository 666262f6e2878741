"""The cause of an error in a Python process of Spark, extracted from the traces around it.

Spark wraps an error in Python into an exception of the JVM's, which comes back as another of Python's: hundreds of
lines around one. `explain` finds it, for users as for the commands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_TRACEBACK = "Traceback (most recent call last):"
_MODULE = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?::|$))")
_CALLED = "An error occurred while calling "
"""Before an exception of Java's that PySpark has no class for."""
_OF_JAVA = (": ", "Caused by: ")
"""Before an exception of Java's in its trace."""
_OF_DELTA = "[DELTA_"
_REMEDIES = (
    (
        re.compile(r"\[DATA_SOURCE_NOT_FOUND\].* (?:kafka|delta)_once\b"),
        "A thread that did not start Spark calls sparkonce.register(spark) first; if no thread finds it, sparkonce is "
        "not installed for the Python of the driver",
    ),
    (
        re.compile(r"No space left on device(?!.* is full\b)"),
        "A disk is full, which may be that of the checkpoint or of spark.local.dir: free space there, and start the "
        "query again",
    ),
)
"""What to do about messages of Spark's own; those of sparkonce say it themselves."""


def is_behind(kind: type[BaseException], error: BaseException) -> bool:
    """Return whether an error is of a kind, or has been in the Python process of Spark whose traceback it has."""
    return isinstance(error, kind) or raised(f"{kind.__module__}.{kind.__name__}").search(str(error)) is not None


@lru_cache
def raised(name: str, message: str = "") -> re.Pattern[str]:
    """Return the pattern of a line that says that an error was raised; a value that quotes such a line is none."""
    return re.compile(rf"^(?:[\w.$ ]+: )*{re.escape(name)}: {message}", re.MULTILINE)


def explain(error: BaseException) -> str:
    """Return one line that says what is wrong, out of the hundreds of an error of Spark's.

    Example:
        >>> try:
        ...     query.awaitTermination()
        ... except Exception as error:
        ...     sys.exit(sparkonce.explain(error))  # doctest: +SKIP
    """
    return _with_remedy(_last_raised(str(error)) or _first(error))


def explain_text(text: str) -> str:
    """Return the line of `explain`, from the text of an error."""
    return _with_remedy(_last_raised(text) or text.strip().partition("\n")[0].strip())


def _with_remedy(line: str) -> str:
    remedy = next((remedy for pattern, remedy in _REMEDIES if pattern.search(line)), None)
    return line if remedy is None else f"{line.rstrip('.')}. {remedy}"


def _last_raised(text: str) -> str:
    """Return the error that the last traceback in a text ends with, without its module; "" if there is none."""
    if _TRACEBACK not in text:
        return ""
    tail = text.rpartition(_TRACEBACK)[2].splitlines()
    line = next((line for line in tail if line.strip() and not line[0].isspace()), "")
    return (_of_java(tail) if _CALLED in line else "") or _MODULE.sub("", line)


def _of_java(lines: Sequence[str]) -> str:
    """Return the exception of Java's in the lines of its trace that says most: one of Delta's, or the first."""
    found = [line for line in lines if line.startswith(_OF_JAVA)]
    line = next((line for line in found if _OF_DELTA in line), found[0] if found else "")
    for prefix in _OF_JAVA:
        line = line.removeprefix(prefix)
    return _MODULE.sub("", line.strip())


def _first(error: BaseException) -> str:
    first, _, rest = str(error).strip().partition("\n")
    if first.startswith(_CALLED):
        return _of_java(rest.splitlines()) or f"{type(error).__name__}: {first.strip()}"
    return f"{type(error).__name__}{': ' if first else ''}{first.strip()}"
