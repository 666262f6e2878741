"""Checks of the driver's machine: Python, the packages that sparkonce needs, PySpark, and Java.

It loads nothing else of sparkonce, since packages may be missing.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version

from sparkonce.connectors.runtime import java_check
from sparkonce.jobs.cli.doctor.findings import Finding, wrong

_MODULES = {"google-re2": "re2", "kafka-python": "kafka"}
"""Of distributions whose module has another name than theirs with ``_`` for ``-``."""
_PYSPARK = "pyspark"


def examine() -> Iterator[Finding]:
    """Check the installed packages."""
    yield Finding("Python", f"{platform.python_version()} ({sys.executable}), sparkonce {version('sparkonce')}")
    needed = _requirements("", "connectors")
    yield _pyspark(_requirements("spark")[_PYSPARK])
    yield _packages(needed)
    java = java_check.complaint()
    if java is None:
        yield Finding("Java", str(java_check.java_command()))
    else:
        yield wrong("Java", java.removesuffix(java_check.FIX), java_check.FIX)


def _requirements(*extras: str) -> dict[str, str]:
    """Return the requirements of these extras of ours, by name; "" stands for the base install."""
    found = {}
    for line in requires("sparkonce") or []:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        extra = re.search(r"extra == ['\"]([\w-]+)", marker)
        if (extra[1] if extra else "") in extras and _name(requirement) != "sparkonce":
            found[_name(requirement)] = requirement
    return found


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _pyspark(requirement: str) -> Finding:
    """Check the imported PySpark, which a cluster may have without its metadata."""
    try:
        import pyspark

        import sparkonce.connectors.runtime.spark_version  # noqa: F401 - complains of one that is too old
    except ImportError as error:
        return wrong("PySpark", error, f"pip install '{requirement}'")
    return Finding("PySpark", pyspark.__version__)


def _packages(needed: dict[str, str]) -> Finding:
    found, missing = [], []
    for name, requirement in needed.items():
        try:
            import_module(_MODULES.get(name, name.replace("-", "_")))
            found.append(f"{name} {version(name)}")
        except (ImportError, PackageNotFoundError):
            missing.append(requirement)
    if missing:
        names = " ".join(f"'{each}'" for each in missing)
        return wrong("packages", f"cannot be imported: {', '.join(map(_name, missing))}", f"pip install {names}")
    return Finding("packages", ", ".join(found))
