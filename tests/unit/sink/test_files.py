"""Data files: their statistics are true, their partitions are whole, and what was written is read back."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from sparkonce.connectors.delta_sink import parquet
from sparkonce.connectors.delta_sink.parquet import DataFile, FileSettings, TableWriter, repeating_columns
from sparkonce.connectors.delta_sink.partitions import directory, split
from sparkonce.connectors.delta_sink.schema import Required, SchemaError, WriteSchema, is_part_of, reshape
from sparkonce.connectors.delta_sink.statistics import StatisticsCollector, parse_paths
from sparkonce.connectors.delta_sink.target import add_action
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.table_log import TableLog
from tests.cases import each_case
from tests.chance import examples

UTC = pa.timestamp("us", tz="UTC")


def file_settings(schema: pa.Schema, by: tuple[str, ...] = (), **changes: Any) -> FileSettings:
    write = WriteSchema(schema, tuple(range(len(schema))), by, ())
    values = {"compression": "snappy", "target_file_bytes": 1 << 27, "indexed_columns": 32, **changes}
    return FileSettings("table", write, **values)


def write_files(root: Path, batches: list[pa.RecordBatch], setup: FileSettings) -> list[DataFile]:
    root.mkdir(parents=True, exist_ok=True)
    writer = TableWriter(fs.LocalFileSystem(), str(root), setup)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def load(root: Path, files: list[DataFile], schema: pa.Schema, by: tuple[str, ...] = ()) -> pa.Table:
    """Commit the files to a table, and read it back with delta-rs."""
    DeltaTable.create(root, Schema.from_arrow(schema), partition_by=list(by))
    log = TableLog(Location.parse(str(root)))
    log.commit(Proposal(files=[add_action(each) for each in files]), log.state())
    return DeltaTable(root).to_pyarrow_table()


texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.text("a\U0010ffff", min_size=30, max_size=36)
days = st.dates(dt.date(1, 1, 1))
times = st.datetimes(dt.datetime(1, 1, 1), timezones=st.just(dt.UTC))
COLUMNS: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("byte", pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("float", pa.float32(), st.floats(width=32)),
    ("double", pa.float64(), st.floats()),
    ("small_decimal", pa.decimal128(9, 2), st.decimals(-9999999, 9999999, places=2)),
    ("large_decimal", pa.decimal128(38, 10), st.decimals(Decimal(-(10**27)), Decimal(10**27), places=10)),
    ("text", pa.string(), texts),
    ("bytes", pa.binary(), st.binary(max_size=40)),
    ("flag", pa.bool_(), st.booleans()),
    ("day", pa.date32(), days),
    ("time", UTC, times),
    ("local_time", pa.timestamp("us"), st.datetimes(dt.datetime(1, 1, 1))),
    ("list", pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 9), max_size=3)),
    ("map", pa.map_(pa.string(), pa.int32()), st.lists(st.tuples(texts, st.integers(0, 9)), max_size=2)),
    (
        "struct",
        pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))]),
        st.fixed_dictionaries(
            {"x": st.none() | st.integers(0, 9), "y": st.none() | st.fixed_dictionaries({"z": st.none() | texts})}
        ),
    ),
]
SCHEMA = pa.schema([pa.field(name, kind) for name, kind, _ in COLUMNS])
row = st.fixed_dictionaries({name: st.none() | values for name, _, values in COLUMNS})


def leaves(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = None if value is None else value[name]
    return value


def bounded(tree: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in tree.items():
        found += bounded(value, (*path, name)) if isinstance(value, dict) else [((*path, name), value)]
    return found


def comparable(value: Any, bound: Any) -> tuple[Any, Any]:
    """Bring a value and a bound from JSON to one type: text is compared as UTF-8, as Delta's readers do."""
    if isinstance(value, dt.datetime):
        return value, dt.datetime.fromisoformat(bound)
    if isinstance(value, dt.date):
        return value, dt.date.fromisoformat(bound)
    if isinstance(value, str):
        return value.encode(), bound.encode()
    return (value, float(bound)) if isinstance(value, float) else (value, bound)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(60))
@given(st.lists(row, min_size=1, max_size=6), st.booleans())
def test_statistics_tell_the_truth(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], two: bool) -> None:
    root = tmp_path_factory.mktemp("t")
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    batches = [batch.slice(0, 1), batch.slice(1)] if two else [batch]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "ROW_GROUP_BYTES", 1)
        files = write_files(root, batches, file_settings(SCHEMA))
    assert len(files) <= len(batches)  # a NaN or -0.0 may begin another
    start = 0
    for file in files:
        check_statistics(root, file, rows[start : (start := start + file.rows)])
    assert start == len(rows)


def check_statistics(root: Path, file: DataFile, rows: list[Any]) -> None:
    found = json.loads(file.statistics, parse_float=Decimal)
    assert found["numRecords"] == file.rows == len(rows)
    assert file.size == (root / file.path).stat().st_size
    stored = pq.read_table(root / file.path).to_pylist()
    for path, nulls in bounded(found["nullCount"]):
        assert nulls == sum(leaves(each, path) is None for each in rows), path
    minimum, maximum = dict(bounded(found.get("minValues", {}))), dict(bounded(found.get("maxValues", {})))
    assert minimum.keys() == maximum.keys()
    for path, low in minimum.items():
        for value in (leaves(each, path) for each in stored):
            if value is not None:
                assert not (isinstance(value, float) and math.isnan(value))
                assert comparable(value, low)[1] <= comparable(value, low)[0] <= comparable(value, maximum[path])[1]
    has_nan = any(each[name] is not None and math.isnan(each[name]) for each in rows for name in ("float", "double"))
    assert has_nan == ("minValues" not in found)
    for name in ("long", "text", "flag", "double", "day", "time", "small_decimal", "large_decimal", "local_time"):
        if not has_nan and any(each[name] is not None for each in rows):
            assert (name,) in minimum, name
    assert not {"bytes", "list", "map"}.intersection(path[0] for path in minimum)


def test_only_the_first_columns_are_covered(tmp_path: Path) -> None:
    schema = pa.schema([(f"c{index}", pa.int64()) for index in range(40)])
    batch = pa.RecordBatch.from_pylist([{f"c{index}": index for index in range(40)}], schema=schema)
    counts = {}
    for limit in (32, 2, 0, -1):
        (file,) = write_files(tmp_path, [batch], file_settings(schema, indexed_columns=limit))
        counts[limit] = len(json.loads(file.statistics)["minValues"])
    assert counts == {32: 32, 2: 2, 0: 0, -1: 40}


def test_chosen_columns_are_covered_before_the_first_ones(tmp_path: Path) -> None:
    """Delta's DataSkippingStatsColumns: a struct that is named stands for all that is in it."""
    inner = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.int64())]))])
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", inner), ("u", inner), ("p", pa.string())])
    value = {"x": 1, "y": {"z": 2}}
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": 2, "s": value, "u": value, "p": "p"}], schema=schema)
    chosen = (("b",), ("s",), ("u", "y", "z"), ("p",), ("gone",))
    setup = file_settings(schema, ("p",), indexed_columns=1, statistics_columns=chosen)
    (file,) = write_files(tmp_path, [batch], setup)
    found = json.loads(file.statistics)
    assert found["minValues"] == {"b": 2, "s": value, "u": {"y": {"z": 2}}}
    (file,) = write_files(tmp_path, [batch], file_settings(schema, statistics_columns=()))
    assert json.loads(file.statistics) == {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a, b.c", [("a",), ("b", "c")]),
        ("`a,b`.`c.d`,e", [("a,b", "c.d"), ("e",)]),
        ("`a``b`", [("a`b",)]),
        ("", []),
        (" , ", []),
    ],
)
def test_a_list_of_columns_is_read_as_delta_reads_it(text: str, paths: list[tuple[str, ...]]) -> None:
    assert parse_paths(text) == paths


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a" * 32, "a" * 32, "a" * 32),
        ("a" * 33, "a" * 32, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32, "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "é", "a" * 32, "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0010ffff", "a" * 32, "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0010ffffb", "a" * 32, "a" * 32 + "\U0010ffff\x7f"),
        ("\U0001f600" * 40, "\U0001f600" * 32, "\U0001f600" * 16 + "\U0010ffff"),
        ("a" + "\U0001f600" * 40, "a" + "\U0001f600" * 31, "a" + "\U0001f600" * 16 + "\U0010ffff"),
    ],
)
def test_long_texts_are_cut_where_delta_cuts_them(tmp_path: Path, text: str, low: str, high: str) -> None:
    """As delta-spark cuts: 32 characters below; above, 32 units of UTF-16, no pair split, completed above the rest."""
    schema = pa.schema([("t", pa.string())])
    (file,) = write_files(tmp_path, [pa.RecordBatch.from_pydict({"t": [text]}, schema=schema)], file_settings(schema))
    found = json.loads(file.statistics)
    assert (found["minValues"]["t"], found["maxValues"]["t"]) == (low, high)
    assert low.encode() <= text.encode() <= high.encode()


@pytest.mark.parametrize("all_noted", [True, False])
def test_bounds_of_long_texts_stand_in_for_their_own_row_groups_only(tmp_path: Path, *, all_noted: bool) -> None:
    """The last row group has no bounds in the footer; unless its own were noted, the file must have none."""
    found, path = StatisticsCollector({("t",): pa.string()}), tmp_path / "texts.parquet"
    texts = (["a" * 5000, "b"], ["m"], ["c", "z" * 5000])
    with pq.ParquetWriter(path, pa.schema([("t", pa.string())])) as writer:
        for each in texts:
            if all_noted or each is not texts[-1]:
                found.observe_groups(pa.table({"t": each}))
            writer.write_table(pa.table({"t": each}), row_group_size=1)
    statistics = json.loads(found.to_json(pq.read_metadata(path)))
    assert statistics["minValues"] == ({"t": "a" * 32} if all_noted else {})
    assert statistics["maxValues"] == ({"t": "z" * 32 + "\x7f"} if all_noted else {})


def test_zero_has_two_signs(tmp_path: Path) -> None:
    """Readers that order -0.0 below 0.0, as Arrow does, must not skip a file that has one under the other's name."""
    schema = pa.schema([("d", pa.float64())])
    for value in (0.0, -0.0):
        (file,) = write_files(tmp_path, [pa.RecordBatch.from_pydict({"d": [value]})], file_settings(schema))
        found = json.loads(file.statistics)
        assert math.copysign(1, found["minValues"]["d"]) == -1
        assert math.copysign(1, found["maxValues"]["d"]) == 1


def row_groups(root: Path, file: DataFile) -> list[int]:
    footer = pq.read_metadata(root / file.path)
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


def test_row_groups_are_as_large_as_asked(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    batches = [pa.RecordBatch.from_pydict({"k": list(range(n * 100, n * 100 + 100))}) for n in range(10)]
    (file,) = write_files(tmp_path / "rows", batches, file_settings(schema, row_group_rows=300))
    assert row_groups(tmp_path / "rows", file) == [300, 300, 300, 100]
    (file,) = write_files(tmp_path / "small", batches, file_settings(schema, row_group_rows=30))
    assert row_groups(tmp_path / "small", file) == [30] * 33 + [10]
    (file,) = write_files(tmp_path / "bytes", batches, file_settings(schema, row_group_bytes=2400))
    assert row_groups(tmp_path / "bytes", file) == [300, 300, 300, 100]
    (file,) = write_files(tmp_path / "all", batches, file_settings(schema))
    assert row_groups(tmp_path / "all", file) == [1000]
    for name in ("rows", "small", "bytes", "all"):
        (path,) = (tmp_path / name).glob("*.parquet")
        assert pq.read_table(path).column("k").to_pylist() == list(range(1000))


def test_a_dot_in_a_name_is_not_a_field_of_a_struct(tmp_path: Path) -> None:
    schema = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))])
    (file,) = write_files(
        tmp_path, [pa.RecordBatch.from_pylist([{"a.b": 1, "a": {"b": 99}}], schema=schema)], file_settings(schema)
    )
    assert "minValues" not in json.loads(file.statistics)


def test_a_column_that_looks_like_another_without_statistics_has_no_bounds(tmp_path: Path) -> None:
    schema = pa.schema([("a.b", pa.string()), ("a", pa.struct([("b", pa.int64())]))])
    rows = pa.RecordBatch.from_pylist([{"a.b": "x", "a": {"b": 99}}], schema=schema)
    (file,) = write_files(tmp_path, [rows], file_settings(schema, indexed_columns=1))
    statistics = json.loads(file.statistics)
    assert statistics == {"numRecords": 1, "nullCount": {"a.b": 0}}


@pytest.mark.parametrize("values", [[1.0, math.inf], [-math.inf, 1.0], [math.inf, math.inf]])
def test_infinities_are_bounds_as_delta_spark_writes_them(tmp_path: Path, values: list[float]) -> None:
    schema = pa.schema([("d", pa.float64())])
    (file,) = write_files(tmp_path, [pa.RecordBatch.from_pydict({"d": values})], file_settings(schema))
    found = json.loads(file.statistics)
    assert [float(found["minValues"]["d"]), float(found["maxValues"]["d"])] == values


@each_case(
    "kind, number, value",
    [
        (pa.float64(), pa.float64(), math.nan),
        (pa.float32(), pa.float32(), math.nan),
        (pa.timestamp("us"), pa.int64(), 2**60),
        (UTC, pa.int64(), -(2**60)),
        (pa.date32(), pa.int32(), 10**7),
    ],
)
def test_a_file_with_a_value_that_has_no_bound_has_none(
    tmp_path: Path, kind: pa.DataType, number: pa.DataType, value: Any
) -> None:
    """Otherwise to_pyarrow_dataset of delta-rs 1.6 would skip it for every filter on that column."""
    schema = pa.schema([("k", pa.int64()), ("x", kind)])
    columns = [pa.array([1, 2]), pa.array([value, 0], number).cast(kind)]
    (file,) = write_files(tmp_path, [pa.RecordBatch.from_arrays(columns, schema=schema)], file_settings(schema))
    assert json.loads(file.statistics) == {"numRecords": 2, "nullCount": {"k": 0, "x": 0}}


def test_a_struct_takes_no_bounds_from_other_columns(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.float64())]))])
    rows = pa.RecordBatch.from_pylist([{"k": 1, "s": {"x": math.nan}}], schema=schema)
    (file,) = write_files(tmp_path, [rows], file_settings(schema))
    assert json.loads(file.statistics)["minValues"] == {"k": 1}


def test_texts_are_not_escaped(tmp_path: Path) -> None:
    """delta-rs 1.6 reads the escapes of some characters beyond U+FFFF as others."""
    schema = pa.schema([("𠮷", pa.string())])
    (file,) = files = write_files(tmp_path, [pa.RecordBatch.from_pydict({"𠮷": ["𠮷野家"]})], file_settings(schema))
    assert "\\u" not in file.statistics
    assert json.loads(file.statistics)["maxValues"] == {"𠮷": "𠮷野家"}
    load(tmp_path, files, schema)
    table = DeltaTable(tmp_path)
    assert table.to_pyarrow_table(filters=[("𠮷", "=", "𠮷野家")]).num_rows == 1
    assert table.delete("`𠮷` = '𠮷野家'")["num_deleted_rows"] == 1


def test_texts_that_are_too_long_for_a_footer_have_bounds(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.string()), ("s", pa.struct([("t", pa.string())]))])
    texts = ["b", "c" * 5000, "d", None, "a"]
    rows = [{"t": text, "s": {"t": text}} for text in texts]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    (file,) = write_files(tmp_path, [batch.slice(0, 3), batch.slice(3)], file_settings(schema, row_group_rows=2))
    assert row_groups(tmp_path, file) == [2, 2, 1]
    found = json.loads(file.statistics)
    assert found["minValues"] == {"t": "a", "s": {"t": "a"}}
    assert found["maxValues"] == {"t": "d", "s": {"t": "d"}}


def test_a_long_text_in_a_column_that_looks_like_another_has_no_bounds(tmp_path: Path) -> None:
    schema = pa.schema([("a.b", pa.string()), ("a", pa.struct([("b", pa.string())]))])
    rows = pa.RecordBatch.from_pylist([{"a.b": text, "a": {"b": text}} for text in ("b" * 5000, "c")], schema=schema)
    (file,) = write_files(tmp_path, [rows.slice(0, 1), rows.slice(1)], file_settings(schema, row_group_rows=1))
    assert "minValues" not in json.loads(file.statistics)


def test_a_nan_or_a_negative_zero_begins_a_file_without_what_readers_skip_it_by(tmp_path: Path) -> None:
    """In columns of their own and in structs; what comes before keeps its bounds and dictionaries."""
    schema = pa.schema([("d", pa.float64()), ("s", pa.struct([("f", pa.float32())])), ("k", pa.int64())])

    def batch(d: float, f: float) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"d": d, "s": {"f": f}, "k": 1}] * 4, schema=schema)

    batches = [batch(1.0, 1.0), batch(0.0, 1.0), batch(math.nan, 1.0), batch(math.nan, -0.0), batch(1.0, math.nan)]
    files = write_files(tmp_path, [*batches, batch(-0.0, -0.0)], file_settings(schema, row_group_rows=4))
    assert [file.rows for file in files] == [8, 4, 4, 4, 4]
    seen = []
    for file in files:
        group = pq.read_metadata(tmp_path / file.path).row_group(0)
        columns = [group.column(index) for index in range(3)]
        bounds = "".join(each.path_in_schema[-1] for each in columns if each.statistics and each.statistics.has_min_max)
        dictionaries = "".join(each.path_in_schema[-1] for each in columns if each.has_dictionary_page)
        seen.append((bounds, dictionaries))
    assert seen == [("dfk", "dfk"), ("fk", "dfk"), ("fk", "dk"), ("k", "dk"), ("k", "k")]


SPECIALS = ["", None, "a b", "é/ü", "50%", "a=b:c", "p+q&r?#", '"q"', "\\back", ".", "..", "%41", "中" * 200, "a\nb"]


def test_partition_values_of_any_text_come_back(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("p", pa.string()), ("q", pa.int32())])
    rows = [{"k": index, "p": value, "q": index % 2 or None} for index, value in enumerate(SPECIALS * 2)]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    files = write_files(tmp_path / "t", [batch.slice(0, 9), batch.slice(9)], file_settings(schema, ("p", "q")))
    back = load(tmp_path / "t", files, schema, ("p", "q")).sort_by("k").to_pylist()
    # An empty text is null to Delta.
    assert back == [{**each, "p": each["p"] or None} for each in rows]
    assert len(files) == len({(each["p"] or None, each["q"]) for each in rows})
    assert all(".." not in Path(file.path).parts for file in files)


def test_partition_values_of_every_type_come_back(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("i", pa.int8()),
            ("b", pa.bool_()),
            ("d", pa.date32()),
            ("t", UTC),
            ("n", pa.timestamp("us")),
        ]
    )
    moment = dt.datetime(2024, 2, 29, 1, 2, 3, 456789)
    full = {
        "i": -5,
        "b": True,
        "d": moment.date(),
        "t": moment.replace(tzinfo=dt.UTC),
        "n": moment,
    }
    rows = [{"k": 0, **full}, {"k": 1, **dict.fromkeys(full)}]
    by = tuple(full)
    files = write_files(tmp_path / "t", [pa.RecordBatch.from_pylist(rows, schema=schema)], file_settings(schema, by))
    assert load(tmp_path / "t", files, schema, by).sort_by("k").to_pylist() == rows


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None, ""]), st.sampled_from([None, 1, 2])), max_size=30))
def test_split_keeps_every_row_once_in_order(pairs: list[tuple[str | None, int | None]]) -> None:
    schema = pa.schema([("p", pa.string()), ("q", pa.int32()), ("k", pa.int64())])
    rows: list[dict[str, Any]] = [{"p": p, "q": q, "k": index} for index, (p, q) in enumerate(pairs)]
    seen: dict[Any, list[int]] = {}
    for values, part in split(pa.RecordBatch.from_pylist(rows, schema=schema), ["p", "q"]):
        assert part.schema.names == ["k"]
        seen.setdefault(values, []).extend(part.column("k").to_pylist())
    expected: dict[Any, list[int]] = {}
    for each in rows:
        expected.setdefault((each["p"] or None, each["q"] and str(each["q"])), []).append(each["k"])
    assert {key: sorted(ks) for key, ks in seen.items()} == expected


def test_rows_that_wait_for_a_small_partition_do_not_hold_the_rows_of_a_large_one(tmp_path: Path) -> None:
    """One row in a thousand waits: what is in memory is those rows, not the batches that they came in."""
    schema = pa.schema([("p", pa.int32()), ("v", pa.binary())])
    rows = [{"p": int(index % 1000 == 0), "v": bytes(1000)} for index in range(2000)]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    writer = TableWriter(fs.LocalFileSystem(), str(tmp_path), file_settings(schema, ("p",), target_file_bytes=1 << 20))
    before = pa.total_allocated_bytes()
    for _ in range(20):
        writer.write(batch.take(pa.array(range(batch.num_rows))))
    assert pa.total_allocated_bytes() - before < 4 << 20
    assert sum(file.rows for file in writer.close()) == 40_000


def test_directories_are_written_as_hive_does() -> None:
    assert directory(["day", "a b"], ("2024-01-01", None)) == "day=2024-01-01/a%20b=__HIVE_DEFAULT_PARTITION__"
    assert directory([], ()) == ""


def test_a_large_task_writes_several_files(tmp_path: Path) -> None:
    schema = pa.schema([("v", pa.binary())])
    batches = [pa.RecordBatch.from_pydict({"v": [bytes([n]) * 1000 + bytes([i]) for i in range(50)]}) for n in range(6)]
    files = write_files(tmp_path / "t", batches, file_settings(schema, target_file_bytes=1000))
    assert len(files) == 6
    assert load(tmp_path / "t", files, schema).num_rows == 300


def test_many_partitions_do_not_mean_many_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_OPEN_FILES", 3)
    schema = pa.schema([("p", pa.int32()), ("k", pa.int64())])
    batch = pa.RecordBatch.from_pylist([{"p": n % 10, "k": n} for n in range(100)], schema=schema)
    writer = TableWriter(fs.LocalFileSystem(), str(tmp_path), file_settings(schema, ("p",)))
    writer.write(batch)
    assert len(writer._open) <= 3
    files = writer.close()
    assert sum(file.rows for file in files) == 100


def test_waiting_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_WAITING_BYTES", 500)
    schema = pa.schema([("p", pa.int32()), ("k", pa.int64())])
    batch = pa.RecordBatch.from_pylist([{"p": n % 10, "k": n} for n in range(100)], schema=schema)
    writer = TableWriter(fs.LocalFileSystem(), str(tmp_path), file_settings(schema, ("p",)))
    for _ in range(3):
        writer.write(batch)
        assert writer._waiting_bytes < 500
    assert sum(file.rows for file in writer.close()) == 300
    assert writer._waiting_bytes == 0


def test_a_failed_task_leaves_no_file(tmp_path: Path) -> None:
    schema = pa.schema([("p", pa.string()), ("k", pa.int64())])
    setup = file_settings(schema, ("p",), target_file_bytes=1)
    writer = TableWriter(fs.LocalFileSystem(), str(tmp_path), setup)
    writer.write(pa.RecordBatch.from_pylist([{"p": "a", "k": 1}, {"p": "b", "k": 2}], schema=schema))
    assert list(tmp_path.rglob("*.parquet"))
    writer.discard()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_stream_that_cannot_be_closed_does_not_hide_why_a_task_failed(tmp_path: Path) -> None:
    @dataclass
    class Stuck:
        inner: pa.NativeFile

        def close(self) -> None:
            self.inner.close()
            raise OSError("the upload failed")

    schema = pa.schema([("v", pa.int64())])
    writer = TableWriter(fs.LocalFileSystem(), str(tmp_path), file_settings(schema, row_group_rows=1))
    writer.write(pa.RecordBatch.from_pydict({"v": [1]}, schema=schema))
    (file,) = writer._open.values()
    assert file.writer is not None
    file.writer.close()
    file.stream = Stuck(file.stream)
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_dictionary_is_kept_for_values_that_repeat() -> None:
    rows = pa.table(
        {
            "same": ["x"] * 100,
            "different": [str(n) for n in range(100)],
            "flag": [True] * 100,
            "list": [["a"]] * 100,
            "map": pa.array([[("a", 1)]] * 100, pa.map_(pa.string(), pa.int64())),
        }
    )
    assert repeating_columns(rows) == ["same", "list.list.element", "map.key_value.key", "map.key_value.value"]


def test_a_null_in_a_required_column_is_refused() -> None:
    schema = pa.schema([("k", pa.int64())])
    write = WriteSchema(schema, (0,), (), (Required(("k",), ("k",)),))
    with pytest.raises(SchemaError, match="column k is NOT NULL"):
        write.align(pa.RecordBatch.from_pydict({"k": pa.array([1, None], pa.int64())}))


@pytest.mark.parametrize("named", [None, pa.schema([("k", pa.string()), ("v", pa.int64())])])
def test_an_empty_string_in_a_required_partition_column_is_refused(named: pa.Schema | None) -> None:
    """Delta would store a null, and delta-rs could not load the table any more."""
    physical = "k" if named is None else "col-1"
    schema = pa.schema([(physical, pa.string()), ("v", pa.int64())])
    empty = pa.RecordBatch.from_pydict({"k": ["x", ""], "v": [1, 2]})
    required = (Required((physical,), ("k",)),)
    with pytest.raises(SchemaError, match=r"column k is NOT NULL .* an empty string in it"):
        WriteSchema(schema, (0, 1), (physical,), required, named).align(empty)
    WriteSchema(schema, (0, 1), (), required, named).align(empty)
    WriteSchema(schema, (0, 1), (physical,), (), named).align(empty)


NESTED = pa.struct(
    [
        ("a", pa.int32()),
        ("l", pa.list_(pa.struct([("x", pa.int16())]))),
        ("m", pa.map_(pa.string(), pa.struct([("y", pa.float32())]))),
    ]
)
WIDER = pa.struct(
    [
        ("M", pa.map_(pa.string(), pa.struct([("new", pa.string()), ("y", pa.float64())]))),
        ("A", pa.int64()),
        ("L", pa.list_(pa.struct([("x", pa.int64()), ("new", pa.date32())]))),
    ]
)
nested = st.none() | st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-9, 9),
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({"x": st.integers(0, 9)}), max_size=3),
        "m": st.none()
        | st.lists(
            st.tuples(texts, st.none() | st.fixed_dictionaries({"y": st.none() | st.floats(-4, 4, width=32)})),
            max_size=2,
        ),
    }
)


@given(st.lists(nested, max_size=6), st.integers(0, 3))
def test_nested_data_takes_another_shape_and_stays_what_it_is(values: list[Any], skip: int) -> None:
    column = pa.array(values, NESTED).slice(min(skip, len(values)))
    shaped = reshape(column, WIDER, WIDER)
    shaped.validate(full=True)
    back = [
        None
        if value is None
        else {
            "a": value["A"],
            "l": None if value["L"] is None else [None if each is None else {"x": each["x"]} for each in value["L"]],
            "m": None
            if value["M"] is None
            else [(key, None if each is None else {"y": each["y"]}) for key, each in value["M"]],
        }
        for value in shaped.to_pylist()
    ]
    assert back == column.to_pylist()


def test_what_is_part_of_a_type() -> None:
    assert is_part_of(NESTED, NESTED)
    assert not is_part_of(NESTED, WIDER)
    wider = pa.struct([*NESTED, ("new", pa.int8())])
    assert is_part_of(NESTED, wider)
    assert not is_part_of(wider, NESTED)
    assert is_part_of(pa.list_(NESTED), pa.list_(wider))
    assert is_part_of(pa.map_(pa.string(), NESTED), pa.map_(pa.string(), wider))
    assert not is_part_of(pa.list_(NESTED), NESTED)


def test_rows_of_very_many_combinations_go_to_their_partitions() -> None:
    """17 columns of 16 values have more combinations than 64 bits."""
    names = [f"c{index}" for index in range(17)]
    columns = {name: [f"{(row + shift) % 16}" for row in range(16)] for shift, name in enumerate(names)}
    batch = pa.RecordBatch.from_pydict({**columns, "row": list(range(16))})
    found = {rows.column("row")[0].as_py(): (values, len(rows)) for values, rows in split(batch, names)}
    assert found == {row: (tuple(columns[name][row] for name in names), 1) for row in range(16)}
