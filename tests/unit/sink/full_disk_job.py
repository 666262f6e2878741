"""Writes all kinds of files to a disk that is full by then, and prints what each said, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from pyspark.sql.types import LongType, StructField, StructType

from sparkonce.connectors.delta_sink.compaction import Compaction
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.table import ResultTable
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.connectors.kafka_sink.spool import BUFFER_BYTES, Spool, SpoolFile
from sparkonce.connectors.kafka_sink.topics import Topics
from sparkonce.offset_store.administration import ChangeKind, ManualChange, OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from tests.full_disk import fill
from tests.unit.sink.query_by_hand import SCHEMA, Query


def said(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(root: Path) -> dict[str, str]:
    query, apart = Query(root), Query(root / "apart", guarantee="at-most-once")
    query.write(0, [{"v": 1}])
    query.write(1, [{"v": 2}])
    query.log(2, 30)
    messages = query.tasks(rows=[{"v": 3}])
    apart.options["offsetStore"] = f"delta:{root}/apart/offsets"
    apart.write(0, [{"v": 1}])
    apart.log(1, 20)
    new = Query(root / "new")
    new.log(0, 10)
    columns = StructType([*SCHEMA, StructField("w", LongType())])
    wider = ResultTable(SinkOptions.read({**query.options, "mergeSchema": "true"}), columns)
    compaction = Compaction(Location.parse(str(query.table)), {}, 1 << 20, {})
    offsets = OffsetsTable.open(Location.parse(str(query.table)), {})
    fill()
    found = {
        "commit": said(lambda: query.commit(2, messages)),
        "offsets apart": said(apart.tasks),
        "new offsets": said(
            DeltaOffsetStore(Location.parse(f"{root}/new/offsets"), "app", create_missing=True).snapshot
        ),
        "manual change": said(lambda: offsets.apply(ManualChange(ChangeKind.SET, ()))),
        "compaction": said(lambda: list(compaction.merge(*compaction.plan()[1:]))),
        "new table": said(new.tasks),
        "new columns": said(wider.grow),
    }
    query.abort(2, messages)
    found["data file"] = said(lambda: query.tasks(rows=[{"v": 3}]))
    spool = SpoolFile(Spool(str(root / "spool")), cast(Topics, None), "rows")
    rows = EncodedBatch("topic", 0, 1, bytearray(2 * BUFFER_BYTES))
    found["spool"] = said(lambda: spool.send([rows]))
    spool.remove()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)
    os._exit(0)  # what is still buffered for a file cannot be written
