"""The direct path beside the JVM's connectors: Spark passes ranges of records, and tasks read and write the rows.

The queries are those of `pipelines` and `micro_batches`, with ``handOver=ranges`` on our side, in separate sessions;
a third side is a program without Spark (`loop`). Spark counts ranges instead of records here, so written rows are
counted after each query: by the table's log and by its files. `task_memory` watches the workers, `growth` changes
the partitions and the task slots, `task_parts` divides a task's CPU time; into Kafka: `kafka_sink`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from lab.bench.growth import compare_growth
from lab.bench.load import KEPT_SITE, documents, kept_of, random_bytes
from lab.bench.micro_batches import compare_micro_batches
from lab.bench.pipelines import FROM_JSON, JSON_OPTIONS, Case, Pipeline, Topic, throughput
from lab.bench.results import Bound, Results, say
from lab.bench.sessions import JVM, LOOP, OURS, SparkSide, loop_side, session_settings
from lab.bench.settings import (
    DIRECT_GROWTH,
    DIRECT_MEMORY,
    DIRECT_MICRO,
    DIRECT_PARTS,
    DIRECT_THROUGHPUT,
    LIMITS,
    VALUE_BYTES,
    Settings,
)
from lab.bench.task_memory import watch_task_memory
from lab.bench.task_parts import compare_parts
from sparkonce.broker_lite.embedded import EmbeddedBroker

RANGES = {"handOver": "ranges"}
PLAIN = Topic("direct-rows", lambda settings: settings.direct_rows_of(VALUE_BYTES), lambda: random_bytes(VALUE_BYTES))
KIBIBYTES = Topic("direct-rows-1KiB", lambda settings: settings.direct_rows_of(1024), lambda: random_bytes(1024))
JSON = Topic("direct-rows-json", lambda settings: settings.direct_json_rows, documents)

EXPRESSIONS: Mapping[str, str] = {
    "site": "{0}site",
    "bucket": "{0}id % 1000",
    "device": "upper({0}device)",
    "fahrenheit": "{0}temperature * 1.8 + 32",
    "humidity": "CASE WHEN {0}valid THEN {0}humidity ELSE 0.0 END",
    "label": "concat({0}site, '/', {0}note)",
}
"""The columns of ``direct-json-where``: one unchanged, five expressions; ``{0}`` is the prefix of the fields."""


def expressions(prefix: str) -> tuple[str, ...]:
    """Return `EXPRESSIONS` as items of a SELECT, over fields under ``prefix``."""
    return tuple(f"{expression.format(prefix)} AS {name}" for name, expression in EXPRESSIONS.items())


_JSON_SOURCE = {**RANGES, **JSON_OPTIONS}
_KEPT = f"SELECT {', '.join(expressions('value.'))} FROM records WHERE value.site = '{KEPT_SITE}'"  # noqa: S608


def _loop(columns: str) -> dict[str, Pipeline]:
    return {LOOP: Pipeline(LOOP, "delta", {"columns": columns})}


_RECORDS = (Pipeline("kafka_once", "delta_once", RANGES), Pipeline("kafka", "delta"))
CASES: Mapping[str, Case] = dict(
    zip(
        DIRECT_THROUGHPUT,
        (
            Case(PLAIN, *_RECORDS, others=_loop("records")),
            Case(KIBIBYTES, *_RECORDS, others=_loop("records")),
            Case(
                JSON,
                Pipeline("kafka_once", "delta_once", _JSON_SOURCE, sink_options={"sql": "SELECT value.* FROM records"}),
                Pipeline("kafka", "delta", selections=(FROM_JSON, ("value.*",))),
                every_column_filled=True,
                others=_loop("documents"),
            ),
            Case(
                JSON,
                Pipeline("kafka_once", "delta_once", _JSON_SOURCE, sink_options={"sql": _KEPT}),
                Pipeline(
                    "kafka",
                    "delta",
                    selections=(FROM_JSON, ("value.*",), expressions("")),
                    where=f"site = '{KEPT_SITE}'",
                ),
                every_column_filled=True,
                kept=kept_of,
                others=_loop("kept"),
            ),
        ),
        strict=True,
    )
)


def run(settings: Settings, results: Results) -> None:
    """Run the selected direct benchmarks into tables."""
    cases = {name: case for name, case in CASES.items() if name in settings.names}
    names = {DIRECT_MICRO, DIRECT_MEMORY, DIRECT_GROWTH, DIRECT_PARTS} & set(settings.names)
    if not cases and not names:
        return
    conf, with_jvm = session_settings(results)
    sides = (OURS, JVM) if with_jvm else (OURS,)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = stack.enter_context(EmbeddedBroker(process=True)).bootstrap_servers
        if cases or DIRECT_MICRO in names:
            with ExitStack() as sessions:
                say("starting the Spark sessions of the direct benchmarks")
                started = [sessions.enter_context(SparkSide(name, conf, directory)) for name in sides]
                if cases:
                    _throughput(cases, broker, started, directory, settings, results)
                if DIRECT_MICRO in names:
                    compare_micro_batches(DIRECT_MICRO, broker, started, settings, results)
        if DIRECT_MEMORY in names:
            watch_task_memory(DIRECT_MEMORY, broker, conf, directory, settings, results)
        if DIRECT_GROWTH in names:
            compare_growth(DIRECT_GROWTH, broker, sides, conf, directory, settings, results)
        if DIRECT_PARTS in names:
            compare_parts(DIRECT_PARTS, broker, settings, results)


def _throughput(
    cases: Mapping[str, Case],
    broker: str,
    sides: Sequence[SparkSide],
    directory: Path,
    settings: Settings,
    results: Results,
) -> None:
    """Compare the cases, with the program without Spark as a third side; JSON's CPU time also has a limit."""
    with loop_side(directory) as loop:
        throughput(cases, broker, [*sides, loop], settings, settings.direct_rounds, results)
    results.bounds.extend(cpu_bounds(results))


def cpu_bounds(results: Results) -> list[Bound]:
    """Return the bounds of CPU seconds per million rows, where there is a limit and a figure."""
    return [
        Bound(f"{one.name}-s", one.unit, (median(one.ours),), one.peer, one.peer_name, LIMITS[f"{one.name}-s"])
        for one in results.comparisons
        if f"{one.name}-s" in LIMITS
    ]
