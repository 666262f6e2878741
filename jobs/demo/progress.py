"""Progress of long steps: a bar on a terminal, a line for every tenth elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINES = 10


@contextlib.contextmanager
def progress(console: Console, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far a step is; the block calls what it is given with the count so far."""
    if console.is_terminal:
        columns = (
            TextColumn("{task.description:<46}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(label, total=total)
            yield lambda count: bar.update(task, completed=count)
    else:
        shown = -1

        def line(count: int) -> None:
            nonlocal shown
            tenth = count * LINES // max(total, 1)
            if tenth > shown:
                shown = tenth
                console.print(f"  {label}: {count:,} of {total:,}", soft_wrap=True)

        yield line


@dataclass(slots=True)
class TableWatch:
    """The table's newest version and its number of rows, by its log; -1 and 0 before it exists."""

    path: str
    version: int = -1
    rows: int = 0
    table: DeltaTable | None = None

    def refresh(self) -> TableWatch:
        """Look again, cheaply: only new commits are read."""
        if self.table is None:
            if not DeltaTable.is_deltatable(self.path):
                return self
            self.table = DeltaTable(self.path)
        else:
            self.table.update_incremental()
        if self.table.version() != self.version:
            self.version = self.table.version()
            counts = pa.table(self.table.get_add_actions())["num_records"]
            self.rows = pc.sum(counts).as_py() or 0
        return self
