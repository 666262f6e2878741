"""What the pages show of a table's rows, columns and files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from deltalake import Schema
from deltalake.schema import ArrayType, Field, MapType, PrimitiveType, StructType

from sparkonce.jobs.ui.delta.tables import TableWatches, key_of
from sparkonce.jobs.ui.pages.rows import TABLE_ROWS, Column
from sparkonce.jobs.ui.site import Given, Site
from tests.unit.ui.shown import shown
from tests.unit.ui.test_tracing import query_with_columns

INT, LONG, TEXT = map(PrimitiveType, ("integer", "long", "string"))


def page_of(table: Path) -> str:
    with closing(Site(Given(tables=(str(table),)))) as site:
        return shown(TABLE_ROWS, site, {"table": key_of(str(table))})


def test_rows_lead_to_their_records(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=3)
    html = page_of(query.table)
    for offset in range(10, 30):  # of the two newest files; the batch names the topic
        assert f"/trace?topic=topic&amp;partition=0&amp;offset={offset}" in html


def test_a_table_whose_files_do_not_show_its_rows_has_columns(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=1)
    log = query.table / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    html = page_of(query.table)
    assert "No rows are shown: the table has columnMapping" in html
    assert "<code>city</code>" in html


def test_rows_are_not_counted_by_files_from_which_some_may_be_deleted(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=1)
    assert TableWatches({}).at(str(query.table)).files().rows == 10
    log = query.table / "_delta_log" / f"{0:020d}.json"
    versions = '"minReaderVersion":1,"minWriterVersion":2'
    assert versions in log.read_text()
    features = '"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"]'
    log.write_text(log.read_text().replace(versions, f'{features},"writerFeatures":["deletionVectors"]'))
    assert TableWatches({}).at(str(query.table)).files().rows is None


def test_columns_are_written_as_in_ddl() -> None:
    inner = StructType([Field("a", INT, nullable=False), Field("b", ArrayType(LONG, contains_null=True))])
    fields = Schema(
        [
            Field("id", LONG, nullable=False, metadata={"comment": "its <key>"}),
            Field("nested", MapType(TEXT, inner, value_contains_null=True)),
            Field("amount", PrimitiveType("decimal(10,2)")),
        ]
    ).fields
    shown_as = [Column.of(each, is_partition=each.name == "id") for each in fields]
    assert [(each.kind, each.notes) for each in shown_as] == [
        ("bigint", "not null, partition column, its <key>"),
        ("map<string, struct<a: int, b: array<bigint>>>", ""),
        ("decimal(10,2)", ""),
    ]
