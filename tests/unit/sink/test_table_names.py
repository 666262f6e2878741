"""Names of tables, what a catalog says of one, and options that name one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparkonce import OptionError, delta_sink_options
from sparkonce.connectors.catalogs import tables
from sparkonce.connectors.catalogs.names import TableName
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.table import ResultTable, TableError
from tests.cases import each_case
from tests.unit.sink.test_schema import options, struct


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders", ("orders",)),
        ("lake.shop.orders_2", ("lake", "shop", "orders_2")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("shop.`2026-11`", ("shop", "2026-11")),
        ("delta.orders", ("delta", "orders")),
    ],
)
def test_names(text: str, parts: tuple[str, ...]) -> None:
    assert TableName.parse(text).parts == parts


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_every_name_can_be_written_and_read_again(parts: list[str]) -> None:
    assume(not (parts[0].lower() == "delta" and "/" in parts[-1]))
    name = TableName(tuple(parts))
    assert TableName.parse(str(name)) == TableName.parse(name.sql) == name


@each_case("text", ["", " ", "a.", ".a", "a..b", "a-b", "a b", "`a", "a`", "``", "`a`b", "a; DROP TABLE b"])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(OptionError, match="is not the name of a table: write"):
        TableName.parse(text)


def test_a_path_is_no_name() -> None:
    with pytest.raises(OptionError, match=r"is the path of a table, not a name: use start\('/data/a b'\)"):
        TableName.parse("delta.`/data/a b`")


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:/data/ware house%20x/t", "/data/ware house%20x/t"),
        ("file:///data/t", "/data/t"),
        ("s3a://bucket/t%20x", "s3a://bucket/t%20x"),
        ("hdfs://names:8020/t", "hdfs://names:8020/t"),
    ],
)
def test_locations(location: str, path: str) -> None:
    """Columns may be called as the lines that describe the table are."""
    columns = [("Location", "string"), (tables._DETAILS, "int"), ("Provider", "int"), ("", "")]
    lines = [("Type", "MANAGED"), ("Location", location), ("Provider", "delta"), ("Owner", "me")]
    details = tables._details([*columns, (tables._DETAILS, ""), *lines])
    assert tables._location(TableName(("t",)), details) == path


def test_a_catalog_that_keeps_the_location_to_itself() -> None:
    with pytest.raises(OptionError, match="does not say where the table is"):
        tables._location(TableName(("t",)), {"Type": "MANAGED", "Provider": "delta"})


GIVEN = {"appId": "a", "checkpointLocation": "/c"}


def test_the_sink_itself_refuses_a_name() -> None:
    with pytest.raises(
        OptionError, match=r"option table=shop.t: .* use sparkonce.write_stream\(rows\) in place of rows"
    ):
        SinkOptions.read({**GIVEN, "TABLE": "shop.t", "path": "/t"})


def test_typed_options_with_a_name() -> None:
    named = delta_sink_options({"table": "shop.t", "appId": "a", "checkpointLocation": "/c", "createTable": False})
    assert named["table"] == "shop.t"
    with pytest.raises(OptionError, match=r"path=/t and table=shop.t .* exclude each other"):
        delta_sink_options({"table": "shop.t", "path": "/t", "appId": "a", "checkpointLocation": "/c"})
    with pytest.raises(OptionError, match=r"option path is required: .*write_stream"):
        delta_sink_options({"appId": "a", "checkpointLocation": "/c"})


def test_a_missing_table_is_not_created(tmp_path: Path) -> None:
    result = ResultTable(options(tmp_path, createTable="false"), struct("a int"))
    with pytest.raises(TableError, match="is not there, and createTable=false"):
        result.snapshot()
    assert not list(tmp_path.iterdir())


def test_a_new_table_without_partition_columns_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing shows the sink that `rows.writeStream.partitionBy` was called: a warning would come with every table."""
    ResultTable(options(tmp_path), struct("a int, p string")).snapshot()
    assert not caplog.messages
