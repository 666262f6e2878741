"""delta-spark reads what `delta_once` wrote: partitions, types, and statistics that it skips files by."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyarrow import fs

from connectors.delta_once.parquet import FileSettings, TableWriter
from connectors.delta_once.schema import WriteSchema
from connectors.delta_once.target import _add_action
from jobs.peers import PeerMissingError, delta_jars

PROJECT = Path(__file__).resolve().parents[2]
KINDS = ["x", None, "a/b=c %é"]
ARROW = pa.schema(
    [
        ("value", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("amount", pa.decimal128(30, 4)),
        ("text", pa.string()),
        ("kind", pa.string()),
    ]
)


def rows() -> list[dict[str, object]]:
    first = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    return [
        {
            "value": number,
            "at": first + dt.timedelta(microseconds=number),
            "amount": Decimal(number) / 4 - 3,
            "text": "é" * 40 + str(number),
            "kind": KINDS[number % 3],
        }
        for number in range(30)
    ]


@pytest.mark.java
@pytest.mark.spark
def test_delta_spark_reads_the_table(tmp_path: Path) -> None:
    try:
        jars = delta_jars()
    except PeerMissingError as error:
        pytest.skip(str(error))
    root = tmp_path / "table"
    table = DeltaTable.create(root, Schema.from_arrow(ARROW), partition_by=["kind"])
    settings = FileSettings("table", WriteSchema(ARROW, tuple(range(len(ARROW))), ("kind",), ()), "snappy", 1, 32)
    writer = TableWriter(fs.LocalFileSystem(), str(root), settings)
    for row in rows():
        writer.write(pa.RecordBatch.from_pylist([row], schema=ARROW))
    adds = [_add_action(file) for file in writer.close()]
    assert len(adds) == 30
    table.create_write_transaction(adds, "append", table.schema(), partition_by=["kind"])
    condition = (
        "value >= 20 and at >= timestamp'2024-03-01 00:00:00.000020 UTC' and amount < 3 and amount >= 2 "
        f"and text > '{'é' * 40}2'"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.delta_spark_reader", ",".join(jars), str(root), condition],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        timeout=240,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stderr[-3000:]
    found = json.loads(lines[0].removeprefix("FOUND "))
    matching = [
        row["value"]
        for row in rows()
        if row["value"] >= 20  # type: ignore[operator]
        and row["at"] >= dt.datetime(2024, 3, 1, 0, 0, 0, 20, tzinfo=dt.UTC)  # type: ignore[operator]
        and 2 <= row["amount"] < 3  # type: ignore[operator]
        and row["text"] > "é" * 40 + "2"  # type: ignore[operator]
    ]
    assert matching
    assert (found["rows"], found["values"]) == (30, list(range(30)))
    assert found["matching"] == len(matching)
    assert found["kinds"] == sorted(str(kind) for kind in KINDS)
