"""A query from a topic into a Delta table without Spark: its checkpoint is written here, its tasks run here.

The order is Spark's: plan, write ``offsets/<batch>``, let the sink begin, run the tasks, let the sink commit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import types as t

from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.exactly_once.audit_report import Examined
from sparkonce.jobs.cli.audit import add_arguments, examine
from sparkonce.offset_store.offsets import HAND_OVER, RANGES
from tests.parity.support import Stream, source_of
from tests.unit.sink.query_by_hand import Query

SCHEMA = t.StructType(
    [
        t.StructField("value", t.StringType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
    ]
)


class Pipeline:
    """One query into the table in ``root``; ``query_id`` says which checkpoint.

    With handOver=ranges in ``options``, the sink reads the records.
    """

    def __init__(self, root: Path, options: dict[str, str], query_id: str = "q") -> None:
        direct = options.get(HAND_OVER) == RANGES
        if direct:
            options = {**options, "columns": ",".join(SCHEMA.fieldNames())}
        source = source_of(HandOver.of(options), options) if direct else None
        self.query = Query(root, query_id, schema=SCHEMA if source is None else source.schema, source=source)
        self.stream = Stream(options)

    def run(self) -> list[int]:
        """Run until nothing is new, and give the values of the rows that came into the table, sorted."""
        before = self.values()
        while self.stream.committed < len(self.stream.offset_log) or self.plan():
            self.finish()
        after = self.values()
        for value in before:
            after.remove(value)
        return after

    def plan(self) -> bool:
        """Plan a batch, and log it as Spark does."""
        if not self.stream.plan():
            return False
        number = len(self.stream.offset_log) - 1
        line = json.dumps(json.loads(self.stream.offset_log[-1]), separators=(",", ":"))
        (self.query.checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{line}")
        return True

    def finish(self, between: Callable[[], None] = lambda: None) -> None:
        """Read the planned batch and write it; ``between`` as in `Stream.tasks`, or before a sink reads."""
        number = self.stream.committed
        if self.query.source is not None:
            if handed_over := self.stream.handed_over():
                self.query.commit(number, self.query.tasks_with(handed_over, between))
            self.stream.committed = number + 1
            return
        tasks = self.stream.tasks(between)
        if not tasks:  # Spark runs no task, so the sink is not asked
            return
        rows = [_row(row) for task in tasks for row in task]
        self.query.commit(number, self.query.tasks(rows=rows))

    def restart(self) -> None:
        self.stream.start()

    def close(self) -> None:
        self.stream.stop()

    def values(self) -> list[int]:
        if not (self.query.table / "_delta_log").is_dir():
            return []
        return sorted(map(int, DeltaTable(self.query.table).to_pyarrow_table()["value"].to_pylist()))

    def audit(self, bootstrap_servers: str | None = None, coordinates: str | None = None) -> Examined:
        """Audit the table as ``sparkonce audit`` does."""
        words = [str(self.query.table)]
        if bootstrap_servers is not None:
            words += ["--bootstrap-servers", bootstrap_servers]
        if coordinates is not None:
            words += ["--coordinates", coordinates]
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        return examine(parser.parse_args(words))


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name].decode() if name == "value" else row[name] for name in SCHEMA.fieldNames()}
