"""The plan of a direct query: nothing may be between the source and the sink.

A sink in Python sees the schema of its rows, not the plan. Where the DataFrame is at hand, as in
`sparkonce.write_stream`, the plan is examined before the query starts: operators are rejected by their names, and the
secrets of the source, which neither rows nor schema carry, are taken from its options there, as is its table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.offset_store.offsets import HAND_OVER, RANGES
from sparkonce.options import KAFKA_FORMAT, SOURCE_PREFIX, OptionError

_METHODS = {
    "Aggregate": "groupBy",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "EventTimeWatermark": "withWatermark",
    "Filter": "filter",
    "Generate": "explode",
    "GlobalLimit": "limit",
    "Join": "join",
    "LocalLimit": "limit",
    "MapInArrow": "mapInArrow",
    "MapInPandas": "mapInPandas",
    "Project": "select or withColumn",
    "Repartition": "repartition",
    "RepartitionByExpression": "repartition",
    "Sample": "sample",
    "Sort": "orderBy",
    "Union": "union",
}
"""The methods of a DataFrame, by the operators of the plan that they make."""
INTO = "into"
"""The option of the source with the table that the query writes."""
_WITHOUT_EFFECT = ("SubqueryAlias", "View")


def source_secrets(format_name: str, rows: DataFrame) -> dict[str, str]:
    """Return the secrets of the source as options of the sink; none if the rows are no ranges.

    None in Spark Connect, either, where the plan is on the server: there the sink's own checks must do.

    Raises:
        OptionError: if there is anything between a source with handOver=ranges and the sink; it names the methods.
    """
    if not hasattr(rows, "_jdf"):
        return {}
    operators, sources = _operators(rows)
    direct = [given for given in sources if given.get(HAND_OVER.lower(), "").strip() == RANGES]
    if not direct:
        return {}
    if operators:
        methods = ", ".join(dict.fromkeys(_METHODS.get(name, name) for name in operators))
        raise OptionError(
            f"{format_name}: the source has handOver=ranges, so the rows are ranges to read, not records, and between "
            f"it and the sink there is: {methods}. Remove it, and name columns with the source's option columns and "
            "the sink's option sql; or set handOver=rows on the source"
        )
    given = direct[0]  # several need an operator that unites them
    return {SOURCE_PREFIX + name: given[name] for name in HandOver.of(given).secrets}


def table_of_source(rows: DataFrame) -> tuple[str, str] | None:
    """Return the table that the query's source is for, as `sparkonce.read_stream` says, and its appId.

    None if there is none, if several sources have others, and in Spark Connect, where the plan is on the server.
    """
    sources = _operators(rows)[1] if hasattr(rows, "_jdf") else []
    found = {(given[INTO], given.get("appid", "")) for given in sources if INTO in given}
    return next(iter(found)) if len(found) == 1 else None


def _operators(rows: DataFrame) -> tuple[list[str], list[dict[str, str]]]:
    """Return the operators of a query from the last to the first, without its sources; and the sources' options."""
    operators: list[str] = []
    sources: list[dict[str, str]] = []
    for name, given in _nodes(rows._jdf.queryExecution().analyzed()):
        if given is not None:
            sources.append({key.lower(): text for key, text in given.items()})
        elif name not in _WITHOUT_EFFECT:
            operators.append(name)
    return operators, sources


def _nodes(node: Any) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Yield the name of each node of a plan in the JVM and, of a source, its options if it is `kafka_once`."""
    name, children = node.nodeName(), node.children()
    if name == "StreamingRelationV2":
        is_ours = node.sourceName() == KAFKA_FORMAT
        yield name, dict(node.extraOptions().asCaseSensitiveMap()) if is_ours else {}
    elif children.size():
        yield name, None
    for position in range(children.size()):
        yield from _nodes(children.apply(position))
