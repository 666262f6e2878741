"""Rows that other programs find by a filter are those that they find without: a sample.

All predicates: tests/lab/test_readers_at_large.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from tests.table_readers import (
    DataFusion,
    Dataset,
    DuckDB,
    EdgeTable,
    Kind,
    Predicate,
    Reader,
    Spark,
    differences,
    predicates,
    write_edge_values,
    write_partitions,
)

pytestmark = [pytest.mark.java, pytest.mark.spark]
SEED = 41


def found_before(kinds: Sequence[Kind]) -> list[Predicate]:
    """Return the predicates by which files of this sink lost rows, each to one of the readers."""
    by = {kind.column: kind for kind in kinds}
    return [
        Predicate(by["text"], "=", ("𠮷野家",)),
        Predicate(by["flag"], "=", (True,)),
        Predicate(by["d"], ">", (5.0,)),
        Predicate(by["d"], "=", (0.0,)),
        Predicate(by["s.x"], ">=", (math.inf,)),
    ]


def sample(reader: Reader, asked: list[Predicate], count: int) -> list[Predicate]:
    """Draw at least ``count`` predicates, of every kind the same number."""
    chance = random.Random(SEED)
    by_kind: dict[str, list[Predicate]] = {}
    for each in asked:
        if not reader.skips_wrongly(each):
            by_kind.setdefault(each.kind.column, []).append(each)
    share = -(-count // len(by_kind))
    return [each for some in by_kind.values() for each in chance.sample(some, min(share, len(some)))]


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> EdgeTable:
    return write_edge_values(tmp_path_factory.mktemp("edges"), SEED)


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> EdgeTable:
    return write_partitions(tmp_path_factory.mktemp("partitions"))


def test_small_readers_find_the_same_rows_with_a_filter_and_without(edges: EdgeTable, partitions: EdgeTable) -> None:
    found = []
    for reader in (DataFusion(), Dataset(), DuckDB()):
        asked = found_before(edges.kinds) + sample(reader, predicates(edges.kinds), 60)
        found += differences(reader, edges, asked)
    for reader in (DataFusion(), Dataset()):
        found += differences(reader, partitions, sample(reader, predicates(partitions.kinds, "partition_values"), 20))
    assert found == []


def test_spark_finds_the_rows_that_others_lost(delta_spark: SparkSession, edges: EdgeTable) -> None:
    assert differences(Spark(delta_spark), edges, found_before(edges.kinds)) == []
