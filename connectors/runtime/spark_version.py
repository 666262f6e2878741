"""Which versions of Spark the connectors run on.

The modules that take part in a query import this one first, so that an older Spark fails with a clear message, and
not with an import error.
"""

from __future__ import annotations

import re

from pyspark import __version__

OLDEST = (4, 2)
"""The first with admission control and Arrow for Python data sources, which both connectors are built on."""


def complaint(version: str) -> str | None:
    """Return why a version of PySpark, such as ``4.1.1``, is not supported; None if it is."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return f"sparkonce needs Spark {oldest} or newer, and this is PySpark {version}"


_found = complaint(__version__)
if _found is not None:
    raise ImportError(_found)
