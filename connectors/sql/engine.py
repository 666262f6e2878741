"""DuckDB, locked: without files, network, extensions, settings, which a SELECT over Arrow does not need.

Why DuckDB and not DataFusion, measured with a WHERE and five expressions over batches of 50,000 rows with a struct of
ten fields, one thread: DataFusion 55 takes 2.2 ms a batch, starts in 2 ms in a forked worker and needs 65 MB; DuckDB
2.0 takes 4.3 ms, starts in 33 ms and needs 47 MB. Decoding the same batch from JSON takes 33 ms, so that the
difference is 6 % of a task. What decides is that DuckDB gives out its own parse tree (so that what is checked is what
runs), knows which row an error is of (``TRY``), and can be locked. Arrow types return unchanged from both: timestamps
in UTC, decimals, structs, arrays, maps, nulls.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparkonce.connectors.sql.letters import lower_of, upper_of
from sparkonce.connectors.sql.messages import in_words_of_spark
from sparkonce.connectors.sql.tree import WAY_OUT, Node
from sparkonce.options import OptionError

if TYPE_CHECKING:
    import duckdb

ROWS = "rows"
"""The name of a batch in the engine."""
MEMORY_LIMIT = "1GB"
"""The engine's memory limit for computations; the batches themselves do not count."""

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",  # Spark has one task for each core
    "async_threads": "1",
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # a table's name never means a Python variable
    "temp_directory": "",  # nothing is spilled
    "memory_limit": MEMORY_LIMIT,
    "ieee_floating_point_ops": "false",  # a division by zero fails, as Spark's does
}
_SETTINGS = (
    "TimeZone = 'UTC'",
    "enable_progress_bar = false",
    # The one moves what fails out of TRY, so that the whole batch fails; the other makes i + 1 > 5 an i > 4 that no
    # longer overflows.
    "disabled_optimizers = 'common_subexpressions,expression_rewriter'",
    "lock_configuration = true",
)
_MISSING = (
    "sql: DuckDB evaluates expressions and WHERE, and is not installed: pip install 'sparkonce[sql]' here and on the "
    "workers; a SELECT of plain columns, fields of structs and renames needs no engine"
)
_NOT_SHOWN = (
    "\n\n", "\nLINE ", " in expression (", ". You might need to add", "\n\tCandidate functions",
    " when casting from source column ",
)  # fmt: skip
_NO_STATEMENT = {"error": True, "error_message": "there is no statement"}
_NEGATIVE_INTERVAL = re.compile(r"\binterval\s*-\s*\d+\s*\Z", re.IGNORECASE)
"""The parser's form of a subtraction: the error is at the unit after it."""
_ONLY_SELECT = "expected one SELECT ... FROM records"
_OPERAND = r"\s*(?:'[^']*'|\w+|\S)?"
_SPELLINGS = tuple(
    (re.compile(rf"\b(?:{words})\Z", re.IGNORECASE), instead)
    for words, instead in (
        (rf"(?:RLIKE|REGEXP){_OPERAND}", "write rlike(x, 'pattern')"),
        (rf"DIV{_OPERAND}", "write x // y"),
        (r"LATERAL(?:\s+VIEW)?", "write explode(array) AS name in the list"),
        (r"LIKE\s+(?:ANY|ALL|SOME)", "write x LIKE 'pattern' for each pattern, with OR or AND between them"),
        (r"(?:SORT|CLUSTER|DISTRIBUTE)\s+BY", "leave it out: rows are taken batch by batch"),
        (r"(?:TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL|BOOLEAN)\s*\(", "write CAST(x AS type)"),
    )
)
"""What to write for Spark's syntax that the engine does not have; matched up to the token that the error is at."""
_TOKEN = re.compile(r"'[^']*'|\w+|\S")


_engines: dict[tuple[int, int], Engine] = {}
"""Those of this process, by process and thread; those from before a fork are neither used nor closed."""


def engine_here() -> Engine:
    """Return this thread's engine: starting one takes 20 to 30 ms. Raises OptionError if it is not installed."""
    key = os.getpid(), threading.get_ident()
    if key in _engines and _engines[key].is_broken:
        _engines.pop(key).close()
    if key not in _engines:
        _engines[key] = Engine()
    return _engines[key]


@atexit.register
def _close_engines() -> None:
    """Close this process's engines: one that has functions of Python prints warnings if the interpreter closes it."""
    for (process, _), engine in _engines.items():
        if process == os.getpid():
            engine.close()


class Engine:
    """One locked, empty database in memory; of one thread."""

    def __init__(self) -> None:
        """Start it. Raises OptionError if it is not installed."""
        try:
            import duckdb
        except ImportError as error:
            raise OptionError(_MISSING) from error
        self._duckdb = duckdb
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(":memory:", config=_CONFIG)
        for function in (lower_of, upper_of):
            self._connection.create_function(  # type: ignore[call-overload]  # the kind by its name
                function.__name__, function, ["VARCHAR"], "VARCHAR", type="arrow", null_handling="special"
            )
        for setting in _SETTINGS:
            self._connection.execute(f"SET {setting}")
        self._row_errors: tuple[type[Exception], ...] = (
            duckdb.ConversionException,
            duckdb.OutOfRangeException,
            duckdb.InvalidInputException,
        )
        self._expressions: dict[str, Node] = {}
        self.is_broken = False
        """Whether it failed for another reason than a row's values."""

    @property
    def row_errors(self) -> tuple[type[Exception], ...]:
        """The errors that a row's values cause; others are of the engine or the machine."""
        return self._row_errors

    def close(self) -> None:
        """Close the database; it is not used again."""
        self._connection.close()

    def statements(self, text: str) -> list[Node]:
        """Return the parse tree of each statement in ``text``. Raises OptionError if they are not SELECTs in SQL."""
        if not text.strip(" \t\r\n;"):
            raise OptionError(f"sql: the text is empty; {_ONLY_SELECT}")
        query = "SELECT json_serialize_sql(?, skip_null := true, skip_empty := true, skip_default := true)"
        try:
            found = self._connection.execute(query, [text]).fetchall()
        except self._duckdb.Error as error:
            raise OptionError(f"sql: {message_of(error)}; {_ONLY_SELECT}") from None
        try:
            tree: dict[str, Any] = json.loads(found[0][0]) if found else _NO_STATEMENT
        except RecursionError:
            raise OptionError("sql: expressions are nested too deeply") from None
        if tree["error"]:
            raise OptionError(f"sql: {_where(tree, text)}")
        statements: list[Node] = tree["statements"]
        return statements

    def expression(self, text: str) -> Node:
        """Return the parse tree of one of our expressions."""
        if text not in self._expressions:
            (statement,) = self.statements(f"SELECT {text}")
            self._expressions[text] = statement["node"]["select_list"][0]
        return self._expressions[text]

    def text_of(self, node: Node) -> str:
        """Return the SQL of a SELECT."""
        tree = json.dumps({"error": False, "statements": [{"node": node}]})
        found = self._connection.execute("SELECT json_deserialize_sql(?::JSON)", [tree]).fetchall()
        text: str = found[0][0]
        return text

    def schema_of(self, query: str, rows: pa.RecordBatch) -> pa.Schema:
        """Return the columns of a query over ``rows``, which are empty. Raises OptionError if it cannot be bound."""
        self._connection.register(ROWS, pa.table(rows))
        try:
            return self._connection.sql(query).to_arrow_table().schema
        except self._duckdb.Error as error:
            raise OptionError(f"sql: {message_of(error)}") from None
        finally:
            self._connection.unregister(ROWS)

    def run(self, query: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return a query's rows, in the order of ``rows``. Raises one of `row_errors` if a row's values cause it."""
        rows = _without_offsets(rows)
        # A stream, since the engine would let Arrow evaluate filters over a table.
        self._connection.register(ROWS, pa.RecordBatchReader.from_batches(rows.schema, [rows]))
        try:
            table = self._connection.sql(query).to_arrow_table()
        except self._duckdb.Error as error:
            self.is_broken = not isinstance(error, self._row_errors)
            raise
        finally:
            self._connection.unregister(ROWS)
        return one_batch(table)

    def is_aggregate(self, name: str) -> bool:
        """Return whether the catalog has an aggregate or window function of this name."""
        query = (
            "SELECT count(*) FROM duckdb_functions() "
            "WHERE function_name = ? AND function_type IN ('aggregate', 'window')"
        )
        return bool(self._connection.execute(query, [name]).fetchall()[0][0])


def _without_offsets(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose nested columns begin where their buffers do: the engine rejects other structs."""
    if not any(_has_offset(column) for column in rows.columns):
        return rows
    every = pa.array(np.arange(rows.num_rows, dtype=np.int32))
    columns = [column.take(every) if _has_offset(column) else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _has_offset(array: pa.Array) -> bool:
    if not pa.types.is_nested(array.type):
        return False
    if pa.types.is_struct(array.type):
        inner = [array.field(place) for place in range(array.type.num_fields)]
    else:
        inner = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    return bool(array.offset) or any(each.offset or _has_offset(each) for each in inner)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return all rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def message_of(error: Exception) -> str:
    """Return an error of the engine without its kind, its advice and its query, which is not what the user wrote."""
    message = str(error)
    ours = in_words_of_spark(message)
    if ours is not None:
        return ours
    for rest in _NOT_SHOWN:
        message = message.partition(rest)[0]
    return " ".join((message.partition(" Error: ")[2] or message).split())


def _where(tree: dict[str, Any], text: str) -> str:
    position = tree.get("position")
    if position is None:
        return f"{tree['error_message']}; {_ONLY_SELECT}"
    before = text[: int(position)]
    line, place = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return f"{tree['error_message']} (line {line}, character {place}): {_remedy(before, text[int(position) :])}"


def _remedy(before: str, rest: str) -> str:
    """Return what to do about a syntax error, by the text before it and from there on."""
    if _NEGATIVE_INTERVAL.search(before):
        return "write INTERVAL '-1' DAY"
    token = _TOKEN.match(rest)
    read = before + (token[0] if token else "")
    instead = next((instead for words, instead in _SPELLINGS if words.search(read)), None)
    return instead or f"{_ONLY_SELECT}; if only Spark can read it, {WAY_OUT}"
