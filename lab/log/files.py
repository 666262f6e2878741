"""The judge of a log for tables with real files, whose statistics are other ones: `judge_table` judges all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from lab.log.judge import CHECKPOINT, COMMIT, Json, Judge, Table
from sparkonce.offset_store.locations import Location

_LOG = "_delta_log/"


class FilesJudge(Judge):
    """Judges a log as its files land; its data files have one row for each offset."""

    def files(self, where: str, adds: Iterable[Mapping[str, Any]], size_of: Callable[[str], int | None]) -> None:
        """Judge whether files are there, with the sizes that the log says; ``size_of`` returns that of a path."""
        for add in adds:
            path = unquote(add["path"])
            if size_of(path) != add["size"]:
                self.fail("files", f"{where} has no file {path} of {add['size']} bytes")

    def _ours(self, before: Table, after: Table, actions: list[tuple[str, Json]]) -> None:
        adds = {action["path"] for kind, action in actions if kind == "add"}
        if adds & before.adds.keys() or any(kind == "remove" for kind, _ in actions):
            self.fail("rows", f"version {after.version} is no append of new files")

    def _rows(self, where: str, files: list[Json], offsets: set[tuple[str, int, int]]) -> None:
        if sum(each["numRecords"] for each in files) != len(offsets):
            self.fail("rows", f"{where} has {files}, and its record says {sorted(offsets)}")
        if self.guarantee != "at-least-once" and offsets & self.covered:
            self.fail("duplicates", f"{where} has rows that were written: {sorted(offsets & self.covered)}")
        self.covered |= offsets


def judge_table(table: str, storage_options: Mapping[str, str], guarantee: str) -> FilesJudge:
    """Judge a table as it is; nothing of its log has been cleaned up.

    Raises:
        OSError: if it cannot be read.
    """
    filesystem, root = Location.parse(table).filesystem(storage_options)
    infos = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    paths = {info.path.removeprefix(root).lstrip("/"): info for info in infos if info.type is fs.FileType.File}
    names = sorted(path.removeprefix(_LOG) for path in paths if path.startswith(_LOG))
    judge = FilesJudge(guarantee)

    def put(name: str) -> None:
        with filesystem.open_input_file(paths[f"{_LOG}{name}"].path) as file:
            judge.put(name, file.read(), 0, is_new=True)

    for name in filter(COMMIT.fullmatch, names):
        put(name)
    if judge.table.version == sum(COMMIT.fullmatch(name) is not None for name in names) - 1:
        for name in filter(CHECKPOINT.fullmatch, names):
            put(name)
    judge.files(
        "the newest version", judge.table.adds.values(), lambda path: paths[path].size if path in paths else None
    )
    return judge
