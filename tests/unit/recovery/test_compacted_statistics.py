"""What `sparkonce compact` has delta-rs write: no statistics by which a reader loses rows."""

from __future__ import annotations

import math
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql.pandas.types import from_arrow_schema

from sparkonce.jobs.cli.main import main
from tests.table_readers import DataFusion, DuckDB, differences, predicates, write_edge_values
from tests.unit.recovery.clones import shallow_clone
from tests.unit.sink.query_by_hand import Query


def test_readers_find_every_row_of_files_that_were_merged(tmp_path: Path) -> None:
    table = write_edge_values(tmp_path, seed=41)
    sizes = pa.table(DeltaTable(table.path).get_add_actions())["size_bytes"].to_pylist()
    assert main(["compact", str(table.path), "--target-bytes", str(sum(sizes) * 3 // len(sizes))]) == 0
    assert 1 < len(table.files()) < len(sizes) / 2
    assert differences(DataFusion(), table, predicates(table.kinds)[::20]) == []
    assert differences(DuckDB(), table, predicates(table.kinds)[::20]) == []


def test_only_columns_that_delta_rs_gets_wrong_lose_their_statistics(tmp_path: Path) -> None:
    """In a partition whose name is escaped, twice in the log."""
    names = ["k", "zero", "nan", "infinite"]
    schema = pa.schema([("k", pa.int64()), *((name, pa.float64()) for name in names[1:]), ("p", pa.string())])
    query = Query(tmp_path, schema=from_arrow_schema(schema), partitionBy="p")
    for batch_id, nan in enumerate([1.0, math.nan]):
        query.write(batch_id, [{"k": 5, "zero": -0.0, "nan": nan, "infinite": math.inf, "p": "é a=b/%"}])
    assert main(["compact", str(query.table)]) == 0
    (path,) = pa.table(DeltaTable(query.table).get_add_actions())["path"].to_pylist()
    footer = pq.read_metadata(query.table / unquote(path)).row_group(0)
    columns = [footer.column(index) for index in range(len(names))]
    assert [each.path_in_schema for each in columns] == names
    assert [each.statistics is not None for each in columns] == [True, True, False, True]
    assert [each.has_dictionary_page for each in columns] == [True, False, False, True]
    assert {each.compression for each in columns} == {"ZSTD"}
    assert query.rows() == 2


def test_a_clone_whose_files_are_elsewhere_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """delta-rs (1.6) reads such files, and does not compact them."""
    source = tmp_path / "from here"
    for value in (1.0, math.nan):
        write_deltalake(source, pa.table({"x": [value]}), mode="append")
    clone = shallow_clone(source, tmp_path / "clone")
    assert main(["compact", str(clone)]) == 1
    assert "outside table root" in capsys.readouterr().err
    read = QueryBuilder().register("clone", DeltaTable(clone)).execute("SELECT x FROM clone")
    assert sorted(map(str, pa.table(read)["x"].to_pylist())) == ["1.0", "nan"]
