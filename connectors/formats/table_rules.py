"""What a table asks of rows and only Spark can evaluate, added to the plan of a query by `write_stream`.

`connectors.delta_sink.rules` evaluates a table's own SQL where the rows are written, if its results are known to be
Spark's. A condition outside of that is checked by Spark itself: a filter behind the query's last operator, which keeps
every row, and fails at a row that breaks the condition. The option ``checkedRules`` names these rules to the sink,
which refuses any other, such as one that is added to the table later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from sparkonce.connectors.delta_sink.features import TableFacts
from sparkonce.connectors.delta_sink.options import CHECKED_RULES, FORMAT, SinkOptions
from sparkonce.connectors.delta_sink.rules import OTHER_VALUE, BySpark, may_read
from sparkonce.connectors.delta_sink.table import cached_store
from sparkonce.connectors.kafka_source.hand_over import COLUMN as RANGES
from sparkonce.connectors.values.letters import COLUMN as LETTERS
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.options import OptionError


def with_table_rules(rows: DataFrame, given: Mapping[str, str]) -> tuple[DataFrame, dict[str, str]]:
    """Return rows that Spark checks, or completes, as their table asks, and the option of the sink that says so.

    Raises:
        OptionError: if the query lacks a column that a rule reads, or has it in another type.
    """
    if RANGES in rows.columns:
        return rows, {}
    options = SinkOptions.read(given)
    try:
        facts = TableFacts.of(cached_store(options).snapshot_unchecked().state)
    except OffsetStoreError:  # there is no table yet, or the sink says why it cannot be read
        return rows, {}
    rules = sorted(facts.rules.by_spark, key=lambda each: each.column is None)  # a condition may read what is computed
    if not rules:
        return rows, {}
    is_letter = f.col(LETTERS).isNotNull() if LETTERS in rows.columns else f.lit(False)
    for name in (each for each in facts.partition_columns if _has(rows, each)):
        if isinstance(facts.schema[name].dataType, StringType):  # a table has no empty text there
            rows = rows.withColumn(name, f.when(f.col(_quoted(name)) != "", f.col(_quoted(name))))
    for rule in rules:
        _check_reads(rule, rows, facts.schema)
        if rule.column is not None and not _has(rows, rule.column):
            rows = rows.withColumn(rule.column, f.when(~is_letter, _value(rule, facts.schema, rule.column)))
    for rule in rules:
        is_kept = is_letter | f.coalesce(_condition(rule, facts.schema), f.lit(False))
        rows = rows.filter(f.when(is_kept, f.lit(True)).otherwise(_raised(rule)))
    return rows, {CHECKED_RULES: json.dumps([each.what for each in rules])}


def _condition(rule: BySpark, table: StructType) -> Column:
    if rule.column is None:
        return f.expr(rule.text)
    return f.col(_quoted(rule.column)).eqNullSafe(_value(rule, table, rule.column))


def _value(rule: BySpark, table: StructType, column: str) -> Column:
    """Return what a column is generated as."""
    return f.expr(rule.text).cast(table[column].dataType)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _raised(rule: BySpark) -> Column:
    """Return what is evaluated for a row that breaks a rule."""
    broken_by = " is not kept" if rule.column is None else OTHER_VALUE
    return f.raise_error(f.lit(f"{FORMAT}: {rule.what}{broken_by}")).cast("boolean")


def _check_reads(rule: BySpark, rows: DataFrame, table: StructType) -> None:
    """Check that Spark evaluates a rule on the values that the table gets."""
    for column in table.fields:
        if column.name == rule.column or not may_read(rule.text, column.name):
            continue
        own = next((each for each in rows.schema.fields if each.name.lower() == column.name.lower()), None)
        if own is None or own.dataType != column.dataType:
            kind = column.dataType.simpleString()
            has = "lacks it" if own is None else f"has it as {own.dataType.simpleString()}"
            raise OptionError(
                f"{FORMAT}: {rule.what}; this reads column {_quoted(column.name)} ({kind}), and the query {has}: add "
                "the column, or cast it, so that Spark can evaluate that as the table does"
            )


def _has(rows: DataFrame, name: str) -> bool:
    return any(each.lower() == name.lower() for each in rows.columns)
