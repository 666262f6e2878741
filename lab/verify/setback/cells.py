"""A cell of the set-back dimension: a checkpoint, a query, its state store and its sink.

Spark's checkpoint and the result are two places, and a checkpoint can go back without the result: a backup is restored,
a file is lost, two copies of it are used in turn. The exactly-once guarantee then requires the right rows, or an
error that names the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import product

from sparkonce.exactly_once.guarantee import Guarantee


class SetBack(Enum):
    """What happens to the checkpoint between two runs, or to the table without it."""

    NOTHING = "nothing"
    """The control: the expected rows and an undisturbed query must agree."""
    COPY_1 = "copy-of-1-batch-ago"
    COPY_2 = "copy-of-2-batches-ago"
    COPY_10 = "copy-of-10-batches-ago"
    OTHER_LIMITS = "copy-with-other-limits"
    """A copy of two batches ago; then smaller batches of records, or larger ones of files."""
    NO_DATA = "crash-without-data"
    """The query fails at the start of a batch without data; then a copy of two batches ago is restored."""
    OFFSETS_DELETED = "offsets-deleted"
    """The newest file in ``offsets`` is deleted."""
    COMMITS_DELETED = "commits-deleted"
    """The newest file in ``commits`` is deleted."""
    TWIN = "twin"
    """Two copies of one checkpoint are used in turn."""
    REWOUND = "table-rewound"
    """The checkpoint is kept, and `sparkonce offsets rewind --restore` rewinds the table."""
    TABLE_COPY = "table-from-a-copy"
    """The checkpoint is kept, and the table's folder is restored from a copy of two batches ago."""
    TABLE_DELETED = "table-deleted"
    """The checkpoint is kept, and the table's folder is deleted: a new or another table with an old checkpoint."""


class Query(Enum):
    """The query's transformation of its topic's records."""

    STATELESS = "stateless"
    WINDOW = "window"
    """Counts per window of event time, each written once, when the watermark has passed the window."""
    WINDOW_UPDATE = "window-update"
    """The same counts, merged whenever they change."""
    DEDUPLICATED = "dropDuplicates"
    JOIN = "join"
    """A left outer stream-stream join: a row without a match is written when the watermark has passed."""
    STATE = "applyInPandasWithState"
    """Numbers the records of each key with arbitrary state."""
    UNION = "union"
    """With a file source beside."""
    FILES = "files"
    """Only a file source."""


class StateStore(Enum):
    """The store of the query's state."""

    NONE = "none"
    HDFS = "hdfs"
    ROCKSDB = "rocksdb"


class Sink(Enum):
    """The sink of the rows."""

    APPEND = "append"
    MERGE = "merge"
    APPEND_WRITER = "append-writer"
    """`AppendWriter`, by delta-spark."""
    TOPIC = "topic"
    DEAD_LETTERS = "dead-letters"
    FOREACH_BATCH = "foreach-batch"
    """`ForeachBatch` into a database (SQLite)."""
    DELTA_SPARK = "delta-spark"
    """Delta's own sink, to compare with: it has no guarantee to check, and none of its cells is wrong."""


SINKS_BY_DELTA_SPARK = frozenset({Sink.MERGE, Sink.APPEND_WRITER, Sink.DELTA_SPARK})
STATELESS_QUERIES = frozenset({Query.STATELESS, Query.UNION, Query.FILES})
OF_THE_TABLE = frozenset({SetBack.REWOUND, SetBack.TABLE_COPY, SetBack.TABLE_DELETED})
"""Faults that do not change the checkpoint."""
WITH_WATERMARK = frozenset({Query.WINDOW, Query.WINDOW_UPDATE, Query.DEDUPLICATED, Query.JOIN})
"""Queries for which Spark runs batches without data, when the watermark has moved."""


@dataclass(frozen=True, slots=True, order=True)
class SetBackCell:
    """One checkpoint set back."""

    setback: SetBack
    query: Query
    state: StateStore
    sink: Sink

    @property
    def guarantee(self) -> Guarantee:
        """The strictest guarantee, for all cells."""
        return Guarantee.EXACTLY_ONCE

    @property
    def compares_only(self) -> bool:
        """Whether the sink is not ours."""
        return self.sink is Sink.DELTA_SPARK

    @property
    def name(self) -> str:
        """A name that is a valid file name, and the same in every run."""
        state = [] if self.state is StateStore.NONE else [self.state.value]
        return "_".join(["setback", self.setback.value, self.query.value, *state, self.sink.value])


def can_occur(cell: SetBackCell) -> bool:
    """Whether such a query exists, and has such a batch."""
    if (cell.state is StateStore.NONE) is not (cell.query in STATELESS_QUERIES):
        return False
    if cell.setback in OF_THE_TABLE and cell.sink is not Sink.APPEND:  # rows and offsets in one table
        return False
    if cell.setback is SetBack.NO_DATA and cell.query not in WITH_WATERMARK:
        return False
    if cell.query is Query.WINDOW_UPDATE:  # its rows replace others, which only a MERGE can do
        return cell.sink is Sink.MERGE
    if cell.sink is Sink.DEAD_LETTERS:  # rows of a query with state do not name a record
        return cell.query is Query.STATELESS
    return True


@cache
def all_setbacks() -> tuple[SetBackCell, ...]:
    """Return every cell that can occur, in one fixed order, those of other sinks than ours last."""
    return tuple(sorted(_possible(), key=lambda cell: cell.compares_only))


def _possible() -> Iterator[SetBackCell]:
    cells = (SetBackCell(*values) for values in product(SetBack, Query, StateStore, Sink))
    return (cell for cell in cells if can_occur(cell))


def named(*names: str) -> tuple[SetBackCell, ...]:
    """Return the cells of these names."""
    known = {cell.name: cell for cell in all_setbacks()}
    return tuple(known[name] for name in names)


@cache
def quick_setbacks() -> frozenset[SetBackCell]:
    """Return the few cells of every test run: queries with and without state, batches without data, tables."""
    return frozenset(
        named(
            "setback_crash-without-data_window_hdfs_append",
            "setback_copy-with-other-limits_join_rocksdb_topic",
            "setback_twin_stateless_dead-letters",
            "setback_table-rewound_files_append",
        )
    )


@cache
def pairwise_setbacks() -> frozenset[SetBackCell]:
    """Return some cells of most ways to set back, and of all sinks, queries and state stores."""
    return frozenset(
        named(
            "setback_crash-without-data_window_hdfs_append",
            "setback_copy-with-other-limits_files_foreach-batch",
            "setback_copy-with-other-limits_join_rocksdb_topic",
            "setback_copy-of-1-batch-ago_applyInPandasWithState_hdfs_append",
            "setback_commits-deleted_window-update_rocksdb_merge",
            "setback_offsets-deleted_union_append",
            "setback_twin_dropDuplicates_rocksdb_topic",
            "setback_twin_stateless_dead-letters",
            "setback_table-rewound_files_append",
            "setback_table-from-a-copy_window_rocksdb_append",
        )
    )
