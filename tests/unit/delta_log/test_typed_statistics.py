"""Checkpoints that have typed statistics only, followed by one of ours: no reader loses a row by it."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from collections.abc import Sequence
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.checkpoint_files import StoredCheckpoint
from sparkonce.offset_store.log.checkpoint_rows import with_json_statistics
from sparkonce.offset_store.log.checkpoints import _understood, write_checkpoint
from sparkonce.offset_store.log.files import active_files
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.table_log import TableLog
from tests.table_readers import (
    KINDS,
    DataFusion,
    Dataset,
    DuckDB,
    EdgeTable,
    Kind,
    Polars,
    Reader,
    column,
    differences,
    predicates,
)
from tests.unit.sink.query_by_hand import Query

PROPERTIES = {
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpointInterval": "1000",
}


def readers() -> list[Reader]:
    polars = [Polars()] if find_spec("polars") else []
    extension = os.environ.get("DUCKDB_DELTA")
    return [DataFusion(), Dataset(), *polars, *([DuckDB(delta=extension)] if extension else [])]


def typed_table(root: Path, kinds: Sequence[Kind], chance: random.Random) -> EdgeTable:
    """Write a table, a file for each row, whose newest checkpoint is delta-rs's, with typed statistics only."""
    count = 12
    columns = {kind.column: column(kind, chance.choices([*kind.values, None], k=count)) for kind in kinds}
    rows = pa.table({"id": pa.array(range(count)), **columns})
    query = Query(root, schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
    query.log(0, 10)
    query.commit(0, query.tasks_with([rows.slice(row, 1).to_batches() for row in range(count)]))
    DeltaTable(query.table).alter.set_table_properties(PROPERTIES)
    DeltaTable(query.table).create_checkpoint()
    for part in ("stats", "stats_parsed"):
        assert (newest_adds(query.table).type.get_field_index(part) < 0) == (part == "stats")
    return EdgeTable(query.table, rows, kinds)


def newest_adds(path: Path) -> pa.StructArray:
    newest = max((path / "_delta_log").glob("*.checkpoint.parquet"))
    return pq.read_table(newest)["add"].combine_chunks().drop_null()


def our_checkpoint(path: Path) -> None:
    """Make one from the newest checkpoint and one more commit."""
    log = TableLog(Location.parse(str(path)))
    log.commit(Proposal({"some": 1}), log.state())
    state = log.state()
    assert write_checkpoint(log.reader, state, log.reader.listing(), removed_before_ms=None) is not None
    assert newest_adds(path).type.get_field_index("stats_parsed") < 0


@pytest.mark.parametrize("seed", range(6))
def test_readers_find_the_rows_of_each_predicate(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(KINDS, 3)
    table = typed_table(tmp_path, kinds, chance)
    our_checkpoint(table.path)
    for reader in readers():
        asked = [each for each in predicates(kinds)[seed % 3 :: 3] if not reader.skips_wrongly(each)]
        assert differences(reader, table, asked) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.column)
def test_readers_find_each_value_beside_a_whole_number(tmp_path: Path, kind: Kind) -> None:
    table = typed_table(tmp_path, [kind], random.Random(kind.column))
    our_checkpoint(table.path)
    for reader in readers():
        asked = [each for each in predicates([kind])[::7] if not reader.skips_wrongly(each)]
        assert differences(reader, table, asked) == []


def of_typed(bounds: pa.DataType, lows: Sequence[Any], highs: Sequence[Any]) -> list[Any]:
    """Return the statistics that typed bounds become, in a checkpoint whose first file has text already."""
    pairs = zip(lows, highs, strict=True)
    typed = pa.array(
        [None, *({"numRecords": 3, "minValues": low, "maxValues": high, "tightBounds": False} for low, high in pairs)],
        pa.struct(
            [("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds), ("tightBounds", pa.bool_())]
        ),
    )
    texts = pa.array(["{}", *([None] * len(lows))], pa.string())
    rows = pa.StructArray.from_arrays([texts, typed], ["stats", "stats_parsed"])
    first, *found = with_json_statistics(rows).field("stats").to_pylist()
    assert first == "{}"
    return [json.loads(text, parse_float=Decimal) for text in found]


def test_bounds_that_all_have_json_are_kept_with_every_digit() -> None:
    nested = pa.struct([("text", pa.string()), ("flag", pa.bool_()), ("none", pa.int8())])
    kind = pa.struct([("m", pa.decimal128(30, 2)), ("day", pa.date32()), ("s", nested)])
    low = {
        "m": Decimal("12345678901234567890.50"),
        "day": dt.date(2024, 2, 29),
        "s": {"text": 'é"', "flag": True, "none": None},
    }
    (found,) = of_typed(kind, [low], [{**low, "s": None}])
    kept = {"m": low["m"], "day": "2024-02-29"}
    lows = {**kept, "s": {"text": 'é"', "flag": True}}
    assert found == {"numRecords": 3, "minValues": lows, "maxValues": kept, "tightBounds": False}


ODD: list[tuple[pa.DataType, list[Any]]] = [
    (pa.timestamp("us"), [0, -1, 1 << 62]),
    (pa.timestamp("us", "UTC"), [0, -1, 1 << 62]),
    (pa.timestamp("ns"), [0, 1]),
    (pa.binary(), [b"", b"a"]),
    (pa.float64(), [float("nan"), float("inf"), -float("inf")]),
    (pa.float32(), [float("nan"), float("inf"), -float("inf")]),
    (pa.date32(), [2_932_897, -719_163, (1 << 31) - 1, -(1 << 31)]),
]
"""Types with values that have no JSON; dates are days, 2932897 the first of the year 10000."""


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("kind", "values"), ODD, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
def test_one_bound_without_json_takes_the_others_along(kind: pa.DataType, values: list[Any], inside: bool) -> None:
    number = {pa.date32(): pa.int32()}.get(kind, pa.int64() if pa.types.is_temporal(kind) else kind)
    odd = pa.array(values, number).cast(kind)
    bounds = pa.struct([("id", pa.int64()), ("x", pa.struct([("y", kind)]) if inside else kind)])
    for value in odd:
        with_it = {"id": 1, "x": {"y": value} if inside else value}
        for lows, highs in (([with_it], [{"id": 2}]), ([{"id": 1}], [with_it]), ([with_it], [with_it])):
            assert of_typed(bounds, lows, highs) == [{"numRecords": 3, "tightBounds": False}]
    found = of_typed(bounds, [{"id": 1}, None], [{"id": 2}, {"id": 2}])
    assert found[0] == {"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 2}, "tightBounds": False}


def test_a_table_of_years_past_9999_gets_checkpoints_and_can_be_overwritten(tmp_path: Path) -> None:
    """As delta-spark bounds them; delta-rs has no such statistics."""
    kinds = [kind for kind in KINDS if kind.column == "number"]
    table = typed_table(tmp_path, kinds, random.Random(1))
    name = max((table.path / "_delta_log").glob("*.checkpoint.parquet"))
    whole = pq.read_table(name)
    adds = whole["add"].combine_chunks()
    far = pa.array([3_000_000] * len(adds), pa.int32()).cast(pa.date32())
    days = pa.StructArray.from_arrays([far], ["number"])
    counts = pa.array([1] * len(adds))
    typed = pa.StructArray.from_arrays([counts, days, days], ["numRecords", "minValues", "maxValues"])
    columns = {field.name: adds.field(field.name) for field in adds.type} | {"stats_parsed": typed}
    changed = pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=adds.is_null())
    pq.write_table(whole.set_column(whole.schema.get_field_index("add"), "add", changed), name)
    our_checkpoint(table.path)
    log = DeltaLog.open(Location.parse(str(table.path)), {})
    listing = log.listing()
    version = max(listing.checkpoints)
    rows = [row for each in StoredCheckpoint(log, version, listing.checkpoints[version]).files("add") for row in each]
    assert {str(row["stats"]) for row in rows} == {'{"numRecords":1}'}
    assert len(active_files(log, version)) == len(rows) == 12


def test_a_number_out_of_range_is_an_action_that_is_not_understood(tmp_path: Path) -> None:
    log = DeltaLog.open(Location.parse(str(tmp_path)), {})
    with pytest.raises(OffsetStoreError, match="what has an action that is not understood"), _understood(log, "what"):
        raise OverflowError("date value out of range")
