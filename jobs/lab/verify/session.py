"""One Spark session in a process of its own, that runs the cells' queries side by side.

Started by `jobs.lab.verify.spark` as ``python -m sparkonce.jobs.lab.verify.session SESSION_JSON``, as the leader of a
process session, so that the driver, its JVM and every Python worker can be killed as one. Requests are JSON lines on
the standard input:
``{"name": …, "kind": …, "pipeline": {…}}`` starts a query. Events are JSON lines on what was the standard output:
``ready`` once, then ``ended`` with the name of each query that has ended, and its error if it has one.

Queries are started from the main thread, the only one in which Spark finds Python data sources; it also looks
now and then which of them have ended.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparkonce.connectors.session import spark_session
from sparkonce.jobs.lab.verify import pipelines
from sparkonce.jobs.lab.verify.setback import queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 0.02
"""How long a query that has ended may go unnoticed."""
ERROR_CHARACTERS = 2000
_READ_BYTES = 65536
_KINDS: dict[str, tuple[Callable[..., Any], Callable[[SparkSession, Any], StreamingQuery]]] = {
    "Pipeline": (pipelines.Pipeline, pipelines.start),
    "Setup": (queries.Setup, queries.start),
}
"""What describes a query, and what starts it, by the name in a request."""
_NAMED_ERROR = re.compile(r"^(?:[\w.]*\.)?\w*(?:Error|Exception|Interrupt)\b")


class _Session:
    """The requests and events of one Spark session."""

    def __init__(self, spark: SparkSession, events: Any) -> None:
        self._spark = spark
        self._events = events
        self._running: dict[str, StreamingQuery] = {}
        self._unread = b""

    def serve(self) -> None:
        """Answer requests until the input ends."""
        while True:
            readable, _, _ = select.select([0], [], [], LOOK_EVERY_S if self._running else None)
            if readable:
                received = os.read(0, _READ_BYTES)
                if not received:
                    return
                *lines, self._unread = (self._unread + received).split(b"\n")
                for line in lines:
                    self._start(json.loads(line))
            self._tell_ended()

    def tell(self, **event: object) -> None:
        """Send an event."""
        self._events.write(json.dumps(event) + "\n")
        self._events.flush()

    def _start(self, request: dict[str, Any]) -> None:
        try:
            read, start = _KINDS[request["kind"]]
            self._running[request["name"]] = start(self._spark, read(**request["pipeline"]))
        except Exception as error:  # the engine decides what it means
            self.tell(ended=request["name"], error=essence(str(error) or type(error).__name__))

    def _tell_ended(self) -> None:
        for name, query in list(self._running.items()):
            if not query.isActive:
                del self._running[name]
                error = query.exception()
                self.tell(ended=name, error=None if error is None else essence(str(error)))


def essence(text: str) -> str:
    """Return the line of a Spark error that names what happened: the last one with an exception of Python's or ours."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _NAMED_ERROR.match(line) and "StreamingQueryException" not in line]
    return (named[-1] if named else lines[0] if lines else "no message")[:ERROR_CHARACTERS]


def main() -> None:
    """Start Spark and serve."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Spark's own chatter goes to the log
    conf: dict[str, str] = json.loads(sys.argv[1])
    spark = spark_session("sparkonce verify", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    session = _Session(spark, events)
    session.tell(ready=spark.version)
    session.serve()
    spark.stop()


if __name__ == "__main__":
    main()
