"""The driver's machine: Python, its packages, and Java."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from sparkonce.jobs import java_check
from sparkonce.jobs.doctor.findings import Finding, wrong

_PACKAGES = ("deltalake", "pyarrow", "numba", "numpy")


def examine() -> Iterator[Finding]:
    """Look at what is installed here."""
    yield Finding("Python", f"{platform.python_version()} ({sys.executable}), sparkonce {version('sparkonce')}")
    yield _pyspark()
    try:
        yield Finding("packages", ", ".join(f"{name} {version(name)}" for name in _PACKAGES))
    except PackageNotFoundError as error:
        yield wrong("packages", f"{error.name} is not installed", "pip install --force-reinstall sparkonce")
    java = java_check.complaint()
    if java is None:
        yield Finding("Java", str(java_check.java_command()))
    else:
        yield wrong("Java", java.removesuffix(java_check.FIX), java_check.FIX)


def _pyspark() -> Finding:
    try:
        import sparkonce.connectors.spark_version  # noqa: F401 - complains where it does not fit
    except ImportError as error:
        return wrong("PySpark", error, "")
    return Finding("PySpark", version("pyspark"))
