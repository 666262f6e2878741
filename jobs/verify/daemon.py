"""PySpark's daemon, with what every Python process of the pipeline imports loaded before it forks.

Spark forks a process for each thing that it asks of a Python data source: to look at options, to plan, to read, to
write, to commit. Each imports the same modules, which takes half a second of a core; a cell needs a dozen of them.
Given as ``spark.python.daemon.module``; nothing else changes.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pyspark import daemon

_ALL = ("pandas", "pyspark_kafka_once", "pyspark_delta_once", "connectors.kafka_once.planner", "deltalake")
_TASKS = ("connectors.kafka_once.reading",)
"""What only tasks need: the compiled decoder."""


def main() -> None:
    """Load, then do what PySpark's daemon does."""
    for name in _ALL + (_TASKS if "pyspark.worker" in sys.argv else ()):
        import_module(name)
    daemon.manager()


if __name__ == "__main__":
    main()
