"""The command `sparkonce clean`: remove data files that no commit names (orphans, see `housekeeping.orphans`)."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from sparkonce.jobs.shared.arguments import add_table, duration_s, show_bytes, show_columns, show_time
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.words import counted

if TYPE_CHECKING:
    from sparkonce.jobs.cli.housekeeping.orphans import FolderFile

LEAST_AGE_S = 3600
MAX_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_table(parser)
    parser.add_argument(
        "--older-than", type=duration_s, default="7d", metavar="AGE", help="how old a file must be (default: 7d)"
    )
    parser.add_argument("--apply", action="store_true", help="delete; without this, only say what would be deleted")
    parser.add_argument(
        "--force-younger", action="store_true", help="allow an age below 1h: only if nothing writes to the table"
    )


def run(options: argparse.Namespace) -> int:
    """Find orphans, and delete them if requested; 1 with a message if that failed."""
    if options.older_than < LEAST_AGE_S and not options.force_younger:
        print(
            "sparkonce clean: --older-than is below 1h: the files of a batch that is running look like orphans until "
            "they are committed, and deleting them would break the table. If nothing writes to it now, add "
            "--force-younger",
            file=sys.stderr,
        )
        return 1
    try:
        return _clean(options)
    except OffsetStoreError as error:
        print(f"sparkonce clean: {error}", file=sys.stderr)
        return 1


def _clean(options: argparse.Namespace) -> int:
    from sparkonce.jobs.cli.housekeeping.orphans import TableFolder

    folder = TableFolder.open(options.table, dict(options.storage))
    found = folder.find(options.older_than * 1000, int(time.time() * 1000))
    print(f"table {options.table}, version {found.version}; data files that its log names: {found.named}")
    print(f"{_count(found.orphans)} that no commit names, older than {_age(options.older_than)}")
    _show(found.orphans)
    if found.young:
        print(f"{_count(found.young)} that no commit names, but younger: kept")
    if not found.orphans:
        return 0
    if not options.apply:
        print("Nothing was deleted. To delete them, repeat with --apply")
        return 0
    deleted = folder.delete(found)
    print(f"deleted {_count(deleted.files)}")
    if deleted.committed_meanwhile:
        print(f"{_count(deleted.committed_meanwhile)} committed meanwhile: kept")
    for path, reason in deleted.failed.items():
        print(f"sparkonce clean: cannot delete {path}: {reason}", file=sys.stderr)
    return 1 if deleted.failed else 0


def _count(files: tuple[FolderFile, ...]) -> str:
    return f"{counted(len(files), 'file')} ({show_bytes(sum(file.size for file in files))})"


def _age(seconds: int) -> str:
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds and seconds % size == 0:
            return counted(seconds // size, noun)
    return counted(seconds, "second")


def _show(files: tuple[FolderFile, ...]) -> None:
    if files:
        print(
            show_columns(
                [(file.path, show_bytes(file.size), show_time(file.modified_ms)) for file in files[:MAX_SHOWN]]
            )
        )
    if len(files) > MAX_SHOWN:
        print(f"  … and {len(files) - MAX_SHOWN} more")
