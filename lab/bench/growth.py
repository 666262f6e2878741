"""How the direct path scales: topics of 1, 4, 16 and 64 partitions, sessions of one and of two task slots.

All topics have the same number of records. There is no target; `chart` draws the lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from lab.bench.load import create_topic, delete_topic, fill, random_bytes
from lab.bench.results import Comparison, Results, say
from lab.bench.sessions import JVM, OURS, SideError, SparkSide
from lab.bench.settings import GROWTH_PARTITIONS, GROWTH_SLOTS, VALUE_BYTES, Settings
from lab.bench.sides import in_turn
from lab.bench.spark_side import Query


def compare_growth(
    name: str,
    broker: str,
    side_names: Sequence[str],
    conf: Mapping[str, str],
    directory: Path,
    settings: Settings,
    results: Results,
) -> None:
    """Compare rows per second for each number of task slots and of partitions; lines are ``NAME-SLOTS-PARTITIONS``."""
    for partitions in GROWTH_PARTITIONS:
        topic = _topic(name, partitions)
        say(f"filling topic {topic} with {settings.growth_rows:,} records")
        create_topic(broker, topic, partitions)
        fill(broker, topic, settings.growth_rows, random_bytes(VALUE_BYTES), partitions)
    for slots in GROWTH_SLOTS:
        own = {**conf, "spark.master": f"local[{slots}]"}
        home = directory / f"{name}-{slots}"
        home.mkdir()
        with ExitStack() as stack:
            say(f"{name}: starting sessions of {slots} task slots")
            sides = [stack.enter_context(SparkSide(side, own, home)) for side in side_names]
            for partitions in GROWTH_PARTITIONS:
                line = f"{name}-{slots}-{partitions}"
                results.comparisons.append(_compare(line, broker, _topic(name, partitions), sides, settings))
    for partitions in GROWTH_PARTITIONS:
        delete_topic(broker, _topic(name, partitions))


def _topic(name: str, partitions: int) -> str:
    return f"{name}-{partitions}-partitions"


def _compare(line: str, broker: str, topic: str, sides: Sequence[SparkSide], settings: Settings) -> Comparison:
    def once(side: SparkSide, _: int) -> float:
        outcome = side.run(query(side.name, broker, topic))
        written = None if outcome.table is None else outcome.table["rows"]
        if written != settings.growth_rows:
            raise SideError(f"{line}: {side.name} wrote {written} of {settings.growth_rows} rows")
        return settings.growth_rows / outcome.wall_s

    ours, *peer = in_turn(line, sides, settings.growth_rounds, once, lambda speed: f"{speed:,.0f} rows/s")
    return Comparison(line, "rows/s", ours, peer[0] if peer else (), JVM)


def query(side: str, broker: str, topic: str) -> Query:
    """Return one side's query."""
    if side == OURS:
        return Query(
            "kafka_once", "delta_once", broker, topic, None, source_options={"handOver": "ranges"}, count_table=True
        )
    return Query("kafka", "delta", broker, topic, None, count_table=True)
