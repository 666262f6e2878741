"""Spark's daemon of Python workers, which imports what the connectors need once, before it forks the workers.

`pyspark.daemon` forks first and lets each worker import separately, since a process with threads must not be
forked. So each of an executor's workers spends its first second on the same imports, and has its own memory for
them; and since the daemon's workers collect garbage after every task, each task pays again for the hundreds of
thousands of objects that the imports made. This daemon imports, freezes these objects (``gc.freeze``: the collector
ignores them from then on, and forked workers share their pages), and then runs `pyspark.daemon`.

The purpose of PySpark's order is kept: the allocators of pyarrow and deltalake are configured to start no background
thread, and if there is still a second thread after the imports, or the number of threads is unknown (there is no
/proc), or an import fails, this process replaces itself with the daemon of PySpark. numpy's random numbers, which are
seeded when numpy is imported, are seeded again in each worker: otherwise all workers would generate the same numbers.

Spark starts it as ``python -m sparkonce.connectors.runtime.worker_daemon WORKER_MODULE`` where
``spark.python.daemon.module`` names it, as `sparkonce.spark_session` does.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterable

MODULE = "sparkonce.connectors.runtime.worker_daemon"
PLAIN_DAEMON = "pyspark.daemon"
PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "numpy",
    "pyarrow.parquet",
    "sparkonce.connectors.kafka_source.reading",
    "sparkonce.connectors.kafka_source.source",
    "sparkonce.connectors.formats.delta_once",
    "sparkonce.connectors.formats.kafka_writer",
    "sparkonce.connectors.kafka_sink.warm",
    "sparkonce.connectors.mirror.warm",
)
"""What a task of our source or sink imports. The second and third define what Spark sends to tasks."""
_NO_BACKGROUND_THREAD = "background_thread:false"
_ALLOCATORS = ("JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF")
"""Where the jemalloc of pyarrow and the one of deltalake read their settings, when they are loaded."""
_THREADS = "/proc/self/task"
"""A directory with an entry for each thread of this process, on Linux."""


def main() -> None:
    """Load, then serve; or fall back to PySpark's daemon."""
    environment = dict(os.environ)
    reason = preload(PRELOADED)
    if reason is not None:
        print(f"{MODULE}: {reason}; continuing as {PLAIN_DAEMON}", file=sys.stderr, flush=True)
        os.execve(sys.executable, plain_command(sys.orig_argv), environment)  # noqa: S606 - no shell is wanted
    prepare_to_fork()
    from pyspark.daemon import manager

    manager()


def preload(modules: Iterable[str]) -> str | None:
    """Import ``modules``; return a reason not to fork afterwards, or None."""
    for name in _ALLOCATORS:
        os.environ.setdefault(name, _NO_BACKGROUND_THREAD)
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            return f"{module} cannot be loaded ahead ({type(error).__name__}: {error})"
    try:
        threads = len(os.listdir(_THREADS))
    except OSError as error:
        return f"the number of threads is unknown ({error})"
    return f"there are {threads} threads after the imports" if threads > 1 else None


def prepare_to_fork() -> None:
    """Let forked workers share what is loaded by now, but not numpy's random numbers."""
    os.register_at_fork(after_in_child=_seed_numpy)
    gc.collect()
    gc.freeze()


def plain_command(command: Iterable[str]) -> list[str]:
    """Return the command that this process was started by, with PySpark's daemon in place of this one."""
    return [PLAIN_DAEMON if word == MODULE else word for word in command]


def _seed_numpy() -> None:
    import numpy as np

    np.random.seed()


if __name__ == "__main__":
    main()
