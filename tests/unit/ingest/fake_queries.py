"""A session's queries without Spark, whose batches a test completes by hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from sparkonce.connectors.ingest.routing import Flow


class FakeQuery:
    """What an ingestion asks of a ``StreamingQuery``."""

    def __init__(self) -> None:
        self.isActive = True
        self.lastProgress: dict[str, Any] | None = None
        self.error: Exception | None = None
        self.in_batch = True
        self.is_planned = True
        self.asked = 0
        self.completes_when_asked = 0
        """After so many questions the batch completes; 0 for never."""
        self.fails_when_asked = 0

    @property
    def status(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked == self.completes_when_asked:
            self.complete()
        if self.asked == self.fails_when_asked:
            self.fail("too late")
        message = "Processing new data" if self.in_batch else "Waiting"
        return {"message": message, "isTriggerActive": self.in_batch, "isDataAvailable": self.is_planned}

    def complete(self, batch: int | None = None) -> None:
        before = -1 if self.lastProgress is None else self.lastProgress["batchId"]
        self.lastProgress = {"batchId": before + 1 if batch is None else batch}

    def fail(self, message: str) -> None:
        self.isActive, self.error = False, RuntimeError(message)

    def end(self) -> None:
        self.isActive = False

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False


class FakeQueries:
    """Takes the place of `start_query`."""

    def __init__(self) -> None:
        self.by_name: dict[str, FakeQuery] = {}
        self.refused: set[str] = set()
        self.refusal: type[Exception] = ValueError

    def start(self, spark: SparkSession, flow: Flow, trigger: Mapping[str, Any]) -> FakeQuery:
        if flow.name in self.refused:
            raise self.refusal(f"{flow.name} is refused")
        self.by_name[flow.name] = FakeQuery()
        return self.by_name[flow.name]

    def __getitem__(self, name: str) -> FakeQuery:
        return self.by_name[name]


SPARK: Any = SimpleNamespace()
