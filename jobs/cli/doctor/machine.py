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


def examine() -> Iterator[Finding]:
    """Check the installed packages."""
    yield Finding("Python", f"{platform.python_version()} ({sys.executable}), sparkonce {version('sparkonce')}")
    yield _pyspark()
    yield _packages(_needed())
    java = java_check.complaint()
    if java is None:
        yield Finding("Java", str(java_check.java_command()))
    else:
        yield wrong("Java", java.removesuffix(java_check.FIX), java_check.FIX)


def _needed() -> list[str]:
    """Return the names of what the base install and the extra ``connectors`` require."""
    found = []
    for line in requires("sparkonce") or []:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)", marker)
        if extra is None or extra[1] == "connectors":
            found.append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    return found


def _pyspark() -> Finding:
    """Check the imported PySpark, which a cluster may have without its metadata."""
    try:
        import pyspark

        import sparkonce.connectors.runtime.spark_version  # noqa: F401 - complains of one that is too old
    except ImportError as error:
        return wrong("PySpark", error, "pip install 'sparkonce[spark]'")
    return Finding("PySpark", pyspark.__version__)


def _packages(needed: list[str]) -> Finding:
    found, missing = [], []
    for name in needed:
        try:
            import_module(_MODULES.get(name, name.replace("-", "_")))
            found.append(f"{name} {version(name)}")
        except (ImportError, PackageNotFoundError):
            missing.append(name)
    if missing:
        return wrong("packages", f"cannot be imported: {', '.join(missing)}", "pip install 'sparkonce[connectors]'")
    return Finding("packages", ", ".join(found))
