"""The command `sparkonce compact`: merge small files, see `connectors.delta_sink.compaction`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sparkonce.connectors.delta_sink.target_size import DEFAULT_TARGET_BYTES
from sparkonce.jobs.shared.arguments import add_table, key_value, positive, show_bytes
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.words import counted

if TYPE_CHECKING:
    from sparkonce.connectors.delta_sink.compaction import Compaction, PartitionKey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_table(parser)
    parser.add_argument(
        "--target-bytes",
        type=positive,
        default=DEFAULT_TARGET_BYTES,
        metavar="N",
        help=f"merge files below this size into files of about this size (default: {DEFAULT_TARGET_BYTES})",
    )
    parser.add_argument(
        "--partition",
        type=key_value,
        action="append",
        default=[],
        metavar="COL=VALUE",
        help="only partitions with this value ('COL=' for null); may be given several times",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what there is to merge")


def run(options: argparse.Namespace) -> int:
    """Compact; 1 with a message if it failed, or if a partition was skipped because of constant concurrent changes."""
    from sparkonce.connectors.delta_sink.compaction import Compaction, CompactionError

    compaction = Compaction(options.table, dict(options.storage), options.target_bytes, dict(options.partition))
    try:
        return _compact(compaction, options.dry_run)
    except (OffsetStoreError, CompactionError) as error:
        print(f"sparkonce compact: {error}", file=sys.stderr)
        return 1


def _compact(compaction: Compaction, dry_run: bool) -> int:
    version, columns, plan = compaction.plan()
    files, size = sum(each.files for each in plan), sum(each.size for each in plan)
    print(
        f"table {compaction.location}, version {version}: {counted(files, 'file')} ({show_bytes(size)}) below "
        f"{show_bytes(compaction.target_bytes)} to merge, in {counted(len(plan), 'partition')}"
    )
    if dry_run:
        for each in plan:
            print(f"  {_name(columns, each.partition)}: {counted(each.files, 'file')}, {show_bytes(each.size)}")
        print("Nothing was changed: this was a dry run")
        return 0
    if not plan:
        return 0
    merged, left = [], 0
    for number, done in enumerate(compaction.merge(columns, plan), 1):
        where = f"  [{number}/{len(plan)}] {_name(columns, done.partition)}"
        if done.conflict is not None:
            left += 1
            print(f"{where}: left as it is: others changed its files again and again ({done.conflict})", flush=True)
            continue
        merged.append(done)
        print(f"{where}: {counted(done.files_before, 'file')} -> {done.files_after}", flush=True)
    print(
        f"merged {counted(sum(each.files_before for each in merged), 'file')} "
        f"({show_bytes(sum(each.bytes_before for each in merged))}) into "
        f"{sum(each.files_after for each in merged)} ({show_bytes(sum(each.bytes_after for each in merged))}). "
        "The old files stay for time travel until they are vacuumed"
    )
    return 1 if left else 0


def _name(columns: tuple[str, ...], partition: PartitionKey) -> str:
    from sparkonce.connectors.delta_sink.compaction import as_text

    values = zip(columns, partition, strict=True)
    return "/".join(f"{column}={as_text(value)}" for column, value in values) or "table"
